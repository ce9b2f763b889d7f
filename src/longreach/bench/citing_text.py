"""ContextCite for a token of a plain text: its context is the text before the token, its response the token alone.

The package reads its context from a chat template and attributes what was generated after it; here the context goes to
the model as it is.  Ours never hides the first token and the one read last; so that both sides hide the same, the
first word and the token read last are no sources, but stay where they are, as a question would.
"""

from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.bench.citing import Citation, load_context_cite
from longreach.errors import BadInput
from longreach.probe import HuggingFace


class WholeText:
    """A text with single blanks, all of whose tokens may be targets."""

    def __init__(self, model: HuggingFace, text: str) -> None:
        passage = model.read("text", text)
        coded = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        self.model, self.text, self.tokens = model, text, passage.tokens
        self.opening = passage.tokens[: passage.opening].tolist()
        self.spans = [(0, 0)] * passage.opening + [(first, last) for first, last in coded["offset_mapping"]]
        self.first_word = text.split(" ", 1)[0]
        after = (number for number, (_, last) in enumerate(self.spans) if last > len(self.first_word))
        self.first_free = next(after, len(self.tokens))
        """The first token that can be hidden."""
        if self.first_free + 2 >= len(self.tokens):
            raise BadInput(f"{text[:40]!r} is too short: no token of it has one before it to hide")

    def targets(self, every: int) -> Int[Tensor, "n"]:
        """Those that have a token to hide, or every so-manieth of them."""
        return torch.arange(self.first_free + 2, len(self.tokens), every)

    def free(self, targets: Int[Tensor, "n"]) -> Bool[Tensor, "t n"]:
        """Which tokens can be hidden from each target."""
        index = torch.arange(len(self.tokens))[:, None]
        return (index >= self.first_free) & (index < targets - 1)

    def context_of(self, target: int) -> str:
        """What lies between the first word and the token read last."""
        return self.text[len(self.first_word) : self.spans[target - 1][0]].strip()

    def prompt(self, target: int, context: str) -> list[int]:
        """The tokens before a target, with another context."""
        ids = self.model.tokenizer.encode(f"{self.first_word} {context}".strip(), add_special_tokens=False)
        return [*self.opening, *ids, int(self.tokens[target - 1])]

    def can_be_cut(self, target: int) -> bool:
        """Whether the token read last begins a word or a sign, and what is before it has the same tokens alone."""
        start = self.spans[target - 1][0]
        if self.text[start - 1].isalnum() and self.text[start].isalnum():
            return False
        return self.prompt(target, self.context_of(target)) == self.tokens[:target].tolist()


class TokenCitation(Citation):
    """One token of a text, and the text before it."""

    def __init__(self, text: WholeText, target: int, source: str, ablations: int) -> None:
        base: Any = load_context_cite().ContextCiter

        class Plain(base):  # type: ignore[misc]
            _response_ids: ClassVar = [int(text.tokens[target])]

            def _get_prompt_ids(self, mask: Any = None) -> list[int]:
                return text.prompt(target, self.partitioner.get_context(mask))

        self.tokens, self.targets = text.tokens, torch.tensor([target])
        self._context, self._start, self._spans = text.context_of(target), len(text.first_word) + 1, text.spans
        self._citer = Plain(
            text.model.model, text.model.tokenizer, self._context, "", source_type=source, num_ablations=ablations
        )
