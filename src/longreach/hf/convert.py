"""A model of Hugging Face's as ours, and ours as theirs: equal logits, for the weights are the same."""

import copy
from typing import Any

import torch

from longreach.errors import BadInput
from longreach.hf.settings import family_of, names_in, settings_of, written_settings
from longreach.model import Model, Transformer
from longreach.positions.ids import IdPolicy
from longreach.system.huggingface import import_transformers
from longreach.tasks import Task

_CLASSES = {"gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM"), "llama": ("LlamaConfig", "LlamaForCausalLM")}


def from_huggingface(theirs: Any) -> Transformer:
    """Return a copy of a causal language model in its precision and place.

    It must be a `GPTNeoXForCausalLM`, a `LlamaForCausalLM` or a model that `wrap_for_huggingface` made.
    """
    if theirs.config.model_type == "longreach":
        return copy.deepcopy(theirs.model)  # type: ignore[no-any-return]
    config = settings_of(theirs.config)
    with torch.device("meta"):  # all weights come from there
        model = config.build(vocab_size=theirs.config.vocab_size, level_sizes=(0,), max_id=0)
    names = names_in(theirs)
    weights = dict(theirs.named_parameters())  # tied ones once
    ours = names.to_ours(weights, model.state_dict(), config)
    model.load_state_dict({name: weight.detach().clone() for name, weight in ours.items()}, assign=True)
    return model.train(theirs.training)


def to_huggingface(model: Model, longest: int = 2048, stop_token: int | None = None) -> Any:
    """The `PreTrainedModel` that computes what ours does; `save_pretrained` writes it to a folder.

    `longest` is the number of tokens that it says it was made for, `stop_token` what ends a text.  Position IDs count
    from the first token there.  Before you give others, call `keep_attention_uncut` on it: transformers cuts attention
    where they step by anything but 1.
    """
    if not isinstance(model, Transformer):
        raise BadInput(f"Hugging Face has no {model.config.name} model like ours")
    family = family_of(model)
    transformers = import_transformers("a model of Hugging Face")
    config_class, model_class = (getattr(transformers, name) for name in _CLASSES[family])
    settings = config_class(**written_settings(model, family, longest, stop_token))
    like = model.embed.weight
    with torch.random.fork_rng(devices=[]):  # it draws weights of its own
        theirs = model_class(settings)
    names = names_in(theirs)
    weights = names.to_theirs(model.state_dict(), model.config)
    if model.config.tie_embeddings:
        weights[names.outside["head"] + ".weight"] = like
    theirs.load_state_dict(weights)
    return theirs.to(device=like.device, dtype=like.dtype).train(model.training)


def wrap_for_huggingface(task: Task, ids: IdPolicy, model: Model, longest: int = 2048) -> Any:
    """Return any model of longreach as a `PreTrainedModel` with the position IDs and the answers of its run.

    `save_pretrained` writes it to a folder, which `AutoModelForCausalLM.from_pretrained` reads after
    `import longreach.hf`.  `longest` is the number of tokens that it says it was made for.
    """
    import_transformers("a model of Hugging Face")
    from longreach.hf.causal_lm import loaded  # imports transformers
    from longreach.hf.model_type import config_for

    return loaded(config_for(task, ids, model, longest), model.state_dict())
