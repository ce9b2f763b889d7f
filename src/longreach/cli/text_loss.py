"""`longreach text loss MODEL TEXT`: loss by context of a Hugging Face model, also under another way to scale RoPE."""

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from longreach.cli.columns import print_columns
from longreach.engine.plan import choose
from longreach.errors import BadInput
from longreach.system.files import write_atomically
from longreach.terminal.console import say
from longreach.text import Corpus


def run(args: argparse.Namespace, settings: list[str]) -> int:
    # a model takes seconds to import, which the other parts of `longreach text` do without
    from longreach.cli.probe_reading import Opened, check_contexts, check_weights, cut_text, read_contexts
    from longreach.config import build, read_value
    from longreach.evaluation import (
        RISE,
        EvalConfig,
        HoldsTo,
        Predict,
        estimate_text,
        evaluate_text,
        losses_to_json,
        next_tokens,
        text_work,
    )
    from longreach.evaluation.context import BLOCK
    from longreach.execution import ExecutionConfig
    from longreach.hf import from_huggingface
    from longreach.hf.rope import encoding_for
    from longreach.positions.ids import Sequential
    from longreach.probe import load_hugging_face, predicting
    from longreach.runs import choose_device
    from longreach.tasks import Text
    from longreach.terminal.progress import watch

    if args.out is not None and (args.out.suffix != ".json" or not args.out.parent.is_dir()):
        raise BadInput(f"--out must be a .json file in a folder that exists, got {args.out}")
    if (Path(args.model) / "config.yaml").is_file():
        raise BadInput(f"{args.model} is a run of longreach: longreach eval {args.model} --lengths {args.contexts}")
    if not args.corpus.exists():
        raise BadInput(f"there is no file or folder {args.corpus}")
    corpus = Corpus.open(args.corpus) if args.corpus.is_dir() else None
    if corpus is None and args.split is not None:
        raise BadInput(f"--split concerns a prepared corpus, and {args.corpus} is none")
    device, contexts = choose_device(args.device), read_contexts(args.contexts)
    asked_for = {"lengths": contexts, "samples": args.samples, "seed": args.seed}
    config = build(EvalConfig, {**asked_for, "free_samples": 0}, "evaluate")
    execution = build(ExecutionConfig, {"batch_tokens": args.batch_tokens}, "execution")
    check_weights(args.model, device)
    theirs = load_hugging_face(args.model, device, args.precision)
    if corpus is None:
        Opened(theirs).check_positions(contexts[-1] + BLOCK)
        split = cut_text(theirs, args.corpus, contexts[-1])
    else:
        Opened(theirs).check_reads(corpus, contexts[-1] + BLOCK)
        split = corpus.split(args.split or "test")
    cost = Opened(theirs).cost()
    check_contexts(cost, config, execution.batch_tokens, device)
    ours = from_huggingface(theirs.model).eval() if args.encoding else None
    encodings = {text: encoding_for(theirs.model.config, read_value(text), "--encoding") for text in args.encoding}
    losses: dict[str, list[dict[str, Any]]] = {}
    holds: dict[str, HoldsTo] = {}

    def measure(name: str, predict: Predict) -> None:
        report = observer.phase(name, text_work(config))
        if (work := estimate_text(cost, predict, config, device)) is not None:
            observer.expect(work)
        result = evaluate_text(predict, split, config, args.seed, device, report, execution.batch_tokens)
        losses[name], holds[name] = losses_to_json(result.losses), HoldsTo.of(result.by_context)

    with watch(say, quiet=args.json) as observer:
        measure("as it is", predicting(theirs))
        for text, encoding in encodings.items():
            assert ours is not None
            with ours.exchange_encoding(encoding):
                fast = choose(ours, execution, device).test_model(ours)
                measure(text, next_tokens(fast, Text(), Sequential()))
    found = {"losses": losses, "holds_to": {name: asdict(held) for name, held in holds.items()}}
    if args.out is not None:
        write_atomically(args.out, (json.dumps(found, indent=1) + "\n").encode())
    if args.json:
        print(json.dumps(found))
        return 0
    by_context = {name: [row for row in rows if row["by"] == "context"] for name, rows in losses.items()}
    columns: dict[str, list[Any]] = {"context": [*(row["size"] for row in by_context["as it is"]), "holds to"]}
    columns |= {
        name: [*(f"{row['nats']:.3f} ({math.exp(row['nats']):.1f})" for row in rows), str(holds[name])]
        for name, rows in by_context.items()
    }
    print_columns(columns)
    say.print("nats per token (perplexity); the same tokens at every context", highlight=False)
    documents = losses["as it is"][0]["documents"]
    what = "documents" if corpus is not None else "parts of the text"
    interval = f"; in brackets the 95% interval over {documents} {what}" if documents > 1 else ""
    say.print(
        f"holds to: the longest context before the loss is more than {RISE} nats above the least at shorter"
        f" contexts{interval}",
        highlight=False,
        soft_wrap=True,
    )
    return 0
