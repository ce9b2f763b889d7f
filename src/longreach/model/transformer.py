"""A GPT-NeoX-style decoder: a function of tokens, position IDs and a cache."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.attention import AttentionConfig, Softmax
from longreach.errors import BadInput
from longreach.model.block import Block
from longreach.model.cache import Cache
from longreach.model.position_heads import IdChoice, PositionHead, PositionHeadConfig, Steps
from longreach.positions.encodings import EncodingConfig, RopeConfig, Shape
from longreach.seeding import generator


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of the transformer."""

    layers: int = 6
    """Number of layers."""
    width: int = 256
    """Size of the residual stream."""
    heads: int = 8
    """Attention heads; the width is split among them."""
    feed_forward: int = 4
    """Hidden units of the feed-forward net, in widths."""
    parallel_residual: bool = True
    """Attention and feed-forward net side by side (GPT-NeoX) instead of one after the other."""
    norm_eps: float = 1e-5
    """Added to the variance in layer norms."""
    tie_embeddings: bool = False
    """Use the token embeddings for the output too: a name need not be learned twice."""
    norm_queries_and_keys: bool = False
    """Normalise queries and keys within each head, so that scores grow by direction and not by length."""
    encoding: EncodingConfig = field(default_factory=RopeConfig)
    """How position IDs enter."""
    attention: AttentionConfig = field(default_factory=Softmax)
    """How scores become weights."""
    position_head: PositionHeadConfig | None = None
    """How position IDs are predicted, for the ID policy `predicted`."""

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "feed_forward"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} must be at least 1, got {getattr(self, name)}")
        if self.width % self.heads:
            raise ValueError(f"model.width={self.width} does not split into {self.heads} heads")


class Transformer(nn.Module):
    """Reads tokens with their IDs; `forward` gives hidden states, `logits` turns those asked for into scores."""

    def __init__(
        self, config: ModelConfig, vocab_size: int, level_sizes: tuple[int, ...] = (0,), max_id: int = 0
    ) -> None:
        super().__init__()
        self.config, self.levels = config, len(level_sizes)
        shape = Shape(config.width, config.heads, level_sizes, max_id)
        self.embed = nn.Embedding(vocab_size, config.width)
        self.encoding = config.encoding.build(shape)
        self.blocks = nn.ModuleList(
            Block(
                config.width,
                config.heads,
                config.feed_forward * config.width,
                config.norm_eps,
                config.parallel_residual,
                config.attention.build(shape),
                config.norm_queries_and_keys,
            )
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.head = None if config.tie_embeddings else nn.Linear(config.width, vocab_size, bias=False)
        head = config.position_head
        self.position_head = None if head is None else head.build(shape, self.encoding)

    def forward(
        self, tokens: Int[Tensor, "b t"], ids: Int[Tensor, "b g t"], cache: Cache | None = None
    ) -> Float[Tensor, "b t w"]:
        """Padding must stand on the right: causality hides it.  With a cache, the tokens follow those in it;
        the caller then says with `cache.advance` how many of each row's tokens were real."""
        if cache is None:
            slots = mask = None
            key_ids, origin = ids, ids[:, :, :1]
            visible = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)[None]
        else:
            first = cache.columns == 0
            slots = cache.place(ids)
            key_ids, origin = cache.key_ids[:, :, : cache.columns], cache.origin
            visible = slots + 1
            mask = None if first else cache.mask(slots)  # the first tokens see only each other, causally
        embedded = x = self.embed(tokens)
        position = self.encoding.embed(ids)
        if position is not None:
            x = x + position
        rotation = self.encoding.rotation(ids, origin)
        bias = self.encoding.bias(ids, key_ids)
        for layer, block in enumerate(self.blocks):
            x = block(
                x, rotation=rotation, visible=visible, mask=mask, bias=bias, cache=cache, slots=slots, layer=layer
            )
        hidden = self.norm(x)
        if cache is not None and slots is not None and self.position_head is not None:
            cache.remember(slots, self.position_head.remember(hidden, embedded))
        return hidden  # type: ignore[no-any-return]

    def logits(self, hidden: Float[Tensor, "*n w"]) -> Float[Tensor, "*n v"]:
        if self.head is None:
            return torch.nn.functional.linear(hidden, self.embed.weight)
        return self.head(hidden)  # type: ignore[no-any-return]

    def remember(self, hidden: Float[Tensor, "b t w"], tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t m"]:
        """What the position head keeps of every token; a cache keeps it by itself."""
        return self._predictor.remember(hidden, self.embed(tokens))

    def choose_ids(
        self,
        hidden: Float[Tensor, "b a w"],
        tokens: Int[Tensor, "b a"],
        visible: Int[Tensor, "b a"],
        memory: Float[Tensor, "b t m"],
        reachable: tuple[Int[Tensor, "b moves t"], ...],
        reserved: Int[Tensor, "b g"],
    ) -> list[IdChoice]:
        """Per level, how likely each ID is for `tokens`, about to be written after the states `hidden`."""
        choices = self._predictor(Steps(hidden, self.embed(tokens), visible, memory, reachable, reserved))
        last = self.largest_id
        return choices if last is None else [choice.up_to(last) for choice in choices]

    @property
    def _predictor(self) -> PositionHead:
        if self.position_head is None:
            raise BadInput("the model has no position head")
        return self.position_head

    def new_cache(self, batch: int, slots: int) -> Cache:
        config = self.config
        head_dim = config.width // config.heads
        memory = 0 if self.position_head is None else self.position_head.memory_size
        shape = (config.layers, batch, config.heads, slots, head_dim)
        return Cache.empty(shape, self.levels, memory, like=self.embed.weight)

    @property
    def largest_id(self) -> int | None:
        """The last ID that the encoding and the position head have an entry for."""
        of_head = None if self.position_head is None else self.position_head.largest_id
        return min((last for last in (self.encoding.largest_id, of_head) if last is not None), default=None)

    def check_ids(self, ids: Int[Tensor, "b g t"]) -> None:
        """Refuse IDs that a table has no entry for.  Waits for the device."""
        last, largest = self.largest_id, int(ids.max())
        if last is not None and int(ids.min()) < 0:
            raise BadInput(f"position ID {int(ids.min())} is below the table, which begins at 0")
        if last is not None and largest > last:
            raise BadInput(f"position ID {largest} is beyond the table, which ends at {last}: raise max_id")


def build_model(
    config: ModelConfig,
    vocab_size: int,
    seed: int,
    level_sizes: tuple[int, ...] = (0,),
    max_id: int = 0,
    device: str = "cpu",
) -> Transformer:
    """A model with fresh weights that depend on the seed and on nothing else."""
    with torch.device("meta"):  # the constructors' own random weights would touch the global generator
        model = Transformer(config, vocab_size, level_sizes, max_id)
    model.to_empty(device="cpu")
    initialise(model, seed)
    return model.to(device)


def initialise(model: Transformer, seed: int) -> None:
    """Matrices and embeddings N(0, .02), projections back into the stream smaller by sqrt(2 layers)."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            into_stream = name.endswith(".out")
            std = 0.02 / (2 * model.config.layers) ** 0.5 if into_stream else 0.02
            nn.init.normal_(module.weight, std=std, generator=generator(seed, f"init/{name}"))
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
            nn.init.ones_(module.weight)
            if isinstance(module, nn.LayerNorm):
                nn.init.zeros_(module.bias)
        elif hasattr(module, "initialise"):
            module.initialise()
        elif any(True for _ in module.parameters(recurse=False)):
            raise BadInput(f"{type(module).__name__} has parameters but no `initialise`")
