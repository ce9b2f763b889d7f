"""Names of models and tokenizers on Hugging Face's hub, looked up before anything is loaded.

Their loaders try again for most of a minute, file by file, before they tell that there is nothing, or no network.
"""

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longreach.errors import BadInput
from longreach.system.huggingface import import_transformers

_FILES = ("config.json", "tokenizer_config.json", "tokenizer.json")
"""One of which is in the cache if a model or tokenizer is."""
_TRIES = 2


def check_name(name: str, what: str) -> None:
    """Refuse a name that is no folder, not in the local cache and not on the hub, or if the hub cannot be reached."""
    if Path(name).exists():
        return
    hub: Any = importlib.import_module("huggingface_hub")  # comes with transformers
    errors, endpoint = hub.errors, hub.constants.ENDPOINT
    absent = f"there is no {what} {name!r}: not as a folder, not in the local Hugging Face cache"
    try:
        if any(isinstance(hub.try_to_load_from_cache(name, file), str) for file in _FILES):
            return
        url = hub.hf_hub_url(name, _FILES[0])
    except errors.HFValidationError as error:
        raise BadInput(
            f"there is no folder {name!r}, and the name is none that a {what} on the hub can have"
        ) from error
    for left in reversed(range(_TRIES)):
        try:
            hub.get_hf_file_metadata(url)  # waits for HF_HUB_ETAG_TIMEOUT seconds, 10 unless told otherwise
            return
        except errors.GatedRepoError:
            return  # it is there: whoever loads it is told what to do
        except errors.RepositoryNotFoundError as error:
            raise BadInput(f"{absent}, not at {endpoint}") from error
        except errors.HfHubHTTPError:
            return  # it was reached; a missing file, or a server in trouble, is for the loader to deal with
        except Exception as error:  # of an HTTP client that is not the same in every release
            if not left:
                reason = str(error) or type(error).__name__
                raise BadInput(f"{absent}, and {endpoint} cannot be reached: {reason}") from error


def where_it_lies(name: str) -> tuple[str, dict[str, str]]:
    """Return the place and the options with which `from_pretrained` reads a folder, a name or a .gguf file."""
    path = Path(name)
    if path.suffix != ".gguf":
        return name, {}
    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    if importlib.util.find_spec("gguf") is None:
        raise BadInput(f"{path} needs the package gguf: pip install 'longreach[hf]'")
    return str(path.parent), {"gguf_file": path.name}


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Turn off the bars and warnings of transformers: what cannot be loaded is refused in one line of ours."""
    log = import_transformers("loading").utils.logging
    bars, verbosity = log.is_progress_bar_enabled(), log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity_error()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()


def refuse_code(name: str, error: Exception) -> None:
    """Raise a line of ours where a loader asks for `trust_remote_code`, which cannot be given."""
    if "trust_remote_code" in str(error) or "Dataset scripts" in str(error):
        raise BadInput(f"{name} can be loaded only by running code of its own, which longreach never does") from error
