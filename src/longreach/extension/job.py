"""Extend a model: train and measure every arm, in steps that survive a kill, and write the folder of the result."""

import gc
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from longreach.errors import BadInput, argument
from longreach.evaluation import ContextLoss
from longreach.extension.estimate import Estimate, estimate, smaller_settings
from longreach.extension.measure import MeasuredReach, ReachConfig, check_reach_memory, measure_model
from longreach.extension.result import ArmResult, Extension, model_card
from longreach.extension.rope import describe_sliding, far_logits, rope_of_model, scaled_config
from longreach.extension.settings import AS_IT_IS, Arm, ExtendConfig, changed
from longreach.extension.texts import ReachTexts, check_reads, read_texts
from longreach.extension.training import Rows, read_losses, train_arm, trained_model
from longreach.hf import UncutCollator, check_attention_uncut, load_huggingface
from longreach.probe import HuggingFace
from longreach.runs import Observer, gather_versions
from longreach.system.capacity import check_memory
from longreach.system.files import read_json, remove_leftovers, write_atomically
from longreach.system.lock import hold
from longreach.text import Corpus, PrepareConfig, prepare

_HELD_OUT = 0.1
"""Share of the documents that are measured where the user gives none."""
_LONG = 300.0
"""Seconds of work that a warning precedes."""
RESULT = "extend.json"
"""Written last: a folder without it is not finished."""


@dataclass(frozen=True)
class Original:
    """What is known of the model before it is extended."""

    config: Any
    """Its configuration of Hugging Face."""
    fingerprint: str
    far: torch.Tensor
    """Logits behind IDs that are spread over the target length."""


@dataclass(frozen=True)
class Job:
    """An extension that is to be made in a folder."""

    model: str
    sources: tuple[str, ...]
    config: ExtendConfig
    out: Path
    device: str
    observer: Observer
    notes: list[str] = field(default_factory=list)
    """Warnings, which the card repeats."""

    @property
    def work(self) -> Path:
        """Holds what is needed until the result is there."""
        return self.out / ".work"

    def run(self, original: Original, resume: bool) -> Extension:
        """Make the extension, or what is missing of it, and return it."""
        plan = {"model": self.model, "fingerprint": original.fingerprint, "data": list(self.sources)}
        plan |= asdict(self.config)
        if finished := self._begin(plan, resume):
            return finished
        with hold(self.work / "extend.lock", str(self.out)):
            write_atomically(self.work / "plan.json", json.dumps(plan).encode())
            corpus = self._corpus()
            rows = Rows(corpus.split("train"), self.config.window)
            rows.check(self.config.batch_size)
            self._check_documents(corpus)
            measured = None
            for arm in self.config.arms:
                measured = self._measures(arm, rows, corpus, original)
            assert measured is not None
            found = self._result(corpus, rows, original)
            self._write(found)
        shutil.rmtree(self.work, ignore_errors=True)
        return found

    def _begin(self, plan: dict[str, Any], resume: bool) -> Extension | None:
        """Return the extension if it is finished; raise BadInput if the folder holds anything else."""
        for path, key in ((self.out / RESULT, "settings"), (self.work / "plan.json", "")):
            if not path.exists():
                continue
            if not resume:
                raise BadInput(f"{self.out} is not empty: add {argument('resume', True)}, or choose another folder")
            earlier = read_json(path, lambda plain, key=key: dict(plain[key] if key else plain))
            if difference := changed(earlier, plan):
                raise BadInput(f"{self.out} was begun with {difference}: choose another folder")
            if key:
                return read_json(path, Extension.from_plain)
            remove_leftovers(self.work)
            return None
        if self.out.exists() and (not self.out.is_dir() or any(p.name != ".work" for p in self.out.iterdir())):
            raise BadInput(f"{self.out} holds something else than an extension: choose another folder")
        self.work.mkdir(parents=True, exist_ok=True)
        return None

    def _corpus(self) -> Corpus:
        """Return the texts as tokens of the model, with held-out documents in the split `test`."""
        config = self.config
        for name in self.sources:
            if not (Path(name) / "meta.json").is_file():
                continue
            if len(self.sources) > 1:
                raise BadInput(f"{name} is a prepared corpus, which is used alone: name no other text")
            for setting in ("field", "test", "documents"):
                if getattr(config, setting) is not None:
                    raise BadInput(f"{argument(setting)} concerns texts, and {name} is a prepared corpus")
            corpus = Corpus.open(name)
            corpus.verify()
            return corpus
        asked = PrepareConfig(
            tokenizer=self.model,
            field=config.field,
            valid=0.0,
            test=_HELD_OUT if config.test is None else config.test,
            documents=config.documents,
        )
        return prepare(self.sources, self.work / "corpus", asked, resume=True, phase=self.observer.phase)

    def _check_documents(self, corpus: Corpus) -> None:
        held_out, train = (corpus.split(name).documents for name in ("test", "train"))
        if not held_out:
            raise BadInput(
                f"none of {train} documents is held out to be measured: add documents (a text file is one), or raise"
                f" {argument('test')}"
            )

    def folder(self, arm: Arm) -> Path:
        """Return the folder of an arm while the extension is made."""
        return self.work / "arms" / arm.name.replace(", ", "-").replace(" ", "_")

    def _load(self, arm: Arm, original: Original, precision: str) -> tuple[Any, Any]:
        config = None
        if arm != AS_IT_IS:
            config = scaled_config(original.config, self.config.rope, self.config.trained, self.config.to)
        return load_huggingface(self.model, self.device, precision, config=config)

    def _measures(self, arm: Arm, rows: Rows, corpus: Corpus, original: Original) -> None:
        """Train an arm and measure it, unless that is done."""
        folder, config = self.folder(arm), self.config
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        if (folder / "measures.json").exists():
            return
        if arm.ids is not None and trained_model(folder) is None:
            report = self.observer.phase(f"train {arm.name}", config.steps)
            with _timed(folder / "training_seconds.json"):
                train_arm(partial(self._load, arm, original), arm, rows, config, folder, self.device, report)
            _free()
        with self._opened(arm, original) as model:
            texts = read_texts(model, [corpus.folder], "test")
            measured = measure_model(model, texts, self.reach(texts), self.observer, arm.name)
            assert measured.by_context is not None
            measured.by_context.save(folder / "losses.safetensors")
            write_atomically(folder / "measures.json", json.dumps(measured.to_plain()).encode())
        _free()

    @contextmanager
    def _opened(self, arm: Arm, original: Original) -> Iterator[HuggingFace]:
        """Yield an arm's model to be measured."""
        trained = trained_model(self.folder(arm))
        if trained is not None:
            model, tokenizer = load_huggingface(str(trained), self.device, self.config.precision)
        else:
            model, tokenizer = self._load(arm, original, self.config.precision)
        yield HuggingFace(model, Path(self.model).name, tokenizer)

    def reach(self, texts: ReachTexts | None = None) -> ReachConfig:
        """Return what is measured; with texts, only the contexts that they have room for."""
        contexts = self.config.contexts
        if texts is not None:
            contexts = [context for context in contexts if context <= texts.longest]
        if not contexts:
            raise BadInput(
                f"no two held-out documents have {self.config.contexts[0]} tokens of context and 64 to predict: add"
                " longer texts"
            )
        return ReachConfig(contexts=contexts, samples=self.config.samples, seed=self.config.seed)

    def _result(self, corpus: Corpus, rows: Rows, original: Original) -> Extension:
        """Return what was measured."""
        config, arms, nats = self.config, [], {}
        for arm in config.arms:
            folder = self.folder(arm)
            trained = arm.ids is not None
            nats[arm.name] = ContextLoss.load(folder / "losses.safetensors")
            rope = original.config.rope_parameters
            if arm.scaled:
                rope = scaled_config(original.config, config.rope, config.trained, config.to).rope_parameters
            arms.append(
                ArmResult(
                    name=arm.name,
                    rope_parameters=rope,
                    position_ids=arm.ids,
                    tokens=config.tokens if trained else 0,
                    training_seconds=read_json(folder / _SECONDS, float) if trained else 0.0,
                    training_losses=read_losses(folder) if trained else [],
                    measured=read_json(folder / _MEASURES, MeasuredReach.from_plain),
                )
            )
        longest = max(loss.size for loss in arms[-1].measured.losses if loss.by == "context")
        if longest < config.to:
            self._note(f"contexts above {longest} are not measured: no two held-out documents are so long")
        train, held_out = (corpus.split(name) for name in ("train", "test"))
        return Extension(
            path=str(self.out),
            settings={
                "model": self.model,
                "fingerprint": original.fingerprint,
                "data": list(self.sources),
                **asdict(config),
            },
            command=self.command(),
            versions=versions(),
            device=device_name(self.device),
            texts={
                "fingerprint": corpus.fingerprint,
                "training_documents": train.documents,
                "training_tokens": len(train.tokens),
                "held_out_documents": held_out.documents,
                "held_out_tokens": len(held_out.tokens),
                "epochs": config.steps * config.batch_size / len(rows),
            },
            notes=list(self.notes),
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

    def _note(self, line: str) -> None:
        if line not in self.notes:
            self.notes.append(line)
            self.observer.say(f"warning: {line}")


@contextmanager
def _timed(path: Path) -> Iterator[None]:
    """Write the seconds of a block to a file; those of an earlier start that was killed are lost."""
    start = time.monotonic()
    yield
    write_atomically(path, json.dumps(time.monotonic() - start).encode())


def _free() -> None:
    """Give the memory of models back that nothing refers to."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
