"""Plain data of one generation, for JSON and for pages."""

import base64
import zlib
from dataclasses import asdict
from typing import Any

import torch

from longreach.evaluation.inside import Inside, verdict
from longreach.evaluation.look_inside import likeliest
from longreach.tasks import Task

_NAMED = 24
"""Tokens of the true answer that the verdict of a page names."""


def inside_data(inside: Inside) -> dict[str, Any]:
    """Return tokens, IDs and steps without the attention weights."""
    error = inside.first_error
    return {
        "tokens": inside.words,
        "ids": inside.ids.T.tolist(),
        "levels": [level.name for level in inside.levels],
        "prompt_tokens": inside.prompt_tokens,
        "predicts_ids": inside.predicts_ids,
        "steps": [asdict(step) for step in inside.steps],
        "matches": [asdict(count) for count in inside.matches],
        "true_answer": inside.true_answer,
        "stopped": inside.stopped,
        "right": inside.right,
        "verdict": verdict(inside),
        "first_error": None if error is None else {"step": error[0], "wrong": error[1]},
    }


def page_data(inside: Inside, task: Task) -> dict[str, Any]:
    """Return `inside_data` with the likeliest tokens and IDs of every step and all attention weights."""
    found = [likeliest(inside, task, number) for number in range(len(inside.steps))]
    layers, heads = inside.weights.shape[:2]
    return inside_data(inside) | {
        "verdict": verdict(inside, most=_NAMED),
        "growing": [level.grows for level in inside.levels],
        "likeliest": [{"tokens": tokens, "ids": ids} for tokens, ids in found],
        "attention": {"layers": layers, "heads": heads, "data": pack_weights(inside)},
    }


def pack_weights(inside: Inside) -> str:
    """Return all attention weights as base64 of a zlib stream of bytes.

    A byte is the square root of a weight times 255, rounded: a weight w has an error of at most sqrt(w) / 255.  Steps
    follow each other; a step has, per layer and head, one byte for each token read so far.
    """
    roots = (inside.weights.clamp(0, 1).sqrt() * 255).round().to(torch.uint8)
    parts = [roots[:, :, step.number, : step.index + 1].numpy().tobytes() for step in inside.steps]
    return base64.b64encode(zlib.compress(b"".join(parts))).decode()
