"""The other side: Hugging Face's GPT-NeoX with our weights, used as its users use it."""

import importlib.util
from collections.abc import Callable
from contextlib import nullcontext

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.bench.machine import on_gpu
from longreach.errors import BadInput
from longreach.hf import to_huggingface
from longreach.model import Transformer
from longreach.training import OptimizerConfig

TRAINING = {"hf-eager": "hf eager", "hf-compiled": "hf compiled", "hf-graphs": "hf compiled + graphs"}
"""Ways to train: the name on the command line and in tables."""
DECODING = {"hf-dynamic": "hf dynamic cache", "hf-static": "hf static cache"}
"""Ways to generate; on a GPU, Hugging Face compiles a step by itself where the cache is static."""


def choose_rivals(against: str, known: dict[str, str], device: str) -> list[str]:
    """The rivals that `--against` names: one, all that the device can run, or none."""
    if against == "none":
        return []
    if importlib.util.find_spec("transformers") is None:
        raise BadInput(f"--against {against} needs the package transformers: install it, or say --against none")
    if against == "hf":
        return [name for name in known if name != "hf-graphs" or on_gpu(device)]
    if against == "hf-graphs" and not on_gpu(device):
        raise BadInput("--against hf-graphs needs a GPU: CUDA graphs are recorded there")
    return [against]


def training_step(form: str, ours: Transformer, tokens: Int[Tensor, "b t"], bf16: bool) -> Callable[[], Tensor]:
    """A step on a batch that lies ready: loss on all tokens, gradients, AdamW.  Nothing is sampled or clipped."""
    model = to_huggingface(ours, tokens.shape[1]).train()
    defaults = OptimizerConfig()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=defaults.lr,
        betas=(defaults.beta1, defaults.beta2),
        weight_decay=defaults.weight_decay,
        fused=True,
    )
    forward = model
    if form == "hf-compiled":
        forward = torch.compile(model)
    elif form == "hf-graphs":
        forward = torch.compile(model, mode="reduce-overhead")

    def step() -> Tensor:
        if form == "hf-graphs":
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with torch.autocast(tokens.device.type, torch.bfloat16) if bf16 else nullcontext():
            loss: Tensor = forward(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def reading(ours: Transformer, tokens: Int[Tensor, "b t"]) -> Callable[[], Tensor]:
    """One forward pass with the logits of all tokens."""
    model = to_huggingface(ours, tokens.shape[1]).eval()

    def read() -> Tensor:
        with torch.no_grad():
            logits: Tensor = model(input_ids=tokens, use_cache=False).logits
        return logits

    return read


def writing(form: str, ours: Transformer, prompt: Int[Tensor, "b p"], new_tokens: int) -> Callable[[], Tensor]:
    """Greedy generation of exactly so many tokens; gives the whole sequences."""
    model = to_huggingface(ours, prompt.shape[1] + new_tokens).eval()
    cache = {"cache_implementation": "static"} if form == "hf-static" else {}

    def write() -> Tensor:
        with torch.no_grad():
            written: Tensor = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=False,
                max_new_tokens=new_tokens,
                pad_token_id=0,
                **cache,
            )
        return written

    return write
