"""An ID policy of your own: in training, every sample walks with its own stride."""

from dataclasses import dataclass

from longreach.api import Sequential


@dataclass(frozen=True, kw_only=True)
class RandomStride(Sequential):
    """Token t has ID s * t, with s drawn per sample in training and s = 1 in evaluation."""

    max_stride: int = 8
    """The largest stride."""

    def relabel(self, task, sample, ids, draws):
        stride = 1 + draws.below("stride", self.max_stride, 1)  # [batch, 1]
        return ids * stride[:, None]
