"""Any causal language model of Hugging Face transformers, from a folder, a name or a .gguf file."""

import inspect
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.errors import BadInput, lacks_memory
from longreach.evaluation import PassCost
from longreach.hf.load import PRECISIONS, load_huggingface, refusal
from longreach.probe.fingerprint import fingerprint_of_model, fingerprint_of_text
from longreach.probe.language_model import LanguageModel, check_hiding
from longreach.probe.passage import Passage
from longreach.system.files import one_line

_OF_FILES = ("_name_or_path", "architectures", "transformers_version")
"""Settings that say where a model was read from, not what it is."""


class HuggingFace(LanguageModel):
    """A causal language model with a mask and explicit positions.

    Without a mask, Hugging Face reads positions that skip, repeat or fall as the start of another packed sequence and
    cuts attention there.  So every call passes a mask: four-dimensional where tokens are hidden, otherwise
    two-dimensional ones, which keep attention whole and leave sliding windows as they are.
    """

    def __init__(self, model: Any, name: str, tokenizer: Any = None, memory: int = 1 << 30) -> None:
        super().__init__(memory)
        if model.config.model_type == "longreach":
            raise BadInput(f"{name} is a run of longreach, exported: use its run folder, with longreach eval or probe")
        if not {"attention_mask", "position_ids"} <= set(inspect.signature(model.forward).parameters):
            raise BadInput(f"{name} takes no mask or no positions: it cannot be probed")
        self.model, self.tokenizer, config = model.eval(), tokenizer, model.config.get_text_config()
        precision = {dtype: word for word, dtype in PRECISIONS.items()}.get(model.dtype, str(model.dtype))
        self.name, self.device = f"{name} ({precision})", model.device
        self.vocabulary_size, self.embedding = config.vocab_size, model.get_input_embeddings()
        self.numbers_per_token, self.heads = 16 * config.hidden_size, getattr(config, "num_attention_heads", 1)
        # a mask of ours takes the place of a sliding window, so windows must not be outgrown
        limits = [getattr(config, limit, None) for limit in ("max_position_embeddings", "sliding_window")]
        self.longest = min((limit for limit in limits if limit is not None), default=None)
        self.plain_head = self._plain_head()
        check_hiding(self)

    @cached_property
    def fingerprint(self) -> str:
        settings = self.model.config.to_dict()
        return fingerprint_of_model(self.model, {k: v for k, v in settings.items() if k not in _OF_FILES})

    def scores(
        self,
        tokens: Int[Tensor, "b r"],
        positions: Int[Tensor, "b r"],
        keep: Bool[Tensor, "b r r"] | None,
        at: Int[Tensor, "a"],
    ) -> Float[Tensor, "b a v"]:
        mask = torch.ones_like(tokens)
        if keep is not None:
            read = tokens.shape[1]
            seen = keep.tril() | torch.eye(read, dtype=torch.bool, device=tokens.device)
            mask = torch.zeros(seen.shape, dtype=self.model.dtype, device=tokens.device)
            mask = mask.masked_fill(~seen, torch.finfo(mask.dtype).min).expand(len(tokens), read, read)[:, None]
        return self.model(  # type: ignore[no-any-return]
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            use_cache=False,
            logits_to_keep=at,
        ).logits

    def scores_in_parts(
        self, tokens: Int[Tensor, "b r"], positions: Int[Tensor, "b r"], at: Int[Tensor, "a"], size: int
    ) -> Iterator[Float[Tensor, "b _ v"]]:
        if self.plain_head is None:
            yield from super().scores_in_parts(tokens, positions, at, size)
            return
        for part in torch.split(self._states(tokens, positions)[:, at], size, dim=1):
            yield self.plain_head(part)

    def _states(self, tokens: Int[Tensor, "b r"], positions: Int[Tensor, "b r"]) -> Float[Tensor, "b r w"]:
        return self.model.base_model(  # type: ignore[no-any-return]
            input_ids=tokens, attention_mask=torch.ones_like(tokens), position_ids=positions, use_cache=False
        ).last_hidden_state

    @torch.no_grad()
    def _plain_head(self) -> Any:
        """The head, where logits are what it makes of the last states and nothing else: some models scale or bound
        them.  None where that is not so."""
        head, below = self.model.get_output_embeddings(), self.model.base_model
        if head is None or below is self.model or "position_ids" not in inspect.signature(below.forward).parameters:
            return None
        places = torch.arange(2, device=self.device)
        logits = self.scores(places[None], places[None], None, places)
        return head if torch.equal(head(self._states(places[None], places[None])), logits) else None

    @cached_property
    def opening(self) -> list[int]:
        """Return the special tokens that the tokenizer writes before every text; empty without a tokenizer."""
        if self.tokenizer is None:
            return []
        words = self.tokenizer.convert_ids_to_tokens(range(min(len(self.tokenizer), 100)))
        some = next((word for word in words if word.isalnum()), "a")  # a tokenizer of words may know nothing else
        whole, plain = (self._encode(some, special) for special in (True, False))
        starts = range(len(whole) - len(plain) + 1)
        return whole[: next((start for start in starts if whole[start : start + len(plain)] == plain), 0)]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without special ones."""
        if self.tokenizer is None:
            raise BadInput(f"{self.name} has no tokenizer")
        return self._encode(text, False)

    def _encode(self, text: str, special: bool) -> list[int]:
        try:
            return list(self.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])
        except Exception as error:  # tokenizers raise nothing more special for a word that they do not know
            if lacks_memory(error):
                raise
            raise BadInput(f"the tokenizer of {self.name} cannot encode the text: {one_line(error)}") from error

    def check_positions(self, tokens: int) -> None:
        """Raise BadInput if texts of so many tokens are longer than the positions that the model has learned."""
        if self.most_positions is not None and tokens > self.most_positions:
            raise BadInput(f"{self.name} has {self.most_positions} positions, and {tokens} were asked for")

    @property
    def trained_to(self) -> int | None:
        """Return the length of texts that the configuration states; None where it states none."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    @property
    def most_positions(self) -> int | None:
        """Return the number of learned positions; None for rotary models, whose positions have no end."""
        settings = self.model.config.get_text_config()
        return None if getattr(settings, "rope_parameters", None) else self.longest

    def pass_cost(self) -> PassCost:
        config = self.model.config.get_text_config()
        layers = getattr(config, "num_hidden_layers", 1)
        shared = getattr(config, "num_key_value_heads", None) or self.heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        return PassCost(
            linear=2.0 * self.model.num_parameters(exclude_embeddings=True),
            quadratic=2.0 * config.hidden_size * layers,
            width=config.hidden_size,
            depth=layers,
            heads=self.heads,
            copies_of_scores=0,
            cached=2 * self.model.dtype.itemsize * shared * head_dim * layers,
            vocabulary=self.vocabulary_size,
        )

    def read(self, title: str, text: str, chat: bool = False) -> Passage:
        """The whole text in tokens; `chat` makes it a user's message."""
        if self.tokenizer is None:
            raise BadInput(f"{self.name} has no tokenizer")
        fingerprint = fingerprint_of_text(text)
        if chat:
            if not getattr(self.tokenizer, "chat_template", None):
                raise BadInput(f"{self.name} has no chat template: leave out --chat")
            message = [{"role": "user", "content": text}]
            text = self.tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        coded = self.tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
        tokens, spans = list(coded["input_ids"]), list(coded["offset_mapping"])
        opened = [] if chat else self.opening  # templates write their own
        tokens, spans = opened + tokens, [(0, 0)] * len(opened) + spans
        names = self.tokenizer.convert_ids_to_tokens(tokens)
        pieces = tuple(text[start:stop] or name for (start, stop), name in zip(spans, names, strict=True))
        return Passage(title, torch.tensor(tokens, dtype=torch.long), pieces, len(opened), fingerprint)


def load_hugging_face(name: str, device: str = "cpu", precision: str = "fp32", memory: int = 1 << 30) -> HuggingFace:
    """Load a model and its tokenizer, by folder, by name, or from a .gguf file, to be probed."""
    model, tokenizer = load_huggingface(name, device, precision)
    path = Path(name)
    try:
        return HuggingFace(model, path.name if path.exists() else name, tokenizer, memory)
    except Exception as error:
        raise refusal(name, error) from error
