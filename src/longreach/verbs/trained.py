"""A trained model, from a run folder or from memory."""

from pathlib import Path
from typing import NamedTuple, TypeAlias

from longreach.model import Model
from longreach.runs import RunConfig, RunFolder, choose_device, load_model

TrainedRun: TypeAlias = str | Path | RunFolder | tuple[RunConfig, Model]
"""A run folder, or a model and the configuration of its run, as `load_model` returns them."""


class Trained(NamedTuple):
    """A trained model on its device."""

    config: RunConfig
    model: Model
    device: str
    folder: RunFolder | None
    """None for a model from memory."""


def load_trained(run: TrainedRun, device: str = "auto", trust: bool = False) -> Trained:
    """Load the model of a run folder, or put a model from memory into evaluation mode.

    `device` and `trust` apply to run folders: a model from memory stays where it is.
    """
    if isinstance(run, tuple):
        config, model = run
        return Trained(config, model.eval(), str(next(model.parameters()).device), None)
    folder = run if isinstance(run, RunFolder) else RunFolder(Path(run))
    device = choose_device(device)
    return Trained(*load_model(folder, device, trust), device, folder)
