"""Train one arm of an extension with Hugging Face's Trainer, such that a resumed training is the same bit for bit."""

import importlib.util
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from longreach.errors import BadInput, RunFailed, argument
from longreach.evaluation.context import BLOCK
from longreach.extension.settings import Arm, ExtendConfig
from longreach.hf import PoseDataset, UncutCollator, position_callback
from longreach.hf.load import PRECISIONS
from longreach.seeding import derived_seed
from longreach.system.files import read_json, write_atomically
from longreach.system.huggingface import import_transformers
from longreach.text import Split
from longreach.text.hub import quiet_loading

_SAVES = 10
"""Checkpoints of a training; a killed one loses the steps since the last of them."""
_WHOLE = "whole"
"""Empty file in a checkpoint that was written to its end."""
_TRAINING = "training.json"
_MODEL = "model"

Report = Callable[[int, str], None]


@dataclass(frozen=True)
class TrainingRows:
    """Rows of `window` tokens by index: the documents of a split one after the other, with end tokens between them."""

    split: Split
    window: int
    opening: tuple[int, ...] = ()
    """Special tokens in the place of the first tokens of a row, as the model reads them first in every text."""

    def __len__(self) -> int:
        return len(self.split.tokens) // self.window

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        tokens = self.split.tokens[index * self.window : (index + 1) * self.window]
        row = torch.from_numpy(tokens.astype(np.int64))
        row[: len(self.opening)] = torch.tensor(self.opening[: self.window])
        return {"input_ids": row}

    def check(self, batch_size: int) -> None:
        """Raise BadInput if the rows do not fill a batch."""
        if len(self) < batch_size:
            raise BadInput(
                f"the training texts have {len(self.split.tokens)} tokens, and {argument('batch_size', batch_size)}"
                f" rows of {self.window} need {batch_size * self.window}: add texts, or lower"
                f" {argument('window')} or {argument('batch_size')}"
            )


def check_training(config: ExtendConfig, device: str) -> None:
    """Raise BadInput if a package is absent, or several GPUs are visible, which a Trainer would all use."""
    if importlib.util.find_spec("accelerate") is None:
        raise BadInput("training needs the package accelerate: pip install 'longreach[hf]'")
    if config.lora and importlib.util.find_spec("peft") is None:
        raise BadInput(f"{argument('lora')} needs the package peft: pip install peft")
    if device != "cpu" and torch.cuda.device_count() > 1:
        raise BadInput(f"{torch.cuda.device_count()} GPUs are visible and one is used: set CUDA_VISIBLE_DEVICES=0")


def with_lora(model: Any, config: ExtendConfig) -> Any:
    """Return the model with low-rank adapters on its linear layers, the only weights that are trained."""
    import peft

    settings = peft.LoraConfig(
        r=config.lora, lora_alpha=2 * config.lora, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    try:
        with torch.random.fork_rng(devices=_gpus()):  # it draws weights
            torch.manual_seed(derived_seed(config.seed, "lora"))
            return peft.get_peft_model(model, settings)
    except ValueError as error:
        raise BadInput(f"{argument('lora')}: {str(error).splitlines()[0]}") from error


def trained_model(folder: Path) -> Path | None:
    """Return the folder of a trained arm's model, or None if the arm is not trained yet."""
    return folder / _MODEL if (folder / _MODEL).is_dir() else None


def read_training(folder: Path) -> tuple[list[dict[str, int | float]], float]:
    """Return the losses of an arm's training by step, and its seconds."""
    return read_json(folder / _TRAINING, lambda plain: (list(plain["losses"]), float(plain["seconds"])))


def train_arm(
    load: Callable[[str], tuple[Any, Any]],
    arm: Arm,
    rows: TrainingRows,
    config: ExtendConfig,
    folder: Path,
    device: str,
    report: Report,
) -> None:
    """Train an arm and write its model, a plain folder of Hugging Face, and its losses and seconds into `folder`.

    `load` returns the model and its tokenizer in a precision.  A checkpoint in the folder is continued; the seconds
    are those since then.
    """
    started = time.monotonic()
    # a model that is trained as a whole keeps its weights in fp32: small steps vanish in bf16
    model, tokenizer = load(config.precision if config.lora else "fp32")
    use_cache = model.config.use_cache
    if config.lora:
        model = with_lora(model, config)
    with _global_generators():
        trainer = _trainer(model, arm, rows, config, folder / "checkpoints", device, report)
        checkpoint = _last_checkpoint(folder / "checkpoints")
        with quiet_loading():
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    losses = [{"step": row["step"], "loss": row["loss"]} for row in trainer.state.log_history if "loss" in row]
    if not all(np.isfinite(row["loss"]) for row in losses):
        raise RunFailed(f"the loss of {arm.name} is not a number: take another folder and a lower {argument('lr')}")
    training = {"losses": losses, "seconds": time.monotonic() - started}
    write_atomically(folder / _TRAINING, json.dumps(training).encode())
    if config.lora:
        model = model.merge_and_unload()
    model.config.use_cache = use_cache  # the Trainer switches the cache off
    if tokenizer.model_max_length < config.to:
        tokenizer.model_max_length = config.to
    temporary = folder / f"{_MODEL}.part"
    shutil.rmtree(temporary, ignore_errors=True)  # of a start that was killed
    with quiet_loading():
        model.to(PRECISIONS[config.precision]).save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    temporary.rename(folder / _MODEL)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def _trainer(
    model: Any, arm: Arm, rows: TrainingRows, config: ExtendConfig, folder: Path, device: str, report: Report
) -> Any:
    """Return a Trainer that prints nothing."""
    transformers = import_transformers("a Trainer")
    settings = transformers.TrainingArguments(
        str(folder),
        max_steps=config.steps,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.lr,
        warmup_steps=config.steps // 20,
        lr_scheduler_type="linear",
        bf16=config.precision == "bf16",
        use_cpu=device == "cpu",
        seed=derived_seed(config.seed, "Trainer") % 2**31,
        dataloader_drop_last=True,
        save_steps=-(-config.steps // _SAVES),
        save_total_limit=2,
        logging_steps=1,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to=[],
    )
    skips = arm.ids != "sequential"
    data: Any = rows
    if skips:
        # a context of `to` tokens is measured by the block that follows it
        data = PoseDataset(rows, max_id=config.to + BLOCK - 1, uniform=arm.ids == "uniform_pose", seed=config.seed)
    trainer = transformers.Trainer(
        model,
        settings,
        train_dataset=data,
        data_collator=UncutCollator(),
        callbacks=[*([position_callback()] if skips else []), _progress(report)],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def _progress(report: Report) -> Any:
    """Return a callback that reports steps and marks checkpoints that were written to their end."""

    class Progress(import_transformers("a Trainer").TrainerCallback):  # type: ignore[misc]
        note = ""

        def on_step_end(self, args: Any, state: Any, control: Any, **at_hand: Any) -> None:
            # a Trainer that resumes from the last step takes one more
            control.should_save = control.should_save and state.global_step < args.max_steps
            report(state.global_step, self.note)

        def on_log(self, args: Any, state: Any, control: Any, **at_hand: Any) -> None:
            if "loss" in at_hand["logs"]:
                self.note = f"loss {at_hand['logs']['loss']:.3f}"

        def on_save(self, args: Any, state: Any, control: Any, **at_hand: Any) -> None:
            (Path(args.output_dir) / f"checkpoint-{state.global_step}" / _WHOLE).touch()

    return Progress()


def _last_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint that was written to its end, and remove the others."""
    found = {int(path.name.rpartition("-")[2]): path for path in folder.glob("checkpoint-*")}
    whole = [step for step, path in found.items() if (path / _WHOLE).exists()]
    for step, path in found.items():
        if not whole or step != max(whole):
            shutil.rmtree(path)
    return found[max(whole)] if whole else None


@contextmanager
def _global_generators() -> Iterator[None]:
    """Restore the global random generators, which the Trainer seeds."""
    state, numbers = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=_gpus()):
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numbers)


def _gpus() -> list[int]:
    return list(range(torch.cuda.device_count()))
