"""The model class of Predictive Position Coupling: a causal language model of Hugging Face with a position head."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from longreach.config import build_part
from longreach.errors import BadInput
from longreach.hf.ppc_config import PpcConfig
from longreach.hf.ppc_generate import pack, write_pairs
from longreach.hf.uncut import IGNORED, with_mask
from longreach.model.base import initialise, initialise_module
from longreach.model.block import at_places
from longreach.model.position_heads import PositionHead, PositionHeadConfig, Steps
from longreach.model.position_heads.base import RESERVED, prompt_ladders
from longreach.objectives.base import select
from longreach.positions.encodings import Encoding, Shape, SinusoidalConfig
from longreach.system.huggingface import import_transformers

_NEEDS = "a model with a position head"
transformers = import_transformers(_NEEDS)

_WAVES = 64
"""Sines and cosines of one ID."""
_REFUSED = (
    *("assistant_model", "streamer", "custom_generate", "synced_gpus", "negative_prompt_ids", "inputs_embeds"),
    "past_key_values",  # the head has its own memory of what was read
)
"""Arguments of `generate` that the loop over tokens and IDs does not have."""


@dataclass
class PpcOutput(import_transformers(_NEEDS, "modeling_outputs").ModelOutput):  # type: ignore[misc]
    """Outputs of the wrapped model, and both parts of the loss."""

    loss: Any = None
    """`token_loss + id_weight * id_loss`.  As the first field it may be a mapping of all: accelerate copies so."""
    logits: Tensor | None = None
    past_key_values: Any = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    token_loss: Tensor | None = None
    """The loss of the wrapped model."""
    id_loss: Tensor | None = None
    """Summed over all predicted IDs and divided by the number of predicted tokens."""


class Read(NamedTuple):
    """The wrapped model's output with the states that the position head needs."""

    output: Any
    hidden: Float[Tensor, "b t w"]
    """The last layer's states after the last norm."""
    embedded: Float[Tensor, "b t w"]
    """The token embeddings without what IDs add."""


def _waves(levels: int) -> Encoding:
    return SinusoidalConfig(scale=1.0).build(Shape(_WAVES * levels, 1, (0,) * levels, 0))


class IdEmbedding(nn.Module):
    """Project sines and cosines of IDs onto token embeddings.  There is no largest ID; the projection starts at 0."""

    def __init__(self, levels: int, width: int) -> None:
        super().__init__()
        self.waves = _waves(levels)
        self.weight = nn.Parameter(torch.zeros(width, _WAVES * levels))

    def initialise(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, ids: Int[Tensor, "b g t"]) -> Float[Tensor, "b t w"]:
        waves = self.waves.embed(ids)
        assert waves is not None
        return waves.to(self.weight.dtype) @ self.weight.T


class PpcForCausalLM(
    import_transformers(_NEEDS).PreTrainedModel,  # type: ignore[misc]
    import_transformers(_NEEDS).GenerationMixin,  # type: ignore[misc]
):
    """A causal language model that predicts the position ID of the next token too.  See `with_position_head`."""

    config_class = PpcConfig
    base_model_prefix = "language_model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _keep_in_fp32_modules_strict = ["position_head", "id_embedding"]  # noqa: RUF012

    def __init__(self, config: Any, language_model: Any = None) -> None:
        super().__init__(config)
        if language_model is None:
            language_model = transformers.AutoModelForCausalLM.from_config(config.text_config)
        self.language_model = language_model
        width = language_model.get_input_embeddings().weight.shape[1]
        settings = build_part(PositionHeadConfig, config.head, "head")
        shape = Shape(width, 1, tuple(config.level_sizes), config.max_id)
        self.position_head: PositionHead = settings.build(shape, _waves(len(config.level_sizes)))
        first = 0 if config.head["name"] == "table" else 1  # classes need states that know the ID itself
        self.embedded_levels = range(first, len(config.level_sizes))
        self.id_embedding = IdEmbedding(len(self.embedded_levels), width) if self.embedded_levels else None
        self.post_init()

    @torch.no_grad()
    def initialise_head(self, seed: int) -> None:
        """Set the weights of the position head and of the ID embedding as those of a new model of longreach."""
        for part in (self.position_head, self.id_embedding):
            if part is not None:
                initialise(part, seed, depth=1)

    def _init_weights(self, module: nn.Module) -> None:
        """Draw weights that a folder lacks; wrapped models draw theirs themselves."""
        name = next(name for name, one in self.named_modules() if one is module)
        initialise_module(name, module, 0, depth=1)

    def get_input_embeddings(self) -> nn.Module:
        return self.language_model.get_input_embeddings()  # type: ignore[no-any-return]

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.language_model.set_input_embeddings(value)

    def get_output_embeddings(self) -> nn.Module | None:
        return self.language_model.get_output_embeddings()  # type: ignore[no-any-return]

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.language_model.set_output_embeddings(new_embeddings)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        prompt_tokens: Tensor | None = None,
        use_cache: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Compute logits and, with labels, the loss of tokens and of position IDs.

        `position_ids` has the shape [batch, tokens], or [batch, levels, tokens] for several levels.  `prompt_tokens`
        [batch] counts the tokens of each prompt; without it, a prompt ends before the first label that is not -100.
        """
        ids = self.by_level(position_ids)
        if labels is not None and ids is None:
            raise BadInput("labels need position_ids: the position head is trained on them")
        given = {"past_key_values": past_key_values, "labels": labels, "use_cache": use_cache, **kwargs}
        read = self.read(input_ids, attention_mask, ids, inputs_embeds, **given)
        output, losses = read.output, {}
        if labels is not None and ids is not None:
            total = self.summed_id_loss(read, ids, labels, attention_mask, prompt_tokens)
            count = kwargs.get("num_items_in_batch")
            count = (labels[:, 1:] != IGNORED).sum() if count is None else count
            id_loss = total / torch.as_tensor(count, device=total.device).clamp(min=1)
            loss = output.loss + self.config.id_weight * id_loss
            losses = {"loss": loss, "token_loss": output.loss.detach(), "id_loss": id_loss.detach()}
        found = PpcOutput(
            logits=output.logits,
            past_key_values=output.get("past_key_values"),
            hidden_states=output.get("hidden_states"),
            attentions=output.get("attentions"),
            **losses,
        )
        return found.to_tuple() if return_dict is False else found

    def by_level(self, position_ids: Tensor | None) -> Int[Tensor, "b g t"] | None:
        """Return position IDs with an axis of levels, or raise BadInput if their number is wrong."""
        levels = len(self.config.level_sizes)
        if position_ids is None:
            if self.embedded_levels:
                raise BadInput(f"position_ids are missing: this model reads them at {levels} levels")
            return None
        ids = position_ids[:, None] if position_ids.dim() == 2 else position_ids
        if ids.dim() != 3 or ids.shape[1] != levels:
            wanted = "[batch, tokens]" if levels == 1 else f"[batch, {levels}, tokens]"
            raise BadInput(f"position_ids must have the shape {wanted}, got {list(position_ids.shape)}")
        return ids

    def read(
        self,
        tokens: Int[Tensor, "b t"] | None,
        attention_mask: Tensor | None,
        ids: Int[Tensor, "#b g t"] | None,
        embedded: Float[Tensor, "b t w"] | None = None,
        **kwargs: Any,
    ) -> Read:
        """Run the wrapped model; attention is whole whatever the IDs are."""
        from_tokens = embedded is None
        if embedded is None:
            embedded = self.get_input_embeddings()(tokens)
        inputs: dict[str, Any] = {"input_ids": tokens} if from_tokens else {"inputs_embeds": embedded}
        if self.id_embedding is not None and ids is not None:
            added = self.id_embedding(ids[:, self.embedded_levels.start :])
            inputs = {"inputs_embeds": embedded + added.to(embedded.dtype)}
        first = None if ids is None else ids[:, 0]
        with _recorded(self.language_model.base_model) as hidden:
            output = self.language_model(
                **inputs, attention_mask=attention_mask, position_ids=first, return_dict=True, **kwargs
            )
        return Read(output, hidden[0], embedded)

    def summed_id_loss(
        self,
        read: Read,
        ids: Int[Tensor, "#b g t"],
        labels: Int[Tensor, "b t"],
        attention_mask: Tensor | None,
        prompt_tokens: Int[Tensor, "b"] | None,
    ) -> Float[Tensor, ""]:
        """Return the sum of the losses of all IDs that are predicted.

        The last token of a row is never read in generation, so its ID has no loss.
        """
        mask = torch.ones_like(labels)
        if attention_mask is not None and attention_mask.dim() == 2:
            mask = (attention_mask != 0).long()
        hidden, embedded, ids = read.hidden, read.embedded, ids.expand(len(labels), -1, -1)
        if bool((mask.diff(dim=1) > 0).any()):  # causality hides padding on the right
            hidden, embedded, ids, labels = pack(mask, hidden, embedded, ids, labels)
        tokens = mask.sum(1)
        labelled = labels != IGNORED
        if prompt_tokens is None:
            prompt_tokens = torch.where(labelled.any(1), labelled.int().argmax(1), tokens)
        index = torch.arange(labels.shape[1], device=labels.device)
        wanted = (index < tokens[:, None] - 1)[:, 1:]
        if self.config.id_loss_on == "answer":
            wanted = wanted & labelled[:, 1:]
        at, valid = select(wanted)
        reserved = torch.full_like(ids[:, :, 0], RESERVED)
        of_level = at[:, None].expand(-1, ids.shape[1], -1)
        targets = ids[:, :, 1:].gather(2, of_level).masked_fill(~valid[:, None], RESERVED)
        ladders = prompt_ladders(ids, prompt_tokens.to(ids.device), reserved)
        reachable = self.position_head.reachable(ids[:, :, :-1], ladders, reserved)
        with self.exactly(hidden, embedded) as (states, tokens_in):
            memory = self.position_head.remember(states[:, :-1], tokens_in[:, :-1])
            steps = Steps(at_places(states, at), at_places(tokens_in, at + 1), at + 1, memory, reachable, reserved)
            by_level = self.position_head.log_probabilities(steps, targets, self.position_head.largest_id)
            each = reduce(torch.add, by_level)
        self._check_reached(each, valid, targets)
        return -each.masked_fill(~valid, 0).sum()

    @contextmanager
    def exactly(
        self, hidden: Float[Tensor, "b t w"], embedded: Float[Tensor, "b t w"]
    ) -> Iterator[tuple[Float[Tensor, "b t w"], Float[Tensor, "b t w"]]]:
        """Let the position head compute in the precision of its weights."""
        dtype = next(self.position_head.parameters()).dtype
        with torch.autocast(hidden.device.type, enabled=False):
            yield hidden.to(dtype), embedded.to(dtype)

    def _check_reached(
        self, each: Float[Tensor, "b a"], valid: Bool[Tensor, "b a"], targets: Int[Tensor, "b g a"]
    ) -> None:
        out_of_reach = ((each == -torch.inf) & valid).nonzero()
        if len(out_of_reach):
            row, place = out_of_reach[0].tolist()
            kind = self.config.head["name"]
            advice = (
                f"max_id is {self.config.max_id}"
                if kind == "table"
                else "raise moves, or let IDs beyond the prompt's largest go on by 1, as CoupledDataset does with"
                " prompt=True"
            )
            raise BadInput(f"the {kind} cannot reach the position ID {targets[row, :, place].tolist()}: {advice}")

    def generate(self, inputs: Any = None, generation_config: Any = None, **kwargs: Any) -> Any:
        """Write tokens with their position IDs, greedily or by sampling.

        `position_ids` are those of the prompts, which are padded on the left.  With `return_dict_in_generate` the
        result has `sequences` and `position_ids`.  `prompt_ids_only=True` lets the head choose among the IDs of the
        prompt.
        """
        for name in _REFUSED:
            if kwargs.get(name) is not None:
                raise BadInput(f"a model with a position head cannot generate with {name}: leave it out")
        if kwargs.get("position_ids") is None:
            raise BadInput("generate needs the position_ids of the prompt: the head predicts those of the answer")
        self.by_level(kwargs["position_ids"])
        return super().generate(inputs, generation_config, custom_generate=write_pairs, **kwargs)


@contextmanager
def _recorded(decoder: nn.Module) -> Iterator[list[Tensor]]:
    """Record the last states that the wrapped model computes, and keep its attention whole."""
    found: list[Tensor] = []
    hooks = [
        decoder.register_forward_pre_hook(with_mask, with_kwargs=True),
        decoder.register_forward_hook(lambda module, args, output: found.append(output[0])),
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
