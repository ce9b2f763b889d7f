"""Train models of Hugging Face with our position IDs: data sets and a callback for its Trainer.

IDs are a function of the seed, the epoch and the index of a row.  A collator that draws them would depend on how many
batches were drawn before, and a resumed training would see others.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from longreach.errors import BadInput
from longreach.hf.uncut import IGNORED, check_attention_uncut
from longreach.positions.ids import IdPolicy, Pose, UniformPose
from longreach.positions.ids.coupled import RELABELLINGS
from longreach.seeding import Draws, stream
from longreach.system.huggingface import import_transformers
from longreach.tasks import Text, build_sample
from longreach.tasks.relabelling import within_prompt

Row = dict[str, Any]


class _PositionDataset(Dataset[Row], ABC):
    """Base of both: rows of another data set with `position_ids` for the epoch."""

    def __init__(self, dataset: Any, seed: int) -> None:
        by_index = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if isinstance(dataset, IterableDataset) or not by_index:
            raise BadInput(f"{type(self).__name__} needs rows by index, and a {type(dataset).__name__} has none")
        self.dataset, self.seed = dataset, seed
        # shared with worker processes that live longer than an epoch; -1: not known
        self._epoch = torch.full((), -1, dtype=torch.long).share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """Let rows have the IDs of this epoch, from 0."""
        self._epoch.fill_(epoch)
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Row:
        if self._epoch < 0:
            raise BadInput(
                "the epoch is not known, on which position IDs depend: give the Trainer callbacks=[position_callback()]"
                " or call set_epoch"
            )
        row = dict(self.dataset[index])
        if "input_ids" not in row:
            raise BadInput(f"row {index} has no input_ids: it has {', '.join(row) or 'nothing'}")
        if "position_ids" in row:
            raise BadInput(f"row {index} has position_ids already")
        draws = stream(self.seed, f"{type(self).__name__}, epoch {int(self._epoch)}", torch.tensor([index % len(self)]))
        return self.with_ids(row, torch.as_tensor(row["input_ids"]), draws)

    @abstractmethod
    def with_ids(self, row: Row, tokens: Int[Tensor, "t"], draws: Draws) -> Row:
        """Return the row with its position IDs."""


class PoseDataset(_PositionDataset):
    """Rows whose position IDs skip as in PoSE (Zhu et al., ICLR 2024), so that short rows train distances up to
    `max_id`.

    A row has `input_ids`, and may have `attention_mask` (padding on the right) and `labels`.  Cuts and skips are drawn
    anew in every epoch, as by the ID policies `pose` and, with `uniform`, `uniform_pose`.  With `mask_seams` the first
    token after a skip is not predicted.
    """

    def __init__(
        self,
        dataset: Any,
        max_id: int,
        chunks: int = 2,
        uniform: bool = False,
        mask_seams: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(dataset, seed)
        if uniform and chunks != 2:
            raise BadInput(f"uniform skips need chunks=2, got {chunks}")
        self.policy: IdPolicy = UniformPose(max_id=max_id) if uniform else Pose(max_id=max_id, chunks=chunks)
        self.mask_seams = mask_seams

    def with_ids(self, row: Row, tokens: Int[Tensor, "t"], draws: Draws) -> Row:
        count = _num_tokens(row, tokens)
        if count > self.policy.max_id + 1:
            raise BadInput(f"max_id={self.policy.max_id} is too small for a row of {count} tokens")
        size = torch.tensor([count])
        sample = build_sample(tokens[None], size, torch.ones_like(size), size)
        ids = self.policy.training_ids(Text(), sample, draws)[0, 0]
        row["position_ids"] = ids
        if self.mask_seams:
            seam = torch.zeros_like(tokens, dtype=torch.bool)
            seam[1:count] = ids[:count].diff() != 1
            labels = torch.as_tensor(row.get("labels", tokens)).clone()
            labels[count:] = IGNORED
            row["labels"] = labels.masked_fill(seam, IGNORED)
        return row


class CoupledDataset(_PositionDataset):
    """Rows whose position IDs are coupled IDs of a column, relabelled anew in every epoch up to `max_id`.

    The column has a whole number for each token: 1, 2, 3, ... for places, and 0 for tokens that have none.  `relabel`
    is increasing (a random increasing map), offset, skips or none, as for the ID policy `coupled`.

    A list of columns gives position IDs of several levels, with the shape [levels, tokens].  Each level has a map of
    its own; with `same_places` all have one map.  Columns in `classes` are never relabelled.  With `prompt`, IDs beyond
    the largest one of the prompt go on by 1, as a position head predicts them; the prompt ends before the first label
    that is not -100.
    """

    def __init__(
        self,
        dataset: Any,
        ids: str | Sequence[str],
        relabel: str = "increasing",
        max_id: int = 0,
        seed: int = 0,
        *,
        classes: Sequence[str] = (),
        same_places: bool = False,
        prompt: bool = False,
    ) -> None:
        super().__init__(dataset, seed)
        if relabel not in (*RELABELLINGS, "none"):
            raise BadInput(f"relabel must be one of {', '.join(RELABELLINGS)} or none, got {relabel!r}")
        if (max_id < 1) != (relabel == "none"):
            raise BadInput(f"max_id must be at least 1, or 0 with relabel='none': got {max_id} with {relabel!r}")
        if relabel == "none" and (same_places or prompt):
            raise BadInput("same_places and prompt say how IDs are relabelled: leave them out with relabel='none'")
        self.columns = (ids,) if isinstance(ids, str) else tuple(ids)
        self.one_level, self.relabel, self.max_id = isinstance(ids, str), relabel, max_id
        grow = [level for level, column in enumerate(self.columns) if column not in classes]
        if not grow or any(column not in self.columns for column in classes):
            raise BadInput(f"classes must be some of the columns {', '.join(self.columns)}, got {', '.join(classes)}")
        self.maps = [grow] if same_places else [[level] for level in grow]
        """Levels that are relabelled by one map each."""
        self.prompt = prompt

    def with_ids(self, row: Row, tokens: Int[Tensor, "t"], draws: Draws) -> Row:
        levels = [self._take(row, column, tokens) for column in self.columns]
        if self.relabel != "none":
            in_prompt = self._in_prompt(row, tokens) if self.prompt else torch.ones_like(tokens, dtype=torch.bool)
            for together in self.maps:
                first = together[0]
                beside = torch.cat([levels[level] for level in together])[None]
                mask = in_prompt.repeat(len(together))[None]
                some = draws if first == self.maps[0][0] else draws.child(self.columns[first])
                mapped = within_prompt(RELABELLINGS[self.relabel], beside, mask, self.max_id, some)[0]
                for level, ids in zip(together, mapped.chunk(len(together)), strict=True):
                    levels[level] = ids
        row["position_ids"] = levels[0] if self.one_level else torch.stack(levels)
        return row

    def _take(self, row: Row, column: str, tokens: Int[Tensor, "t"]) -> Int[Tensor, "t"]:
        """Remove a column of IDs from a row and return it."""
        if column not in row:
            raise BadInput(f"rows have no column {column}: they have {', '.join(row)}")
        ids = torch.as_tensor(row.pop(column))
        if ids.shape != tokens.shape or ids.is_floating_point():
            raise BadInput(f"the column {column} must have a whole number for each of {len(tokens)} tokens")
        least, largest = (int(end) for end in ids.aminmax())
        if least < 0 or largest > len(tokens):
            raise BadInput(f"{column} must go from 0 to at most the number of tokens: {least} to {largest} found")
        if self.relabel != "none" and largest > self.max_id:
            raise BadInput(f"max_id={self.max_id} is too small: a row has {largest} coupled IDs")
        return ids

    @staticmethod
    def _in_prompt(row: Row, tokens: Int[Tensor, "t"]) -> Bool[Tensor, "t"]:
        predicted = torch.as_tensor(row.get("labels", tokens)) != IGNORED
        if bool(predicted[0]):
            raise BadInput("prompt=True needs labels that are -100 at the tokens of the prompt")
        return predicted.cumsum(0) == 0


def _num_tokens(row: Mapping[str, Any], tokens: Int[Tensor, "t"]) -> int:
    """Return how many tokens come before the padding."""
    mask = torch.as_tensor(row.get("attention_mask", torch.ones_like(tokens)))
    if mask.shape != tokens.shape or (mask.diff() > 0).any() or not mask[0]:
        raise BadInput("rows must be padded on the right: the attention_mask has zeros before ones")
    return int(mask.sum())


def position_callback() -> Any:
    """Return a callback with which a Trainer can train on unusual position IDs.

    It checks that attention is not cut when training starts, and sets the epoch of the data set.  Without it, Trainer
    sets the epoch neither in the first epoch after a resume nor with several processes.
    """

    class PositionCallback(import_transformers("a Trainer").TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **at_hand: Any) -> None:
            check_attention_uncut(at_hand["model"], at_hand["train_dataloader"].collate_fn)

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **at_hand: Any) -> None:
            dataset = at_hand["train_dataloader"].dataset
            if not hasattr(dataset, "set_epoch"):
                raise BadInput(f"a {type(dataset).__name__} has no set_epoch: wrap it in the data set of position IDs")
            dataset.set_epoch(int(state.epoch or 0))

    return PositionCallback()
