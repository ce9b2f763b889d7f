"""Which of our parameters is which of Hugging Face's: one table for GPT-NeoX, one for Llama."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from longreach.errors import BadInput
from longreach.model.layer import LayerConfig

_FUSED = "attention.qkv"


@dataclass(frozen=True)
class Names:
    """Modules of ours, and what a family calls them."""

    family: str
    outside: Mapping[str, str]
    """Outside of the layers."""
    layers: str
    """What the number of a layer follows."""
    in_layer: Mapping[str, str]
    """Within a layer."""
    apart: tuple[str, str, str] | None = None
    """Projections to queries, keys and values, where a family has three for our one."""

    def to_theirs(self, ours: Mapping[str, Tensor], config: LayerConfig) -> dict[str, Tensor]:
        """The same weights, or gradients, under their names."""
        theirs = {}
        for name, tensor in ours.items():
            layer, module, kind = _parse(name)
            if layer is None and module in self.outside:
                theirs[f"{self.outside[module]}.{kind}"] = tensor
            elif layer is not None and module in self.in_layer:
                theirs[f"{self.layers}.{layer}.{self.in_layer[module]}.{kind}"] = tensor
            elif layer is not None and module == _FUSED and self.apart is not None:
                for their, part in zip(self.apart, _split(tensor, config), strict=True):
                    theirs[f"{self.layers}.{layer}.{their}.{kind}"] = part
            else:
                raise BadInput(f"{self.family} has no counterpart of {name}")
        return theirs

    def to_ours(
        self, theirs: Mapping[str, Tensor], names: Mapping[str, Tensor], config: LayerConfig
    ) -> dict[str, Tensor]:
        """The weights that a model of ours with these `names` needs, out of theirs; none of theirs may be left."""
        left, ours = dict(theirs), {}
        for name, like in names.items():
            parts = []
            for their in self.to_theirs({name: like}, config):
                if their not in left:
                    raise BadInput(f"this {self.family} model has no {their}")
                parts.append(left.pop(their))
            ours[name] = parts[0] if len(parts) == 1 else _fuse(parts, config)
        if left:
            raise BadInput(f"nothing of ours corresponds to {next(iter(left))} of this {self.family} model")
        return ours


GPT_NEOX = Names(
    family="GPT-NeoX",
    outside={"embed": "gpt_neox.embed_in", "norm": "gpt_neox.final_layer_norm", "head": "lm_head"},
    layers="gpt_neox.layers",
    in_layer={
        "norm1": "input_layernorm",
        "norm2": "post_attention_layernorm",
        _FUSED: "attention.query_key_value",
        "attention.out": "attention.dense",
        "feed_forward.up": "mlp.dense_h_to_4h",
        "feed_forward.out": "mlp.dense_4h_to_h",
    },
)
LLAMA = Names(
    family="Llama",
    outside={"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"},
    layers="model.layers",
    in_layer={
        "norm1": "input_layernorm",
        "norm2": "post_attention_layernorm",
        "attention.out": "self_attn.o_proj",
        "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.up": "mlp.up_proj",
        "feed_forward.out": "mlp.down_proj",
    },
    apart=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
)


def _parse(name: str) -> tuple[str | None, str, str]:
    """`blocks.0.norm1.weight` -> 0, norm1, weight; `embed.weight` -> None, embed, weight."""
    module, _, kind = name.rpartition(".")
    parts = module.split(".", 2)
    return (parts[1], parts[2], kind) if parts[0] == "blocks" and len(parts) == 3 else (None, module, kind)


def _split(fused: Float[Tensor, "wide *w"], config: LayerConfig) -> list[Float[Tensor, "_ *w"]]:
    """Our rows are, per group of heads, its queries, key, value; theirs are all queries, all keys, all values."""
    shared = config.heads // config.groups
    by_group = fused.view(config.groups, shared + 2, config.head_dim, *fused.shape[1:])
    return [part.flatten(0, 2) for part in torch.split(by_group, [shared, 1, 1], dim=1)]


def _fuse(parts: list[Float[Tensor, "_ *w"]], config: LayerConfig) -> Float[Tensor, "wide *w"]:
    """The inverse of `_split`."""
    by_group = [part.view(config.groups, -1, config.head_dim, *part.shape[1:]) for part in parts]
    return torch.cat(by_group, dim=1).flatten(0, 2)
