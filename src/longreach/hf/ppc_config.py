"""The configuration of a causal language model of Hugging Face with a position head.

transformers is imported already when this module is: see `longreach.hf`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from longreach.errors import BadInput
from longreach.system.huggingface import import_transformers

_NEEDS = "a model with a position head"
_AutoConfig = import_transformers(_NEEDS, "models.auto.configuration_auto").AutoConfig

HEADS = ("pointer", "table")
LOSSES_ON = ("answer", "all")


class PpcConfig(import_transformers(_NEEDS, "configuration_utils").PreTrainedConfig):  # type: ignore[misc]
    """The configuration of the wrapped model and the settings of its position head."""

    model_type = "longreach_ppc"
    sub_configs = {"text_config": _AutoConfig}  # noqa: RUF012
    has_no_defaults_at_init = True
    keys_to_ignore_at_inference = ["past_key_values", "token_loss", "id_loss"]  # noqa: RUF012

    def __init__(
        self,
        text_config: Any = None,
        head: dict[str, Any] | None = None,
        level_sizes: Sequence[int] = (0,),
        max_id: int = 0,
        id_weight: float = 1.0,
        id_loss_on: str = "answer",
        **kwargs: Any,
    ) -> None:
        if isinstance(text_config, dict):
            text_config = _AutoConfig.for_model(**_without_kernels(text_config))
        if text_config is None or head is None:
            raise BadInput("a PpcConfig needs text_config and head: call with_position_head(model)")
        if head.get("name") not in HEADS:
            raise BadInput(f"kind must be one of {', '.join(HEADS)}, got {head.get('name')!r}")
        if id_loss_on not in LOSSES_ON:
            raise BadInput(f"id_loss_on must be one of {', '.join(LOSSES_ON)}, got {id_loss_on!r}")
        if id_weight < 0:
            raise BadInput(f"id_weight must not be negative, got {id_weight}")
        if not level_sizes or min(level_sizes) < 0 or level_sizes[0] != 0:
            raise BadInput(f"level_sizes must start with 0, for a first level that grows: got {tuple(level_sizes)}")
        self.text_config, self.head, self.level_sizes, self.max_id = text_config, head, list(level_sizes), max_id
        self.id_weight, self.id_loss_on = id_weight, id_loss_on
        super().__init__(**_without_kernels(kwargs))
        _register_model()


def _without_kernels(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that name no kernel of a hub, which transformers would download and run."""
    return {
        name: value for name, value in settings.items() if not name.endswith("_implementation") or "/" not in str(value)
    }


def register_ppc_type() -> None:
    """Let `AutoConfig` know configurations with a position head."""
    _AutoConfig.register(PpcConfig.model_type, PpcConfig, exist_ok=True)


def _register_model() -> None:
    """Let `AutoModelForCausalLM` know the model; called when a configuration is made, for it imports much."""
    from longreach.hf.ppc_model import PpcForCausalLM

    auto = import_transformers(_NEEDS, "models.auto.modeling_auto")
    auto.AutoModelForCausalLM.register(PpcConfig, PpcForCausalLM, exist_ok=True)
