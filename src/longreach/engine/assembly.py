"""A plan of the parts of the engine, and the models, steps and judges that it makes."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from longreach.attention import Attention
from longreach.attention.entmax import SparseWeights
from longreach.decoding import Writing, write_answers
from longreach.engine.batch_blocks import BlockStream, count_steps
from longreach.engine.by_token import ProductEmbedding
from longreach.engine.cpu_optimizer import CpuStep, updates_alike
from longreach.engine.drawing import SLOW, HostStream, Stream, draws_on_host
from longreach.engine.drawing_ahead import count_steps_ahead
from longreach.engine.heads import FastPointer
from longreach.engine.judging import WORTH_RECORDING, FastJudge
from longreach.engine.layers import (
    AdaSplash,
    CpuAttention,
    ExactAttention,
    FastAttention,
    FastTransformer,
    FlexBias,
    KnownFrequencies,
)
from longreach.engine.lockstep import write_in_lockstep
from longreach.engine.recorded_decoding import write_recorded
from longreach.engine.recorded_step import HostRecordedStep, RecordedStep
from longreach.engine.twins import Swap, make_twin
from longreach.evaluation import Judge, plain_judge
from longreach.model import Model, Transformer
from longreach.model.block import SelfAttention
from longreach.positions.encodings.equal import EqualIds
from longreach.positions.encodings.rope import Rope
from longreach.training import TrainingStream
from longreach.training.step import AnyStep, Step

PARTS = {
    "first_layer_by_token": "the first layer is computed once for each entry of the vocabulary",
    "fused_layers": "fused kernels compute the layers in half precision",
    "gelu_products": "products of fused layers compute GELU and its slope in the same kernel",
    "short_attention": "one kernel attends within sequences of up to 128 tokens",
    "rotary_kernel": "one kernel turns queries and keys and takes heads apart",
    "embedding_gradient": "the gradient of the embeddings is a product",
    "flex_attention": "biases of sequences from 2,048 tokens on are added inside the kernel",
    "exact_attention": "tests in fp32 attend by tensor cores from 128 tokens on, as exactly",
    "adasplash": "entmax over 1,024 tokens or more is computed by the package adasplash",
    "pointer_kernels": "kernels compute the loss of a pointer head without a score for every answer and token",
    "cross_entropy_kernel": "one kernel each way computes the loss of tokens over a large vocabulary",
    "known_frequencies": "random frequencies of RoPE are drawn once, and not for every batch",
    "large_chunks": "biases are computed in chunks that suit the memory of the GPU",
    "compiled_layers": "torch.compile compiles the layers",
    "recomputed_layers": "the backward pass computes layers again instead of keeping them",
    "recorded_steps": "a training step is recorded as a CUDA graph and replayed",
    "optimizer_kernels": "two kernels clip gradients and take a step of AdamW",
    "second_stream": "gradients of weights are computed on a second stream of the GPU",
    "batches_ahead": "batches of several steps are drawn at once, while the steps before them compute",
    "cpu_rotation": "on a CPU, queries and keys are rotated together",
    "cpu_batches": "a CPU draws the batches of up to 16 training steps at once",
    "cpu_optimizer": "on a CPU, clipping and AdamW leave out the checks of torch.optim",
    "lockstep_decoding": "rows of equally long prompts write the same column in every step of generation on a CPU",
    "drawing_workers": "processes draw the batches of a task in plain Python ahead of training",
    "half_precision_tests": "tests are judged in half precision where that is beyond doubt, and in fp32 otherwise",
    "recorded_tests": "passes over batches of a test are recorded as CUDA graphs",
    "recorded_decoding": "a step of generation is recorded as a CUDA graph",
}
"""All parts that a plan may use, by the names that `execution.without` knows."""

Drawn = Stream | HostStream | BlockStream
"""What a training step reads its batches from."""

_SHARE = 16
"""One part in so many of a GPU's memory is for computing a bias."""


def describe_plan(plan: dict[str, Any]) -> str:
    """Return a plan, as a run folder keeps it, in one line."""
    used = ", ".join(name.replace("_", " ") for name in plan["used"]) or "the reference core alone"
    drawing = plan.get("drawing")  # not in folders of earlier versions
    return f"{plan['device']}, {plan['precision']}: {used}" + (f"; {drawing}" if drawing else "")


@dataclass(frozen=True)
class Plan:
    """The parts of the engine that are used, and for each other one why it is not."""

    device: str
    precision: Literal["fp32", "bf16"]
    engine: Literal["auto", "plain"]
    used: tuple[str, ...]
    unused: dict[str, str]
    reads_states: bool = False
    """Whether attention rescales scores by the states."""
    host_draws: bool = False
    """Whether the batches of training are drawn in plain Python on the CPU."""
    workers: int = 0
    """Processes that draw them ahead, if any do."""
    workers_at_once: bool = False
    """Whether these are started in any case, and not only if drawing is slow."""

    def __str__(self) -> str:
        """Return the plan in one line."""
        return f"plan: {describe_plan(self.to_plain())}"

    def to_plain(self) -> dict[str, Any]:
        """Return the plan as a run folder keeps it."""
        return {
            "device": self.device,
            "precision": self.precision,
            "engine": self.engine,
            "used": {name: PARTS[name] for name in self.used},
            "not_used": dict(self.unused),
            "drawing": self.drawing,
        }

    @property
    def drawing(self) -> str | None:
        """Return which processes draw the batches of training; None if the device does."""
        if not self.host_draws:
            return None
        if "drawing_workers" not in self.used:
            return f"the training process draws batches: {self.unused['drawing_workers']}"
        when = "" if self.workers_at_once else f" if drawing takes more than {SLOW:.0%} of the time"
        return f"{self.workers} {'process draws' if self.workers == 1 else 'processes draw'} batches ahead{when}"

    def training_data(self, data: Stream, steps: int) -> Drawn:
        """Return a stream with the same batches for a training of so many steps; workers may draw them."""
        if not draws_on_host(data):
            if "cpu_batches" in self.used and isinstance(data, TrainingStream):
                return BlockStream(data, count_steps(data))
            return data
        if self.engine == "plain":
            return data
        workers = self.workers if "drawing_workers" in self.used else 0
        return HostStream(data, workers, self.workers_at_once, steps)

    def training_model(self, model: Model) -> Model:
        """Return the model that computes the loss; it shares its weights with the given one."""
        half = torch.bfloat16 if self.precision == "bf16" and "fused_layers" in self.used else None
        twin = self._twin(model, half, "recomputed_layers" in self.used, trains=True)
        if "compiled_layers" in self.used:
            twin = _compiled(twin)
        return twin

    def training_step(self, step: Step) -> AnyStep:
        """Return a step that computes the same: on a GPU it does not wait for the host, and it may be recorded."""
        if self.engine == "auto" and torch.device(self.device).type == "cuda":
            step.reads_host = False
        if "cpu_optimizer" in self.used and updates_alike(step):
            return CpuStep(step)
        if "recorded_steps" not in self.used:
            return step
        kind = HostRecordedStep if isinstance(step.data, HostStream) else RecordedStep
        ahead = count_steps_ahead(step.data) if "batches_ahead" in self.used else 1
        return kind(step, "optimizer_kernels" in self.used, "second_stream" in self.used, ahead)

    def test_model(self, model: Model) -> Model:
        """Return the model that computes in fp32 without gradients."""
        return self._twin(model, None)

    def half_model(self, model: Model) -> Model | None:
        """Return the model that computes under autocast in fp16 without gradients; None where tests are in fp32."""
        if "half_precision_tests" not in self.used:
            return None
        return self._twin(model, torch.float16 if "fused_layers" in self.used else None)

    def new_judge(self, model: Model, batches: int) -> Judge:
        """Return a judge of so many batches of one shape."""
        if self.engine == "plain":
            return plain_judge(model, batches)
        record = "recorded_tests" in self.used and batches >= WORTH_RECORDING
        return FastJudge(self.test_model(model), self.half_model(model), record)

    def write(self, writing: Writing) -> None:
        """Generate answers."""
        writing.model = self.test_model(writing.model)
        if "recorded_decoding" in self.used:
            write_recorded(writing)
        elif "lockstep_decoding" in self.used:
            write_in_lockstep(writing)
        else:
            write_answers(writing)

    def _twin(self, model: Model, half: torch.dtype | None, recompute: bool = False, trains: bool = False) -> Model:
        """Return a model with the same weights and the parts of this plan, or the model itself without any."""
        cuda = torch.device(self.device).type == "cuda"
        by_token = "first_layer_by_token" in self.used and not recompute
        own = {
            "by_token": by_token,
            "by_product": cuda,
            "reads_states": self.reads_states,
            "fused_in": half if not recompute else None,
            "gelu_in_products": "gelu_products" in self.used,
            "recompute": recompute,
            "fused_cross_entropy": "cross_entropy_kernel" in self.used,
        }
        compares = (
            "short_attention" in self.used and isinstance(model, Transformer) and type(model.encoding) is EqualIds
        )
        fast = by_token or half is not None or recompute or compares or own["fused_cross_entropy"]
        attention = {"short": "short_attention" in self.used, "rotary": "rotary_kernel" in self.used}
        room = {"room": _room(self.device)} if "large_chunks" in self.used else {}

        def swap(module: nn.Module) -> Swap | None:
            if module is model and isinstance(model, Transformer) and fast:
                return Swap(FastTransformer, own)
            if type(module) is SelfAttention and (any(attention.values()) or half is not None):
                return Swap(FastAttention, attention)
            if type(module) is SelfAttention and "cpu_rotation" in self.used:
                return Swap(CpuAttention, {})
            if isinstance(module, Attention):
                if "adasplash" in self.used and isinstance(module, SparseWeights):
                    return Swap(AdaSplash, room)
                exact = ExactAttention if "exact_attention" in self.used else type(module)
                return Swap(FlexBias if "flex_attention" in self.used else exact, room)
            if type(module) is Rope and "known_frequencies" in self.used:
                device = torch.device(self.device)
                known = tuple(module.frequencies(level, device) for level in range(len(module.pairs)))
                return Swap(KnownFrequencies, {"known": known})
            if module is model.embed and "embedding_gradient" in self.used:
                return Swap(ProductEmbedding, {})
            if module is model.position_head and "pointer_kernels" in self.used and trains:
                return Swap(FastPointer, {})
            return None

        return make_twin(model, swap) if self.used else model


def _room(device: str) -> int:
    """Return the numbers that a chunk may hold: a share of all memory, not of what is free, so that runs repeat."""
    return torch.cuda.get_device_properties(device).total_memory // 4 // _SHARE


def _compiled(model: Model) -> Model:
    """Compile the layers of a transformer, or the whole of another model.

    Angles stay outside: fused into the kernels of every layer, they would be computed anew in each.
    """
    twin = make_twin(model, lambda module: None)
    if isinstance(twin, Transformer):
        twin.__dict__["run_layers"] = torch.compile(twin.run_layers)
        return twin
    return torch.compile(twin)  # type: ignore[return-value]
