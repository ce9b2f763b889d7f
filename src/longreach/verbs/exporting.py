"""`export`: write a trained model as a folder that Hugging Face's transformers reads."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from longreach.errors import BadInput, argument
from longreach.hf import to_huggingface, wrap_for_huggingface
from longreach.hf.words import save_words
from longreach.model import Model
from longreach.runs import RunConfig, RunFolder, load_model
from longreach.system.files import new_folder, write_atomically
from longreach.tasks import Text
from longreach.text import as_subwords
from longreach.text.hub import quiet_loading

ExportFormat = Literal["auto", "huggingface", "longreach"]


@dataclass(frozen=True)
class Exported:
    """A written model.  `str(exported)` is one line."""

    path: str
    architecture: str
    """Class of transformers, or of longreach: `LongreachForCausalLM`."""
    parameters: int
    reason: str
    """Why it has this architecture."""
    has_tokenizer: bool
    """False where words of the task have blanks in them."""

    def __str__(self) -> str:
        tokenizer = "" if self.has_tokenizer else "; no tokenizer: words of the task have blanks in them"
        return f"{self.path}: {self.architecture}, {self.parameters:,} parameters: {self.reason}{tokenizer}"


def export(
    run: str | Path | RunFolder,
    folder: str | Path,
    *,
    format: ExportFormat = "auto",
    longest: int = 2048,
    trust: bool = False,
) -> Exported:
    """Write the model of a finished run with its tokenizer and a model card; return what was written.

    Args:
        run: A run folder.
        folder: Where to; must not exist, or be empty.
        format: `huggingface` writes a GPT-NeoX or a Llama and refuses runs that have no such counterpart.  `longreach`
            writes the model type `longreach`, which transformers loads after `import longreach.hf`.  `auto` writes the
            first where that is possible.
        longest: Number of tokens that the model says it was made for.
        trust: Let the run folder name classes of the working folder.

    Raises:
        BadInput: The run is not finished, or cannot be written in this format.
    """
    source, target = run if isinstance(run, RunFolder) else RunFolder(Path(run)), Path(folder)
    if format not in get_args(ExportFormat):
        raise BadInput(f"{argument('format')} must be one of {', '.join(get_args(ExportFormat))}, got {format!r:.40}")
    if longest < 1:
        raise BadInput(f"{argument('longest')} must be at least 1, got {longest}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInput(f"{target} exists already")
    config, model = load_model(source, trust=trust)  # says so where there is no run
    if not source.finished:
        raise BadInput(f"{source.path} is not finished: resume it first")
    theirs, reason = _converted(config, model, format, longest)
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(target) as place:
        with quiet_loading():
            theirs.save_pretrained(place)
        write_atomically(place / "vocabulary.json", json.dumps(config.task.vocabulary).encode())
        if isinstance(config.task, Text):
            as_subwords(config.task.opened.tokenizer).save(place)
        has_tokenizer = isinstance(config.task, Text) or save_words(config.task, place, longest)
        architecture = type(theirs).__name__
        write_atomically(place / "README.md", _card(config, source, architecture, has_tokenizer).encode())
    return Exported(str(target), architecture, theirs.num_parameters(), reason, has_tokenizer)


def _converted(config: RunConfig, model: Model, format: ExportFormat, longest: int) -> tuple[Any, str]:
    """Return the model in a format of Hugging Face, and why it has this format."""
    task, ids = config.task, config.ids
    reason = "asked for"
    if format != "longreach":
        try:
            if ids.supplier(task) != "count":
                raise BadInput(
                    f"Hugging Face counts tokens for position IDs: it cannot give them as ids {ids.name} does"
                )
            theirs = to_huggingface(model, longest, task.stop_token)
        except BadInput as error:
            if format == "huggingface":
                raise
            reason = str(error)
        else:
            dense = f", as ids {ids.name} with test: dense" if ids.draws_test_ids else ""
            return theirs, f"Hugging Face has all of its parts and counts tokens for position IDs{dense}"
    return wrap_for_huggingface(task, ids, model, longest), f"load it after import longreach.hf ({reason})"


def _card(config: RunConfig, run: RunFolder, architecture: str, has_tokenizer: bool) -> str:
    """Return a model card of Hugging Face: how to load the model, and the information card of its run."""
    imported = "import longreach.hf\n" if architecture == "LongreachForCausalLM" else ""
    names = ["AutoModelForCausalLM", *(["AutoTokenizer"] if has_tokenizer else [])]
    tokenizer = 'tokenizer = AutoTokenizer.from_pretrained(".")\n' if has_tokenizer else ""
    info = run.info()
    facts = {"seed": info.seed, "longreach": info.versions.get("longreach", "unknown"), **asdict(run.card())}
    table = "".join(f"| {name.replace('_', ' ')} | {_cell(value)} |\n" for name, value in facts.items())
    return (
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- longreach\n---\n\n"
        f"# {info.title or config.task.name}\n\nA model of the task `{config.task.name}` with position IDs"
        f" `{config.ids.name}`, trained by longreach.\n\n```python\n{imported}"
        f"from transformers import {', '.join(names)}\n\n"
        f'model = AutoModelForCausalLM.from_pretrained(".")\n{tokenizer}```\n\n'
        f"| information card | |\n|---|---|\n{table}"
    )


def _cell(value: object) -> str:
    """Return a value as a cell of a table."""
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return " ".join(text.split()).replace("|", "\\|")
