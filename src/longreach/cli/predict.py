"""`longreach predict RUN --prompt "..."`: let a trained model answer a prompt of yours."""

import argparse
import json
from pathlib import Path

from longreach.cli.console import out
from longreach.decode import answers, generate
from longreach.errors import BadInput
from longreach.runs import RunFolder, choose_device, load_model
from longreach.tasks import Sample, Task


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser("predict", help="let a trained model answer a prompt", description=__doc__)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--prompt", required=True, help="tokens, as `longreach show TASK` prints them")
    parser.add_argument("--max-tokens", type=int, help="the most tokens to write (default: twice the prompt and 16)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb=run, takes_settings=False)


def run(args: argparse.Namespace, settings: list[str]) -> int:
    device = choose_device(args.device)
    config, model = load_model(RunFolder(args.run), device)
    task = config.task
    tokens = task.parse(args.prompt)
    if args.max_tokens is not None and args.max_tokens < 1:
        raise BadInput(f"--max-tokens must be at least 1, got {args.max_tokens}")
    budget = args.max_tokens or (1 if task.stop_token is None else 2 * len(tokens) + 16)
    sample = task.prompt(tokens, budget)
    if args.max_tokens is None and model.largest_id is not None:  # no farther than the table goes
        beyond = (config.ids.evaluation_ids(task, sample)[0] > model.largest_id).any(0)
        sample = task.prompt(tokens, max(1, budget - int(beyond.sum())))
    generated = generate(model, task, config.ids, sample.map(lambda tensor: tensor.to(device)))
    answer, expected = answers(generated, task, sample)[0], _expected(task, sample)
    result = {
        "prompt": " ".join(task.words(tokens)),
        "answer": " ".join(task.words(answer)),
        "stopped": bool(generated.stopped[0]),
        "expected": None if expected is None else " ".join(task.words(expected)),
        "right": None if expected is None else answer == expected,
    }
    if args.json:
        print(json.dumps(result))
        return 0
    out.print(f"{result['prompt']}  ->  {result['answer']}", markup=False, highlight=False, soft_wrap=True)
    if not result["stopped"]:
        out.print("(cut off: the model did not stop)")
    if expected is not None:
        verdict = "right" if result["right"] else f"wrong: {result['expected']}"
        out.print(verdict, markup=False, highlight=False, soft_wrap=True)
    return 0


def _expected(task: Task, sample: Sample) -> list[int] | None:
    """The true answer, where the prompt alone decides it."""
    try:
        return task.solve(sample, 0)
    except BadInput:
        return None
