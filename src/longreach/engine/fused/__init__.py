"""A faster way through the layers of `longreach.model.block` in half precision, for GPUs; it needs Triton."""

from longreach.engine.fused.layers import WIDEST, run_fused

__all__ = ["WIDEST", "run_fused"]
