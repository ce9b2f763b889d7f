"""An objective of your own: the z-loss, which keeps the logits from drifting."""

from dataclasses import dataclass

from longreach.api import Objective


@dataclass(frozen=True, kw_only=True)
class ZLoss(Objective):
    """The squared logarithm of the softmax's normalizer, averaged over answer tokens."""

    weight: float = 1e-4
    logged_as = "z_loss"

    def losses(self, model, forward):
        def squares(logits, labels):  # [batch, places, vocabulary] and [batch, places]
            return logits.logsumexp(-1).square().masked_fill(labels < 0, 0.0)

        return forward.sum_over_logits(squares)
