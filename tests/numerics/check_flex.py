"""Print, as JSON, how far attention with biases of single pairs is from the plain path: for every bias.

On a GPU it is the compiled kernel, values and all gradients; on a CPU torch's reference of it, which has no gradients.
Every error is a share of the norm, beside parts in fp32 of the same queries, keys and values.
"""

import json
import sys
from pathlib import Path

import torch
from torch.nn.attention.flex_attention import flex_attention

sys.path.insert(0, str(Path(__file__).parent.parent))

from catalogue import BIASES

from longreach.api import FireConfig, ScaledSoftmaxConfig, TransformerConfig, build_model
from longreach.attention import Attention
from longreach.engine import flex
from longreach.engine.plan import Plan

DEVICE = sys.argv[1]
TOKENS = flex.FROM + 10 if DEVICE == "cuda" else 150
"""The last block has less than any kernel takes at a time."""
GENERATOR = torch.Generator().manual_seed(0)


def new_model(config, levels):
    shape = TransformerConfig(layers=2, width=128, heads=4, encoding=config, attention=ScaledSoftmaxConfig(start=0.7))
    model = build_model(shape, 11, 0, level_sizes=(0,) * levels)
    with torch.no_grad():  # biases that make a difference
        for name, parameter in model.encoding.named_parameters():
            if name.endswith(("out", "offset", "weight")):
                parameter.normal_(generator=GENERATOR)
    model.encoding.requires_grad_(not isinstance(config, FireConfig))
    return model.to(DEVICE)


def draw(*shape):
    return torch.randn(*shape, generator=GENERATOR).to(DEVICE)


def new_ids(levels):
    """In no order, some near each other and some far."""
    near = torch.randint(0, 40, (2, levels, TOKENS), generator=GENERATOR)
    far = torch.randint(0, 3, (2, levels, TOKENS), generator=GENERATOR) * 3000
    return (near + far).to(DEVICE)


def compare(found, wanted):
    return [float((one.float() - other).norm() / other.norm()) for one, other in zip(found, wanted, strict=True)]


def of_attention(encoding, ids, dtype):
    inputs, factors = [draw(2, 4, TOKENS, 32).to(dtype) for _ in range(3)], draw(2, 4, TOKENS, 32)
    visible = torch.arange(1, TOKENS + 1, device=DEVICE)[None]
    weights = [weight for weight in encoding.parameters() if weight.requires_grad]

    def computed(attend, precision):
        leaves = [x.to(precision).requires_grad_(torch.is_grad_enabled()) for x in inputs]
        mixed = attend(*leaves)
        if not torch.is_grad_enabled():
            return [mixed]
        return [mixed, *torch.autograd.grad((mixed.float() * factors).sum(), [*leaves, *weights])]

    found = computed(lambda q, k, v: flex.attend(q, k, v, encoding.pair_bias(ids, ids)), dtype)
    bias = encoding.score_bias(ids, ids)
    wanted = computed(lambda q, k, v: Attention()(q, k, v, visible, None, bias), torch.float32)
    return compare(found, wanted)


def of_model(model, ids):
    """Evaluate a whole model, whose scores grow."""
    tokens, calls = torch.randint(0, 11, (2, TOKENS), generator=GENERATOR).to(DEVICE), []
    plan = Plan(device=DEVICE, precision="fp32", engine="auto", used=("flex_attention",), unused={})
    attend, flex.attend = flex.attend, lambda *args: calls.append(1) or attend(*args)
    with torch.no_grad():
        found = plan.test_model(model)(tokens, ids)
        assert len(calls) == 2, "every layer must use it"
        wanted = model(tokens, ids)
        assert len(calls) == 2
    flex.attend = attend
    return compare([found], [wanted])


def main():
    if DEVICE == "cpu":
        flex._kernel = lambda: flex_attention
        flex.FROM = TOKENS
        torch.set_grad_enabled(False)
    errors = {}
    for config in BIASES:
        for levels, dtype in ((2, torch.float32), (1, torch.bfloat16)):
            errors[f"{config}, {dtype}"] = of_attention(new_model(config, levels).encoding, new_ids(levels), dtype)
        errors[f"{config}, model"] = of_model(new_model(config, levels=2), new_ids(levels=2))
    print(json.dumps(errors))


main()
