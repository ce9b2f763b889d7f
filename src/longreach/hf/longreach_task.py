"""Exact match of generated answers: the tasks of this folder for the lm-evaluation-harness.

longreach writes this file beside its tasks.  It needs lm-eval and transformers, and not longreach.
"""

import json
from pathlib import Path
from typing import Any

import datasets
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.utils import normalize_gen_kwargs, resolve_max_length
from transformers import AutoConfig, AutoTokenizer

_SOURCE = ("revision", "subfolder", "trust_remote_code")


class ExactAnswers(ConfigurableTask):  # type: ignore[misc]
    """Samples of one length.  An answer counts if all of its words are right and the model ends it itself.

    A prompt that does not fit into the model with its answer is an error: the harness would cut off its beginning.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config={name: value for name, value in config.items() if name != "class"})

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **options: Any) -> None:
        """Read the samples, which lie beside this file."""
        lines = Path(__file__).with_name(self.config.metadata["file"]).read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        kept = [{"prompt": row["prompt"], "answer": row["answer"]} for row in rows]
        self.dataset = {"test": datasets.Dataset.from_list(kept)}

    def build_all_requests(self, **options: Any) -> None:
        """Build the requests; raise ValueError if one does not fit into the model."""
        tokenizer, limit = self._tokenizer_and_limit()
        settings = self.config.generation_kwargs
        if "max_gen_toks" not in settings:
            # answers begin with a blank, which may be a token of its own
            samples = self.dataset["test"]
            wholes = [(row["prompt"], f"{row['prompt']} {row['answer']}") for row in samples]
            settings["max_gen_toks"] = max(
                len(tokenizer.encode(whole)) - len(tokenizer.encode(prompt)) for prompt, whole in wholes
            )
        super().build_all_requests(**options)
        for request in self.instances:
            context, asked = request.args
            prompt, room = len(tokenizer.encode(str(context))), normalize_gen_kwargs(asked)["max_gen_toks"]
            if prompt + room > limit:
                raise ValueError(
                    f"{self.config.task}: a prompt of {prompt} tokens and {room} for its answer do not fit into the"
                    f" model, which takes {limit}: the harness would cut the prompt.  Leave this length out, or raise"
                    " max_length in --model_args if the model can read more"
                )

    def process_results(self, doc: dict[str, Any], results: list[str]) -> dict[str, float]:
        """Compare words; the harness has cut the text before the stop word."""
        expected, found = doc["answer"].split(), results[0].split()
        if expected[-1] == self.config.metadata["stop"]:
            expected.pop()
        else:  # nothing ends such an answer but its length
            found = found[: len(expected)]
        return {"exact_match": float(found == expected)}

    def _tokenizer_and_limit(self) -> tuple[Any, int]:
        """Return the tokenizer of the model, and the most tokens that the harness gives to it."""
        given = self.config.metadata  # the harness adds --model_args
        model, name = given.get("pretrained"), given.get("tokenizer") or given.get("pretrained")
        if not isinstance(name, str) or not (isinstance(model, str) or given.get("max_length")):
            raise ValueError(
                f"{self.config.task} must know the model's tokenizer and limit: give pretrained=NAME in --model_args,"
                " or tokenizer=NAME max_length=NUMBER in --metadata"
            )
        source = {key: given[key] for key in _SOURCE if key in given}
        tokenizer = AutoTokenizer.from_pretrained(name, **source)
        limit = given.get("max_length")
        return tokenizer, int(limit or resolve_max_length(AutoConfig.from_pretrained(model, **source), tokenizer))
