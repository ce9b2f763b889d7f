"""Natural language: corpora as packed tokens, and where texts come from."""

from longreach.text.config import PrepareConfig
from longreach.text.corpus import Corpus, Split, SplitName
from longreach.text.prepare import prepare
from longreach.text.subwords import Subwords
from longreach.text.tokenizer import Bytes, Tokenizer

__all__ = ["Bytes", "Corpus", "PrepareConfig", "Split", "SplitName", "Subwords", "Tokenizer", "prepare"]
