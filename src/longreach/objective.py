"""What training minimises: cross-entropy on the answer tokens that must be predicted."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.model import Transformer
from longreach.tasks import Sample


def answer_loss(
    model: Transformer, sample: Sample, ids: Int[Tensor, "b g t"]
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """Summed loss and the number of tokens it is over.  Padding and given tokens carry none."""
    hidden = model(sample.tokens[:, :-1], ids[:, :, :-1])
    wanted = (sample.answer & ~sample.given)[:, 1:]  # token t+1 is predicted at t
    logits = model.logits(hidden[wanted])
    loss = torch.nn.functional.cross_entropy(logits.float(), sample.tokens[:, 1:][wanted], reduction="sum")
    return loss, wanted.sum()
