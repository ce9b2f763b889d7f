"""`longreach predict RUN --prompt "..."`: let a trained model answer a prompt of yours."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from longreach.cli.trust import add_trust
from longreach.terminal.console import out
from longreach.verbs.answering import predict


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
    result = predict(
        args.run,
        args.prompt,
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        seed=args.seed,
        prompt_ids_only=args.prompt_ids_only,
        device=args.device,
        trust=args.trust,
    )
    if args.json:
        print(json.dumps(asdict(result)))
        return 0
    out.print(f"{result.prompt}  ->  {result.answer}", markup=False, highlight=False, soft_wrap=True)
    if not result.stopped:
        out.print("(cut off: the model did not stop)")
    if result.expected is not None:
        verdict = "right" if result.right else f"wrong: {result.expected}"
        out.print(verdict, markup=False, highlight=False, soft_wrap=True)
    return 0
