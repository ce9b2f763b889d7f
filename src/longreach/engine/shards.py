"""A model whose weights, gradients and optimizer state are split among ranks (FSDP2), and whole ones made of it.

What is saved is always the whole model, written as if one process had trained it: any number of ranks can go on from
it.  Every rank must call these functions together.
"""

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from longreach.engine.parallel import WholeLoss
from longreach.engine.ranks import Ranks
from longreach.model import Transformer


def shard_model(model: Transformer, ranks: Ranks, device: str) -> WholeLoss:
    """A copy of the model, each layer of which is whole only while it computes; the model itself is not changed."""
    mesh = init_device_mesh(torch.device(device).type, (ranks.count,))
    sharded = WholeLoss(copy.deepcopy(model).cpu())  # layer by layer to the device, so that it need not hold the whole
    for block in cast(Transformer, sharded.model).blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    return sharded


def shard_state(optimizer: torch.optim.Optimizer, whole: torch.optim.Optimizer) -> None:
    """Give the optimizer of a sharded model its parts of a whole one's state."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def part(name: str, value: Tensor, like: DTensor) -> Tensor:
        if name == "step":
            return value
        # every rank holds the whole: nothing needs to be sent
        value = value.to(like.device)
        return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)

    state = {
        index: {name: part(name, value, parameters[index]) for name, value in values.items()}
        for index, values in whole.state_dict()["state"].items()
    }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def gather_model(sharded: nn.Module, whole: nn.Module | None) -> None:
    """Bring a whole model up to date; ranks without one only give their parts."""
    places = None if whole is None else whole.state_dict()
    for name, part in sharded.state_dict().items():
        tensor = _whole(part)
        if places is not None:
            places[name].copy_(tensor)


def gather_state(optimizer: torch.optim.Optimizer, whole: torch.optim.Optimizer | None) -> None:
    """Likewise the state of an optimizer."""
    gathered: dict[int, dict[str, Tensor]] = {}
    # sorted, since all ranks must give the same part at a time, and a state that was read has no order of its own
    for index, values in sorted(optimizer.state_dict()["state"].items()):
        for name, part in sorted(values.items()):
            tensor = _whole(part).cpu()  # where it is about to be written from
            if whole is not None:
                gathered.setdefault(index, {})[name] = tensor
    if whole is not None:
        whole.load_state_dict({"state": gathered, "param_groups": whole.state_dict()["param_groups"]})


def _whole(part: Tensor) -> Tensor:
    return part.full_tensor() if isinstance(part, DTensor) else part
