"""Natural language: corpora as packed tokens, and where texts come from."""

from longreach.text.corpus import Corpus, Split, SplitName
from longreach.text.subwords import Subwords
from longreach.text.tokenizer import Bytes, Tokenizer

__all__ = ["Bytes", "Corpus", "Split", "SplitName", "Subwords", "Tokenizer"]
