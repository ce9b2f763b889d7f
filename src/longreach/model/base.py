"""What a model is: it turns tokens with their IDs into states, and states into tokens and IDs."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from longreach.attention import exact_dtype
from longreach.config import Bounds, Nonnegative, Settings, Size
from longreach.config.registry import kind, name_of
from longreach.errors import BadInput
from longreach.model.cache import Cache
from longreach.model.look_back import CopyHead, LookBack
from longreach.model.position_heads import IdChoice, PositionHead, Steps
from longreach.positions.encodings import EncodingConfig
from longreach.seeding import generator


@kind("model")
@dataclass(frozen=True, kw_only=True)
class ModelConfig(Settings):
    """Base of the settings of a model: what a recipe names."""

    layers: Annotated[int, Bounds(high=10_000)] = 6
    """Number of layers."""
    width: Size = 256
    """Size of the residual stream."""
    norm_eps: Nonnegative = 1e-5
    """Added to the variance in norms."""
    tie_embeddings: bool = False
    """Use the token embeddings for the output too: a name need not be learned twice."""

    def __post_init__(self) -> None:
        for name in ("layers", "width"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} must be at least 1, got {getattr(self, name)}")

    @property
    def name(self) -> str:
        return name_of(type(self))

    @property
    def depth(self) -> int:
        """Layers that a token goes through."""
        return self.layers

    def new_norm(self) -> nn.Module:
        """A norm of states."""
        return nn.LayerNorm(self.width, eps=self.norm_eps)

    def build(self, vocab_size: int, level_sizes: tuple[int, ...], max_id: int) -> "Model":
        raise BadInput(f"model {self.name} does not say how to build it")


@dataclass(frozen=True)
class Past:
    """All that has been read, for heads that look back at it."""

    tokens: Int[Tensor, "b t"]
    memory: Float[Tensor, "b t m"]
    """What the heads keep of every token: first the position head's part, then the copy head's."""
    embedded: Float[Tensor, "b t w"] | None = None
    """The embeddings of the tokens, if all were read at once."""


class Model(nn.Module):
    """Base of all models: embeddings and heads.  A subclass computes the states."""

    reads_ids = True
    """Whether position IDs make any difference."""

    def __init__(self, config: ModelConfig, vocab_size: int, levels: int) -> None:
        super().__init__()
        self.config, self.levels = config, levels
        self.embed = nn.Embedding(vocab_size, config.width)
        self.norm = config.new_norm()
        self.head = None if config.tie_embeddings else nn.Linear(config.width, vocab_size, bias=False)
        self.position_head: PositionHead | None = None
        self.copy_head: CopyHead | None = None
        self.dependency_head: LookBack | None = None

    def states(
        self,
        tokens: Int[Tensor, "b t"],
        ids: Int[Tensor, "b g t"],
        cache: Cache | None,
        slots: Int[Tensor, "b t"] | None,
        at: Int[Tensor, "b a"] | None = None,
        keep: Bool[Tensor, "b t t"] | None = None,
    ) -> Float[Tensor, "b _ w"]:
        """Embed tokens and apply all layers and the last norm.

        With a cache, `slots` are the places in it that the tokens get.  With `at`, return states at these places only.
        With `keep`, tokens look at no others.
        """
        raise BadInput(f"{type(self).__name__} does not say how it computes states")

    def exchange_encoding(self, config: EncodingConfig) -> AbstractContextManager[None]:
        """For a while, let IDs enter in another way."""
        raise BadInput(f"a {type(self).__name__.lower()} model has no encoding to exchange")

    def new_cache(self, batch: int, slots: int) -> Cache:
        raise BadInput(f"{type(self).__name__} does not say what a cache is")

    @property
    def largest_id(self) -> int | None:
        """The last ID that the model has an entry for; None where there is no last one."""
        return None

    def forward(
        self,
        tokens: Int[Tensor, "b t"],
        ids: Int[Tensor, "b g t"],
        cache: Cache | None = None,
        at: Int[Tensor, "b a"] | None = None,
        keep: Bool[Tensor, "b t t"] | None = None,
    ) -> Float[Tensor, "b _ w"]:
        """States, or those `at` some places, for which the last layer is spared the others; no place of a row twice.

        Padding must stand on the right: causality hides it.  With a cache, the tokens follow those in it; the caller
        then says with `cache.advance` how many of each row's tokens were real.

        `keep[row, i, j]` says whether token i may look at token j, on top of causality.  A token always sees itself,
        whatever `keep` says, so that none is left without a key.  Only the presence of keys changes: IDs stay, and so
        does the n by whose logarithm scores may grow, which counts hidden keys too.

        Under autocast states may be in half precision, where no head looks back at them.
        """
        if cache is not None and keep is not None:
            raise BadInput("keep hides keys of tokens read at once: it does not go with a cache")
        slots = None if cache is None else cache.place(ids)
        hidden = self.states(tokens, ids, cache, slots, at, keep)
        if cache is not None and slots is not None and self.memory_size:
            cache.remember(slots, self.past(hidden, tokens).memory)
        return hidden

    @property
    def looks_back(self) -> bool:
        """Whether a head looks at the states of all tokens."""
        return any(head is not None for head in (self.position_head, self.copy_head, self.dependency_head))

    @property
    def memory_size(self) -> int:
        """Numbers kept of every token read."""
        copied = 0 if self.copy_head is None else self.config.width
        return self._id_memory + copied

    @property
    def _id_memory(self) -> int:
        return 0 if self.position_head is None else self.position_head.memory_size

    def past(self, hidden: Float[Tensor, "b t w"], tokens: Int[Tensor, "b t"]) -> Past:
        """What heads look back at; a cache keeps the memory by itself."""
        embedded = self.embed_read(tokens)
        parts = [hidden[..., :0]]
        if self.position_head is not None:
            parts.append(self.position_head.remember(hidden, embedded))
        if self.copy_head is not None:
            parts.append(self.copy_head.look_back.remember(hidden, embedded))
        return Past(tokens, parts[1] if len(parts) == 2 else torch.cat(parts, dim=-1), embedded)

    def embed_read(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t w"]:
        """Embed tokens that are read, for the layers or for the heads that look back."""
        return self.embed(tokens)  # type: ignore[no-any-return]

    def logits(
        self, hidden: Float[Tensor, "b a w"], visible: Int[Tensor, "b a"], past: Past | None = None
    ) -> Float[Tensor, "b a v"]:
        """Scores of the next token, for states that have read so many tokens; a copy head needs the past."""
        exact = self.embed.weight.dtype
        if hidden.dtype != exact and not torch.is_autocast_enabled(hidden.device.type):  # as it was for the states
            hidden = hidden.to(exact)
        scores = self.vocabulary_scores(hidden)
        if self.copy_head is not None:
            assert past is not None
            scores = self.copy_head(hidden, visible, past.tokens, past.memory[..., self._id_memory :], scores)
        return scores

    def vocabulary_scores(self, hidden: Float[Tensor, "b a w"]) -> Float[Tensor, "b a v"]:
        """Return the scores of all tokens of the vocabulary."""
        return hidden @ self.embed.weight.T if self.head is None else self.head(hidden)

    def cross_entropy(self, logits: Float[Tensor, "b a v"], labels: Int[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        """Return the loss of each label, computed in fp32 at least, and 0 where the label is -100."""
        exact = logits.to(exact_dtype(logits))
        each = torch.nn.functional.cross_entropy(exact.flatten(0, 1), labels.flatten(), reduction="none")
        return each.view(labels.shape)

    def all_logits(
        self, tokens: Int[Tensor, "b t"], ids: Int[Tensor, "b g t"], keep: Bool[Tensor, "b t t"] | None = None
    ) -> Float[Tensor, "b t v"]:
        """Scores of the token after every token; `keep` as in `forward`."""
        if keep is not None and self.copy_head is not None:
            raise BadInput("keep hides keys of the layers only: a copy head would look at all tokens read")
        hidden = self(tokens, ids, keep=keep)
        visible = torch.arange(1, tokens.shape[1] + 1, device=tokens.device).expand_as(tokens)
        return self.logits(hidden, visible, self.past(hidden, tokens))

    def choose_ids(
        self,
        hidden: Float[Tensor, "b a w"],
        tokens: Int[Tensor, "b a"],
        visible: Int[Tensor, "b a"],
        past: Past,
        reachable: tuple[Int[Tensor, "b moves t"], ...],
        reserved: Int[Tensor, "b g"],
    ) -> list[IdChoice]:
        """Per level, how likely each ID is for `tokens`, about to be written after the states `hidden`."""
        if self.position_head is None:
            raise BadInput("the model has no position head")
        steps = self.id_steps(hidden, self.embed(tokens), visible, past, reachable, reserved)
        return self.position_head.choices_up_to(steps, self.largest_id)

    def id_steps(
        self,
        hidden: Float[Tensor, "b a w"],
        embedded: Float[Tensor, "b a w"],
        visible: Int[Tensor, "b a"],
        past: Past,
        reachable: tuple[Int[Tensor, "b moves t"], ...],
        reserved: Int[Tensor, "b g"],
    ) -> Steps:
        """Return the input of the position head; arguments as in `choose_ids`, but with tokens embedded."""
        memory = past.memory[..., : self._id_memory]
        return Steps(hidden, embedded, visible, memory, reachable, reserved)

    def id_log_probabilities(self, steps: Steps, targets: Int[Tensor, "b g a"]) -> list[Float[Tensor, "b a"]]:
        """Return the log-probability of one ID per level."""
        if self.position_head is None:
            raise BadInput("the model has no position head")
        return self.position_head.log_probabilities(steps, targets, self.largest_id)

    def check_shift(self, shift: int) -> None:
        """Refuse a shift of all IDs if the reserved one is known by its number."""
        if shift and any(getattr(part, "knows_reserved", False) for part in self.modules()):
            raise BadInput("IDs cannot be shifted: the encoding knows the reserved ID by its number")

    def check_ids(self, ids: Int[Tensor, "b g t"]) -> None:
        """Refuse IDs that a table has no entry for.  Waits for the device where there is a table."""
        last = self.largest_id
        if last is None:
            return
        smallest, largest = torch.stack(ids.aminmax()).tolist()
        if smallest < 0:
            raise BadInput(f"position ID {smallest} is below the table, which begins at 0")
        if largest > last:
            raise BadInput(f"position ID {largest} is beyond the table, which ends at {last}: raise max_id")


class _NoInit(TorchFunctionMode):
    """Skips `torch.nn.init` in the constructors of layers; on the meta device it would import `torch._dynamo`."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return named["tensor"] if "tensor" in named else args[0]
        return func(*args, **named)


def _empty_on_cpu(tensor: Tensor) -> Tensor:
    """Return an uninitialized tensor; `Module.to_empty` would import sympy for a meta tensor."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def shape_model(config: ModelConfig, vocab_size: int, level_sizes: tuple[int, ...] = (0,), max_id: int = 0) -> Model:
    """Return a model without weights: its parameters lie on the meta device, which takes no memory."""
    with torch.device("meta"), _NoInit():  # the constructors' own weights would touch the global generator
        return config.build(vocab_size, level_sizes, max_id)


def build_model(
    config: ModelConfig,
    vocab_size: int,
    seed: int,
    level_sizes: tuple[int, ...] = (0,),
    max_id: int = 0,
    device: str = "cpu",
) -> Model:
    """A model with fresh weights that depend on the seed and on nothing else."""
    model = shape_model(config, vocab_size, level_sizes, max_id)
    model._apply(_empty_on_cpu)  # type: ignore[no-untyped-call]
    initialise(model, seed, config.depth)
    return model.to(device)


def initialise(model: nn.Module, seed: int, depth: int) -> None:
    """Draw the weights of a model or of a part: matrices and embeddings N(0, .02), projections back into the stream
    smaller by sqrt(2 depth)."""
    for name, module in model.named_modules():
        initialise_module(name, module, seed, depth)


def initialise_module(name: str, module: nn.Module, seed: int, depth: int) -> None:
    """Draw the weights of a module itself, not of the modules in it; the draws depend on its name."""
    if isinstance(module, nn.Linear | nn.Embedding):
        into_stream = name.endswith(".out")
        std = 0.02 / (2 * depth) ** 0.5 if into_stream else 0.02
        nn.init.normal_(module.weight, std=std, generator=generator(seed, f"init/{name}"))
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.RNNBase):
        for part, parameter in module.named_parameters():
            bound = module.hidden_size**-0.5  # as torch does by itself
            nn.init.uniform_(parameter, -bound, bound, generator=generator(seed, f"init/{name}.{part}"))
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
        nn.init.ones_(module.weight)
        if isinstance(module, nn.LayerNorm) and module.bias is not None:
            nn.init.zeros_(module.bias)
    elif callable(own := getattr(module, "initialise", None)):
        own()
    elif any(True for _ in module.parameters(recurse=False)):
        raise BadInput(f"{type(module).__name__} has parameters but no `initialise`")
