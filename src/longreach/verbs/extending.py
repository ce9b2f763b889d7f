"""`extend`: make a Hugging Face model read longer texts, and measure controls beside it."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from longreach.config import Plain
from longreach.errors import BadInput, argument
from longreach.extension import (
    ExtendConfig,
    Extension,
    ExtensionEstimate,
    ExtensionJob,
    inspect_original,
    prepared_corpus,
)
from longreach.extension.job import check_folder
from longreach.extension.rope import RopeMethod
from longreach.extension.settings import Controls, Ids
from longreach.runs import Observer, choose_device
from longreach.system.capacity import check_memory, size
from longreach.terminal.durations import duration
from longreach.terminal.progress import LONG
from longreach.verbs.progress import Watch, bars
from longreach.verbs.scoring import given


def extend(
    model: str | Path,
    data: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    to: int,
    window: int | None = None,
    trained: int | None = None,
    rope: RopeMethod = "yarn",
    ids: Ids = "pose",
    steps: int = ExtendConfig.steps,
    batch_size: int = ExtendConfig.batch_size,
    lr: float | None = None,
    lora: int = 0,
    controls: Controls = "all",
    samples: int = ExtendConfig.samples,
    field: str | None = None,
    test: float | None = None,
    documents: int | None = None,
    seed: int = 0,
    precision: Literal["fp32", "bf16"] = "fp32",
    device: str = "auto",
    resume: bool = False,
    progress: bool = True,
) -> Extension:
    """Make a model read `to` tokens, write it to a folder for Hugging Face, and return what was measured.

    Args:
        model: A folder, a name on the hub or a .gguf file.
        data: Text files, folders, .jsonl or .parquet files, names of fetched texts, or one prepared corpus.
        out: The folder to write; it must not exist, or be empty.
        to: Tokens that the model is to read.
        window: Tokens of a row of training.  Default: the trained length, at most 2,048.
        trained: Tokens that the model was trained for.  Default: `max_position_embeddings` of its configuration.
        rope: How RoPE is scaled: `yarn`, `ntk`, `linear`, `llama3` or `none`.
        ids: Position IDs in training: `pose`, `uniform_pose` or `sequential`.
        steps: Optimizer steps of each trained arm.
        batch_size: Rows of a step.
        lr: Highest learning rate.  Default: 2e-5 for 7 billion parameters, more for smaller models, at most 1e-3.
        lora: Rank of the adapters that are trained instead of all weights; 0 trains all weights.
        controls: `all`, or `none` to train and measure the result alone.
        samples: About how many tokens are predicted at each context.
        field: Where the text stands in .jsonl and .parquet files and datasets.  Default: text.
        test: Share of the documents that are held out and measured.  Default: 0.1.
        documents: At most so many documents, from the beginning.
        seed: Another seed, other rows, IDs and measured tokens.
        precision: `fp32` or `bf16`, of the arithmetic and of the folder.
        device: `auto`, `cpu` or `cuda`.
        resume: Continue an interrupted call with the same settings.
        progress: Show progress bars on a terminal.

    Raises:
        BadInput: The model cannot be extended so, a setting does not fit, or the folder holds something else.
    """
    asked = given(
        to=to,
        window=window,
        trained=trained,
        rope=rope,
        ids=ids,
        steps=steps,
        batch_size=batch_size,
        lr=lr,
        lora=lora,
        controls=controls,
        samples=samples,
        field=field,
        test=test,
        documents=documents,
        seed=seed,
        precision=precision,
    )
    sources = [data] if isinstance(data, str | Path) else data
    return make_extension(str(model), [str(name) for name in sources], Path(out), asked, device, resume, bars(progress))


def estimate_extension(model: str | Path, *, to: int, device: str = "auto", **settings: Any) -> ExtensionEstimate:
    """Return the memory, time and disk that `extend` takes with these settings, and write nothing.

    The model is loaded, and its speed is measured.  Raises BadInput for a model that cannot be extended so.
    """
    device = choose_device(device)
    original, config = inspect_original(str(model), {"to": to, **settings}, None, device, lambda line: None)
    return ExtensionJob(str(model), (), config, Path(), device, Observer()).estimate(original)


def make_extension(
    model: str, sources: Sequence[str], out: Path, asked: Plain, device: str, resume: bool, watch: Watch
) -> Extension:
    """Extend a model; see `extend`."""
    if not sources:
        raise BadInput(f"no text is named: {argument('data')} takes files, folders or a prepared corpus")
    check_folder(out, resume)
    device = choose_device(device)
    with watch() as observer:
        corpus = prepared_corpus(sources, asked)
        original, config = inspect_original(model, asked, corpus, device, observer.say)
        job = ExtensionJob(model, tuple(sources), config, out, device, observer)
        _check_room(job, job.estimate(original), observer)
        return job.run(original)


def _check_room(job: ExtensionJob, found: ExtensionEstimate, observer: Observer) -> None:
    """Print the estimate; raise BadInput if memory or disk cannot hold the extension."""
    for line in describe(found):
        observer.say(line)
    smaller = f"use a smaller {argument('batch_size')} or {argument('window')}, or {argument('lora', 16)}"
    check_memory(found.memory, job.device, f"extending {job.model}", smaller, observer.say)
    free = shutil.disk_usage(job.out.resolve().parent).free
    if found.disk > free:
        raise BadInput(
            f"{job.out} takes about {size(found.disk)} of disk (an estimate), and {size(free)} are free: choose a"
            f" folder elsewhere, or {argument('lora', 16)}"
        )
    if found.seconds > LONG:
        observer.say(
            f"warning: this will take about {duration(found.seconds)} (an estimate); Ctrl-C stops it, and"
            f" {argument('resume', True)} goes on"
        )


def describe(found: ExtensionEstimate) -> list[str]:
    """Return an estimate as lines."""
    is_lora = found.trained_parameters != found.parameters
    trained = f"about {found.trained_parameters:,}, in adapters" if is_lora else "all"
    return [
        f"arms: {'; '.join(found.arms)}",
        f"parameters: {found.parameters:,}; trained: {trained}",
        f"memory: about {size(found.training_memory)} to train, {size(found.measuring_memory)} to measure",
        f"time: about {duration(found.training_seconds)} to train, {duration(found.measuring_seconds)} to measure",
        f"disk: about {size(found.disk)}, and the tokens of the texts",
    ]
