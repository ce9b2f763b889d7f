"""The other side of attribution: ContextCite (Cohen-Wang et al. 2024), used as its package is meant to be used.

It cuts a context into sentences or words, deletes some of them, asks the model again how likely its own answer is, and
fits a Lasso to that.
"""

import importlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.probe import HuggingFace

SOURCES = {"sentences": "sentence", "words": "word"}
"""What it can cut a context into, and its name for it."""


class Citation:
    """One context and the model's own answer to a question about it, as ContextCite puts them together."""

    def __init__(self, model: HuggingFace, context: str, query: str, source: str, answer_tokens: int, ablations: int):
        package = load_context_cite()
        if not getattr(model.tokenizer, "chat_template", None):
            raise BadInput(f"{model.name} has no chat template, which ContextCite needs")
        self._citer: Any = package.ContextCiter(
            model.model,
            model.tokenizer,
            context,
            query,
            source_type=source,
            generate_kwargs={"max_new_tokens": answer_tokens, "do_sample": False},
            num_ablations=ablations,
        )
        self._tokenizer, self._context = model.tokenizer, context
        prompt, self._prompt = self._citer._get_prompt_ids(return_prompt=True)
        answer = self._citer._response_ids  # here it generates
        self.tokens = torch.tensor([*prompt, *answer])
        self.targets = torch.arange(len(prompt), len(self.tokens))

    def fit(self) -> Float[Tensor, "n s"]:
        """The weight of each source for each token of the answer: its ablations, made at the first call, and a
        regression for each.  NaN where its solver refuses."""
        rows = []
        with _quiet():
            for number in range(len(self.targets)):
                try:
                    weights, _ = self._citer._get_attributions_for_ids_range(number, number + 1)
                except ValueError:  # it takes the log-odds of a token that is all but certain for endless
                    weights = np.full(self._citer.num_sources, np.nan)
                rows.append(weights)
        return torch.tensor(np.stack(rows), dtype=torch.float32)

    def deleted(self, count: int) -> tuple[Bool[Tensor, "m s"], Float[Tensor, "m n"]]:
        """Fresh ablations of its own kind: which sources were kept, and the log-odds of each token of the answer."""
        citer = self._citer
        with _quiet():
            masks, odds = importlib.import_module("context_cite.utils").get_masks_and_logit_probs(
                citer.model,
                citer.tokenizer,
                count,
                citer.num_sources,
                citer._get_prompt_ids,
                citer._response_ids,
                citer.ablation_keep_prob,
                citer.batch_size,
                base_seed=citer.num_ablations,  # the first seeds were fitted to
            )
        return torch.tensor(masks), torch.tensor(odds)

    def group_of_token(self) -> Int[Tensor, "t"]:
        """The number of the source that each token belongs to, -1 for those outside the context.  What separates two
        sources goes with the second, for it is deleted with it."""
        start = self._prompt.index(self._context)
        ends, place = [], 0
        for part in self._citer.sources:
            place = self._context.index(part, place) + len(part)
            ends.append(start + place)
        spans = self._tokenizer(self._prompt, add_special_tokens=False, return_offsets_mapping=True)
        found = torch.full((len(self.tokens),), -1)
        for number, (first, last) in enumerate(spans["offset_mapping"]):
            if start < last <= ends[-1] and first >= start - 1:  # a space before the context may share its first token
                found[number] = next(source for source, end in enumerate(ends) if last <= end)
        return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Without its bars and its remarks on what is deprecated."""
    with redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def load_context_cite() -> Any:
    """The package, or a clear line where it is not installed."""
    try:
        with _quiet():  # it tries to fetch data for cutting sentences
            return importlib.import_module("context_cite")
    except ImportError as error:
        raise BadInput(f"--against context-cite needs the package context-cite ({error.name} is missing)") from error
