"""Train and measure every arm of an extension, in steps that survive a kill, and write the folder of the result."""

import gc
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from longreach.config import Lengths, Plain
from longreach.errors import BadInput, argument
from longreach.evaluation import ContextLoss
from longreach.evaluation.context import BLOCK
from longreach.extension.estimate import ExtensionEstimate, estimate
from longreach.extension.extended import ArmResult, Extension, compare_arms, model_card
from longreach.extension.measure import MeasuredReach, ReachConfig, measure_model
from longreach.extension.original import Original, release
from longreach.extension.result import used_versions
from longreach.extension.rope import describe_sliding, scaled_config
from longreach.extension.settings import (
    AS_IT_IS,
    Arm,
    ExtendConfig,
    difference,
)
from longreach.extension.texts import find_texts, texts_of_corpus
from longreach.extension.training import TrainingRows, read_training, train_arm, trained_model
from longreach.hf import load_huggingface
from longreach.probe import HuggingFace
from longreach.runs import Observer, device_name
from longreach.system.files import read_json, remove_leftovers, write_atomically
from longreach.system.lock import hold
from longreach.text import Corpus, PrepareConfig, prepare
from longreach.text.corpus import sha256_of
from longreach.text.documents import find_source

_HELD_OUT = 0.1
"""Share of the documents that are measured where the user gives none."""
_MEASURES, _NATS = "measures.json", "losses.safetensors"
"""Files of an arm: its figures, and the loss of every token."""
_WORK, _PLAN, _CORPUS, _ARMS = ".work", "plan.json", "corpus", "arms"
"""The folder of unfinished work, and what lies in it: settings, tokens of the texts, and a folder for each arm."""
RESULT = "extend.json"
"""Written last: a folder without it is not finished."""


@dataclass(frozen=True)
class ExtensionJob:
    """An extension that is to be made in a folder."""

    model: str
    sources: tuple[str, ...]
    config: ExtendConfig
    out: Path
    device: str
    observer: Observer

    @property
    def work(self) -> Path:
        """Return the folder of unfinished work."""
        return self.out / _WORK

    def estimate(self, original: Original) -> ExtensionEstimate:
        """Estimate memory, time and disk."""
        return estimate(original.parameters, original.cost, original.per_operation, self.config, self.reach(original))

    def run(self, original: Original) -> Extension:
        """Make the extension, or what is missing of it, and return it."""
        plan = self._settings(original)
        if finished := self._begin(plan):
            return finished
        with hold(self.work / "extend.lock", str(self.out)):
            write_atomically(self.work / _PLAN, json.dumps(plan).encode())
            try:
                corpus = self._corpus()
                rows = TrainingRows(corpus.split("train"), self.config.window, tuple(original.opening))
                rows.check(self.config.batch_size)
                reach = self._reach_of(corpus, original)
            except BadInput:
                if not (self.work / _ARMS).exists():  # nothing is lost, and other settings may do
                    shutil.rmtree(self.work / _CORPUS, ignore_errors=True)
                    (self.work / _PLAN).unlink()
                raise
            notes = self._notes(reach, original)
            for line in notes:
                self.observer.say(f"warning: {line}")
            for arm in self.config.arms:
                self._finish_arm(arm, rows, corpus, reach, original)
            found = self._result(corpus, rows, notes, original)
            self._write(found)
        shutil.rmtree(self.work, ignore_errors=True)
        return found

    def _settings(self, original: Original) -> dict[str, Any]:
        """Return all that decides the result: the weights, the texts and the settings."""
        named = {"model": self.model, "fingerprint": original.fingerprint, "data": list(self.sources)}
        return {**named, "texts_sha256": self._digest_of_texts(), **asdict(self.config)}

    def _digest_of_texts(self) -> str:
        """Return a SHA-256 of the files of the texts; a dataset of the hub is known by its name alone."""
        if (corpus := prepared_corpus(self.sources, asdict(self.config))) is not None:
            return corpus.fingerprint
        files = [file for name in self.sources for file in find_source(name).files]
        return sha256("".join(map(sha256_of, files)).encode()).hexdigest()

    def _begin(self, plan: dict[str, Any]) -> Extension | None:
        """Return the extension if it is finished; raise BadInput if it was begun with other settings."""
        for path, key in ((self.out / RESULT, "settings"), (self.work / _PLAN, "")):
            if not path.exists():
                continue
            plain = read_json(path, dict)
            earlier = plain[key] if key else plain
            if changed := difference(earlier, plan):
                raise BadInput(f"{self.out} was begun with {changed}: choose another folder")
            if key:
                shutil.rmtree(self.work, ignore_errors=True)  # of a start that was killed at its end
                return read_json(path, partial(Extension.from_plain, path=str(self.out)))
            remove_leftovers(self.work)
            return None
        self.work.mkdir(parents=True, exist_ok=True)
        return None

    def _corpus(self) -> Corpus:
        """Return the texts as tokens of the model, with held-out documents in the split `test`."""
        config = self.config
        if (corpus := prepared_corpus(self.sources, asdict(config))) is not None:
            corpus.verify()
            return corpus
        asked = PrepareConfig(
            tokenizer=self.model,
            field=config.field,
            valid=0.0,
            test=_HELD_OUT if config.test is None else config.test,
            documents=config.documents,
        )
        return prepare(self.sources, self.work / _CORPUS, asked, resume=True, phase=self.observer.phase)

    def folder(self, arm: Arm) -> Path:
        """Return the folder of an arm while the extension is made."""
        return self.work / _ARMS / arm.name.replace(", ", "-").replace(" ", "_")

    def _load(self, arm: Arm, original: Original, precision: str) -> tuple[Any, Any]:
        config = None
        if arm != AS_IT_IS:
            config = scaled_config(original.config, self.config.rope, self.config.trained, self.config.to)
        return load_huggingface(self.model, self.device, precision, config=config)

    def _finish_arm(self, arm: Arm, rows: TrainingRows, corpus: Corpus, reach: ReachConfig, original: Original) -> None:
        """Train an arm and measure it, unless that is done."""
        folder, config = self.folder(arm), self.config
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        if (folder / _MEASURES).exists():
            return
        if arm.ids is not None and trained_model(folder) is None:
            report = self.observer.phase(f"train {arm.name}", config.steps)
            train_arm(partial(self._load, arm, original), arm, rows, config, folder, self.device, report)
            gc.collect()  # Trainer and optimizer refer to each other
        with self._opened(arm, original) as model:
            measured = measure_model(model, texts_of_corpus(corpus, "test"), reach, self.observer, arm.name)
            assert measured.by_context is not None
            measured.by_context.save(folder / _NATS)
            write_atomically(folder / _MEASURES, json.dumps(measured.to_plain()).encode())

    @contextmanager
    def _opened(self, arm: Arm, original: Original) -> Iterator[HuggingFace]:
        """Yield an arm's model to be measured."""
        trained = trained_model(self.folder(arm))
        if trained is not None:
            model, tokenizer = load_huggingface(str(trained), self.device, self.config.precision)
        else:
            model, tokenizer = self._load(arm, original, self.config.precision)
        yield HuggingFace(model, Path(self.model).name, tokenizer)
        release(model)

    def reach(self, original: Original, longest: int | None = None) -> ReachConfig:
        """Return what is measured, up to the longest context that the held-out texts have room for."""
        contexts = [one for one in self.config.contexts if longest is None or one <= longest]
        if not contexts:
            raise BadInput(
                f"no two held-out documents have {self.config.contexts[0]} tokens of context and {BLOCK} to predict:"
                " add longer texts"
            )
        return ReachConfig(
            contexts=Lengths(tuple(contexts)),
            samples=self.config.samples,
            retrieval=not original.no_retrieval,
            seed=self.config.seed,
        )

    def _reach_of(self, corpus: Corpus, original: Original) -> ReachConfig:
        """Return what the held-out documents of a corpus allow to measure."""
        if not corpus.split("test").documents:
            raise BadInput(
                f"none of {corpus.split('train').documents} documents is held out to be measured: add documents (a"
                f" text file is one), or raise {argument('test')}"
            )
        return self.reach(original, texts_of_corpus(corpus, "test").longest)

    def _notes(self, reach: ReachConfig, original: Original) -> list[str]:
        """Return warnings for the user, which the card repeats."""
        longest = max(reach.contexts)
        short = f"contexts above {longest} are not measured: no two held-out documents are so long"
        lines = [
            describe_sliding(original.config),
            short if longest < self.config.to else "",
            original.no_retrieval,
        ]
        return [line for line in lines if line]

    def _result(self, corpus: Corpus, rows: TrainingRows, notes: list[str], original: Original) -> Extension:
        """Return what was measured."""
        config, arms, nats = self.config, [], {}
        for arm in config.arms:
            folder = self.folder(arm)
            losses, seconds = read_training(folder) if arm.ids is not None else ([], 0.0)
            nats[arm.name] = ContextLoss.load(folder / _NATS)
            rope = original.config.rope_parameters
            if arm.scaled:
                rope = scaled_config(original.config, config.rope, config.trained, config.to).rope_parameters
            arms.append(
                ArmResult(
                    name=arm.name,
                    rope_parameters=rope,
                    position_ids=arm.ids,
                    tokens=0 if arm.ids is None else config.tokens,
                    training_losses=losses,
                    training_seconds=seconds,
                    measured=read_json(folder / _MEASURES, MeasuredReach.from_plain),
                )
            )
        train, held_out = (corpus.split(name) for name in ("train", "test"))
        return Extension(
            path=str(self.out),
            settings=self._settings(original),
            command=self.command(),
            versions=used_versions("accelerate", *(["peft"] if config.lora else [])),
            device=device_name(self.device),
            texts={
                "fingerprint": corpus.fingerprint,
                "training_documents": train.documents,
                "training_tokens": len(train.tokens),
                "held_out_documents": held_out.documents,
                "held_out_tokens": len(held_out.tokens),
                "epochs": config.steps * config.batch_size / len(rows),
            },
            notes=notes,
            arms=arms,
            comparisons=compare_arms(nats),
        )

    def _write(self, found: Extension) -> None:
        """Move the model of the result to its place, and write the card and `extend.json`, which comes last."""
        model = trained_model(self.folder(self.config.arms[-1]))
        assert model is not None
        # a folder without its configuration cannot be loaded, so it comes after the weights
        for path in sorted(model.iterdir(), key=lambda path: path.name == "config.json"):
            os.replace(path, self.out / path.name)
        write_atomically(self.out / "README.md", model_card(found).encode())
        write_atomically(self.out / RESULT, (json.dumps(found.to_plain(), indent=1) + "\n").encode())

    def command(self) -> str:
        """Return the command line that makes this extension."""
        words = ["longreach", "extend", self.model, "--data", *self.sources]
        for name, value in asdict(self.config).items():
            if value is not None:
                words += [f"--{name.replace('_', '-')}", str(value)]
        return shlex.join([*words, "--out", str(self.out)])


def check_folder(out: Path, resume: bool) -> None:
    """Raise BadInput if a folder holds something else, or an extension and `resume` is not set."""
    if not out.resolve().parent.is_dir():
        raise BadInput(f"{out}: there is no folder {out.resolve().parent}")
    work = out / _WORK
    if (out / RESULT).exists() or (work / _PLAN).exists():
        if not resume:
            raise BadInput(f"{out} is not empty: add {argument('resume', True)}, or choose another folder")
    elif out.exists() and (not out.is_dir() or any(path != work for path in out.iterdir())):
        raise BadInput(f"{out} holds something else than an extension: choose another folder")


def prepared_corpus(sources: Sequence[str], asked: Plain) -> Corpus | None:
    """Return the corpus that the sources name, or None where they are texts."""
    found = find_texts(sources, None, asked.get("field"))
    if not isinstance(found, Corpus):
        return None
    for setting in ("test", "documents"):
        if asked.get(setting) is not None:
            raise BadInput(f"{argument(setting)} concerns texts, and {found.folder} is a prepared corpus")
    return found
