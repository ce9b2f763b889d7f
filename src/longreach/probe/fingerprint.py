"""What identifies a model or a text, whatever it is called."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


def fingerprint_of_model(model: nn.Module, settings: Mapping[str, Any]) -> str:
    """The same for two models if and only if their settings and all their weights are."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, weight in model.state_dict().items():
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def fingerprint_of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
