"""A faster way to train the layers of `longreach.model.block`, for GPUs; it needs Triton."""

from longreach.model.fused.layers import fits, run_fused

__all__ = ["fits", "run_fused"]
