"""How many floating-point operations a model needs, by formula: the floor that time is compared with.

Counted are products of matrices, a multiplication and an addition each: the layers' weights for every token read, the
head for every token predicted, and attention for every pair of a query and a key that it may see.  What causality
hides is not counted, nor are norms, embeddings and the optimizer, so that a share of the floor is never flattered.
"""

from collections.abc import Sequence

import torch
from torch import nn

from longreach.attention import Attention
from longreach.model import Model, Transformer, TransformerConfig
from longreach.model.position_heads.pointer import Pointer
from longreach.model.position_heads.table import Table
from longreach.objectives import Batch, IdLoss, Objective, id_targets, token_targets
from longreach.tasks import Sample


def forward_flops(config: TransformerConfig, vocab_size: int, batch: int, length: int, predicted: int) -> int:
    """To read `batch` sequences of `length` tokens and to predict `predicted` tokens of them in all.

    Reading a sequence at once or token by token with a cache takes the same.
    """
    return _forward(config, vocab_size, batch * length, batch * length * (length + 1) // 2, predicted)


def training_flops(config: TransformerConfig, vocab_size: int, batch: int, length: int, predicted: int) -> int:
    """Three times as much: gradients of the states and of the weights take a forward pass each."""
    return 3 * forward_flops(config, vocab_size, batch, length, predicted)


def step_flops(model: Model, batch: Batch, objectives: Sequence[Objective]) -> int | None:
    """Return the operations that a training step needs for one batch; None for models with parts not counted here.

    Padding is not counted.  Heads that attend by position IDs alone need neither queries, keys nor scores of tokens.
    """
    if not isinstance(model, Transformer) or model.copy_head is not None or model.dependency_head is not None:
        return None
    if any(module.hides for module in model.modules() if isinstance(module, Attention)):
        return None
    id_losses = [one for one in objectives if isinstance(one, IdLoss)]
    if any(one.feed_predicted for one in id_losses):
        return None
    read = batch.sample.num_tokens - 1  # the last token is predicted and never read
    tokens, pairs = int(read.sum()), int((read * (read + 1) // 2).sum())
    vocab_size = model.embed.weight.shape[-2]
    needed = _forward(model.config, vocab_size, tokens, pairs, int(token_targets(batch.sample).sum()))
    for objective in id_losses:
        of_head = _position_head(model, batch.sample, id_targets(batch.sample, objective.on), tokens)
        if of_head is None:
            return None
        needed += of_head
    return 3 * needed


def _forward(config: TransformerConfig, vocab_size: int, tokens: int, pairs: int, predicted: int) -> int:
    by_content = config.heads - config.id_heads
    queries_and_keys = (by_content + config.groups - config.id_heads) * config.head_dim
    values = config.groups * config.head_dim
    hidden = (3 if config.gated else 2) * config.hidden
    weights = config.depth * config.width * (queries_and_keys + values + config.width + hidden)
    # a product for each dimension of a score, and one for each dimension of the mixed values
    attention = config.depth * (by_content * config.head_dim + config.width) * pairs
    products = weights * tokens + attention + config.width * vocab_size * predicted
    return 2 * products


def _position_head(model: Transformer, sample: Sample, targets: torch.Tensor, tokens: int) -> int | None:
    """Return the operations of a position head that predicts the IDs of the `targets`."""
    head, width, places = model.position_head, model.config.width, int(targets.sum())
    if isinstance(head, Table):
        entries = sum(size + 1 for size in head.sizes)
        return 2 * places * width * (head.features.size + entries)
    if not isinstance(head, Pointer):
        return None
    per_place = sum(
        part.weight.numel() for name, part in head.named_modules() if isinstance(part, nn.Linear) and name != "keys"
    )
    visible = torch.arange(1, targets.shape[1] + 1, device=targets.device)
    compared = int((targets * visible).sum()) * len(head.growing)
    return 2 * (places * per_place + tokens * head.keys.weight.numel() + compared * width)
