"""Training data of models that are trained as one and do not all see the same: other tasks, lengths, IDs."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from longreach.errors import BadInput
from longreach.tasks import Sample
from longreach.training.stream import Batch, TrainingStream


@dataclass(frozen=True)
class StackedStream:
    """A batch holds one of each stream, one behind the other.  They must be of one task, whose settings may differ, and
    equally wide."""

    parts: tuple[TrainingStream, ...]

    def __post_init__(self) -> None:
        first = self.parts[0]
        for part in self.parts[1:]:
            if type(part.task) is not type(first.task) or part.width != first.width:
                raise BadInput(
                    f"{first.task.name} with {first.width} tokens and {part.task.name} with {part.width}"
                    " cannot be trained as one"
                )
            if part.batch_size != first.batch_size:
                raise BadInput(f"batches of {first.batch_size} and {part.batch_size} cannot be trained as one")

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(seed for part in self.parts for seed in part.seeds)

    @property
    def device(self) -> str:
        return self.parts[0].device

    @property
    def most_answer_tokens(self) -> int:
        return max(part.most_answer_tokens for part in self.parts)

    def batch(self, step: int | Tensor) -> Batch:
        batches = [part.batch(step) for part in self.parts]
        columns = zip(*(batch.tensors() for batch in batches), strict=True)
        joined = iter([torch.cat(column) for column in columns])
        return batches[0].map(lambda tensor: next(joined))

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        found, start = [], 0
        for part in self.parts:
            stop = start + part.batch_size * len(part.seeds)
            found.append(part.depends_on(sample.rows(start, stop)))
            start = stop
        return torch.cat(found)
