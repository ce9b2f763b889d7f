"""`longreach predict RUN --prompt "..."`: let a trained model answer a prompt of yours."""

import argparse
import json
from dataclasses import asdict

from longreach.terminal.console import out
from longreach.verbs.answering import predict


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
        verdict = "right" if result.right else f"wrong; the true answer is {result.expected}"
        out.print(verdict, markup=False, highlight=False, soft_wrap=True)
    return 0
