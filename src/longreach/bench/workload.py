"""How large a model is and how much it is given at once: what a figure about speed must name."""

from dataclasses import dataclass

from longreach.config import build_part
from longreach.errors import BadInput
from longreach.model import ModelConfig, TransformerConfig


@dataclass(frozen=True)
class Workload:
    """Written `layers,width,heads,batch,length`, such as 6,256,8,512,50."""

    layers: int
    width: int
    heads: int
    batch: int
    length: int
    """In tokens: of a sample in training, of an answer in evaluation and decoding, of the first row by length."""
    encoding: str = "rope"
    attention: str = "softmax"
    recompute: bool = False
    """Whether training keeps only the inputs of layers."""
    architecture: str = "transformer"
    """The name of the model's class: `transformer` (GPT-NeoX) or `llama`."""

    @classmethod
    def parse(cls, text: str) -> "Workload":
        parts = text.split(",")
        if len(parts) != 5 or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
            raise BadInput(f"--shape must be five whole numbers, layers,width,heads,batch,length, got {text!r}")
        layers, width, heads, batch, length = map(int, parts)
        return cls(layers, width, heads, batch, length)

    @property
    def model(self) -> TransformerConfig:
        """Return the model's settings; by default Hugging Face's GPT-NeoX has all parts of it."""
        names = ("layers", "width", "heads", "encoding", "attention")
        values = {"name": self.architecture, **{name: getattr(self, name) for name in names}}
        config = build_part(ModelConfig, values, "model")
        assert isinstance(config, TransformerConfig)
        return config

    @property
    def own_parts(self) -> list[str]:
        """Return the parts that Hugging Face's GPT-NeoX does not have."""
        parts = (self.architecture, self.encoding, self.attention)
        return [part for part in parts if part not in ("transformer", "rope", "softmax")]

    def __str__(self) -> str:
        parts = [*self.own_parts, *(["recomputed"] if self.recompute else [])]
        return ", ".join([f"{self.layers},{self.width},{self.heads},{self.batch},{self.length}", *parts])
