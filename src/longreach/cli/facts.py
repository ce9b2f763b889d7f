"""Facts that help texts quote from modules that import torch.

`make facts` writes them to `facts.json`, so that no help imports torch.  A test fails when the file is out of date.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, get_args

_FILE = Path(__file__).with_name("facts.json")


@cache
def facts() -> dict[str, Any]:
    """Read the facts."""
    return dict(json.loads(_FILE.read_text(encoding="utf-8")))


def gather_facts() -> dict[str, Any]:
    """Collect the facts from the modules that define them."""
    from longreach.bench import DECODING, HEADLINE, TRAINING, EveryTarget, Protocol
    from longreach.engine.plan import Parallel
    from longreach.extension import ExtendConfig
    from longreach.extension.rope import RopeMethod
    from longreach.extension.settings import Ids
    from longreach.probe import MaskKind, Method, ProbeConfig
    from longreach.text import SPLITS
    from longreach.theory.reproduce import FIGURES

    numbers = ("masks", "held_out", "keep", "mask_kind", "tau", "eps", "largest_k")
    return {
        "settings": _settings(),
        "parallel": list(get_args(Parallel)),
        "splits": list(SPLITS),
        "figures": list(FIGURES),
        "probe": {
            "method_choices": list(get_args(Method)),
            "mask_kind_choices": list(get_args(MaskKind)),
            **{name: getattr(ProbeConfig, name) for name in numbers},
        },
        "extend": {
            "rope_choices": list(get_args(RopeMethod)),
            "ids_choices": list(get_args(Ids)),
            **{name: getattr(ExtendConfig, name) for name in ("steps", "batch_size", "samples")},
        },
        "bench": {
            "training_rivals": list(TRAINING),
            "decoding_rivals": list(DECODING),
            "headline": HEADLINE.as_posix(),
            "query": Protocol.query,
            "answer": Protocol.answer,
            "sample": EveryTarget.sample,
        },
    }


def _settings() -> list[str]:
    """Return a line for every setting of a recipe as a flag."""
    from longreach.config import field_help
    from longreach.model import TransformerConfig
    from longreach.runs import SECTIONS

    return [
        f"--{prefix}.{field.name} {field.type}  [{field.default}]  {field.help}"
        for prefix, cls in {"model": TransformerConfig, **SECTIONS}.items()
        for field in field_help(cls)
        if field.name != "optimizer"
    ]


if __name__ == "__main__":
    _FILE.write_text(json.dumps(gather_facts(), indent=1) + "\n", encoding="utf-8")
