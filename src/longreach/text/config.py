"""What decides the content of a prepared corpus, beside its sources."""

from dataclasses import dataclass, replace
from typing import Annotated

from longreach.config import Bounds, Positive, Settings
from longreach.errors import BadInput
from longreach.text.shards import Shares

_Amount = Annotated[int, Bounds(high=2**63 - 1)]


@dataclass(frozen=True, kw_only=True)
class PrepareConfig(Settings):
    """How texts are cut into tokens, and documents into splits."""

    tokenizer: str = "bpe"
    """`bytes`, `bpe` (trained on these texts), or the path or name of a Hugging Face tokenizer."""
    vocabulary: Positive | None = None
    """Tokens of a `bpe` tokenizer, `<pad>` and `<end>` included (default: 4096)."""
    sample_bytes: _Amount | None = None
    """A `bpe` tokenizer learns from at most so many bytes of training documents (default: 64 MiB)."""
    field: str | None = None
    """Where the text stands in JSONL, Parquet and datasets (default: text)."""
    valid: float = 0.05
    """Share of the documents for validation."""
    test: float = 0.05
    """Share of the documents for tests."""
    documents: _Amount | None = None
    """At most so many, from the beginning (default: all)."""
    shard_bytes: _Amount = 1 << 22
    """Characters encoded and saved at once; the result does not depend on it."""

    def __post_init__(self) -> None:
        if self.tokenizer != "bpe":
            for name in ("vocabulary", "sample_bytes"):
                if getattr(self, name) is not None:
                    raise BadInput(f"{name} concerns the tokenizer bpe, not {self.tokenizer}")
        for name in ("valid", "test"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInput(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        if self.valid + self.test >= 1:
            raise BadInput(f"nothing is left for training: valid {self.valid} + test {self.test}")
        for name in ("sample_bytes", "documents", "shard_bytes"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise BadInput(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def shares(self) -> Shares:
        return Shares(self.valid, self.test)

    @property
    def text_field(self) -> str:
        return self.field or "text"

    def settled(self) -> "PrepareConfig":
        """With the defaults written out."""
        if self.tokenizer != "bpe":
            return replace(self, field=self.text_field)
        sample = self.sample_bytes or 1 << 26
        return replace(self, field=self.text_field, vocabulary=self.vocabulary or 4096, sample_bytes=sample)
