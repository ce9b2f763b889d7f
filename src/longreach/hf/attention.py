"""Attentions of longreach for any model of Hugging Face that can choose its attention.

Scores grow with the number of keys, without learned weights: they are multiplied by max(1, log n / log m), where n is
the number of keys that a query sees and m the length that the model was trained for.
"""

import math
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.attention import Attention, EntmaxConfig, ScaledSoftmaxConfig, TopKConfig, exact_dtype
from longreach.config import build
from longreach.errors import BadInput
from longreach.positions.encodings import Shape
from longreach.system.huggingface import import_transformers

NAMES = ("scaled_softmax", "entmax", "top_k")
_NEEDS = "attentions of longreach"
_PREFIX = "longreach_"
_FIELD = "longreach_attention"
"""The attribute of a model's config that has the settings; it is saved with the config."""
_REFUSED = ("s_aux", "sinks", "position_bias", "head_mask", "indices", "block_indices")
"""Arguments that change attention in ways that are not computed here."""


@dataclass(frozen=True, kw_only=True)
class HfAttentionConfig:
    """Settings of the attentions, which `config.longreach_attention` holds as a mapping."""

    trained_length: int = 0
    """Scores grow where a query sees more keys than this; 0: the config's `max_position_embeddings`."""
    keep: int = TopKConfig.keep
    """Keys that a query of `top_k` reads."""
    alpha: float = EntmaxConfig.alpha
    """1.5 or 2, for `entmax`."""

    def __post_init__(self) -> None:
        if self.trained_length < 0 or self.trained_length == 1:
            raise ValueError(f"trained_length must be at least 2, got {self.trained_length}")
        TopKConfig(keep=self.keep)
        EntmaxConfig(alpha=self.alpha)


def register_attentions() -> None:
    """Register the attentions and their masks; an attention without a registered mask would get no mask at all."""
    models, masks = (import_transformers(_NEEDS, module) for module in ("modeling_utils", "masking_utils"))
    for name in NAMES:
        models.AttentionInterface.register(_PREFIX + name, partial(attend, name))
        masks.AttentionMaskInterface.register(_PREFIX + name, partial(_mask, masks.sdpa_mask))


def set_attention(model: Any, name: str, **settings: Any) -> None:
    """Let a model of Hugging Face attend with `scaled_softmax`, `entmax` or `top_k`.

    Settings are those of `HfAttentionConfig`: `trained_length`, `keep`, `alpha`.  They are saved with the model's
    config; the name is not, as for all attentions of transformers.

    Raises:
        BadInput: The name or a setting is wrong, or the model has one fixed attention.
    """
    if name not in NAMES:
        raise BadInput(f"attention must be one of {', '.join(NAMES)}, got {name!r}")
    import_transformers(_NEEDS)  # refuses releases for which nothing is registered
    config = model.config.get_text_config()
    previous = getattr(config, _FIELD, None)
    setattr(config, _FIELD, asdict(build(HfAttentionConfig, settings, f"attention {name}")))
    model.set_attn_implementation(_PREFIX + name)
    if config._attn_implementation != _PREFIX + name:
        setattr(config, _FIELD, previous)
        raise BadInput(f"{config.model_type} models have a fixed attention, which transformers cannot exchange")


def _mask(make: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a mask of booleans, always written out."""
    kwargs |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return make(*args, **kwargs)


def attend(
    name: str,
    module: Any,
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k e"],
    attention_mask: Tensor | None,
    scaling: Any = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Float[Tensor, "b q h e"], Float[Tensor, "b h q k"]]:
    """Return mixed values and weights: the signature of an attention of transformers.

    `softcap` is applied before scores grow.
    """
    for argument in _REFUSED:
        if kwargs.get(argument) is not None:
            raise BadInput(f"attention {_PREFIX}{name} cannot honour {argument}, which {type(module).__name__} passes")
    settings = _settings(module, name)
    if attention_mask is None:
        causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
        if not causal:
            raise BadInput(f"attention {_PREFIX}{name} got no mask from {type(module).__name__}, which is not causal")
        attention_mask = _causal(query, key, sliding_window)
    seen = attention_mask if attention_mask.dtype == torch.bool else attention_mask > _lowest(attention_mask) / 2
    seen = seen[..., : key.shape[2]]
    heads = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(heads, dim=1) if heads > 1 else part for part in (key, value))
    exact = exact_dtype(query)
    with torch.autocast(query.device.type, enabled=False):
        scores = query.to(exact) @ key.to(exact).transpose(2, 3)
        scores = scores * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if attention_mask.dtype != torch.bool:
            scores = scores + attention_mask[..., : key.shape[2]].masked_fill(~seen, 0)
        count = seen.sum(-1, keepdim=True)
        growth = count.clamp(min=1).to(exact).log() / math.log(_trained_length(module, settings))
        blind = count == 0  # padding sees nothing, and is seen by nothing: any weights do
        scores = (scores * growth.clamp(min=1)).masked_fill(~(seen | blind), -torch.inf)
        weights = _weigher(name, settings).weigh(scores)
    weights = torch.nn.functional.dropout(weights.to(value.dtype), p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def _settings(module: Any, name: str) -> HfAttentionConfig:
    config = getattr(module, "config", None)
    if config is None:
        raise BadInput(
            f"attention {_PREFIX}{name} reads its settings from a config, and {type(module).__name__} has none"
        )
    found: dict[str, Any] = getattr(config, _FIELD, None) or {}
    return _read_settings(tuple(found.items()))


@lru_cache
def _read_settings(items: tuple[tuple[str, Any], ...]) -> HfAttentionConfig:
    return build(HfAttentionConfig, dict(items), f"config.{_FIELD}")


def _trained_length(module: Any, settings: HfAttentionConfig) -> int:
    length: int = settings.trained_length or getattr(module.config, "max_position_embeddings", None) or 0
    if length < 2:
        raise BadInput("the config has no max_position_embeddings: set the attention with trained_length")
    return length


@lru_cache
def _weigher(name: str, settings: HfAttentionConfig) -> Attention:
    """Return the attention whose `weigh` turns scores into weights; nothing else of it is used."""
    shape = Shape(1, 1, (0,), 0)
    if name == "entmax":
        return EntmaxConfig(alpha=settings.alpha).build(shape)
    return TopKConfig(keep=settings.keep).build(shape) if name == "top_k" else ScaledSoftmaxConfig().build(shape)


def _causal(
    query: Float[Tensor, "b h q d"], key: Float[Tensor, "b g k d"], window: int | None
) -> Bool[Tensor, "1 1 q k"]:
    """Return a causal mask, in which the queries are the last of the keys."""
    keys = key.shape[2]
    place: Int[Tensor, " k"] = torch.arange(keys, device=key.device)
    distance = place[keys - query.shape[2] :, None] - place
    seen = distance >= 0
    return (seen if window is None else seen & (distance < window))[None, None]


def _lowest(mask: Tensor) -> float:
    return torch.finfo(mask.dtype).min
