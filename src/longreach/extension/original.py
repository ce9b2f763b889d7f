"""Load a model that is to be extended, and refuse it in one line if that cannot be done."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from longreach.config import Plain, build
from longreach.errors import BadInput, argument
from longreach.evaluation import PassCost
from longreach.extension.estimate import seconds_per_operation
from longreach.extension.retrieval import NeedleTexts
from longreach.extension.rope import far_logits, rope_of_model, scaled_config
from longreach.extension.settings import ExtendConfig, usual_rate, usual_window
from longreach.extension.texts import check_reads, texts_of
from longreach.extension.training import check_training
from longreach.hf import UncutCollator, check_attention_uncut, load_huggingface
from longreach.hf.load import check_weights
from longreach.probe import HuggingFace
from longreach.text import Corpus


@dataclass(frozen=True)
class Original:
    """Facts about a model that is to be extended."""

    config: Any
    """Its configuration of Hugging Face."""
    parameters: int
    cost: PassCost
    per_operation: float
    """Seconds of an operation in a forward pass."""
    fingerprint: str
    opening: list[int]
    """Special tokens that the model reads first in every text."""
    no_retrieval: str
    """Reason why retrieval cannot be measured; empty where it can."""


def inspect_original(
    name: str, asked: Plain, corpus: Corpus | None, device: str, warn: Callable[[str], None]
) -> tuple[Original, ExtendConfig]:
    """Load a model and return what an extension needs to know, and the settings with all defaults.

    `asked` holds the settings that were given.  Raises BadInput for a model that cannot be extended so.
    """
    check_weights(name, device, warn)
    precision = str(asked.get("precision", ExtendConfig.precision))
    model, tokenizer = load_huggingface(name, device, precision)
    rope_of_model(model.config)
    trained = asked.get("trained", model.config.max_position_embeddings)
    usual = {
        "trained": trained,
        "window": usual_window(trained),
        "lr": usual_rate(model.num_parameters(), bool(asked.get("lora"))),
    }
    config = build(ExtendConfig, usual | asked, "")
    check_training(config, device)
    scaled = scaled_config(model.config, config.rope, config.trained, config.to)
    check_attention_uncut(model, UncutCollator())
    reader = HuggingFace(model, Path(name).name, tokenizer)
    if corpus is not None:
        check_reads(reader, corpus)
    cost = reader.pass_cost()
    original = Original(
        config=model.config,
        parameters=model.num_parameters(),
        cost=cost,
        per_operation=seconds_per_operation(model, cost, config.window),
        fingerprint=reader.fingerprint,
        opening=reader.opening,
        no_retrieval=_no_retrieval(reader),
    )
    far = far_logits(model, config.to)
    release(model)
    if config.rope == "none":
        return original, config
    model, _ = load_huggingface(name, device, precision, config=scaled)
    changes = not torch.equal(far, far_logits(model, config.to))
    release(model)
    if not changes:
        raise BadInput(
            f"RoPE of type {config.rope} changes nothing in this {scaled.model_type} model:"
            f" choose another {argument('rope')}"
        )
    return original, config


def _no_retrieval(reader: HuggingFace) -> str:
    """Return a line if the tokenizer has no tokens for the words that are retrieved; empty if it has."""
    try:
        NeedleTexts(reader, texts_of(reader, ["a", "b"]), 1, 0)
    except BadInput:
        return "retrieval is not measured: the tokenizer cannot tell its words apart"
    return ""


def release(model: Any) -> None:
    """Free the memory of a model's weights, whatever still refers to the model."""
    model.to("meta")
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
