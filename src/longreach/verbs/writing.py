"""`dataset`: write samples of a task as JSON lines or Parquet, for other programs."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config import Lengths, Span, build_part, to_plain
from longreach.errors import BadInput, argument
from longreach.seeding import stream
from longreach.system.files import new_folder, replacing, write_atomically
from longreach.tasks import Form, Sample, Task
from longreach.tasks.base import NotStated
from longreach.tasks.plain import run_foreign
from longreach.verbs.harness import check_harness, group_name, harness_card, write_harness
from longreach.verbs.progress import Watch, bars
from longreach.verbs.prompt import check_sample

_MOST_DEPENDENCIES = 4096
"""Tokens of the longest sample whose dependencies are written: they are found in a matrix of all pairs of tokens."""
_CHUNK = 1 << 18
"""Tokens that are in memory at a time."""
_PAIRS = 1 << 24
"""Pairs of tokens that are in memory at a time."""
_MOST_ROWS = 4096
_LINES, _PARQUET = ".jsonl", ".parquet"

Row = dict[str, Any]
Sink = Callable[[list[Row]], object]
"""Writes rows behind those before."""


@dataclass(frozen=True)
class WrittenDataset:
    """Files of samples.  `str(written)` is one line."""

    path: str
    """The file or the folder."""
    vocabulary: str
    """The JSON file with the task's settings and its words: token number n is word n."""
    lengths: list[int]
    samples: int
    """Rows of all lengths together."""
    columns: list[str]
    group: str | None = None
    """Group of tasks for the lm-evaluation-harness, if they were asked for."""

    def __str__(self) -> str:
        told = f"{self.path}: {self.samples:,} samples, {', '.join(self.columns)}; words in {self.vocabulary}"
        return (
            told
            if self.group is None
            else f"{told}; lm_eval --tasks {self.group} --include_path {shlex.quote(self.path)}"
        )


def dataset(
    task: Task | str | Mapping[str, Any],
    lengths: Span | Lengths | str | int | list[int],
    out: str | Path,
    *,
    samples: int = 1000,
    form: str = "aligned",
    dependencies: bool = True,
    seed: int = 0,
    lm_eval: bool = False,
    progress: bool = True,
) -> WrittenDataset:
    """Write samples of a task to a .jsonl or .parquet file, or to a folder with a .jsonl file for each length.

    Samples follow from the seed, the length and their number.  No run trains or tests on this stream of samples.

    Args:
        task: A task, its registered name, or a mapping with its name and settings.
        lengths: A range such as `2..20`, without the lengths that the task does not have, or a list: `10,20,40:80:10`.
        out: The file or the folder; it must not exist.
        samples: Samples of each length.
        form: `aligned` or `published`: form of the coupled IDs in the columns `ids_LEVEL`.
        dependencies: Write the places that each answer token depends on.
        seed: Another seed, other samples.
        lm_eval: Make the folder a group of tasks for the lm-evaluation-harness, too: one task for each length.
        progress: Show a progress bar on a terminal.

    Raises:
        BadInput: The task has none of the lengths, or the file cannot be written.
    """
    made = task if isinstance(task, Task) else build_part(Task, task, "task")
    return write_dataset(made, lengths, Path(out), samples, form, dependencies, seed, bars(progress), lm_eval)


def write_dataset(
    task: Task,
    lengths: Span | Lengths | str | int | list[int],
    out: Path,
    samples: int,
    form: str,
    dependencies: bool,
    seed: int,
    watch: Watch,
    lm_eval: bool = False,
) -> WrittenDataset:
    """Write samples to a file or a folder; see `dataset`."""
    if task.reads_files:
        raise BadInput(f"{task.name} reads its samples from files: use these files")
    if samples < 1:
        raise BadInput(f"{argument('samples')} must be at least 1, got {samples}")
    if form not in get_args(Form):
        raise BadInput(f"{argument('form')} must be one of {', '.join(get_args(Form))}, got {form!r:.40}")
    all_lengths = _lengths(task, lengths)
    is_file = out.suffix in (_LINES, _PARQUET)
    if lm_eval:
        check_harness(task)
        if is_file:
            raise BadInput(f"{argument('lm_eval', True)} writes tasks beside the samples: {out} must name a folder")
    side = out.with_name(f"{out.name}.vocabulary.json") if is_file else out / "vocabulary.json"
    _check_place(out, side, is_file)
    longest = run_foreign(task.name, lambda: task.max_tokens(max(all_lengths)))
    check_sample(task, max(all_lengths))
    if dependencies and longest > _MOST_DEPENDENCIES:
        raise BadInput(
            f"dependencies are written of samples of up to {_MOST_DEPENDENCIES} tokens, and those of length"
            f" {max(all_lengths)} may have {longest}: leave the dependencies out"
        )
    reader = _Reader(task, cast(Form, form), seed, dependencies and _states_dependencies(task, all_lengths[0], seed))
    with watch() as observer:
        report, done = observer.phase("write", samples * len(all_lengths)), 0

        def write(sink: Sink, some: Sequence[int]) -> None:
            nonlocal done
            for length in some:
                for rows in reader.chunks(length, samples):
                    sink(rows)
                    done += len(rows)
                    report(done, f"length {length}")

        if is_file:
            with _sink(out, reader.columns) as sink:
                write(sink, all_lengths)
                write_atomically(side, reader.note())
        else:
            with new_folder(out) as folder:
                for length in all_lengths:
                    with _sink(folder / f"length-{length}{_LINES}", reader.columns) as sink:
                        write(sink, [length])
                write_atomically(folder / side.name, reader.note())
                card = _card(task, all_lengths, samples, seed)
                if lm_eval:
                    write_harness(task, all_lengths, folder, group_name(out))
                    card += harness_card(group_name(out))
                write_atomically(folder / "README.md", card.encode())
    group = group_name(out) if lm_eval else None
    return WrittenDataset(str(out), str(side), all_lengths, done, list(reader.columns), group)


def _lengths(task: Task, asked: Span | Lengths | str | int | list[int]) -> list[int]:
    """Return the lengths of a range that the task has, or those of a list, all of which it must have."""
    is_range = isinstance(asked, Span) or (isinstance(asked, str) and ".." in asked)
    try:
        span = Span.parse(asked) if is_range else None
        listed = Lengths.parse(asked if span is None else f"{span.low}:{span.high}")
    except ValueError as error:
        raise BadInput(f"{argument('lengths')}: {error}") from error
    found, refusals = [], []
    for length in listed:
        try:
            run_foreign(task.name, partial(task.check_length, length))
        except BadInput as error:
            refusals.append(error)
        else:
            found.append(length)
    if refusals and (span is None or not found):
        raise refusals[0]
    return found


def _check_place(out: Path, side: Path, is_file: bool) -> None:
    """Raise BadInput if the files exist or their folder does not."""
    if not is_file and out.suffix:
        raise BadInput(f"{out}: the name must end in {_LINES} or {_PARQUET}, or be a folder's, without an ending")
    if not out.resolve().parent.is_dir():
        raise BadInput(f"{out}: there is no folder {out.resolve().parent}")
    is_empty_folder = not is_file and out.is_dir() and not any(out.iterdir())
    for path in (out, side):
        if path.exists() and not is_empty_folder:
            raise BadInput(f"{path} exists already")


def _states_dependencies(task: Task, length: int, seed: int) -> bool:
    """Return whether the task says what its answers depend on."""
    try:
        run_foreign(task.name, lambda: task.depends_on(_draw(task, length, seed, 0, 1)))
    except NotStated:
        return False
    return True


def _draw(task: Task, length: int, seed: int, start: int, stop: int) -> Sample:
    numbers = torch.arange(start, stop)
    return task.sample(torch.full_like(numbers, length), stream(seed, f"dataset/{length}", numbers), length)


@dataclass(frozen=True)
class _Reader:
    """Makes rows of a table from samples of a task."""

    task: Task
    form: Form
    seed: int
    dependencies: bool

    @property
    def level_columns(self) -> list[str]:
        names = [f"ids_{level.name.replace(' ', '_')}" for level in self.task.coupling_levels]
        if len(set(names)) < len(names):
            raise BadInput(f"{self.task.name}: levels need different names, got {', '.join(names)}")
        return names

    @property
    def columns(self) -> dict[str, int]:
        """Return the columns, each with the depth of its lists; -1 for text."""
        given = {"given_mask": 1} if self.task.has_given else {}
        levels = self.level_columns
        ids = {"ids": 2 if len(levels) == 1 else 3, **dict.fromkeys(levels, 1)} if levels else {}
        needs = {"dependencies": 2} if self.dependencies else {}
        return {"prompt": -1, "answer": -1, "length": 0, "tokens": 1, "answer_mask": 1, **given, **ids, **needs}

    def chunks(self, length: int, samples: int) -> Iterator[list[Row]]:
        """Yield all rows of a length, as many at a time as fit into little memory."""
        width = self.task.max_tokens(length)
        most = min(_MOST_ROWS, _CHUNK // width, *([_PAIRS // width**2] if self.dependencies else []))
        for start in range(0, samples, max(1, most)):
            stop = min(samples, start + max(1, most))
            yield run_foreign(self.task.name, partial(self._rows, length, start, stop))

    def _rows(self, length: int, start: int, stop: int) -> list[Row]:
        task = self.task
        sample = _draw(task, length, self.seed, start, stop)
        sizes, prompts, lengths = (part.tolist() for part in (sample.num_tokens, sample.prompt_tokens, sample.length))
        tokens = [row[:size] for row, size in zip(sample.tokens.tolist(), sizes, strict=True)]
        words = [task.words(row) for row in tokens]
        columns: dict[str, list[Any]] = {
            "prompt": [" ".join(row[:prompt]) for row, prompt in zip(words, prompts, strict=True)],
            "answer": [" ".join(row[prompt:]) for row, prompt in zip(words, prompts, strict=True)],
            "length": lengths,
            "tokens": tokens,
            "answer_mask": _cut(sample.answer.int(), sizes),
        }
        if task.has_given:
            columns["given_mask"] = _cut(sample.given.int(), sizes)
        if task.coupling_levels:
            published = task.coupling(sample, "published")
            by_word = _cut(published[:, 0] if published.shape[1] == 1 else published.transpose(1, 2), sizes)
            columns["ids"] = [[row[:prompt], row[prompt:]] for row, prompt in zip(by_word, prompts, strict=True)]
            asked = published if self.form == "published" else task.coupling(sample, self.form)
            for number, name in enumerate(self.level_columns):
                columns[name] = _cut(asked[:, number], sizes)
        if self.dependencies:
            needs: list[list[list[int]]] = [[[] for _ in row] for row in tokens]
            for row, index, place in task.depends_on(sample).nonzero().tolist():
                needs[row][index].append(place)
            columns["dependencies"] = [row[prompt:] for row, prompt in zip(needs, prompts, strict=True)]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def note(self) -> bytes:
        """Return the content of the side file."""
        task = self.task
        content = {
            "task": to_plain(task),
            "seed": self.seed,
            "form": self.form,
            "levels": [
                {"name": level.name, "size": level.size, "space": level.space} for level in task.coupling_levels
            ],
            "stop_token": task.stop_token,
            "vocabulary": list(task.vocabulary),
        }
        return (json.dumps(content, indent=1) + "\n").encode()


def _cut(rows: Int[Tensor, "b t *rest"], sizes: Sequence[int]) -> list[list[Any]]:
    """Return rows as lists without their padding."""
    return [row[:size] for row, size in zip(rows.tolist(), sizes, strict=True)]


@contextmanager
def _sink(path: Path, columns: Mapping[str, int]) -> Iterator[Sink]:
    """Yield a function that writes rows to a file, which is there when all are written."""
    with replacing(path) as file:
        if path.suffix == _LINES:
            yield lambda rows: file.write(
                "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()
            )
        else:
            with _parquet(path, file, columns) as sink:
                yield sink


@contextmanager
def _parquet(path: Path, file: IO[bytes], columns: Mapping[str, int]) -> Iterator[Sink]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise BadInput(f"{path} needs pyarrow: pip install 'longreach[table]'") from error

    def kind(depth: int) -> Any:
        if depth < 0:
            return pa.string()
        return pa.list_(kind(depth - 1)) if depth else pa.int32()

    schema = pa.schema({name: kind(depth) for name, depth in columns.items()})
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        yield lambda rows: writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _card(task: Task, lengths: Sequence[int], samples: int, seed: int) -> str:
    """Return a data card of Hugging Face, which names a split for each length."""
    splits = "".join(f"  - split: length_{length}\n    path: length-{length}{_LINES}\n" for length in lengths)
    return (
        f"---\nconfigs:\n- config_name: default\n  data_files:\n{splits}---\n\n# Samples of {task.name}\n\n"
        f"{samples} samples of each length, drawn by longreach with seed {seed}.  `vocabulary.json` has the task's"
        " settings and words.\n"
    )
