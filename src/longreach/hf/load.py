"""Load any causal language model of Hugging Face, from a folder, a name or a .gguf file."""

from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from longreach.errors import BadInput, lacks_memory
from longreach.system.capacity import check_memory
from longreach.system.files import one_line
from longreach.system.huggingface import import_transformers
from longreach.text.hub import check_name, quiet_loading, refuse_code, where_it_lies

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def load_huggingface(name: str, device: str = "cpu", precision: str = "fp32", *, config: Any = None) -> tuple[Any, Any]:
    """Return a causal language model and its tokenizer.

    `name` is a folder, a name on the hub or a .gguf file; `precision` is fp32 or bf16.  The weights of a .gguf file are
    expanded to this precision, so the model can be trained and saved like any other.  `config` replaces the model's own
    configuration.
    """
    if precision not in PRECISIONS:
        raise BadInput(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    transformers = import_transformers(name)
    where, options = where_it_lies(name)
    if not options:
        _check_folder(name)
        check_name(name, "model")
    try:
        with quiet_loading():
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, **options, trust_remote_code=False)
            if config is None and not _holds_adapters(name):
                config = transformers.AutoConfig.from_pretrained(where, **options, trust_remote_code=False)
            if config is not None:
                config._attn_implementation = None  # config.json could name a kernel to download and run
            model, found = transformers.AutoModelForCausalLM.from_pretrained(
                where,
                dtype=PRECISIONS[precision],
                **options,
                **({} if config is None else {"config": config}),
                output_loading_info=True,
                trust_remote_code=False,
                weights_only=True,  # nothing is unpickled but tensors
            )
    except Exception as error:
        raise refusal(name, error) from error
    for key in (*found["missing_keys"], *found["mismatched_keys"]):
        raise BadInput(f"cannot load {name} as a causal language model: its files lack the weight {key}")
    if options:
        _forget_quantization(model)
    return model.to(device), tokenizer


def refuse_run(name: str) -> None:
    """Raise BadInput for a run folder."""
    if (Path(name) / "config.yaml").is_file():
        raise BadInput(f"{name} is a run of longreach, and no model of Hugging Face: longreach eval {name} tests it")


def _check_folder(name: str) -> None:
    """Raise BadInput if a path holds no model, or one without the files of a tokenizer."""
    if not name:
        raise BadInput("no model is named")
    refuse_run(name)
    folder = Path(name)
    if folder.is_file():
        raise BadInput(f"{name} is a file: a model is a folder, a name on the hub or a .gguf file")
    if folder.is_dir() and not _holds_adapters(name):
        if not (folder / "config.json").is_file():
            raise BadInput(f"{name} holds no model: it has no config.json")
        kinds = ("tok*", "vocab.*", "*.model", "merges.txt")
        if not any(file for kind in kinds for file in folder.glob(kind)):
            raise BadInput(f"{folder} has no tokenizer: write the model's own there, by tokenizer.save_pretrained")


def _holds_adapters(name: str) -> bool:
    """Return whether a folder holds adapters, whose configuration names the model that they belong to."""
    return (Path(name) / "adapter_config.json").is_file()


def check_weights(name: str, device: str, warn: Callable[[str], None]) -> None:
    """Raise BadInput if the weight files in a folder are larger than the device's memory; warn if little is free."""
    kinds = ("model*.safetensors", "pytorch_model*.bin")  # the second is read where the first is not there
    files = next((found for kind in kinds if (found := list(Path(name).glob(kind)))), [])
    check_memory(sum(file.stat().st_size for file in files), device, name, "use a smaller model", warn)


def _forget_quantization(model: Any) -> None:
    """Remove the marks of a quantized model: they prevent saving and training, and the weights are plain by now."""
    if getattr(model, "hf_quantizer", None) is not None:  # older releases set no marks
        model.hf_quantizer.remove_quantization_config(model)


def refusal(name: str, error: Exception) -> Exception:
    """Return BadInput for an error of the package, which raises errors of every kind for a damaged folder."""
    if isinstance(error, BadInput) or lacks_memory(error):
        return error
    if isinstance(error, UnpicklingError):
        return BadInput(f"cannot load {name}: its pickled weights hold more than tensors, which is never read")
    refuse_code(name, error)
    return BadInput(f"cannot load {name} as a causal language model: {one_line(error)}")
