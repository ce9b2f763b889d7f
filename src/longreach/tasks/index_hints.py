"""Index hints: position IDs written out as tokens, in front of the tokens that carry them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws, stream
from longreach.tasks.base import Sample, Task
from longreach.tasks.parity_scratchpad import ParityScratchpad
from longreach.tasks.relabelling import increasing, within_prompt
from longreach.text import SplitName


@register("task", "index_hints")
@dataclass(frozen=True, kw_only=True)
class IndexHints(Task):
    """Any task with a coupling, each token with a hint in front.  #4 1 #7 0 #8 ; #2 =  ->  #4 1 #7 1 #0 .

    Index hints (Zhou et al., ICLR 2024) let a plain transformer read from the tokens where it is: what coupled IDs tell
    the encoding, hints tell the embedding, and the model writes them as it would any token.  A hint names the
    published coupled ID of its token, one for each level that grows.  `#0` stands for the reserved ID, before tokens
    that are drawn, and before signs that get no hint, as those of `addition` and `subtraction`.
    The numbers are a random increasing choice among all hints, so that training shows every one: ours; the authors use
    consecutive ones from a random start.  Every answer token has its hints, and they count as answer.
    """

    paper = "Zhou et al., ICLR 2024"

    of: Task = field(default_factory=ParityScratchpad)
    """The task that gets hints."""
    num_hints: int = 1000
    """Hints that there are, besides #0."""

    def __post_init__(self) -> None:
        if not any(level.grows for level in self.of.coupling_levels):
            raise BadInput(f"index_hints needs a task with a coupling that grows, which {self.of.name} has not")
        if self.num_hints < 1:
            raise BadInput(f"index_hints.num_hints must be at least 1, got {self.num_hints}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return (*self.of.vocabulary, *(f"#{number}" for number in range(self.num_hints + 1)))

    @property
    def stop_token(self) -> int | None:
        return self.of.stop_token

    @property
    def has_given(self) -> bool:
        return self.of.has_given

    @property
    def draws_on_host(self) -> bool:
        return self.of.draws_on_host

    @property
    def reads_files(self) -> bool:
        return self.of.reads_files

    @property
    def fingerprint(self) -> str:
        return self.of.fingerprint

    def held_out(self, split: SplitName, longest: int = 0) -> "IndexHints":
        return replace(self, of=self.of.held_out(split, longest))

    def check_length(self, length: int) -> None:
        self.of.check_length(length)
        numbers = torch.arange(16)
        sample = self.of.sample(torch.full_like(numbers, length), stream(0, "look", numbers), length)
        self._check_hints(sample)

    def max_tokens(self, length: int) -> int:
        return self._stride * self.of.max_tokens(length)

    def max_answer(self, length: int) -> int:
        return self._stride * self.of.max_answer(length)

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        plain = self.of.sample(length, draws, max_length)
        in_prompt = torch.arange(plain.tokens.shape[1], device=length.device) < plain.prompt_tokens[:, None]
        hints = []
        for number, ids in enumerate(self._ids(plain).unbind(1)):
            drawn = draws.child(f"hints {number}")
            hints.append(within_prompt(increasing, ids, in_prompt, self.num_hints, drawn))
        return self._with_hints(plain, torch.stack(hints, dim=1))

    def solve(self, sample: Sample, row: int) -> list[int]:
        if not (self.of.coupling_by_rule or sample.hidden):
            raise BadInput(f"index_hints: the hints of an answer of {self.of.name} depend on the answer")
        plain = self._without_hints(sample.rows(row, row + 1))
        start, ids = int(plain.prompt_tokens[0]), self._ids(plain)[0].tolist()
        written = sample.tokens[row].tolist()
        known = [{ids[g][at]: written[at * self._stride + g] for at in range(start)} for g in range(len(ids))]
        answer = []
        for number, token in enumerate(self.of.solve(plain, 0)):
            answer += [self._hint(of_level[start + number], hints) for of_level, hints in zip(ids, known, strict=True)]
            answer.append(token)
        return answer

    def _hint(self, wanted: int, known: Mapping[int, int]) -> int:
        """The hint of an ID: as in the prompt, or counted on from the prompt's last."""
        if not wanted:
            return self._zero
        top = max(known)
        return known.get(wanted, known[top] + wanted - top)

    def sparsity(self, length: int) -> int:
        return self.of.sparsity(length) + 1

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        """A token needs what it needs without hints.  Its hint needs the same, and the hint it repeats."""
        plain = self._without_hints(sample)
        needs, ids = self.of.depends_on(plain), self._ids(plain)
        b, t = plain.tokens.shape
        index = torch.arange(t, device=sample.tokens.device)
        in_prompt = index < plain.prompt_tokens[:, None]
        predicted = needs.any(2)
        found = torch.zeros(b, t, self._stride, t, self._stride, dtype=torch.bool, device=sample.tokens.device)
        found[:, :, :, :, -1] = needs[:, :, None]
        for level, one in enumerate(ids.unbind(1)):
            top = one.masked_fill(~in_prompt, 0).amax(1, keepdim=True)
            repeated = one.minimum(top)  # beyond the prompt hints go on counting from the largest
            first = (repeated[:, :, None] == one[:, None, :]).int().argmax(2)
            source = (first[:, :, None] == index) & (repeated > 0)[:, :, None] & predicted[:, :, None]
            found[:, :, level, :, level] = source
        return found.view(b, t * self._stride, t * self._stride)

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        hints = sample.tokens.view(len(sample.tokens), -1, self._stride)[:, :, :-1].transpose(1, 2)
        again = self.of.redraw(self._without_hints(sample), draws)
        return self._with_hints(again, (hints - self._zero).clamp(min=0))

    def parse(self, text: str) -> list[int]:
        """Return the tokens of a prompt.  Its hints may be typed too, as `show` prints them; else they count from 1."""
        if text.split()[:1] and text.split()[0] in self.vocabulary[self._zero :]:
            return self._parse_hinted(text)
        plain = self.of.prompt_batch(self.of.parse(text), 1)
        self._check_hints(plain)
        hinted = self._with_hints(plain, self._ids(plain))
        return hinted.tokens[0, : int(hinted.prompt_tokens[0])].tolist()

    def _parse_hinted(self, text: str) -> list[int]:
        tokens, last = super().parse(text), self._stride - 1
        plain = tokens[last :: self._stride]
        is_hint = [token >= self._zero for token in tokens]
        if is_hint != [*([True] * last), False] * len(plain) or self.of.parse(self.of.spell(plain)) != plain:
            raise BadInput(
                f"index_hints: {text!r} is no prompt: {last} hints stand before each token of {self.of.name}"
            )
        return tokens

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return self.of.prompt_length(tokens[self._stride - 1 :: self._stride])

    def _check_hints(self, plain: Sample) -> None:
        used = int(self._ids(plain).max())
        if used > self.num_hints:
            length = int(plain.length.max())
            raise BadInput(f"index_hints: length {length} needs {used} hints, num_hints is {self.num_hints}")

    @property
    def _stride(self) -> int:
        """A token and its hints."""
        return 1 + sum(level.grows for level in self.of.coupling_levels)

    @property
    def _zero(self) -> int:
        """The token #0."""
        return len(self.of.vocabulary)

    def _ids(self, plain: Sample) -> Int[Tensor, "b levels t"]:
        """At the levels that grow; reserved where a token is drawn, for its place would give the rest away."""
        ids = self.of.hint_ids(plain)
        growing = [ids[:, number] for number, level in enumerate(self.of.coupling_levels) if level.grows]
        return torch.stack(growing, dim=1).masked_fill(plain.given[:, None], 0)

    def _with_hints(self, plain: Sample, hints: Int[Tensor, "b levels t"]) -> Sample:
        stride, index = self._stride, torch.arange(plain.tokens.shape[1], device=plain.tokens.device)
        inside = index < plain.num_tokens[:, None]
        words = torch.where(inside[:, None], self._zero + hints, 0)
        return Sample(
            tokens=torch.cat([words, plain.tokens[:, None]], dim=1).transpose(1, 2).flatten(1),
            answer=plain.answer.repeat_interleave(stride, dim=1),
            given=plain.given.repeat_interleave(stride, dim=1),
            length=plain.length,
            num_tokens=plain.num_tokens * stride,
            prompt_tokens=plain.prompt_tokens * stride,
            hidden=plain.hidden,
        )

    def _without_hints(self, sample: Sample) -> Sample:
        last = self._stride - 1
        return replace(
            sample,
            tokens=sample.tokens[:, last :: self._stride],
            answer=sample.answer[:, last :: self._stride],
            given=sample.given[:, last :: self._stride],
            num_tokens=sample.num_tokens // self._stride,
            prompt_tokens=sample.prompt_tokens // self._stride,
        )
