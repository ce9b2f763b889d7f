"""Tasks for the lm-evaluation-harness beside the samples that `dataset` writes."""

import re
from collections.abc import Sequence
from pathlib import Path

from longreach.config import dump_yaml
from longreach.errors import BadInput
from longreach.system.files import write_atomically
from longreach.tasks import Task
from longreach.version import PACKAGE

_CODE = PACKAGE / "hf" / "longreach_task.py"


def check_harness(task: Task) -> None:
    """Raise BadInput for a task whose answers cannot be generated from the prompt alone."""
    if task.has_given:
        raise BadInput(f"parts of an answer of {task.name} are drawn: the lm-evaluation-harness cannot give them")


def group_name(folder: Path) -> str:
    """Return the name of the group of a folder's tasks."""
    return "longreach_" + re.sub(r"\W+", "_", folder.resolve().name)


def write_harness(task: Task, lengths: Sequence[int], folder: Path, group: str) -> None:
    """Write a task for each length, a group of them all, and the class that they use.

    The samples of a length lie in `length-N.jsonl`.
    """
    stop = None if task.stop_token is None else task.vocabulary[task.stop_token]
    metric = {"metric": "exact_match", "aggregation": "mean"}
    names = [f"{group}_{length}" for length in lengths]
    for name, length in zip(names, lengths, strict=True):
        settings = {
            "task": name,
            "output_type": "generate_until",
            "test_split": "test",
            "doc_to_text": "prompt",
            "doc_to_target": "answer",
            "generation_kwargs": {"until": [*([stop] if stop else []), "\n"], "do_sample": False},
            "metric_list": [{**metric, "higher_is_better": True}],
            "metadata": {"version": 1, "length": length, "file": f"length-{length}.jsonl", "stop": stop},
        }
        content = dump_yaml(settings) + f"class: !function {_CODE.stem}.ExactAnswers\n"
        write_atomically(folder / f"length-{length}.yaml", content.encode())
    whole = {"group": group, "task": names, "aggregate_metric_list": [{**metric, "weight_by_size": True}]}
    write_atomically(folder / "group.yaml", dump_yaml({**whole, "metadata": {"version": 1}}).encode())
    write_atomically(folder / _CODE.name, _CODE.read_bytes())


def harness_card(group: str) -> str:
    """Return the part of the folder's card on the harness."""
    return (
        "\nThe lm-evaluation-harness reads the folder, too.  It reports exact match of the generated answers, for each"
        " length and for all.  A prompt that does not fit into the model is an error.\n\n"
        f"```\nlm_eval --model hf --model_args pretrained=MODEL --tasks {group} --include_path .\n```\n"
    )
