"""`longreach text sparsity MODEL CORPUS`: do predictions that few tokens explain keep their loss at greater length?"""

import argparse
import json

from longreach.cli.columns import print_columns
from longreach.errors import BadInput
from longreach.system.files import write_atomically
from longreach.terminal.console import out, say
from longreach.text import Corpus


def run(args: argparse.Namespace, settings: list[str]) -> int:
    # a model takes seconds to import, which the other parts of `longreach text` do without
    from safetensors.torch import save_file

    from longreach.cli.probe_reading import open_model, read_contexts, warn
    from longreach.config import build
    from longreach.evaluation import EvalConfig, check_text_memory, choose_targets, estimate_text, loss_by_context
    from longreach.evaluation.context import BLOCK
    from longreach.probe import ProbeConfig, predicting, probe_targets, summarise_sparsity
    from longreach.reports import save_png, sparsity_figure
    from longreach.runs import choose_device
    from longreach.terminal.progress import watch

    device, contexts = choose_device(args.device), read_contexts(args.contexts)
    for flag in ("samples", "batch_tokens", "memory"):
        if getattr(args, flag) <= 0:
            raise BadInput(f"--{flag.replace('_', '-')} must be above 0, got {getattr(args, flag)}")
    if args.out.exists() and not args.out.is_dir():
        raise BadInput(f"--out {args.out} is not a folder")
    if args.within not in contexts:
        raise BadInput(f"--within {args.within} must be one of --contexts {args.contexts}")
    if args.within <= BLOCK:
        raise BadInput(f"--within must be above {BLOCK}, the tokens that are predicted in a row, got {args.within}")
    given = {name: getattr(args, name) for name in ("masks", "keep", "window", "seed")}
    config = build(ProbeConfig, {name: value for name, value in given.items() if value is not None}, "probe")
    corpus = Corpus.open(args.corpus)
    split, train = corpus.split(args.split), corpus.split("train")
    targets = choose_targets(split, args.samples, contexts[-1], args.seed)
    if len(set(targets.document.tolist())) < 2:
        raise BadInput(
            f"all tokens fall into one document, so nothing can be said of others: raise --samples {args.samples}"
        )
    opened = open_model(args.model, device, args.precision, args.memory, args.trust)
    model = opened.model
    opened.check_reads(corpus, contexts[-1] + BLOCK)
    sizes = {"lengths": contexts, "samples": len(targets.documents)}
    asked = build(EvalConfig, {**sizes, "free_samples": 0}, "evaluate")
    cost = model.pass_cost()
    check_text_memory(cost, asked, args.batch_tokens, device, warn)
    with watch(say, quiet=args.json) as observer:
        report = observer.phase("loss by context", len(contexts) * len(targets.documents))
        if (work := estimate_text(cost, predicting(model), asked, device)) is not None:
            observer.expect(work)
        losses = loss_by_context(predicting(model), split, targets, contexts, args.batch_tokens, device, report)
        report = observer.phase("probe", len(targets.start))
        probed = probe_targets(model, corpus, split, targets, args.within, config, report)
    summary, facts = summarise_sparsity(model, split, train, probed, losses, args.within)
    summary = {**summary, "corpus": corpus.fingerprint, "sources": list(corpus.meta.sources), "split": args.split}
    args.out.mkdir(parents=True, exist_ok=True)
    per_token = {"nats": losses.nats, "token": losses.token, "place": losses.place, "document": losses.document}
    save_file(
        {name: tensor.contiguous() for name, tensor in {**per_token, **facts}.items()}, args.out / "tokens.safetensors"
    )
    write_atomically(args.out / "sparsity.json", (json.dumps(summary, indent=1) + "\n").encode())
    save_png(sparsity_figure(summary), args.out / "sparsity.png")
    if args.json:
        print(json.dumps(summary))
        return 0
    rows = [row for row in summary["changes"]["k_sufficient"] if row["context"] > args.within]
    print_columns(
        {
            "k": [row["k"] for row in rows],
            "context": [row["context"] for row in rows],
            "tokens": [row["tokens"] for row in rows],
            "change of loss": [row["nats"] for row in rows],
            "low": [row["low"] for row in rows],
            "high": [row["high"] for row in rows],
        }
    )
    low, middle, high = summary["k"]["k_sufficient"]
    faithful = "unknown" if summary["faithfulness"] is None else f"{summary['faithfulness']:.2f}"
    out.print(
        f"k of {summary['model']}: median {middle:g} (quarters {low:g} and {high:g}); at most 8 tokens are enough for"
        f" {summary['few']['k_sufficient'][0]:.0%} of predictions; faithfulness {faithful}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    out.print(f"figure {args.out / 'sparsity.png'}", markup=False, highlight=False, soft_wrap=True)
    return 0
