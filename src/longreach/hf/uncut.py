"""Keep attention whole under position IDs that skip, repeat or fall.

transformers takes such IDs for packed sequences and cuts attention at every step other than 1.  It looks at the IDs
only where there is neither a mask nor a cache, and flash kernels look at them unless the boundaries of sequences are
given.  `generate` drops a mask of ones before the model can read it, so no argument helps there.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import Module
from torch.nn.utils.rnn import pad_sequence
from torch.utils.hooks import RemovableHandle

from longreach.errors import BadInput

IGNORED = -100
"""The label that Hugging Face's losses leave out."""
_COLUMNS = ("input_ids", "position_ids", "attention_mask", "labels")
_TOKENS = 8
"""Tokens of the sequences of a check."""
_CHANGED = 1e-5
"""The least change of logits, relative to the largest: mixtures of experts change by 1e-7 where attention is cut."""
_RECURRENT = ("linear_attention", "conv", "mamba", "mamba2", "recurrent", "hybrid", "rwkv", "lightning_attention")
_ADVICE = "train with the collator UncutCollator(), or call keep_attention_uncut(model) first"

Collator = Callable[[list[dict[str, Any]]], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class UncutCollator:
    """Batch rows of tokens such that no attention is cut at their position IDs.

    A row has `input_ids` and may have `position_ids`, `attention_mask` and `labels`.  Position IDs of several levels
    have the shape [levels, tokens] in a row and [batch, levels, tokens] in a batch.  Rows are padded on the right.  The
    batch has a mask of two dimensions, which keeps sliding windows as they are, and the boundaries of its rows.
    Labels are the tokens where a row has none.
    """

    pad_token: int = 0
    """Token that fills rows; it is neither attended to nor predicted."""
    boundaries: bool = True
    """Give flash kernels the boundaries of rows.  Models with recurrent layers may refuse them."""

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        for column in {name: None for row in rows for name in row}:
            if column not in _COLUMNS:
                raise BadInput(f"UncutCollator has no use for the column {column}: it knows {', '.join(_COLUMNS)}")
        full = [_complete(row) for row in rows]
        fill = {"input_ids": self.pad_token, "position_ids": 0, "attention_mask": 0, "labels": IGNORED}
        batch: dict[str, Any] = {}
        for name in _COLUMNS:
            # the axis of tokens first: only this one may differ between rows
            columns = [row[name].movedim(-1, 0) for row in full]
            if len({column.shape[1:] for column in columns}) > 1:
                raise BadInput("rows have position_ids with different numbers of levels")
            batch[name] = pad_sequence(columns, batch_first=True, padding_value=fill[name]).movedim(1, -1)
        return batch | boundaries_of(*batch["input_ids"].shape) if self.boundaries else batch


def _complete(row: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return all columns of a row as tensors of its length."""
    if "input_ids" not in row:
        raise BadInput(f"a row has no input_ids: it has {', '.join(row) or 'nothing'}")
    tokens = torch.as_tensor(row["input_ids"])
    made = {"position_ids": torch.arange(len(tokens)), "attention_mask": torch.ones_like(tokens), "labels": tokens}
    found = {"input_ids": tokens} | {name: torch.as_tensor(row.get(name, made[name])) for name in made}
    for name, column in found.items():
        has_levels = name == "position_ids" and column.dim() == 2
        if (column.shape[1:] if has_levels else column.shape) != tokens.shape:
            raise BadInput(f"a row has {len(tokens)} tokens, and its {name} have the shape {tuple(column.shape)}")
    if "labels" not in row:
        found["labels"] = tokens.masked_fill(found["attention_mask"] == 0, IGNORED)
    return found


def boundaries_of(rows: int, tokens: int, device: Any = None) -> dict[str, Any]:
    """Return the arguments that tell flash kernels where each row of a batch begins and ends."""
    edges = torch.arange(0, (rows + 1) * tokens, tokens, dtype=torch.int32, device=device)
    return {"cu_seq_lens_q": edges, "cu_seq_lens_k": edges.clone(), "max_length_q": tokens, "max_length_k": tokens}


def keep_attention_uncut(model: Any) -> RemovableHandle:
    """Let a causal language model of Hugging Face never cut attention at its position IDs, in training and generation.

    A hook gives the model a mask of ones where it has neither a mask nor a cache, and flash kernels the boundaries of
    rows.  The hook is not saved with the model; `remove()` of the returned handle takes it away.
    """
    decoder: Module = _decoder(model)
    return decoder.register_forward_pre_hook(with_mask, with_kwargs=True)


def with_mask(decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Add a mask or boundaries to the arguments of a decoder: the hook of `keep_attention_uncut`."""
    given = inspect.signature(decoder.forward).bind_partial(*args, **kwargs).arguments
    tokens = given.get("input_ids") if given.get("input_ids") is not None else given.get("inputs_embeds")
    cache = given.get("past_key_values")
    is_empty = cache is None or (cache.get_seq_length() == 0 and not cache.is_compileable)
    if tokens is None or given.get("position_ids") is None or not is_empty:
        return args, kwargs
    rows, length = tokens.shape[:2]
    added: dict[str, Any] = {}
    if given.get("attention_mask") is None and cache is None:
        added["attention_mask"] = torch.ones(rows, length, dtype=torch.long, device=tokens.device)
    if _is_flash(decoder) and kwargs.get("cu_seq_lens_q") is None:
        added |= boundaries_of(rows, length, tokens.device)
    positional = list(inspect.signature(decoder.forward).parameters)[: len(args)]
    args = tuple(added.pop(name, value) for name, value in zip(positional, args, strict=True))
    return args, kwargs | added


def check_attention_uncut(model: Any, collator: Collator | None = None) -> None:
    """Raise BadInput if a causal language model cuts attention at IDs that skip, repeat, fall or stay the same.

    Token 0 is changed, and the last logits must change, with one row and with two.  The model computes in fp32 without
    a cache, as in training.  `collator` makes the batches, such as that of a Trainer; without one, the model gets
    tokens and IDs only.
    """
    takes = inspect.signature(_decoder(model).forward).parameters
    settings = model.config.get_text_config()
    kind = settings.model_type
    if "position_ids" not in takes:
        raise BadInput(f"{kind} models take no position IDs: use a model with rotary positions")
    layers = {*(getattr(settings, "layer_types", None) or ()), *(getattr(settings, "layers_block_type", None) or ())}
    if recurrent := sorted(layers & set(_RECURRENT)):
        raise BadInput(f"{kind} models have {recurrent[0]} layers, which hide a cut in attention: it cannot be checked")
    windows = [getattr(settings, name, None) for name in ("sliding_window", "attention_chunk_size")]
    length = min([_TOKENS, *(window for window in windows if window)])
    levels = len(getattr(model.config, "level_sizes", (0,)))  # of a model with a position head
    with _in_fp32(model), torch.no_grad():
        for word, ids in _unusual_ids(length).items():
            for rows in (1, 2):
                shape = (rows, length) if levels == 1 else (rows, levels, length)
                if not _reads_first(model, collator, ids.expand(shape), settings.vocab_size):
                    raise BadInput(
                        f"attention of this {kind} model is cut where position IDs {word} ({rows} row"
                        f"{'s' if rows > 1 else ''}): {_ADVICE}"
                    )


def _unusual_ids(length: int) -> dict[str, Int[Tensor, "{length}"]]:
    count = torch.arange(length)
    later = (count >= length // 2).long()
    return {
        "skip": count + 5 * later,
        "repeat": count - later,
        "stay the same": torch.zeros_like(count),
        "fall": count.flip(0),
    }


def _reads_first(model: Any, collator: Collator | None, ids: Int[Tensor, "b *g t"], vocabulary: int) -> bool:
    """Return whether the last logits of every row depend on its first token."""
    rows, length = ids.shape[0], ids.shape[-1]
    tokens = (1 + torch.arange(rows * length)).remainder(vocabulary - 1).view(rows, length)
    changed = tokens.clone()
    changed[:, 0] = vocabulary - 1
    one, other = (_last_logits(model, collator, row, ids) for row in (tokens, changed))
    return bool(((one - other).abs().amax(1) > _CHANGED * one.abs().amax(1)).all())


def _last_logits(model: Any, collator: Collator | None, tokens: Tensor, ids: Tensor) -> Tensor:
    batch: dict[str, Any] = {"input_ids": tokens, "position_ids": ids}
    if collator is not None:
        pairs = zip(tokens.tolist(), ids.tolist(), strict=True)
        batch = dict(collator([{"input_ids": row, "position_ids": at, "labels": row} for row, at in pairs]))
        kept = batch.get("position_ids")
        if kept is None or not torch.equal(torch.as_tensor(kept).cpu(), ids):
            raise BadInput(f"the collator {_name(collator)} drops, packs or changes position_ids: use UncutCollator()")
        batch.pop("labels", None)
    batch = {name: value.to(model.device) if isinstance(value, Tensor) else value for name, value in batch.items()}
    logits: Tensor = model(**batch, use_cache=False).logits
    return logits[:, -1].float()


@contextmanager
def _in_fp32(model: Any) -> Iterator[None]:
    """Let a model compute in fp32 without dropout for a while; flash kernels keep their precision, having no fp32."""
    training = [module for module in model.modules() if module.training]
    half = [] if _is_flash(model) else [*model.parameters(), *model.buffers()]
    before = [(tensor, tensor.data) for tensor in half if tensor.dtype in (torch.bfloat16, torch.float16)]
    model.eval()
    try:
        for tensor, data in before:
            tensor.data = data.float()
        yield
    finally:
        for tensor, data in before:
            tensor.data = data
        for module in training:
            module.training = True


def _decoder(model: Any) -> Any:
    """Return the part without a head: adapters call the model around it without hooks."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    if not hasattr(inner, "base_model"):
        raise BadInput(f"expected a causal language model of Hugging Face, got {type(model).__name__}")
    return inner.base_model


def _is_flash(model: Any) -> bool:
    return "flash" in (model.config._attn_implementation or "")


def _name(collator: Collator) -> str:
    return getattr(collator, "__name__", type(collator).__name__)
