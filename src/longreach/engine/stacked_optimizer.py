"""The optimizer of a stack, taken apart and put together: what is saved is always the state of one model."""

from collections.abc import Sequence

import torch


def stack_state(optimizer: torch.optim.Optimizer, members: Sequence[torch.optim.Optimizer]) -> None:
    """Give a stack's optimizer the states of its members' own."""
    states = [member.state_dict()["state"] for member in members]
    stacked = {
        index: {
            # all members have done as many steps
            name: value if name == "step" else torch.stack([state[index][name] for state in states])
            for name, value in values.items()
        }
        for index, values in states[0].items()
    }
    optimizer.load_state_dict({"state": stacked, "param_groups": optimizer.state_dict()["param_groups"]})


def take_member(optimizer: torch.optim.Optimizer, number: int, member: torch.optim.Optimizer) -> None:
    """Give a member's optimizer its part of the stack's state."""
    own = {
        index: {name: value if name == "step" else value[number] for name, value in values.items()}
        for index, values in optimizer.state_dict()["state"].items()
    }
    member.load_state_dict({"state": own, "param_groups": member.state_dict()["param_groups"]})
