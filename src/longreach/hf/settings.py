"""A model's settings as Hugging Face's configurations write them, both ways: what one side lacks is refused by name."""

from typing import Any

from longreach.attention import SoftmaxConfig
from longreach.config.registry import name_of
from longreach.errors import BadInput
from longreach.hf.names import GPT_NEOX, LLAMA, Names
from longreach.hf.rope import rope_of, rope_parameters
from longreach.model import LlamaConfig, Transformer, TransformerConfig

FAMILIES = {"gpt_neox": GPT_NEOX, "llama": LLAMA}


def settings_of(theirs: Any) -> TransformerConfig:
    """Our settings for a configuration of Hugging Face's."""
    if theirs.model_type not in FAMILIES:
        raise BadInput(f"models of type {theirs.model_type} cannot be read: {' and '.join(FAMILIES)} can")
    llama = theirs.model_type == "llama"
    wanted: dict[str, Any] = {"hidden_act": "silu" if llama else "gelu", "attention_dropout": 0.0}
    if llama:
        wanted |= {"head_dim": theirs.hidden_size // theirs.num_attention_heads, "pretraining_tp": 1}
        wanted |= {"mlp_bias": theirs.attention_bias}
    else:
        wanted |= {"hidden_dropout": 0.0, "attention_bias": True}
    for key, value in wanted.items():
        if getattr(theirs, key, value) != value:
            raise BadInput(
                f"a {theirs.model_type} model with {key}={getattr(theirs, key)} cannot be read: only {value}"
            )
    rope = rope_of(theirs.rope_parameters, theirs.max_position_embeddings)
    if llama and rope.fraction != 1:
        raise BadInput(f"a llama model with partial_rotary_factor={rope.fraction} cannot be read: Llama turns all")
    common: dict[str, Any] = {
        "layers": theirs.num_hidden_layers,
        "width": theirs.hidden_size,
        "heads": theirs.num_attention_heads,
        "feed_forward": theirs.intermediate_size / theirs.hidden_size,
        "tie_embeddings": theirs.tie_word_embeddings,
        "encoding": rope,
    }
    if not llama:
        parallel = theirs.use_parallel_residual
        return TransformerConfig(**common, norm_eps=theirs.layer_norm_eps, parallel_residual=parallel)
    shared = theirs.num_key_value_heads
    return LlamaConfig(
        **common,
        norm_eps=theirs.rms_norm_eps,
        biases=theirs.attention_bias,
        kv_heads=0 if shared == theirs.num_attention_heads else shared,
    )


def family_of(model: Transformer) -> str:
    """Which family has models like this one; refused with the reason where none has."""
    config = model.config
    if type(config.attention) is not SoftmaxConfig:
        raise BadInput(f"Hugging Face has no such model with the attention {name_of(type(config.attention))}")
    if model.levels != 1:
        raise BadInput(f"Hugging Face has one position ID per token, and this model reads {model.levels}")
    for name in ("norm_queries_and_keys", "id_heads", "position_head", "copy_head", "dependency_head"):
        if getattr(config, name):
            raise BadInput(f"Hugging Face has no such model with {name}")
    if config.loops > 1:
        raise BadInput(f"Hugging Face has no such model with loops={config.loops}")
    if config.norm == "layer" and config.biases and not config.gated and config.groups == config.heads:
        return "gpt_neox"
    whole = getattr(config.encoding, "fraction", 1.0) == 1
    if config.norm == "rms" and config.gated and not config.parallel_residual and whole:
        return "llama"
    raise BadInput(
        "Hugging Face has such layers as GPT-NeoX has them (norm layer, biases, not gated, no kv_heads)"
        " or as Llama has them (norm rms, gated, not parallel_residual, rope.fraction 1): these are neither"
    )


def written_settings(model: Transformer, family: str, longest: int, stop_token: int | None) -> dict[str, Any]:
    """What a configuration of Hugging Face's is made of."""
    config = model.config
    written: dict[str, Any] = {
        "vocab_size": model.embed.num_embeddings,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "max_position_embeddings": longest,
        "tie_word_embeddings": config.tie_embeddings,
        "rope_parameters": rope_parameters(config.encoding, longest, config.head_dim),
        "bos_token_id": None,
        "eos_token_id": stop_token,
    }
    if family == "llama":
        return written | {
            "num_key_value_heads": config.groups,
            "rms_norm_eps": config.norm_eps,
            "attention_bias": config.biases,
            "mlp_bias": config.biases,
        }
    # GPT-NeoX turns a quarter of each head unless told otherwise
    written["rope_parameters"] = {"partial_rotary_factor": 1.0, **written["rope_parameters"]}
    return written | {
        "hidden_act": "gelu",
        "layer_norm_eps": config.norm_eps,
        "use_parallel_residual": config.parallel_residual,
    }


def names_in(theirs: Any) -> Names:
    """The names of a model in memory: older releases call the output of GPT-NeoX otherwise."""
    names = FAMILIES[theirs.config.model_type]
    if not hasattr(theirs, "embed_out"):
        return names
    return Names(names.family, {**names.outside, "head": "embed_out"}, names.layers, names.in_layer)
