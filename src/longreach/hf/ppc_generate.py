"""Generation with a position head: every step writes a token and its position IDs, and reads both."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.model.block import at_places
from longreach.model.position_heads import Steps
from longreach.model.position_heads.base import RESERVED, prompt_ladders
from longreach.system.huggingface import import_transformers


def write_pairs(
    model: Any,
    input_ids: Int[Tensor, "b t"],
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    prompt_ids_only: bool = False,
    **model_kwargs: Any,
) -> Any:
    """Generate tokens and position IDs: the loop that `generate` of transformers runs with `custom_generate`.

    `position_ids` is one of `model_kwargs`: transformers takes arguments away that this signature names.
    """
    _refuse(generation_config)
    ids = model.by_level(model_kwargs.pop("position_ids"))
    mask = model_kwargs.pop("attention_mask", None)
    mask = torch.ones_like(input_ids) if mask is None else (mask != 0).long()
    if ids.shape[::2] != input_ids.shape or mask.shape != input_ids.shape:
        raise BadInput(
            f"position_ids of {list(ids.shape[::2])} and a mask of {list(mask.shape)} do not fit to prompts of"
            f" {list(input_ids.shape)}"
        )
    if not bool(mask[:, -1].all()):
        raise BadInput("prompts must be padded on the left: the attention_mask ends in 0")
    if getattr(model.language_model, "_supports_logits_to_keep", lambda: False)():
        model_kwargs["logits_to_keep"] = 1
    use_cache = bool(model_kwargs.get("use_cache"))
    if not use_cache:
        model_kwargs.pop("past_key_values", None)
    writer = _IdWriter(model, ids, mask, generation_config.max_length, prompt_ids_only)
    tokens, start = input_ids, 0
    unfinished = torch.ones_like(tokens[:, 0], dtype=torch.bool)
    scores: tuple[Tensor, ...] = ()
    raw: tuple[Tensor, ...] = ()
    while True:
        read = model.read(tokens[:, start:], mask, ids[:, :, start:], **model_kwargs)
        writer.remember(read, mask[:, start:], ids[:, :, start:], again=start == 0)
        if use_cache:
            model_kwargs["past_key_values"] = read.output.past_key_values
            start = tokens.shape[1]
        logits = read.output.logits[:, -1].float()
        processed = logits_processor(tokens, logits)
        scores += (processed,) if generation_config.output_scores else ()
        raw += (logits,) if generation_config.output_logits else ()
        new = _choose(processed, generation_config.do_sample)
        chosen = writer.choose(new)
        if generation_config._eos_token_tensor is not None:
            new = torch.where(unfinished, new, generation_config._pad_token_tensor)
            chosen = torch.where(unfinished[:, None], chosen, RESERVED)
        tokens = torch.cat([tokens, new[:, None]], dim=1)
        ids = torch.cat([ids, chosen[..., None]], dim=2)
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        unfinished &= ~stopping_criteria(tokens, scores)
        if not bool(unfinished.any()):
            break
    if not generation_config.return_dict_in_generate:
        return tokens
    outputs = import_transformers("generation", "generation.utils")
    found = outputs.GenerateDecoderOnlyOutput(sequences=tokens, scores=scores or None, logits=raw or None)
    found["position_ids"] = ids[:, 0] if ids.shape[1] == 1 else ids
    return found


def _refuse(config: Any) -> None:
    """Raise BadInput for ways to generate that have no IDs."""
    mode = str(config.get_generation_mode().value)
    if mode not in ("greedy_search", "sample"):
        raise BadInput(f"a model with a position head cannot generate by {mode}: only greedily or by sampling")
    for name in ("output_attentions", "output_hidden_states"):
        if getattr(config, name, None):
            raise BadInput(f"a model with a position head cannot generate with {name}: leave it out")


def _choose(scores: Float[Tensor, "b v"], do_sample: bool) -> Int[Tensor, "b"]:
    if not do_sample:
        return scores.argmax(-1)
    return torch.multinomial(scores.softmax(-1), 1)[:, 0]


class _IdWriter:
    """The part of the position head in generation: its memory without padding, and the choice of IDs."""

    def __init__(
        self, model: Any, ids: Int[Tensor, "b g t"], mask: Int[Tensor, "b t"], columns: int, prompt_ids_only: bool
    ) -> None:
        self.model, self.prompt_ids_only = model, prompt_ids_only
        self.reserved = torch.full_like(ids[:, :, 0], RESERVED)
        (packed,) = pack(mask, ids)
        self.ladders = prompt_ladders(packed, mask.sum(1), self.reserved)
        batch, levels, _ = ids.shape
        self.ids = ids.new_zeros(batch, levels, columns)
        head = model.position_head
        like = next(head.parameters())
        self.memory = like.new_zeros(batch, columns, head.memory_size)
        self.visible = torch.zeros_like(mask[:, 0])
        """Tokens that each row has read."""
        self.hidden = like.new_zeros(batch, 0)

    def remember(self, read: Any, mask: Int[Tensor, "b t"], ids: Int[Tensor, "b g t"], again: bool) -> None:
        """Keep what was read, behind the tokens before or, if all was read again, from the start."""
        with self.model.exactly(*pack(mask, read.hidden, read.embedded)) as (hidden, embedded):
            memory = self.model.position_head.remember(hidden, embedded)
        (packed,) = pack(mask, ids)
        count = mask.sum(1)
        start = torch.zeros_like(count) if again else self.visible
        place = start[:, None] + torch.arange(mask.shape[1], device=mask.device)  # padding is overwritten later
        self.memory.scatter_(1, place[..., None].expand_as(memory), memory)
        self.ids.scatter_(2, place[:, None].expand_as(packed), packed)
        self.visible = start + count
        self.hidden = at_places(hidden, (count - 1)[:, None])

    def choose(self, token: Int[Tensor, "b"]) -> Int[Tensor, "b g"]:
        """Return the IDs of the tokens just chosen."""
        head = self.model.position_head
        reachable = head.reachable(self.ids, self.ladders, self.reserved)
        embedded = self.model.get_input_embeddings()(token[:, None])
        with self.model.exactly(self.hidden, embedded) as (hidden, new):
            steps = Steps(hidden, new, self.visible[:, None], self.memory, reachable, self.reserved)
            choices = head.choices_up_to(steps, head.largest_id)
        if self.prompt_ids_only:
            choices = [
                choice.only(ladder, self.reserved[:, level])
                for level, (choice, ladder) in enumerate(zip(choices, self.ladders, strict=True))
            ]
        return torch.stack([choice.best()[:, 0] for choice in choices], dim=1)


def pack(mask: Int[Tensor, "b t"], *tensors: Tensor) -> list[Tensor]:
    """Move the real tokens of each row to its front.

    Tensors have the shape [b, t], [b, t, w] or, for whole numbers, [b, g, t].
    """
    order = torch.argsort(mask == 0, dim=1, stable=True)
    found = []
    for tensor in tensors:
        if tensor.dim() == 2:
            found.append(tensor.gather(1, order))
        elif tensor.is_floating_point():
            found.append(at_places(tensor, order))
        else:
            found.append(tensor.gather(2, order[:, None].expand_as(tensor)))
    return found
