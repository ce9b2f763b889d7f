"""A language model by whatever name it goes: a run of ours, Hugging Face, a .gguf file."""

from pathlib import Path

from longreach.errors import BadInput
from longreach.probe import LanguageModel, OwnModel, load_hugging_face
from longreach.runs import RunFolder, load_model


def load_language_model(name: str, device: str, precision: str = "fp32") -> LanguageModel:
    path = Path(name)
    if not (path / "config.yaml").is_file():
        return load_hugging_face(name, device, precision)
    if precision != "fp32":
        raise BadInput(f"{name} is a run of longreach, which is asked in fp32, not in {precision}")
    config, model = load_model(RunFolder(path), device)
    if config.ids.supplier(config.task) != "count":
        raise BadInput(f"{name}: its IDs {config.ids.name} do not count tokens, which the probe takes for granted")
    return OwnModel(model, f"{path.parent.name}/{path.name}")
