"""A probe written by hand, for tests."""

import torch

from longreach.probe import Cost, ProbeConfig, Probed


def probed(title: str = "six tokens", pieces: tuple[str, ...] = ("The", " cat", " sat", " on", " the", ".")) -> Probed:
    """Three predictions: of the last three tokens."""
    return Probed(
        title=title,
        model="tiny (fp32)",
        pieces=pieces,
        tokens=torch.tensor([5, 3, 8, 9, 1, 2]),
        targets=torch.tensor([3, 4, 5]),
        loss=torch.tensor([1.0, 2.0, 0.5]),
        entropy=torch.tensor([1.5, 0.2, 0.1]),
        weights=torch.tensor([[0, 2.0, 0, 0, 0, 0], [0, 0.05, -1.0, 1.5, 0, 0], [0, 0, 0, 0, 0, 0]]),
        always=torch.tensor([[1, 0, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0], [1, 0, 0, 0, 1, 0]]).bool(),
        sizes=(0, 1, 2),
        loss_at=torch.tensor([[3.0, 1.05, 1.0], [3.0, 4.0, 2.0], [0.9, 0.7, 0.7]]),
        faithfulness=torch.tensor([0.9, 0.5, float("nan")]),
        settings=ProbeConfig(tau=0.1, eps=0.1, largest_k=2),
        cost=Cost(320, 0, 1920, 100, 0.5),
    )
