"""`longreach predict RUN --prompt "..."`: let a trained model answer a prompt of yours."""

import argparse
import json
from pathlib import Path

import torch

from longreach.cli.console import out
from longreach.cli.prompt import expect_generation, typed_prompt
from longreach.cli.trust import add_trust
from longreach.config import build
from longreach.decoding import SamplingConfig, answers, generate
from longreach.errors import BadInput
from longreach.runs import RunFolder, choose_device, load_model
from longreach.seeding import stream
from longreach.tasks import Sample, Task


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser("predict", help="let a trained model answer a prompt", description=__doc__)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--prompt", required=True, help="tokens, as `longreach show TASK` prints them")
    parser.add_argument("--max-tokens", type=int, help="the most tokens to write (default: twice the prompt and 16)")
    parser.add_argument("--temperature", type=float, default=0.0, help="draw tokens; 0 takes the best (default)")
    parser.add_argument("--top-k", type=int, default=0, help="draw from the so many best tokens only")
    parser.add_argument("--top-p", type=float, default=1.0, help="draw from the best tokens of this probability only")
    parser.add_argument("--seed", type=int, help="another seed, another draw (default: 0)")
    parser.add_argument("--prompt-ids-only", action="store_true", help="predicted IDs: only those the prompt has")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_trust(parser)
    parser.set_defaults(verb=run, takes_settings=False)


def run(args: argparse.Namespace, settings: list[str]) -> int:
    device = choose_device(args.device)
    config, model = load_model(RunFolder(args.run), device, args.trust)
    task = config.task
    sample = typed_prompt(config, model, args.prompt, args.max_tokens)
    tokens = sample.tokens[0, : int(sample.prompt_tokens[0])].tolist()
    if args.seed is not None and not args.temperature and not config.ids.draws_test_ids:
        raise BadInput("--seed needs --temperature: without it nothing is drawn")
    sampling = build(
        SamplingConfig, {"temperature": args.temperature, "top_k": args.top_k, "top_p": args.top_p}, "predict"
    )
    there = sample.map(lambda tensor: tensor.to(device))
    expect_generation(config, model, there, "use a smaller --max-tokens or a shorter --prompt")
    generated = generate(
        model,
        task,
        config.ids,
        there,
        sampling=sampling,
        draws=stream(args.seed or 0, "predict", torch.arange(1, device=device)),
        prompt_ids_only=args.prompt_ids_only,
    )
    answer, expected = answers(generated, task, sample)[0], _expected(task, sample)
    result = {
        "prompt": task.spell(tokens),
        "answer": task.spell(answer),
        "stopped": bool(generated.stopped[0]),
        "expected": None if expected is None else task.spell(expected),
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
