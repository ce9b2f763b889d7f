"""Natural language: corpora as packed tokens, and where texts come from."""

from longreach.text.config import PrepareConfig
from longreach.text.corpus import SPLITS, Corpus, Meta, Split, SplitMeta, SplitName
from longreach.text.fetch import Fetched, fetch, in_cache
from longreach.text.fetchable import FETCHABLE, Fetchable
from longreach.text.prepare import Phase, prepare
from longreach.text.subwords import Subwords, as_subwords, open_subwords
from longreach.text.tokenizer import Bytes, Tokenizer

__all__ = [
    "FETCHABLE",
    "SPLITS",
    "Bytes",
    "Corpus",
    "Fetchable",
    "Fetched",
    "Meta",
    "Phase",
    "PrepareConfig",
    "Split",
    "SplitMeta",
    "SplitName",
    "Subwords",
    "Tokenizer",
    "as_subwords",
    "fetch",
    "in_cache",
    "open_subwords",
    "prepare",
]
