"""The model type `longreach` of Hugging Face: its configuration, which holds the settings of a run.

transformers is imported already when this module is: see `register_model_type`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longreach.config import Settings, build, to_plain, upgrade_recorded
from longreach.errors import BadInput
from longreach.model import Model, ModelConfig, shape_model
from longreach.positions.ids import IdPolicy
from longreach.system.files import one_line
from longreach.system.huggingface import import_transformers
from longreach.system.imports import NotTrusted, RunOrigin, names_of_run
from longreach.tasks import Task
from longreach.version import __version__

_FILE = "config.json"
_IMPORT_FIRST = "import its module first, if you trust it"


@dataclass(frozen=True, kw_only=True)
class WrappedRun(Settings):
    """The settings of a run that decide what its model reads and writes."""

    task: Task
    ids: IdPolicy
    model: ModelConfig

    def shape(self) -> Model:
        """Return the model without weights."""
        sizes = self.ids.level_sizes(self.task)
        return shape_model(self.model, len(self.task.vocabulary), sizes, self.ids.max_id)

    @property
    def needs_prompt(self) -> bool:
        """Return whether the IDs of a sequence depend on where its prompt ends."""
        counts = self.ids.supplier(self.task) == "count" and len(self.ids.level_sizes(self.task)) == 1
        return not counts or self.ids.draws_test_ids


@dataclass(frozen=True, kw_only=True)
class Words(Task):
    """Stands in for a task whose samples are read from files: its number of tokens, and the one that ends an answer."""

    size: int
    stop: int

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.size)))

    @property
    def stop_token(self) -> int | None:
        return None if self.stop < 0 else self.stop


class LongreachConfig(import_transformers("a model of longreach", "configuration_utils").PreTrainedConfig):  # type: ignore[misc]
    """Configuration of a `LongreachForCausalLM`.

    `run` holds the settings of task, IDs and model as a run folder does; task is null where samples are read from
    files.
    """

    model_type = "longreach"

    def __init__(self, run: dict[str, Any] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.run = run
        _register_model()

    def build_run(self) -> WrappedRun:
        """Build the settings.  Raise BadInput where they are damaged or name a class that is not installed."""
        folder = Path(self.name_or_path or ".")
        with names_of_run(RunOrigin(folder, dict, file=_FILE, advice=_IMPORT_FIRST)):
            try:
                plain = upgrade_recorded({name: (self.run or {})[name] for name in ("task", "ids", "model")})
                if plain["task"] is None:
                    stop = -1 if self.eos_token_id is None else self.eos_token_id
                    plain["task"] = Words(size=self.vocab_size, stop=stop)
                found = build(WrappedRun, plain)
            except NotTrusted:
                raise
            except (BadInput, KeyError, TypeError) as error:
                raise BadInput(f"{folder / _FILE} is damaged: {one_line(error)}") from error
        if found.task.reads_files:
            raise BadInput(f"{folder / _FILE} names files for the task {found.task.name}, which are not read")
        return found


def config_for(task: Task, ids: IdPolicy, model: Model, longest: int) -> LongreachConfig:
    """Return the configuration of a model that was trained with a task and IDs.

    `longest` is the number of tokens that it says it was made for.
    """
    if task.reads_files and (ids.supplier(task) != "count" or ids.draws_test_ids):
        raise BadInput(f"ids {ids.name} of a task that reads files cannot be exported: they need these files")
    config = model.config
    run = {"task": None if task.reads_files else to_plain(task), "ids": to_plain(ids), "model": to_plain(config)}
    return LongreachConfig(
        run={"version": __version__, **run},
        vocab_size=model.embed.num_embeddings,
        hidden_size=config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=getattr(config, "heads", 1),
        max_position_embeddings=longest,
        tie_word_embeddings=False,  # ours are one parameter
        bos_token_id=None,
        eos_token_id=task.stop_token,
        pad_token_id=0,
    )


def register_model_type() -> None:
    """Let `AutoConfig` know configurations of longreach."""
    auto = import_transformers("a model of longreach", "models.auto.configuration_auto")
    auto.AutoConfig.register(LongreachConfig.model_type, LongreachConfig, exist_ok=True)


def _register_model() -> None:
    """Let `AutoModelForCausalLM` know the model; called when a configuration is made, for it imports much."""
    from longreach.hf.causal_lm import LongreachForCausalLM

    auto = import_transformers("a model of longreach", "models.auto.modeling_auto")
    auto.AutoModelForCausalLM.register(LongreachConfig, LongreachForCausalLM, exist_ok=True)
