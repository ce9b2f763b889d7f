"""Generation with a cache: the model reads a prompt and writes until its own stop token.

With predicted IDs it writes pairs: a token, then the position ID the token gets, and both are read in the next step.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.decoding.sampling import SamplingConfig
from longreach.errors import BadInput
from longreach.model import RESERVED, Cache, Model, Past, prompt_ladders
from longreach.positions.ids import IdPolicy
from longreach.seeding import Draws
from longreach.tasks import Sample, Task


@dataclass(frozen=True)
class Generated:
    """The whole sequences, prompts included; after the stop token there is padding."""

    tokens: Int[Tensor, "b t"]
    stopped: Bool[Tensor, "b"]
    """Whether the model ended the answer itself, with room to spare or exactly."""
    ids: Int[Tensor, "b g t"] | None = None
    """The IDs under which the tokens were read; the last token of an answer is never read."""


@torch.no_grad()
def generate(
    model: Model,
    task: Task,
    policy: IdPolicy,
    sample: Sample,
    use_cache: bool = True,
    sampling: SamplingConfig | None = None,
    draws: Draws | None = None,
    prompt_ids_only: bool = False,
    shift: int = 0,
    write: "Callable[[Writing], None] | None" = None,
) -> Generated:
    """Answer every prompt of a batch; prompts may differ in length.

    Nothing of the answers is seen: they are erased first, but for tokens marked as given.  The budget of a row
    is the sample's own size: an answer that is longer is wrong in any case.  `use_cache=False` reads everything
    again for each token: slow, and the reference that the cache is tested against.  `draws` numbers the rows:
    `sampling` needs it, and so does a policy that draws the IDs of tests.  Of predicted IDs the likeliest is taken;
    `prompt_ids_only` allows only those that the prompt has.
    `shift` adds a constant to all IDs, the reserved one included.  `write` runs the loop over tokens: `write_answers`
    unless an engine has a faster one.
    """
    if not policy.serves_generation(task):
        raise BadInput(f"{policy.name} reads the IDs of {task.name} off the true answer: it cannot generate")
    prompt = sample.prompt_only()
    ids = policy.evaluation_ids(task, prompt, None if draws is None else draws.child("ids")) + shift
    model.check_ids(ids)
    model.check_shift(shift)
    supplier = policy.supplier(task)
    if prompt_ids_only and supplier != "model":
        raise BadInput(f"prompt_ids_only concerns predicted IDs, which {policy.name} does not use")
    writer: _IdWriter | None = None
    if supplier == "model":
        writer = _PredictedIds(model, ids, prompt, prompt_ids_only, shift)
    elif supplier == "tokens":
        writer = _IdsOfTokens(task, policy, shift)
    sampling = sampling or SamplingConfig()
    drawn = draws if sampling.temperature else None
    writing = Writing(model, task.stop_token, prompt, ids, writer, sampling, drawn, use_cache)
    (write or write_answers)(writing)
    stopped = writing.stopped if task.stop_token is not None else torch.ones_like(writing.stopped)
    return Generated(writing.tokens, stopped, writing.ids)


class Writing:
    """A batch of unfinished answers.  A step changes everything in place, so that it can be recorded and replayed."""

    def __init__(
        self,
        model: Model,
        stop_token: int | None,
        prompt: Sample,
        ids: Int[Tensor, "b g t"],
        id_writer: "_IdWriter | None",
        sampling: SamplingConfig,
        draws: Draws | None,
        use_cache: bool,
    ) -> None:
        self.model, self.stop_token, self.prompt, self.id_writer = model, stop_token, prompt, id_writer
        self.sampling, self.draws = sampling, draws
        self.tokens, self.ids = prompt.tokens.clone(), ids
        self.rows: Tensor | slice = torch.arange(len(ids), device=ids.device)
        self.budget = int((prompt.num_tokens - prompt.prompt_tokens).max())
        self.at = prompt.prompt_tokens.clone()
        """The index each row writes next."""
        self.finished = self.at >= prompt.num_tokens
        self.stopped = torch.zeros_like(self.finished)
        self.cache = None
        if use_cache:
            reading = int(prompt.prompt_tokens.max())
            self.cache = model.new_cache(len(ids), slots=reading + self.budget)
            states = model(self.tokens[:, :reading], ids[:, :, :reading], self.cache)
            self.cache.advance(prompt.prompt_tokens)
            self.hidden = states[self.rows, self.at - 1]

    def write(self, draws: Draws | None) -> None:
        """Choose the next token of every row and, where the model predicts them, its IDs."""
        rows, prompt = self.rows, self.prompt
        if self.cache is None:
            states = self.model(self.tokens, self.ids)
            self.hidden = states[rows, self.at - 1]
            past: Past | None = self.model.past(states, self.tokens)
            read = self.ids
        else:
            past, read = self.cached_past(self.cache), self.cache.key_ids[:, :, : self.cache.columns]
        logits = self.model.logits(self.hidden[:, None], self.at[:, None], past)[:, 0]
        new = self.sampling.choose(logits, draws)
        here = self.here
        new = torch.where(prompt.given[rows, here], prompt.tokens[rows, here], new)
        self.tokens[rows, here] = torch.where(self.finished, self.tokens[rows, here], new)
        if self.id_writer is not None:
            chosen = self.id_writer.choose(self.hidden, new, self.at, past, read)
            self.ids[rows, :, here] = torch.where(self.finished[:, None], self.ids[rows, :, here], chosen)
        if self.stop_token is not None:
            self.stopped |= ~self.finished & (new == self.stop_token)
        self.finished |= self.stopped | (self.at + 1 >= prompt.num_tokens)

    def read(self) -> None:
        """Read what was written.  A finished row reads its last token again into the same slot: harmless, and shapes
        stay fixed."""
        if self.cache is not None:
            here = self.here
            token, ids = self.tokens[self.rows, here], self.ids[self.rows, :, here]
            self.hidden.copy_(self.model(token[:, None], ids[:, :, None], self.cache)[:, 0])
        self.advance()

    @property
    def here(self) -> Int[Tensor, "b"] | int:
        """The column that each row writes next; a finished row has one too."""
        return self.at.clamp(max=self.tokens.shape[1] - 1)

    def advance(self) -> None:
        """Count the last token of each unfinished row as read."""
        count = (~self.finished).long()
        if self.cache is not None:
            self.cache.advance(count)
        self.at += count

    def cached_past(self, cache: Cache) -> Past | None:
        """Return what the heads of the model look back at, if any does."""
        if not self.model.looks_back:
            return None
        # no row reaches the last columns where the longest prompt and the longest answer stand in different rows
        columns = cache.columns
        tokens = torch.nn.functional.pad(self.tokens, (0, max(0, columns - self.tokens.shape[1])))
        return Past(tokens[:, :columns], cache.memory[:, :columns])


def write_answers(writing: Writing, after: Callable[[int], None] | None = None) -> None:
    """Write one token after the other until every row has finished.

    `after` is called with the number of each step when its tokens are chosen; it may mark rows as finished.
    """
    for step in range(writing.budget):
        writing.write(None if writing.draws is None else writing.draws.child(f"step {step}"))
        if after is not None:
            after(step)
        if bool(writing.finished.all()):
            break
        writing.read()


class _IdWriter(ABC):
    """Chooses the IDs of the tokens that are written."""

    @abstractmethod
    def choose(
        self,
        hidden: Float[Tensor, "b w"],
        token: Int[Tensor, "b"],
        visible: Int[Tensor, "b"],
        past: Past | None,
        read: Int[Tensor, "b g t"],
    ) -> Int[Tensor, "b g"]:
        """IDs of the tokens just chosen, for rows that have read `visible` tokens with the IDs `read`."""


class _IdsOfTokens(_IdWriter):
    """They follow from what is written."""

    def __init__(self, task: Task, policy: IdPolicy, shift: int) -> None:
        self.task, self.policy, self.shift = task, policy, shift

    def choose(
        self,
        hidden: Float[Tensor, "b w"],
        token: Int[Tensor, "b"],
        visible: Int[Tensor, "b"],
        past: Past | None,
        read: Int[Tensor, "b g t"],
    ) -> Int[Tensor, "b g"]:
        last = (visible - 1)[:, None, None].expand(-1, read.shape[1], 1)
        before = read.gather(2, last)[:, :, 0]
        return self.policy.follow(self.task, token, before - self.shift) + self.shift


class _PredictedIds(_IdWriter):
    """The model predicts them."""

    def __init__(
        self, model: Model, ids: Int[Tensor, "b g t"], prompt: Sample, prompt_ids_only: bool, shift: int
    ) -> None:
        if model.position_head is None:
            raise BadInput("predicted IDs need a model with a position head")
        self.model, self.head = model, model.position_head
        self.reserved = torch.full_like(ids[:, :, 0], RESERVED + shift)
        self.ladders = prompt_ladders(ids, prompt.prompt_tokens, self.reserved)
        self.prompt_ids_only = prompt_ids_only

    def choose(
        self,
        hidden: Float[Tensor, "b w"],
        token: Int[Tensor, "b"],
        visible: Int[Tensor, "b"],
        past: Past | None,
        read: Int[Tensor, "b g t"],
    ) -> Int[Tensor, "b g"]:
        reachable = self.head.reachable(read, self.ladders, self.reserved)
        assert past is not None
        choices = self.model.choose_ids(
            hidden[:, None], token[:, None], visible[:, None], past, reachable, self.reserved
        )
        if self.prompt_ids_only:
            choices = [
                choice.only(ladder, self.reserved[:, level])
                for level, (choice, ladder) in enumerate(zip(choices, self.ladders, strict=True))
            ]
        return torch.stack([choice.best()[:, 0] for choice in choices], dim=1)


def answers(generated: Generated, task: Task, sample: Sample) -> list[list[int]]:
    """The generated tokens of each row, up to the stop token or the end of the budget."""
    found = []
    for row, start, end in zip(generated.tokens.tolist(), sample.prompt_tokens, sample.num_tokens, strict=True):
        answer = row[int(start) : int(end)]
        if task.stop_token in answer:
            answer = answer[: answer.index(task.stop_token) + 1]
        found.append(answer)
    return found
