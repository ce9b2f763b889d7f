"""Batches of Hugging Face, which may be padded on the left, as batches of longreach, padded on the right."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.tasks import PAD, Sample, Task


@dataclass(frozen=True)
class Rows:
    """The tokens of a batch without the padding before them."""

    tokens: Int[Tensor, "b t"]
    """Padded on the right."""
    num_tokens: Int[Tensor, "b"]
    start: Int[Tensor, "b"]
    """Place of each row's first token in the batch of Hugging Face."""

    @classmethod
    def of(cls, tokens: Int[Tensor, "b t"], mask: Tensor | None, pad_is_unused: bool) -> "Rows":
        """Read a batch.  Without a mask, PAD is padding where `pad_is_unused`, and no token else."""
        if mask is None:
            mask = tokens != PAD if pad_is_unused else torch.ones_like(tokens)
        if mask.shape != tokens.shape:
            raise BadInput(
                f"attention_mask must have the shape {tuple(tokens.shape)} of input_ids, got {tuple(mask.shape)}"
            )
        real = mask.bool()
        count, start = real.sum(1), real.long().argmax(1)
        index = torch.arange(tokens.shape[1], device=tokens.device)
        whole = (index >= start[:, None]) & (index < (start + count)[:, None])
        if not torch.equal(real, whole) or not bool(count.all()):
            raise BadInput(
                "each row of attention_mask must mark one piece of input_ids, with padding on its sides only"
            )
        rows = cls(tokens, count, start)
        moved = rows.to_left(tokens)
        return cls(moved.masked_fill(index >= count[:, None], PAD)[:, : int(count.max())], count, start)

    def to_left(self, values: Tensor) -> Tensor:
        """Move the columns (the last dimension) of each row such that its first token comes first."""
        return values.gather(-1, self._spread(self._columns(values) + self.start[:, None], values))

    def to_place(self, values: Tensor, width: int) -> Tensor:
        """Move per-token values [b, t, v] back to where the tokens stand; padding gets those of some token."""
        index = torch.arange(width, device=values.device) - self.start[:, None]
        index = index.clamp(0, values.shape[1] - 1)
        return values.gather(1, index[:, :, None].expand(-1, -1, values.shape[2]))

    def _columns(self, values: Tensor) -> Int[Tensor, "t"]:
        return torch.arange(values.shape[-1], device=values.device)

    @staticmethod
    def _spread(index: Int[Tensor, "b t"], values: Tensor) -> Tensor:
        index = index.clamp(max=values.shape[-1] - 1)
        return index if values.dim() == 2 else index[:, None].expand_as(values)

    def prompts(self) -> list[list[int]]:
        """Return the tokens of each row as a list."""
        pairs = zip(self.tokens.tolist(), self.num_tokens.tolist(), strict=True)
        return [row[:size] for row, size in pairs]

    def sample(self, task: Task, prompt_tokens: Int[Tensor, "b"]) -> Sample:
        """Return a sample whose answers are all tokens after the prompts."""
        if bool((prompt_tokens < 1).any()) or bool((prompt_tokens > self.num_tokens).any()):
            raise BadInput(f"prompt_tokens must be from 1 to the number of tokens, got {prompt_tokens.tolist()}")
        index = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        answer: Bool[Tensor, "b t"] = (index >= prompt_tokens[:, None]) & (index < self.num_tokens[:, None])
        lengths = [
            task.prompt_length(row[:size]) for row, size in zip(self.prompts(), prompt_tokens.tolist(), strict=True)
        ]
        return Sample(
            tokens=self.tokens,
            answer=answer,
            given=torch.zeros_like(answer),
            length=torch.tensor(lengths, device=self.tokens.device),
            num_tokens=self.num_tokens,
            prompt_tokens=prompt_tokens,
        )


def stack_prompts(prompts: Sequence[Sample], device: torch.device) -> Sample:
    """Return batches of one prompt each as one batch, padded on the right."""
    width = max(prompt.tokens.shape[1] for prompt in prompts)

    def stacked(name: str) -> Tensor:
        parts = [getattr(prompt, name) for prompt in prompts]
        padded = [
            torch.nn.functional.pad(part, (0, width - part.shape[1])) if part.dim() == 2 else part for part in parts
        ]
        return torch.cat(padded).to(device)

    return Sample(
        tokens=stacked("tokens"),
        answer=stacked("answer"),
        given=stacked("given"),
        length=stacked("length"),
        num_tokens=stacked("num_tokens"),
        prompt_tokens=stacked("prompt_tokens"),
    )
