"""Rotary encodings as Hugging Face's configurations write them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from longreach.config import build_part
from longreach.config.registry import name_of
from longreach.errors import BadInput
from longreach.positions.encodings import EncodingConfig, RopeConfig, ScaledRopeConfig
from longreach.positions.encodings.rope_far import FarRopeConfig
from longreach.positions.encodings.rope_scaling import raised_base

_DEFAULTS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {},
    "yarn": {"beta_fast": 32, "beta_slow": 1, "truncate": True, "mscale": None, "mscale_all_dim": None},
    "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
"""The kinds that both sides compute alike, with what `scaled_rope` takes as given."""
_UNLIKE = {
    "dynamic": "here its frequencies change in doublings, so that a cache stays right",
    "longrope": "there its frequencies depend on the length of a text",
}


def rope_of(written: Mapping[str, Any], longest: int) -> RopeConfig:
    """Our encoding for `rope_parameters` of a model made for `longest` tokens."""
    given = {key: value for key, value in written.items() if value is not None}
    kind = given.pop("rope_type", "default")
    if kind not in _DEFAULTS:
        raise BadInput(f"rope of type {kind} cannot be read: {_UNLIKE.get(kind, 'it is unknown here')}")
    rope: dict[str, Any] = {"base": float(given.pop("rope_theta")), "fraction": given.pop("partial_rotary_factor", 1.0)}
    trained_to = given.pop("original_max_position_embeddings", None)
    factor = float(given.pop("factor", 1.0))
    for key, value in given.items():
        if key not in _DEFAULTS[kind] or value != _DEFAULTS[kind][key]:
            raise BadInput(f"rope of type {kind} with {key}={value} cannot be read: scaled_rope has no such setting")
    if kind == "default":
        return RopeConfig(**rope)
    return ScaledRopeConfig(method=kind, factor=factor, trained_to=trained_to or max(2, int(longest / factor)), **rope)


def rope_parameters(encoding: EncodingConfig, longest: int, head_dim: int) -> dict[str, Any]:
    """Return the `rope_parameters` for our encoding in a model with heads of this size."""
    if type(encoding) not in (RopeConfig, ScaledRopeConfig):
        raise BadInput(f"Hugging Face has no such model with the encoding {name_of(type(encoding))}: it has rope")
    assert isinstance(encoding, RopeConfig)
    if encoding.spectrum != "geometric":
        raise BadInput(f"Hugging Face has no rope with a {encoding.spectrum} spectrum")
    written: dict[str, Any] = {"rope_type": "default", "rope_theta": encoding.base}
    if encoding.fraction != 1:
        written["partial_rotary_factor"] = encoding.fraction
    if isinstance(encoding, ScaledRopeConfig) and encoding.method == "ntk":
        written["rope_theta"] = raised_base(int(head_dim * encoding.fraction) // 2, encoding.base, encoding.factor)
    elif isinstance(encoding, ScaledRopeConfig):
        if encoding.method in _UNLIKE:
            raise BadInput(f"scaled_rope, method {encoding.method}, cannot be written: {_UNLIKE[encoding.method]}")
        written |= {"rope_type": encoding.method, "factor": encoding.factor}
        if encoding.method != "linear":
            if longest <= encoding.trained_to:
                raise BadInput(f"longest={longest} must be above scaled_rope.trained_to={encoding.trained_to}")
            written["original_max_position_embeddings"] = encoding.trained_to
        if encoding.method == "llama3":
            written |= _DEFAULTS["llama3"]
    return written


def encoding_for(config: Any, values: object, where: str) -> EncodingConfig:
    """Build another encoding for the weights of a model with this configuration of Hugging Face.

    `values` is a name or a mapping with a name.  Settings of RoPE that it leaves out come from the configuration: base
    and fraction are the model's own, `trained_to` is the length read in training before RoPE was scaled, and `window`
    is half of it.
    """
    encoding = build_part(EncodingConfig, values, where)
    if not isinstance(encoding, RopeConfig):
        return encoding
    own = rope_of(config.rope_parameters, config.max_position_embeddings)
    trained = own.trained_to if isinstance(own, ScaledRopeConfig) else config.max_position_embeddings
    defaults: dict[str, Any] = {"base": own.base, "fraction": own.fraction}
    if isinstance(encoding, ScaledRopeConfig):
        defaults["trained_to"] = trained
    if isinstance(encoding, FarRopeConfig):
        defaults["window"] = max(1, trained // 2)
    given = values if isinstance(values, Mapping) else {}
    return replace(encoding, **{name: value for name, value in defaults.items() if name not in given})
