"""Which of our parameters is which of Hugging Face's GPT-NeoX: the layouts are equal, only names differ."""

from torch import Tensor

from longreach.errors import BadInput

_OUTSIDE = {"embed": "gpt_neox.embed_in", "norm": "gpt_neox.final_layer_norm", "head": "embed_out"}
_IN_BLOCK = {
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    "attention.qkv": "attention.query_key_value",
    "attention.out": "attention.dense",
    "feed_forward.up": "mlp.dense_h_to_4h",
    "feed_forward.out": "mlp.dense_4h_to_h",
}


def gpt_neox_name(name: str) -> str:
    """`blocks.0.norm1.weight` -> `gpt_neox.layers.0.input_layernorm.weight`."""
    module, _, kind = name.rpartition(".")
    if module in _OUTSIDE:
        return f"{_OUTSIDE[module]}.{kind}"
    parts = module.split(".", 2)
    if parts[0] == "blocks" and len(parts) == 3 and parts[2] in _IN_BLOCK:
        return f"gpt_neox.layers.{parts[1]}.{_IN_BLOCK[parts[2]]}.{kind}"
    raise BadInput(f"GPT-NeoX has no counterpart of {name}: it knows rope and softmax only")


def to_gpt_neox(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    return {gpt_neox_name(name): tensor for name, tensor in parameters.items()}
