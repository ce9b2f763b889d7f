"""GPU kernels that give the same bits every time, so that a resumed run is exactly the undisturbed one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from longreach.errors import BadInput

_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
_REPEATABLE = (":4096:8", ":16:8")


def ask_for_repeatable_products(device: str) -> None:
    """Set the variable that cuBLAS reads once, when CUDA starts; raise BadInput if CUDA has started."""
    if device == "cpu" or os.environ.get(_VARIABLE) in _REPEATABLE:
        return
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise BadInput(f"execution.deterministic comes too late: CUDA has started without {_VARIABLE}={_REPEATABLE[0]}")
    os.environ[_VARIABLE] = _REPEATABLE[0]


@contextmanager
def deterministic_kernels(wanted: bool, device: str) -> Iterator[None]:
    """Let a GPU use only kernels that repeat exactly; raise BadInput for an operation that has none.

    On a CPU every kernel repeats exactly.
    """
    if not wanted or torch.device(device).type != "cuda":
        yield
        return
    ask_for_repeatable_products(device)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    except RuntimeError as error:
        if "does not have a deterministic implementation" not in str(error):
            raise
        raise BadInput(f"execution.deterministic: {str(error).split('.')[0]}; set it to false") from error
    finally:
        torch.use_deterministic_algorithms(before)
