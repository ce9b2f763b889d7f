"""IDs that count tokens: 0, 1, 2, ..., plain or from a random start."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config import Bounds
from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.positions.ids.base import IdPolicy, without_padding
from longreach.seeding import Draws
from longreach.tasks import Sample, Task


@register("ids", "sequential")
@dataclass(frozen=True, kw_only=True)
class Sequential(IdPolicy):
    """Token t has ID t."""

    def assign(self, task: Task, sample: Sample) -> Int[Tensor, "b g t"]:
        batch, width = sample.tokens.shape
        return torch.arange(width, device=sample.tokens.device).expand(batch, 1, width)


@dataclass(frozen=True, kw_only=True)
class _UpToMaxId(Sequential):
    """Counting IDs that training moves around below max_id."""

    def __post_init__(self) -> None:
        if self.max_id < 1:
            raise ValueError(f"{self.name}.max_id must be at least 1, got {self.max_id}")

    def check(self, task: Task, longest: Sample) -> None:
        num_tokens = longest.tokens.shape[1]  # the most that a sample of that length can have
        if self.max_id < num_tokens - 1:
            raise BadInput(f"{self.name}.max_id={self.max_id} is too small for samples of {num_tokens} tokens")

    def room(self, sample: Sample) -> Int[Tensor, "b 1"]:
        """How far each sample's last ID may move."""
        return (self.max_id + 1 - sample.num_tokens)[:, None]


@register("ids", "random_start")
@dataclass(frozen=True, kw_only=True)
class RandomStart(_UpToMaxId):
    """Token t has ID s + t, where s is uniform such that the last ID is at most max_id; s = 0 in evaluation."""

    def relabel(self, task: Task, sample: Sample, ids: Int[Tensor, "b g t"], draws: Draws) -> Int[Tensor, "b g t"]:
        return ids + draws.below("start", self.room(sample) + 1, 1)[:, None]


@register("ids", "pose")
@dataclass(frozen=True, kw_only=True)
class Pose(_UpToMaxId):
    """Positional skip-wise training (Zhu et al., ICLR 2024): cut the sample into chunks and skip IDs between them.

    Chunk 0 starts at 0; the skip before chunk i is uniform between the skip before chunk i-1 and the largest
    that keeps the last ID at most max_id.  Cuts and skips are drawn anew at every step.  The paper leaves the cuts
    open; the authors' code has two chunks, the first of at most half of the sample (`first_chunk: half`), and draws
    once per data set instead of at every step.
    """

    paper = "Zhu et al., ICLR 2024"

    chunks: Annotated[int, Bounds(high=1000)] = 2
    """Number of chunks."""
    bounded_levels: bool = False
    """Whether tokens of the prompt also carry the IDs of the task's coupling that are bounded, such as the place of a
    token in its statement; tokens of the answer carry 0 there."""
    first_chunk: Literal["any", "half"] = "any"
    """The first chunk has 1..n-1 of n tokens, or 1..(n+1)//2 as in the authors' code, which has two chunks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chunks < 1:
            raise ValueError(f"pose.chunks must be at least 1, got {self.chunks}")
        if self.first_chunk not in ("any", "half"):
            raise ValueError(f"pose.first_chunk must be any or half, got {self.first_chunk!r}")
        if self.first_chunk == "half" and self.chunks != 2:
            raise ValueError(f"pose.first_chunk: half needs chunks: 2, got {self.chunks}")

    def check(self, task: Task, longest: Sample) -> None:
        super().check(task, longest)
        if self.bounded_levels and len(self.level_sizes(task)) == 1:
            raise BadInput(f"pose.bounded_levels: the coupling of {task.name} has no bounded level")

    def level_sizes(self, task: Task) -> tuple[int, ...]:
        bounded = [level.size for level in task.coupling_levels if not level.grows]
        return (0, *bounded) if self.bounded_levels else (0,)

    def assign(self, task: Task, sample: Sample) -> Int[Tensor, "b g t"]:
        counted = super().assign(task, sample)
        if not self.bounded_levels:
            return counted
        bounded = [number for number, level in enumerate(task.coupling_levels) if not level.grows]
        in_prompt = counted < sample.prompt_tokens[:, None, None]
        return torch.cat([counted, task.coupling(sample, "aligned")[:, bounded] * in_prompt], dim=1)

    def relabel(self, task: Task, sample: Sample, ids: Int[Tensor, "b g t"], draws: Draws) -> Int[Tensor, "b g t"]:
        if self.chunks == 1:
            return ids
        # cuts in 1..num_tokens-1, so that chunk 0 is never empty; two equal cuts make an empty chunk
        most = (sample.num_tokens + 1) // 2 if self.first_chunk == "half" else sample.num_tokens - 1
        inner = most.clamp(min=1)[:, None]
        cuts = (1 + draws.below("cuts", inner, self.chunks - 1)).sort(1).values
        room = self.room(sample)
        skip = torch.zeros_like(room)
        shift = torch.zeros_like(ids[:, 0])
        for chunk in range(1, self.chunks):
            larger = skip + draws.below(f"skip {chunk}", room - skip + 1, 1)
            shift = shift + (larger - skip) * (ids[:, 0] >= cuts[:, chunk - 1 : chunk])
            skip = larger
        return torch.cat([ids[:, :1] + shift[:, None], ids[:, 1:]], dim=1)


@register("ids", "uniform_pose")
@dataclass(frozen=True, kw_only=True)
class UniformPose(_UpToMaxId):
    """Two chunks with a skip between them, such that all distances are trained alike: a distance between a sample's own
    and max_id is shown by the same share of samples, whichever it is.

    A skip u before the second chunk of n tokens in all shows the distances u+1..u+n-1.  So skips are drawn from the
    largest possible one downwards in steps of n-1: the distances that they show do not overlap and leave none out.
    With `pose`, whose skips are uniform, the largest distances are rare.  Ours.
    """

    def relabel(self, task: Task, sample: Sample, ids: Int[Tensor, "b g t"], draws: Draws) -> Int[Tensor, "b g t"]:
        inner = (sample.num_tokens - 1).clamp(min=1)[:, None]
        room = self.room(sample)
        cut = 1 + draws.below("cut", inner, 1)
        skip = room - inner * draws.below("skip", room // inner + 1, 1)
        return ids + skip[:, None] * (ids >= cut[:, None])


@register("ids", "randomized")
@dataclass(frozen=True, kw_only=True)
class Randomized(_UpToMaxId):
    """A uniform subset of 0..max_id, in order, drawn anew for each sample (Ruoss et al., ACL 2023).

    Tests draw a subset too, as the authors' do; a test sample of more than max_id + 1 tokens is refused.  A training
    sample of n tokens gets n IDs.  In a test the number of tokens must not give the answer's length away: the subset
    has as many IDs as the longest sample of that length (`max_tokens`), and the sample uses the first of them.  So one
    pass and generation read the same IDs.  `test: dense` tests with 0, 1, 2, ..., which training hardly ever shows.
    """

    paper = "Ruoss et al., ACL 2023"

    test: Literal["random", "dense"] = "random"
    """IDs in tests: a random subset of 0..max_id for each sample, or 0, 1, 2, ..."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.test not in ("random", "dense"):
            raise ValueError(f"{self.name}.test must be random or dense, got {self.test!r}")

    @property
    def draws_test_ids(self) -> bool:
        return self.test == "random"

    def check_test(self, task: Task, num_tokens: int) -> None:
        if self.draws_test_ids and num_tokens > self.max_id + 1:
            raise BadInput(
                f"{self.name}.max_id={self.max_id} is too small to test samples of {num_tokens} tokens:"
                f" raise it, or set test: dense"
            )

    def relabel(self, task: Task, sample: Sample, ids: Int[Tensor, "b g t"], draws: Draws) -> Int[Tensor, "b g t"]:
        return self._subset(sample.num_tokens, ids.shape[2], draws)

    def evaluation_ids(self, task: Task, sample: Sample, draws: Draws | None = None) -> Int[Tensor, "b g t"]:
        if not self.draws_test_ids:
            return super().evaluation_ids(task, sample)
        if draws is None:
            raise BadInput(
                f"{self.name} draws the IDs of tests: give draws that number the samples, or set test: dense"
            )
        most = {length: task.max_tokens(length) for length in set(sample.length.tolist())}
        sizes = torch.tensor([most[length] for length in sample.length.tolist()], device=sample.length.device)
        sizes = sizes.maximum(sample.num_tokens)  # a typed prompt may leave room for more
        self.check_test(task, int(sizes.max()))
        width = max(int(sizes.max()), sample.tokens.shape[1])
        return without_padding(self._subset(sizes, width, draws)[:, :, : sample.tokens.shape[1]], sample)

    def _subset(self, sizes: Int[Tensor, "b"], width: int, draws: Draws) -> Int[Tensor, "b 1 {width}"]:
        """Return a sorted subset of so many IDs for each row, padded to `width` with arbitrary IDs."""
        # the subset of a row must not depend on how wide its batch is: take the row's own number of smallest keys
        order = draws.bits("subset", self.max_id + 1).topk(min(width, self.max_id + 1), dim=1, largest=False).indices
        beyond = torch.arange(order.shape[1], device=order.device) >= sizes[:, None]
        chosen = order.masked_fill(beyond, self.max_id + 1).sort(1).values.clamp(max=self.max_id)
        return torch.nn.functional.pad(chosen, (0, width - chosen.shape[1]))[:, None]
