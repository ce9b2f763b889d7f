"""A model of longreach as Hugging Face's transformers loads, trains and runs it."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from longreach.decoding import generate, prompt_with_room, write_answers
from longreach.decoding.generate import Writing
from longreach.errors import BadInput
from longreach.hf.model_type import LongreachConfig, Words
from longreach.hf.requests import Request
from longreach.hf.rows import Rows, stack_prompts
from longreach.model.base import initialise
from longreach.seeding import Draws, stream
from longreach.system.huggingface import import_transformers

_FOR = "a model of longreach"
_PreTrainedModel = import_transformers(_FOR, "modeling_utils").PreTrainedModel
_GenerationMixin = import_transformers(_FOR, "generation").GenerationMixin
_Output = import_transformers(_FOR, "modeling_outputs").CausalLMOutput


class LongreachForCausalLM(_PreTrainedModel, _GenerationMixin):  # type: ignore[misc, valid-type]
    """A trained model of longreach with the position IDs of its run.

    `model` is the model itself.  `forward` gives the logits that the model gives under these IDs, and `generate` the
    answers of `longreach predict`.
    """

    config_class = LongreachConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    _no_split_modules = ("Block",)

    def __init__(self, config: LongreachConfig) -> None:
        super().__init__(config)
        self.wrapped = config.build_run()
        self.model = self.wrapped.shape()
        if torch.get_default_device().type != "meta":  # or weights follow
            self.model.to_empty(device=torch.get_default_device())
            initialise(self.model, 0, self.model.config.depth)
        if self.model.embed.num_embeddings != config.vocab_size:
            raise BadInput(f"vocab_size={config.vocab_size} is not that of {self.wrapped.task.name}")
        self.post_init()
        self.generation_config.do_sample = False  # pipelines would draw
        if self.wrapped.task.stop_token is None:
            self.generation_config.max_new_tokens = 1

    @classmethod
    def from_pretrained(cls, name: Any, *arguments: Any, **options: Any) -> Any:
        """Load a folder; raise BadInput where weights are missing.  See `PreTrainedModel.from_pretrained`."""
        wants_info = options.pop("output_loading_info", False)
        options["attn_implementation"] = "eager"  # config.json could name a kernel to download and run
        options["use_safetensors"] = True
        model, info = super().from_pretrained(name, *arguments, output_loading_info=True, **options)
        for kind in ("missing_keys", "mismatched_keys", "unexpected_keys"):
            for key in info[kind]:
                raise BadInput(f"the weights of {name} are not those of its config.json: {kind[:-5]} {key}")
        return (model, info) if wants_info else model

    def _init_weights(self, module: nn.Module) -> None:
        """Leave weights as they are: a new model has them, and a loaded one has all of its own."""

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed

    def set_input_embeddings(self, value: nn.Module) -> None:
        raise BadInput("the vocabulary of a model of longreach is that of its task: embeddings cannot be exchanged")

    def get_output_embeddings(self) -> nn.Module | None:
        return self.model.head

    def forward(
        self,
        input_ids: Int[Tensor, "b t"],
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Int[Tensor, "b t"] | None = None,
        prompt_tokens: Int[Tensor, "b"] | int | None = None,
        use_cache: bool | None = None,
    ) -> Any:
        """Return the logits of the token after every token, and the loss if there are labels.

        Rows may be padded on either side.  `position_ids` [b, t], or [b, g, t] for IDs of g levels, replace those of
        the run.  `prompt_tokens` counts the tokens of each prompt: IDs that are not a count of tokens follow from it.
        Only `generate` keeps a cache.
        """
        if use_cache:
            raise BadInput("forward of a model of longreach has no cache: use generate, or use_cache=False")
        rows = self._rows(input_ids, attention_mask)
        ids = self._ids(rows, input_ids.shape[1], position_ids, prompt_tokens)
        self.model.check_ids(ids)
        logits = rows.to_place(self.model.all_logits(rows.tokens, ids), input_ids.shape[1])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size)
        return _Output(loss=loss, logits=logits)

    def _rows(self, tokens: Tensor, mask: Tensor | None) -> Rows:
        if tokens.dim() != 2 or not tokens.numel():
            raise BadInput(f"input_ids must have two dimensions and a token, got the shape {tuple(tokens.shape)}")
        least, largest = (int(end) for end in tokens.aminmax())
        if least < 0 or largest >= self.config.vocab_size:
            raise BadInput(f"input_ids must be in 0..{self.config.vocab_size - 1}, got {least}..{largest}")
        return Rows.of(tokens, mask, pad_is_unused=not isinstance(self.wrapped.task, Words))

    def _ids(self, rows: Rows, width: int, given: Tensor | None, prompt: Tensor | int | None) -> Int[Tensor, "b g t"]:
        if given is not None:
            levels = given if given.dim() == 3 else given[:, None]
            if levels.shape != (shape := (len(rows.tokens), self.model.levels, width)):
                raise BadInput(f"position_ids must have the shape {shape}, got {tuple(given.shape)}")
            return rows.to_left(levels)[:, :, : rows.tokens.shape[1]]
        if prompt is None and self.wrapped.needs_prompt:
            raise BadInput(
                f"position IDs of ids {self.wrapped.ids.name} depend on where the prompt ends: give prompt_tokens, the"
                " number of tokens of each prompt, or position_ids"
            )
        ends = rows.num_tokens if prompt is None else torch.as_tensor(prompt, device=rows.tokens.device)
        sample = rows.sample(self.wrapped.task, ends.expand(len(rows.tokens)))
        return self.wrapped.ids.evaluation_ids(self.wrapped.task, sample, self._draws(len(rows.tokens)))

    def _draws(self, rows: int, seed: int = 0, alike: bool = True) -> Draws:
        """Return the draws of `predict`: every row is its first."""
        numbers = torch.arange(rows, device=self.device)
        return stream(seed, "predict", torch.zeros_like(numbers) if alike else numbers)

    @torch.no_grad()
    def generate(
        self,
        inputs: Int[Tensor, "b t"] | None = None,
        generation_config: Any = None,
        *,
        attention_mask: Tensor | None = None,
        stopping_criteria: Any = None,
        prompt_ids_only: bool = False,
        **options: Any,
    ) -> Int[Tensor, "b _"]:
        """Return prompts with their answers, as `longreach predict` gives them.

        Options are those of Hugging Face's `generate`, as far as `Request` knows them; others raise BadInput.  By
        default answers have up to twice as many tokens as the prompt and 16, and the likeliest token is taken.
        `prompt_ids_only` restricts predicted IDs to those of the prompt.
        """
        task, policy = self.wrapped.task, self.wrapped.ids
        tokens = options.pop("input_ids", None) if inputs is None else inputs
        if tokens is None:
            raise BadInput("generate needs input_ids")
        if task.has_given:
            raise BadInput(f"parts of an answer of {task.name} are drawn: a prompt is not enough")
        request = Request.of(self.generation_config, generation_config, options, tokens.shape[1], task.stop_token)
        rows = self._rows(tokens, attention_mask)
        prompts = [prompt_with_room(task, policy, self.model, row, request.max_new_tokens) for row in rows.prompts()]
        sample = stack_prompts(prompts, tokens.device)
        loop = _Loop(tokens, request.pad_token, stopping_criteria)
        training = self.model.training
        try:
            generate(
                self.model.eval(),
                task,
                policy,
                sample,
                use_cache=request.use_cache,
                sampling=request.sampling,
                draws=self._draws(len(tokens), request.seed, alike=not request.sampling.temperature),
                prompt_ids_only=prompt_ids_only,
                write=loop,
            )
        finally:
            self.model.train(training)
        loop.refuse_full_table(request.max_new_tokens)
        return loop.sequences


class _Loop:
    """Writes answers, checks the criteria of the caller after every token, and keeps the result."""

    def __init__(self, before: Int[Tensor, "b t"], pad: int, criteria: Any) -> None:
        self.before, self.pad = before, pad
        lists = import_transformers(_FOR, "generation.stopping_criteria")
        self.criteria = lists.StoppingCriteriaList(criteria or [])
        self.sequences, self.unfinished_at = before, 0

    def __call__(self, writing: Writing) -> None:
        stopped = torch.zeros_like(writing.finished)

        def check(step: int) -> None:
            nonlocal stopped
            if self.criteria:
                stopped = stopped | torch.as_tensor(self.criteria(self._so_far(writing, step + 1), None)).to(stopped)
                writing.finished |= stopped

        write_answers(writing, check)
        self.sequences = self._so_far(writing, writing.budget)
        ended = writing.stopped | stopped
        room = (writing.prompt.num_tokens - writing.prompt.prompt_tokens)[~ended]
        self.unfinished_at = int(room.min()) if len(room) else 0

    def _so_far(self, writing: Writing, steps: int) -> Int[Tensor, "b _"]:
        """Return the prompts as they were given, and behind them the answers of up to so many tokens."""
        start = writing.prompt.prompt_tokens
        written = writing.at - start + 1
        index = torch.arange(min(steps, int(written.max())), device=start.device)
        places = (start[:, None] + index).clamp(max=writing.tokens.shape[1] - 1)
        answers = writing.tokens.gather(1, places).masked_fill(index >= written[:, None], self.pad)
        return torch.cat([self.before, answers], dim=1)

    def refuse_full_table(self, asked: int | None) -> None:
        """Raise BadInput if an answer was cut off where the table of position IDs ends."""
        if asked is not None and 0 < self.unfinished_at < asked:
            raise BadInput(
                f"an answer of {asked} tokens does not fit into the model's table of position IDs: ask for"
                f" max_new_tokens={self.unfinished_at} or less"
            )


def loaded(config: LongreachConfig, weights: Mapping[str, Tensor]) -> LongreachForCausalLM:
    """Return the model with these weights of ours, in their precision and place."""
    model: Any = LongreachForCausalLM(config)
    like = next(iter(weights.values()))
    model.to(device=like.device, dtype=like.dtype).model.load_state_dict(weights)
    return model.eval()  # type: ignore[no-any-return]
