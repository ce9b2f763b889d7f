"""Memory for time: what the backward pass needs of a computation is computed again instead of kept."""

from collections.abc import Callable
from typing import ParamSpec, cast

from torch import Tensor
from torch.utils.checkpoint import checkpoint

P = ParamSpec("P")


def recomputed(compute: Callable[P, Tensor], *args: P.args, **kwargs: P.kwargs) -> Tensor:
    """What `compute` gives.  Nothing here draws at random, so no generator's state is kept: a CUDA graph could not."""
    result = checkpoint(compute, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)  # type: ignore[arg-type]
    return cast(Tensor, result)
