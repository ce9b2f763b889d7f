"""`reach`: how far a Hugging Face model holds, by loss and by retrieval."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from longreach.config import Lengths, build, read_value
from longreach.errors import BadInput, argument
from longreach.execution import ExecutionConfig
from longreach.extension import (
    MeasuredModel,
    MeasuredTexts,
    ReachConfig,
    ReachResult,
    ReachTexts,
    check_reach_memory,
    find_texts,
    measure_model,
    probe_passages,
    read_texts,
    settle_contexts,
    short_contexts,
)
from longreach.extension.result import AS_IT_IS, FILE, used_versions
from longreach.hf import from_huggingface
from longreach.hf.load import check_weights, refuse_run
from longreach.hf.rope import encoding_for
from longreach.probe import HuggingFace, OwnModel, load_hugging_face
from longreach.runs import Observer, choose_device
from longreach.text import SplitName
from longreach.verbs.progress import Watch, bars


def reach(
    model: str | Path | Any,
    texts: str | Path | Sequence[str | Path],
    *,
    tokenizer: Any = None,
    contexts: Lengths | str | int | list[int] | None = None,
    samples: int = 1024,
    retrieval: bool = True,
    needles: Sequence[int] = (1, 4),
    depths: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    questions: int = 4,
    encodings: Sequence[str] = (),
    probe: int = 0,
    split: SplitName | None = None,
    field: str | None = None,
    batch_tokens: int = ExecutionConfig.batch_tokens,
    precision: str = "fp32",
    device: str = "auto",
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = True,
) -> ReachResult:
    """Measure how far a causal language model of Hugging Face holds: loss, use of context and retrieval by context.

    Args:
        model: A folder, a name on the hub, a .gguf file, or a model in memory.
        texts: Text files, .jsonl or .parquet files, names of fetched texts, or one prepared corpus.
        tokenizer: The tokenizer of a model in memory.
        contexts: Sizes of context in tokens; by default powers of two up to twice the trained length.
        samples: About how many tokens are predicted from each context.
        retrieval: Also hide needles in the texts and ask for them.
        needles: Numbers of needles in a text.
        depths: Shares of the text in front of the needle that is asked for.
        questions: Questions at each depth.
        encodings: Encodings to measure beside the model's own, such as `yarn` (Llama and GPT-NeoX).
        probe: Passages of the texts in which the probe measures how few tokens predictions depend on.
        split: Split of a prepared corpus; `test` by default.
        field: Field of the text in .jsonl and .parquet files; `text` by default.
        batch_tokens: Tokens in a forward pass.
        precision: `fp32` or `bf16`; a model in memory keeps its own.
        device: `auto`, `cpu` or `cuda`; a model in memory stays where it is.
        seed: Another seed, other tokens and questions.
        out: Write `reach.json` and `reach.html` into this folder.
        progress: Show progress bars on a terminal.

    Raises:
        BadInput: The model cannot be loaded, the texts are too short, or a setting does not fit.
    """
    settings = {
        "contexts": contexts,
        "samples": samples,
        "retrieval": retrieval,
        "needles": tuple(needles),
        "depths": tuple(depths),
        "questions": questions,
        "batch_tokens": batch_tokens,
        "seed": seed,
    }
    names = [texts] if isinstance(texts, str | Path) else list(texts)
    found = find_model(model, tokenizer, precision, device)
    training = [module for module in model.modules() if module.training] if isinstance(model, nn.Module) else []
    try:
        return measure_reach(found, names, settings, encodings, probe, split, field, out, bars(progress))
    finally:
        for module in training:
            module.training = True


Opened = Callable[[Callable[[str], None]], HuggingFace]
"""Loads a model; takes a function that prints warnings."""


def find_model(model: str | Path | Any, tokenizer: Any, precision: str, device: str) -> Opened:
    """Return a function that loads the model; raise BadInput at once for a run folder."""
    if not isinstance(model, str | Path):
        if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
            raise BadInput("the adapter of this model adds virtual tokens to texts, which is not measured: remove it")
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model  # with its adapters
        if not hasattr(inner, "get_output_embeddings"):
            raise BadInput(f"expected a causal language model of Hugging Face, got {type(model).__name__}")
        return lambda warn: HuggingFace(inner, type(inner).__name__, tokenizer)
    if tokenizer is not None:
        raise BadInput(f"{argument('tokenizer')} belongs to a model in memory, and {model} is loaded with its own")
    refuse_run(str(model))
    chosen = choose_device(device)

    def load(warn: Callable[[str], None]) -> HuggingFace:
        check_weights(str(model), chosen, warn)
        return load_hugging_face(str(model), chosen, precision)

    return load


def measure_reach(
    load: Opened,
    names: Sequence[str | Path],
    settings: dict[str, Any],
    encodings: Sequence[str],
    probe: int,
    split: SplitName | None,
    field: str | None,
    out: str | Path | None,
    watch: Watch,
) -> ReachResult:
    """Load a model, measure it and write the result; see `reach`."""
    started = time.perf_counter()
    config = _settings(
        {**settings, "contexts": 1 if settings["contexts"] is None else settings["contexts"]}
    )  # before anything is loaded in vain
    folder = None if out is None else _check_folder(Path(out))
    if probe < 0:
        raise BadInput(f"{argument('probe')} must not be negative, got {probe}")
    find_texts(names, split, field)
    with watch() as observer:
        model = load(observer.say)
        texts = read_texts(model, names, split, field, observer)
        notes: list[str] = []
        if settings["contexts"] is None:
            contexts, notes = settle_contexts(model, texts)
            config = _settings({**settings, "contexts": contexts})
        notes += short_contexts(model, texts, config)
        for line in notes:
            observer.say(line)
        check_reach_memory(model, config, observer.say)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)  # before hours of work
        measured = _measure(model, texts, config, encodings, observer)
        found = probe_passages(model, texts, probe, config.seed, observer) if probe else None
    result = ReachResult(
        model=MeasuredModel.of(model),
        texts=MeasuredTexts.of(texts, config.contexts.values[-1]),
        settings=config,
        measured=measured,
        left_out=notes,
        probe=found,
        versions=used_versions(),
        seconds=time.perf_counter() - started,
    )
    if folder is not None:
        from longreach.extension.page import PAGE, write_page  # loads matplotlib

        result.save(folder)
        write_page(result, folder / PAGE)
    return result


def _measure(
    model: HuggingFace, texts: ReachTexts, config: ReachConfig, encodings: Sequence[str], observer: Observer
) -> dict[str, Any]:
    """Return the figures of the model as it is and with each encoding."""
    from longreach.engine.plan import choose

    ours = from_huggingface(model.model).eval() if encodings else None
    named = {text: encoding_for(model.model.config, read_value(text), argument("encoding")) for text in encodings}
    for name, encoding in named.items():  # before anything is measured
        assert ours is not None
        with ours.exchange_encoding(encoding):
            check_reach_memory(OwnModel(ours, name), config, observer.say)
    measured = {AS_IT_IS: measure_model(model, texts, config, observer, AS_IT_IS if named else "")}
    for name, encoding in named.items():
        assert ours is not None
        with ours.exchange_encoding(encoding):
            execution = ExecutionConfig(batch_tokens=config.batch_tokens)
            variant = OwnModel(ours, name)
            variant.model = choose(ours, execution, str(model.device)).test_model(ours)
            measured[name] = measure_model(model, texts, config, observer, name, variant)
    return measured


def _settings(settings: dict[str, Any]) -> ReachConfig:
    try:
        contexts = Lengths.parse(settings["contexts"])
    except ValueError as error:
        raise BadInput(f"{argument('contexts')}: {error}") from error
    return build(ReachConfig, {**settings, "contexts": contexts}, "reach")


def _check_folder(folder: Path) -> Path:
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{argument('out')} {folder} is not a folder")
    if (folder / FILE).exists():
        raise BadInput(f"{folder / FILE} exists already: name another folder in {argument('out')}")
    return folder
