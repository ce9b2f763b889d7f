"""Rotations made slower, so that IDs beyond those of training turn by angles that training has seen."""

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Annotated, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.config import Bounds
from longreach.config.registry import register, shorten
from longreach.errors import BadInput
from longreach.positions.encodings.base import ContentBias, Encoding, Rotation, Shape
from longreach.positions.encodings.rope import Rope, RopeConfig, turn_further
from longreach.system.huggingface import import_transformers

Method = Literal["linear", "ntk", "dynamic", "yarn", "longrope", "llama3"]


@register("encoding", "scaled_rope")
@dataclass(frozen=True, kw_only=True)
class ScaledRopeConfig(RopeConfig):
    """`rope` with frequencies changed for IDs `factor` times beyond those of training.

    linear (Chen et al., 2023) divides them all; ntk raises the base instead; dynamic does so as far as the IDs read so
    far ask for it; yarn (Peng et al., ICLR 2024), llama3 and longrope (Ding et al., ICML 2024) treat fast and slow ones
    differently.  linear, yarn, longrope and llama3 are Hugging Face's own functions.  Needs no training: give it to
    a model trained with `rope` when it is tested.  A method's name is short for the encoding with this method.
    """

    paper = "Chen et al., 2023; Peng et al., ICLR 2024; Ding et al., ICML 2024"

    method: Method = "yarn"
    """linear, ntk, dynamic, yarn, longrope or llama3."""
    factor: Annotated[float, Bounds(high=1e6)] = 8.0
    """How many times further than in training IDs go."""
    trained_to: int = 64
    """The largest ID of training."""
    long_factors: list[Annotated[float, Bounds(1e-6, 1e6)]] = field(default_factory=list)
    """longrope: what the wavelength of each pair is multiplied by."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spectrum != "geometric":
            raise ValueError("scaled_rope changes a geometric spectrum; a random one has no order to go by")
        if self.factor < 1:
            raise ValueError(f"scaled_rope.factor must be at least 1, got {self.factor}")
        if self.trained_to < 2:
            raise ValueError(f"scaled_rope.trained_to must be at least 2, got {self.trained_to}")
        if bool(self.long_factors) != (self.method == "longrope"):
            raise ValueError(f"scaled_rope.long_factors belongs to longrope, and method is {self.method}")

    def build(self, shape: Shape) -> Encoding:
        pairs = self.pairs_of(shape)
        if self.method == "longrope" and any(len(self.long_factors) != count for count in pairs):
            raise BadInput(f"scaled_rope.long_factors must have one factor for each of {pairs[0]} pairs")
        return (DynamicRope if self.method == "dynamic" else ScaledRope)(pairs, self)


for _method in get_args(Method):
    shorten("encoding", _method, "scaled_rope", method=_method)


class ScaledRope(Rope):
    config: ScaledRopeConfig

    def __init__(self, pairs: list[int], config: ScaledRopeConfig) -> None:
        super().__init__(pairs, config)
        self._on_device: dict[torch.device, list[tuple[Tensor, float]]] = {}

    def frequencies(self, level: int, device: torch.device) -> Float[Tensor, "pairs"]:
        return self._scaled(device)[level][0]

    def rotation(self, ids: Int[Tensor, "b g t"], origin: Int[Tensor, "b g 1"]) -> Rotation:
        """yarn and longrope also sharpen: queries and keys grow by a factor each."""
        cos, sin = super().rotation(ids, origin)
        _, sharpened = self._scaled(ids.device)[0]
        return cos * sharpened, sin * sharpened

    def _scaled(self, device: torch.device) -> list[tuple[Float[Tensor, "pairs"], float]]:
        """For each level the frequencies and the factor that sharpens; made once, for they come from the host."""
        if device not in self._on_device:
            self._on_device[device] = [scaled_frequencies(self.config, pairs, device) for pairs in self.pairs]
        return self._on_device[device]


class DynamicRope(Rope):
    """Frequencies of a query depend on the largest ID that it has seen, in steps of a doubling.

    As published they change with every token, and a cache holds keys that were turned by others: generation then
    differs from one pass.  Here keys are kept as `rope` turns them, and scores are corrected: both are the same.
    """

    config: ScaledRopeConfig

    def score_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> ContentBias:
        origin = key_ids[:, :, :1]
        doublings = math.ceil(math.log2(self.config.factor))

        def of(part: slice, q: Tensor, k: Tensor, seen: Tensor) -> Float[Tensor, "b h q k"]:
            total = torch.zeros_like(q[..., :1] @ k[..., :1].transpose(2, 3))
            for level, pairs in enumerate(self.pairs):
                query, key = query_ids[:, level, part] - origin[:, level], key_ids[:, level] - origin[:, level]
                largest = torch.where(seen[:, 0], key[:, None], 0).amax(2)  # [b, q]
                doubled = (largest.double() / self.config.trained_to).clamp(min=1).log2().ceil().clamp(max=doublings)
                near_q, near_k = self.turning(q, level), self.turning(k, level)
                near = near_q @ near_k.transpose(2, 3)
                for number in range(1, doublings + 1):
                    slower = raised(pairs, self.config.base, 2.0**number, q.device) - self.frequencies(level, q.device)
                    far_q = turn_further(near_q, query[..., None] * slower)
                    far_k = turn_further(near_k, key[..., None] * slower)
                    change = far_q @ far_k.transpose(2, 3) - near
                    total = total + torch.where((doubled == number)[:, None, :, None], change, 0)
            return total / math.sqrt(q.shape[3])

        return ContentBias(of, copies=6)


def raised_base(pairs: int, base: float, factor: float) -> float:
    """Return the base with which plain RoPE has these frequencies (static NTK)."""
    return float(base * factor ** (2 * pairs / max(2 * pairs - 2, 1)))


def raised(pairs: int, base: float, factor: float, device: torch.device) -> Float[Tensor, "pairs"]:
    """Frequencies with the base raised so that the slowest is `factor` times slower and the fastest is as before."""
    dim = 2 * pairs
    base = raised_base(pairs, base, factor)
    return base ** (-torch.arange(0, dim, 2, dtype=torch.float64, device=device) / dim)


def scaled_frequencies(
    config: ScaledRopeConfig, pairs: int, device: torch.device
) -> tuple[Float[Tensor, "pairs"], float]:
    """Radians per ID, and by what cosines and sines are multiplied."""
    if config.method == "ntk":
        return raised(pairs, config.base, config.factor, device), 1.0
    functions = import_transformers(f"scaled_rope, method {config.method},", "modeling_rope_utils").ROPE_INIT_FUNCTIONS
    settings = {
        "rope_type": config.method,
        "rope_theta": config.base,
        "factor": config.factor,
        "original_max_position_embeddings": config.trained_to,
        "low_freq_factor": 1.0,  # llama3's own
        "high_freq_factor": 4.0,
        "short_factor": [1.0] * pairs,
        "long_factor": list(config.long_factors),
    }
    model = SimpleNamespace(
        rope_parameters=settings,
        standardize_rope_params=lambda: None,
        head_dim=2 * pairs,
        hidden_size=2 * pairs,
        num_attention_heads=1,
        max_position_embeddings=config.trained_to,
    )
    longest = int(config.factor * config.trained_to)
    frequencies, sharpened = functions[config.method](model, device, seq_len=longest)
    return frequencies.double(), float(sharpened)
