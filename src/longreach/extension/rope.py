"""Scale the rotary encoding of a Hugging Face model for longer texts, and refuse models that cannot be extended."""

import copy
from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from longreach.errors import BadInput, argument
from longreach.hf.rope import rope_parameters
from longreach.positions.encodings import ScaledRopeConfig
from longreach.system.files import one_line
from longreach.text.hub import quiet_loading

_Scaled = Literal["yarn", "ntk", "linear", "llama3"]
RopeMethod = Literal[_Scaled, "none"]
_FULL = "full_attention"
"""Layer type whose RoPE is scaled where every layer type has its own."""
_BY_LENGTH = ("dynamic", "longrope")
"""Types whose frequencies depend on the length of a text: rows of training would have others than long texts."""


def scaled_config(config: Any, method: RopeMethod, trained: int, to: int) -> Any:
    """Return the configuration of a model that reads `to` tokens, with its RoPE scaled by `method`.

    `trained` is the number of tokens that the model was trained for.  Raises BadInput for models that cannot be
    extended so.
    """
    kind = config.model_type
    own = rope_of_model(config)
    nested = {name: part for name, part in own.items() if isinstance(part, Mapping)}
    for part in nested.values() or [own]:
        if part.get("rope_type") in _BY_LENGTH:
            raise BadInput(
                f"this {kind} model has RoPE of type {part['rope_type']}, whose frequencies depend on the length of a"
                " text: use a model with another type"
            )
    if nested and _FULL not in nested:
        raise BadInput(f"this {kind} model has RoPE for {', '.join(nested)}, none of which is {_FULL}: use another")
    made = copy.deepcopy(config)
    made.max_position_embeddings = to
    if method != "none":
        written = _scaled(config, nested.get(_FULL, own), method, trained, to)
        made.rope_parameters = {**own, _FULL: written} if nested else written
    asked = made.rope_parameters
    try:
        with quiet_loading():
            made = type(config).from_dict(made.to_dict())
    except Exception as error:  # configurations check themselves with errors of every kind
        raise BadInput(f"{kind} models refuse RoPE of type {method}: {one_line(error)}") from error
    if made.rope_parameters != asked or made.max_position_embeddings != to:
        raise BadInput(f"{kind} models cannot keep RoPE of type {method}: use {argument('rope', 'none')}")
    return made


def rope_of_model(config: Any) -> dict[str, Any]:
    """Return the RoPE of a model; raise BadInput if it has none that can be set."""
    if config.get_text_config() is not config:
        raise BadInput(f"{config.model_type} models read more than text: use a model of text only")
    own = getattr(config, "rope_parameters", None)
    if not own or not getattr(config, "max_position_embeddings", None):
        raise BadInput(
            f"{config.model_type} models have no rotary positions that can be set (rope_parameters): use a model with"
            " RoPE, such as Llama, Qwen or Mistral"
        )
    return dict(own)


def _scaled(config: Any, own: Mapping[str, Any], method: _Scaled, trained: int, to: int) -> dict[str, Any]:
    """Return the parameters of RoPE that is scaled from `trained` to `to` tokens."""
    kind = own.get("rope_type", "default")
    if kind == method and kind in ("yarn", "linear"):  # scaled by the same method before: one larger factor
        first = own.get("original_max_position_embeddings") if kind == "yarn" else None
        factor = to / first if first else own["factor"] * to / trained
        return {**{name: value for name, value in own.items() if name != "attention_factor"}, "factor": factor}
    if kind != "default":
        raise BadInput(
            f"the RoPE of this {config.model_type} model is scaled already ({kind}), which {method} cannot be laid on:"
            f" use {argument('rope', 'none')}"
        )
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    fraction = own.get("partial_rotary_factor", 1.0)
    encoding = ScaledRopeConfig(
        method=method, factor=to / trained, trained_to=trained, base=own["rope_theta"], fraction=fraction
    )
    return {**own, **rope_parameters(encoding, to, head_dim)}


def describe_sliding(config: Any) -> str:
    """Return a warning about layers that attend to a window of tokens only; empty where there are none."""
    window = getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", None)
    if not window or not getattr(config, "use_sliding_window", True):
        return ""
    layers = list(getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers)
    count = sum(layer != _FULL for layer in layers)
    if not count:
        return ""
    return (
        f"{count} of {len(layers)} layers of this {config.model_type} model attend to the last {window} tokens only,"
        " also after the extension"
    )


@torch.no_grad()
def far_logits(model: Any, to: int) -> Float[Tensor, "v"]:
    """Return the last logits of a few tokens whose position IDs are spread over `to` tokens."""
    vocabulary = model.config.vocab_size
    tokens = (1 + torch.arange(8, device=model.device)).remainder(vocabulary)[None]
    ids = (torch.arange(8, device=model.device) * (to - 1) // 7)[None]
    logits: Tensor = model(
        input_ids=tokens, position_ids=ids, attention_mask=torch.ones_like(tokens), use_cache=False
    ).logits
    return logits[0, -1].float()
