"""Options of Hugging Face's `generate` that models of longreach honour; the others are refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from longreach.decoding import SamplingConfig
from longreach.errors import BadInput

_SAMPLING = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}
"""Hugging Face's defaults."""
_NEUTRAL: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("num_beams", "num_beam_groups", "num_return_sequences"), (1,)),
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty", "length_penalty", "typical_p"), (1,)),
    "temperature": (0, 1),
    "top_k": (0, 50),
    "top_p": (1,),
}
"""Values that ask for nothing, of options for which 0 is no such value, and of the options of sampling."""
_MARKS = ("transformers_version", "bos_token_id", "decoder_start_token_id")
_OF_ASSISTANTS = (
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
    "assistant_lookbehind",
    "target_lookbehind",
)
"""They concern `assistant_model`, which is refused."""
_SEEDS = 2**62


@dataclass(frozen=True, kw_only=True)
class Request:
    """One generation."""

    max_new_tokens: int | None
    """The most tokens of an answer; None for the default of `predict`."""
    sampling: SamplingConfig
    seed: int
    use_cache: bool
    pad_token: int
    """Fills the rows behind an answer."""

    @classmethod
    def of(cls, default: Any, config: Any, options: Mapping[str, Any], width: int, stop_token: int | None) -> "Request":
        """Merge the model's defaults, a `GenerationConfig` and options; raise BadInput for what cannot be done.

        `width` is the number of columns of the prompts.
        """
        asked = {**default.to_diff_dict(), **(config.to_diff_dict() if config is not None else {})}
        own = {name: value for name, value in options.items() if value is not None}
        if "max_length" in own and "max_new_tokens" not in own:
            asked.pop("max_new_tokens", None)  # that of a configuration
        asked = {
            name: value
            for name, value in {**asked, **own}.items()
            if name not in (*_MARKS, *_OF_ASSISTANTS) and name[0] != "_"
        }
        longest, most = asked.pop("max_length", None), asked.pop("max_new_tokens", None)
        if most is None and longest is not None:
            most = longest - width
        if most is not None and most < 1:
            raise BadInput(f"max_new_tokens must be at least 1, got {most}")
        stop = asked.pop("eos_token_id", stop_token)
        if stop not in (stop_token, [stop_token]):
            raise BadInput(f"eos_token_id must be {stop_token}, the token that ends answers of this task, got {stop}")
        pad, use_cache, sampled = (
            asked.pop("pad_token_id", 0),
            asked.pop("use_cache", True),
            asked.pop("do_sample", False),
        )
        seed = asked.pop("seed", None)
        if seed is not None and not sampled:
            raise BadInput(f"seed={seed} needs do_sample=True: nothing is drawn without it")
        sampling = SamplingConfig()
        if sampled:
            drawn = {name: asked.pop(name, value) for name, value in _SAMPLING.items()}
            if not drawn["temperature"] > 0:
                raise BadInput(f"temperature must be above 0 with do_sample=True, got {drawn['temperature']}")
            sampling = SamplingConfig(**drawn)
        for name, value in asked.items():
            if name in _SAMPLING and name not in own:
                continue  # a configuration says how to draw, if anything is drawn
            if not _is_neutral(name, value):
                needs = " without do_sample=True" if name in _SAMPLING else ""
                raise BadInput(
                    f"generate of a model of longreach cannot do {name}={value!r:.60}{needs}: it takes max_new_tokens,"
                    " max_length, do_sample, temperature, top_k, top_p, seed, use_cache and stopping_criteria"
                )
        return cls(
            max_new_tokens=most,
            sampling=sampling,
            seed=int(torch.randint(_SEEDS, ())) if sampled and seed is None else seed or 0,
            use_cache=use_cache,
            pad_token=pad,
        )


def _is_neutral(name: str, value: Any) -> bool:
    """Return whether an option asks for nothing."""
    if value is None or value is False or (hasattr(value, "__len__") and len(value) == 0):
        return True
    return bool(value in _NEUTRAL[name] if name in _NEUTRAL else value == 0)
