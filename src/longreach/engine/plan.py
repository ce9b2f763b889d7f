"""The plan: which parts of the engine compute a model, decided before training, a test or decoding starts.

This file holds all conditions; `facts.py` has what they ask of a model.  `choose` looks at a model, the settings of its
execution and the device, and returns a plan that says for every part that is not used why.  `assembly.py` then replaces
or wraps parts of the model.
"""

import importlib.util
from collections.abc import Callable
from typing import Literal

import torch
from torch import nn

from longreach.attention import Attention
from longreach.attention.entmax import SparseWeights
from longreach.config.registry import nearest
from longreach.decoding import Writing
from longreach.engine import adasplash, flex
from longreach.engine.assembly import PARTS, Plan, describe_plan
from longreach.engine.drawing import Stream, count_workers, why_not_sent
from longreach.engine.facts import Facts, has_bias, has_hook, is_plain
from longreach.engine.heads import LARGE_VOCABULARY, why_not_fast
from longreach.engine.stacked_training import MultiSeedStream, StackedStream
from longreach.engine.stacking import stacked_class
from longreach.errors import BadInput
from longreach.evaluation import Judge
from longreach.execution import ExecutionConfig
from longreach.model import Model, Transformer
from longreach.model.block import IdHeads
from longreach.positions.encodings.equal import EqualIds
from longreach.positions.encodings.rope import Rope
from longreach.training import TrainingStream

__all__ = ["PARTS", "Parallel", "Plan", "choose", "describe_plan", "judges", "write_fast"]

Parallel = Literal["ddp", "fsdp"]
"""How several processes train one model."""

_NEEDS = (
    ("optimizer_kernels", "recorded_steps"),
    ("second_stream", "recorded_steps"),
    ("batches_ahead", "recorded_steps"),
    ("second_stream", "fused_layers"),
    ("gelu_products", "fused_layers"),
    ("recorded_tests", "half_precision_tests"),
)
"""Parts, each with another that it works within."""


def choose(
    model: Model,
    execution: ExecutionConfig,
    device: str | torch.device,
    precision: Literal["fp32", "bf16"] = "fp32",
    parallel: Parallel | None = None,
    data: Stream | None = None,
) -> "Plan":
    """Decide which parts of the engine compute a model that is trained in this precision, on this data if any."""
    for name in execution.without:
        if name not in PARTS:
            raise BadInput(f"execution.without: unknown part {name!r}{nearest(name, PARTS)}")
    facts = _Reasons(model, execution, torch.device(device), precision, data)
    reasons = {name: getattr(facts, f"not_{name}")() for name in PARTS}
    if execution.engine == "plain":
        reasons = {name: reason or "execution.engine is plain" for name, reason in reasons.items()}
    for name, reason in reasons.items():
        reasons[name] = reason or _not_parallel(name, parallel)
    for name in execution.without:
        reasons[name] = reasons[name] or "execution.without names it"
    for name, needed in _NEEDS:
        if reasons[needed]:
            reasons[name] = reasons[name] or f"{needed} is not used"
    return Plan(
        device=str(facts.device),
        precision=precision,
        engine=execution.engine,
        used=tuple(name for name, reason in reasons.items() if not reason),
        unused={name: reason for name, reason in reasons.items() if reason},
        reads_states=facts.reads_states,
        host_draws=facts.host_draws,
        workers=count_workers(execution),
        workers_at_once=execution.workers is not None,
    )


def _not_parallel(name: str, parallel: Parallel | None) -> str:
    """Return why several processes cannot use a part."""
    if parallel is not None and name in (
        "recorded_steps",
        "optimizer_kernels",
        "second_stream",
        "batches_ahead",
    ):
        return "a step of several processes cannot be recorded"
    if parallel is not None and name in ("cpu_batches", "cpu_optimizer"):
        return "several processes share a step"
    if parallel == "fsdp" and name not in ("recomputed_layers", "large_chunks", "drawing_workers"):
        return "fsdp splits the weights"
    return ""


def write_fast(execution: ExecutionConfig, device: str) -> Callable[[Writing], None]:
    """Return a function that generates answers.  It chooses a plan each time: an encoding may have been exchanged."""
    return lambda writing: choose(writing.model, execution, device).write(writing)


def judges(execution: ExecutionConfig, device: str) -> Callable[[Model, int], Judge]:
    """Return a function that makes judges.  It chooses a plan each time: an encoding may have been exchanged."""
    return lambda model, batches: choose(model, execution, device).new_judge(model, batches)


class _Reasons(Facts):
    """The reason against each part: an empty one where it computes the same faster."""

    def not_first_layer_by_token(self) -> str:
        if self.foreign:
            return self.foreign
        model, block = self.transformer, self.blocks[0]
        if self.execution.recompute:
            return "layers are recomputed"
        if model.config.inject:
            return "every loop reads the embedded input"
        if model.encoding.reaches_embeddings:
            return "the encoding adds position IDs to the embeddings"
        net = block.feed_forward
        maps = [part for part in (block.attention.qkv, net.gate, net.up, net.out) if part is not None]
        if not (
            is_plain(model.embed, nn.Embedding)
            and all(is_plain(norm, nn.LayerNorm, nn.RMSNorm) for norm in (block.norm1, block.norm2))
            and all(is_plain(part, nn.Linear) for part in maps)
        ):
            return "the first layer has a part of another class"
        return ""

    def not_fused_layers(self) -> str:
        reason = self.foreign or self.no_kernels()
        if reason:
            return reason
        model = self.transformer
        if self.execution.recompute:
            return "layers are recomputed"
        if self.execution.compile:
            return "layers are compiled"
        if model.config.loops > 1:
            return "the model loops over its layers"
        from longreach.engine.fused import WIDEST  # needs Triton

        if model.config.width > WIDEST:
            return f"the width is above {WIDEST}"
        norms = [model.norm, *(norm for block in self.blocks for norm in (block.norm1, block.norm2))]
        if not all(is_plain(norm, nn.LayerNorm, nn.RMSNorm) and norm.weight is not None for norm in norms):
            return "norms are neither layer norms nor RMS norms with weights"
        if norms[0].eps is None or len({(type(norm), has_bias(norm), norm.eps) for norm in norms}) > 1:
            return "norms differ in their class, biases or eps"
        nets = [block.feed_forward for block in self.blocks]
        maps = [part for block in self.blocks for part in (block.attention.qkv, block.attention.out)]
        maps += [part for net in nets for part in (net.gate, net.up, net.out) if part is not None]
        if not all(is_plain(part, nn.Linear) for part in maps):
            return "a linear map is of another class"
        if any(net.gate is not None and has_bias(net.gate) != has_bias(net.up) for net in nets):
            return "only one map of a gated feed-forward net has a bias"
        return ""

    def not_gelu_products(self) -> str:
        reason = self.not_fused_layers()
        if not reason and self.transformer.config.gated:
            return "hidden units are gated"
        if not reason and torch.cuda.is_available() and torch.cuda.get_device_capability(self.device) < (9, 0):
            return "needs a GPU of compute capability 9.0 or newer"
        return reason

    def not_short_attention(self) -> str:
        reason = self.foreign or self.no_kernels() or self.turned_apart()
        if reason:
            return reason
        for block in self.blocks:
            norms = (block.attention.norm_q, block.attention.norm_k)
            if not all(type(norm) is nn.Identity or is_plain(norm, nn.RMSNorm) for norm in norms):
                return "queries and keys are normalised in another way"
            if type(block.attention.id_heads) not in (type(None), IdHeads, stacked_class(IdHeads)):
                return "id_heads are of another class"
        for mix in self.attentions:
            if type(mix).forward is not Attention.forward or type(mix).rescale is not Attention.rescale:
                return f"{type(mix).__name__} attends in a way of its own"
            if not mix.fused or mix.hides:
                return f"{type(mix).__name__} is not a softmax over all keys before"
        if self.encoded[2] is not None and type(self.transformer.encoding) is not EqualIds:
            return "scores have a bias"
        from longreach.engine.short_attention import LARGEST_HEAD  # needs Triton

        size = self.transformer.config.head_dim
        return "" if size % 2 == 0 and size <= LARGEST_HEAD else f"heads have {size} dimensions"

    def not_rotary_kernel(self) -> str:
        reason = self.foreign or self.no_kernels() or self.only_turned()
        if reason:
            return reason
        rotation = self.encoded[0]
        if rotation is None:
            return "the encoding does not turn queries and keys"
        pairs = rotation[0].shape[-1]
        return "" if pairs & (pairs - 1) == 0 else f"heads have {2 * pairs} dimensions, which is no power of two"

    def not_cpu_rotation(self) -> str:
        reason = self.no_cpu or self.foreign or self.only_turned()
        if reason or self.execution.compile:
            return reason or "layers are compiled"
        return "" if self.encoded[0] is not None else "the encoding does not turn queries and keys"

    def not_embedding_gradient(self) -> str:
        if not (self.cuda or self.execution.compile):
            return "needs a GPU or compiled layers"
        if not is_plain(self.model.embed, nn.Embedding) or has_hook(self.model.embed):
            return "the embedding is of another class"
        return ""

    def not_pointer_kernels(self) -> str:
        hooked = any(has_hook(part) for part in self.model.modules())
        reason = why_not_fast(self.model) or self.no_kernels() or self.own_losses
        return reason or ("a hook is registered on the model" if hooked else "")

    def not_cross_entropy_kernel(self) -> str:
        reason = self.no_kernels() or self.own_losses
        if reason:
            return reason
        few = self.model.embed.weight.shape[-2] < LARGE_VOCABULARY
        return f"the vocabulary has fewer than {LARGE_VOCABULARY:,} tokens" if few else ""

    def not_flex_attention(self) -> str:
        reason = self.no_kernels()
        if reason or not isinstance(self.model, Transformer):
            return reason or "the model is no transformer"
        if self.encoded[2] is None:
            return "scores have no bias"
        if any(mix.hides or not mix.fused or type(mix).forward is not Attention.forward for mix in self.attentions):
            return "attention is not a softmax over all keys before"
        size = self.model.config.head_dim
        return "" if size in flex.HEAD_SIZES else f"heads have {size} dimensions"

    def not_exact_attention(self) -> str:
        reason = self.no_kernels()
        if reason or not isinstance(self.model, Transformer):
            return reason or "the model is no transformer"
        if self.model.embed.weight.dtype != torch.float32:
            return "weights are not in fp32"
        if self.encoded[2] is not None:
            return "scores have a bias"
        if any(mix.hides or not mix.fused or type(mix).forward is not Attention.forward for mix in self.attentions):
            return "attention is not a softmax over all keys before"
        from longreach.engine.exact_attention import HEAD_SIZES  # needs Triton

        size = self.model.config.head_dim
        return "" if size in HEAD_SIZES else f"heads have {size} dimensions"

    def not_adasplash(self) -> str:
        if not any(isinstance(mix, SparseWeights) for mix in self.attentions):
            return "attention is not entmax"
        if not self.cuda:
            return "needs a GPU"
        if importlib.util.find_spec("adasplash") is None:
            return "the package adasplash is not installed"
        if any(isinstance(mix, SparseWeights) and mix.config.alpha != 1.5 for mix in self.attentions):
            return "alpha is not 1.5"
        if self.model.embed.weight.dtype not in adasplash.PRECISIONS:
            return "thresholds are searched in fp32"
        size = self.transformer.config.head_dim
        return "" if size in adasplash.HEAD_SIZES else f"heads have {size} dimensions"

    def not_known_frequencies(self) -> str:
        if not self.cuda:
            return "needs a GPU"
        encoding = self.transformer.encoding if isinstance(self.model, Transformer) else None
        random = type(encoding) is Rope and encoding.config.spectrum == "random"
        return "" if random else "the encoding is not RoPE with a random spectrum"

    def not_large_chunks(self) -> str:
        if not self.cuda:
            return "needs a GPU"
        return "" if self.attentions else "the model has no attention"

    def not_compiled_layers(self) -> str:
        return "" if self.execution.compile else "execution.compile is false"

    def not_recomputed_layers(self) -> str:
        if not self.execution.recompute:
            return "execution.recompute is false"
        if not isinstance(self.model, Transformer):
            return "the model is no transformer"
        return "" if self.is_ours else f"{type(self.model).__name__} computes its states in a way of its own"

    def not_recorded_steps(self) -> str:
        if not self.cuda:
            return "needs a GPU"
        if self.host_draws and self.model.dependency_head is not None:
            return "a task in plain Python finds on the host what its answers depend on"
        return "" if self.execution.graph else "execution.graph is false"

    def not_batches_ahead(self) -> str:
        if not self.cuda:
            return "needs a GPU"
        return "a task in plain Python draws its batches on the host" if self.host_draws else ""

    def not_cpu_batches(self) -> str:
        if self.no_cpu or self.data is None:
            return self.no_cpu or "only training draws batches"
        if self.host_draws:
            return "a task in plain Python draws one sample after the other"
        return "" if type(self.data) is TrainingStream else "several models draw their batches together"

    def not_cpu_optimizer(self) -> str:
        stacked = isinstance(self.data, MultiSeedStream | StackedStream)
        return self.no_cpu or ("gradients of several models are clipped apart" if stacked else "")

    def not_drawing_workers(self) -> str:
        if self.data is None:
            return "only training draws ahead"
        if not self.host_draws:
            return "the task draws its batches on the device"
        if self.execution.workers == 0:
            return "execution.workers is 0"
        if count_workers(self.execution) == 0:
            return "torch computes with one thread, unless execution.workers is set"
        return why_not_sent(self.data)

    def not_optimizer_kernels(self) -> str:
        return self.not_recorded_steps() or self.no_kernels()

    def not_second_stream(self) -> str:
        in_fp32 = "" if self.precision == "bf16" else "training in fp32 fuses no layers"
        return self.not_recorded_steps() or self.not_fused_layers() or in_fp32

    def not_half_precision_tests(self) -> str:
        if not self.cuda:
            return "needs a GPU"
        if not self.attentions or not all(mix.fused for mix in self.attentions):
            return "attention is computed in fp32 anyway, or there is none"
        return ""

    def not_recorded_tests(self) -> str:
        reason = self.not_half_precision_tests()
        if reason or not self.execution.graph:
            return reason or "execution.graph is false"
        watched = any(has_hook(module) for module in self.model.modules())
        return "a hook is registered on the model" if watched else ""

    def not_recorded_decoding(self) -> str:
        if not self.cuda:
            return "needs a GPU"
        return "" if self.execution.graph else "execution.graph is false"

    def not_lockstep_decoding(self) -> str:
        return self.no_cpu or self.foreign
