"""How many floating-point operations a model needs, by formula: the floor that time is compared with.

Counted are products of matrices, a multiplication and an addition each: the layers' weights for every token read, the
head for every token predicted, and attention for every pair of a query and a key that it may see.  What causality
hides is not counted, nor are norms, embeddings and the optimizer, so that a share of the floor is never flattered.
"""

from longreach.model import TransformerConfig


def forward_flops(config: TransformerConfig, vocab_size: int, batch: int, length: int, predicted: int) -> int:
    """To read `batch` sequences of `length` tokens and to predict `predicted` tokens of them in all.

    Reading a sequence at once or token by token with a cache takes the same.
    """
    projected = 2 * config.width + 2 * config.groups * config.head_dim  # queries, keys, values, and back
    hidden = (3 if config.gated else 2) * config.hidden
    weights = config.depth * config.width * (projected + hidden)
    pairs = batch * length * (length + 1) // 2
    attention = 2 * config.depth * config.width * pairs  # scores and mixed values: a product per dimension each
    products = weights * batch * length + attention + config.width * vocab_size * predicted
    return 2 * products


def training_flops(config: TransformerConfig, vocab_size: int, batch: int, length: int, predicted: int) -> int:
    """Three times as much: gradients of the states and of the weights take a forward pass each."""
    return 3 * forward_flops(config, vocab_size, batch, length, predicted)
