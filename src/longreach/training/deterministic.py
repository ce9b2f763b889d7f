"""GPU kernels that give the same bits every time, so that a resumed run is exactly the undisturbed one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from longreach.errors import BadInput

_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
_REPEATABLE = (":4096:8", ":16:8")


def ask_for_repeatable_products(device: str) -> None:
    """cuBLAS reads its variable once, when CUDA starts: this must come before."""
    if device == "cpu" or os.environ.get(_VARIABLE) in _REPEATABLE:
        return
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise BadInput(f"execution.deterministic comes too late: CUDA has started without {_VARIABLE}={_REPEATABLE[0]}")
    os.environ[_VARIABLE] = _REPEATABLE[0]


@contextmanager
def deterministic_kernels(wanted: bool, device: str) -> Iterator[None]:
    """Where a GPU is to compute exactly the same twice.  What it has no such kernel for is refused in one line; on a
    CPU every kernel is one."""
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
