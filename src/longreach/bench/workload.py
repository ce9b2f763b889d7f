"""How large a model is and how much it is given at once: what a figure about speed must name."""

from dataclasses import dataclass

from longreach.config import build
from longreach.errors import BadInput
from longreach.model import TransformerConfig


@dataclass(frozen=True)
class Workload:
    """Written `layers,width,heads,batch,length`, such as 6,256,8,512,50."""

    layers: int
    width: int
    heads: int
    batch: int
    length: int
    """In tokens: of a sample in training, of an answer in evaluation and decoding, of the first row by length."""

    @classmethod
    def parse(cls, text: str) -> "Workload":
        parts = text.split(",")
        if len(parts) != 5 or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
            raise BadInput(f"--shape must be five whole numbers, layers,width,heads,batch,length, got {text!r}")
        return cls(*map(int, parts))

    @property
    def model(self) -> TransformerConfig:
        """The decoder of GPT-NeoX, with nothing that Hugging Face's does not have."""
        return build(TransformerConfig, {"layers": self.layers, "width": self.width, "heads": self.heads}, "model")

    def __str__(self) -> str:
        return f"{self.layers},{self.width},{self.heads},{self.batch},{self.length}"
