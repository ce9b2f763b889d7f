"""Predictive Position Coupling around any causal language model of Hugging Face."""

from collections.abc import Sequence
from typing import Any

from longreach.config import build_part, to_plain
from longreach.errors import BadInput
from longreach.model.position_heads import PositionHeadConfig

_LENGTH_BOUND = ("dynamic", "longrope")
"""Kinds of RoPE whose frequencies depend on the largest ID of a batch."""


def with_position_head(
    model: Any,
    kind: str = "pointer",
    *,
    level_sizes: Sequence[int] = (0,),
    max_id: int = 0,
    id_weight: float = 1.0,
    id_loss_on: str = "answer",
    seed: int = 0,
    **settings: Any,
) -> Any:
    """Wrap a causal language model with rotary positions, so that it predicts the position ID of every next token.

    The result is a `PreTrainedModel` around the same model object.  It has the wrapped model's logits; with labels, its
    loss is the token loss plus `id_weight` times the loss of position IDs.

    Args:
        model: Any causal language model of Hugging Face with rotary positions, without adapters.
        kind: `pointer` copies the ID of a token that was read; `table` chooses among the IDs 0 to `max_id`.
        level_sizes: The largest ID of each level, or 0 for a level that grows with length.  The first level must grow.
        max_id: The largest ID of a `table`.
        id_weight: Factor of the ID loss.
        id_loss_on: `answer`: IDs of tokens with a label; `all`: IDs of prompt tokens too.
        seed: Determines the new weights.
        **settings: Settings of the head, such as `moves` of the pointer.

    Raises:
        BadInput: The model has no rotary positions, RoPE that depends on the length, or adapters.
    """
    _check(model)
    from longreach.hf.ppc_config import HEADS, PpcConfig  # these import transformers, which takes seconds
    from longreach.hf.ppc_model import PpcForCausalLM

    if kind not in HEADS:
        raise BadInput(f"kind must be one of {', '.join(HEADS)}, got {kind!r}")
    attention, experts = (getattr(model.config, f"_{part}_implementation", None) for part in ("attn", "experts"))
    config = PpcConfig(
        text_config=model.config,
        head=to_plain(build_part(PositionHeadConfig, {"name": kind, **settings}, kind)),
        level_sizes=level_sizes,
        max_id=max_id,
        id_weight=id_weight,
        id_loss_on=id_loss_on,
        dtype=model.config.dtype,
        attn_implementation=attention,
    )
    model.config._experts_implementation = experts  # the new config set it to None
    for module in model.modules():
        module._is_hf_initialized = True  # transformers would draw its weights anew
    wrapped = PpcForCausalLM(config, model)
    wrapped.initialise_head(seed)
    if wrapped.can_generate() and getattr(model, "generation_config", None) is not None:
        wrapped.generation_config = model.generation_config
    for part in (wrapped.position_head, wrapped.id_embedding):
        if part is not None:
            part.to(model.device)
    return wrapped.train(model.training)


def _check(model: Any) -> None:
    """Raise BadInput for models that cannot be wrapped."""
    if hasattr(model, "peft_config"):
        raise BadInput("add adapters last: get_peft_model(with_position_head(model), LoraConfig(...))")
    if not hasattr(model, "base_model") or not hasattr(model, "get_output_embeddings"):
        raise BadInput(f"expected a causal language model of Hugging Face, got {type(model).__name__}")
    config = model.config
    kind = config.model_type
    if kind == "longreach_ppc":
        raise BadInput("the model has a position head already")
    if config.get_text_config() is not config:
        raise BadInput(f"{kind} models read more than text: wrap their text model")
    if model.get_output_embeddings() is None:
        raise BadInput(f"this {kind} model predicts no tokens: load it with AutoModelForCausalLM")
    width = model.get_input_embeddings().weight.shape[1]
    if width != config.hidden_size:
        raise BadInput(f"embeddings of this {kind} model have {width} numbers, and its states {config.hidden_size}")
    rope = getattr(config, "rope_parameters", None)
    if getattr(config, "alibi", False) or not (rope or getattr(config, "rotary_dim", None)):
        raise BadInput(f"{kind} models have no rotary positions, so they cannot read coupled position IDs")
    by_layer = [part for part in (rope or {}).values() if isinstance(part, dict)]
    for part in by_layer or [rope or {}]:
        if part.get("rope_type") in _LENGTH_BOUND:
            raise BadInput(
                f"RoPE of type {part['rope_type']} depends on the largest position ID of a batch: use a model with"
                " default, linear, yarn or llama3"
            )
