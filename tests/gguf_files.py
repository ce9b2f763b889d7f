"""Tiny Llamas in llama.cpp's format."""

from pathlib import Path
from typing import Any

import torch


def write_gguf(path: Path, model: Any, tokenizer: dict[str, Any], end: int) -> None:
    """Write a Llama of Hugging Face and its byte-level BPE, given as the `model` of its tokenizer.json."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    tokens = sorted(tokenizer["vocab"], key=tokenizer["vocab"].__getitem__)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in ("<pad>", "<end>") else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["merges"]])
    writer.add_bos_token_id(end)  # transformers 5.5 needs one
    writer.add_eos_token_id(end)
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    for name, weight in model.state_dict().items():
        module = name.removesuffix(".weight")
        prefix = ""
        if module.startswith("model.layers."):
            _, _, layer, module = module.split(".", 3)
            prefix = f"blk.{layer}."
        tensor = weight.detach().float()
        if module in ("self_attn.q_proj", "self_attn.k_proj"):  # llama.cpp turns neighbours, not halves
            heads = config.num_attention_heads if module[10] == "q" else config.num_key_value_heads
            tensor = tensor.view(heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
        writer.add_tensor(f"{prefix}{names[module]}.weight", torch.Tensor.numpy(tensor.contiguous()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
