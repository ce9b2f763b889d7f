"""`longreach eval RUN`: test a trained model at other lengths, or with other task settings."""

import argparse
import json
from pathlib import Path
from typing import Any

from longreach.cli.console import out, say
from longreach.cli.flags import evaluation_changes, short_flags
from longreach.cli.progress import watch
from longreach.cli.trust import add_trust
from longreach.config import Plain, build, read_value, to_plain
from longreach.errors import BadInput
from longreach.evaluation import EvalConfig, losses_to_json, make_card, to_csv, to_json
from longreach.execution import ExecutionConfig
from longreach.reports import Result, losses_to_csv, tables
from longreach.runs import (
    RunFolder,
    choose_device,
    expect_test,
    find_runs,
    left_out,
    load_model,
    run_test,
    work_of_test,
)
from longreach.system.files import write_atomically
from longreach.training import legal_lengths


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "eval",
        help="test a trained model at other lengths or settings",
        description="Test one run, or every run below a folder.  Every task field is an axis: --task.k 4,6,8.  Every"
        " setting of a recipe's sections `evaluate` and `execution` is a flag, such as --evaluate.seed 1; --samples is"
        " short for --evaluate.samples, --batch-tokens for --execution.batch_tokens, and so on.",
    )
    parser.add_argument("run", type=Path, help="a run folder, or a folder of runs")
    parser.add_argument("--lengths", help="such as 20:500:20 (both ends included) or 10,20,40")
    parser.add_argument("--samples", type=int, help="samples in a cell")
    parser.add_argument("--free-samples", type=int, help="how many of them are generated token by token")
    parser.add_argument("--batch-tokens", type=int, help="tokens in a forward pass")
    parser.add_argument("--relabel-ids", action="store_true", help="relabel IDs as in training")
    parser.add_argument("--control", choices=["none", "shuffled", "off_by_one"], help="spoil the IDs of the prompt")
    parser.add_argument("--shift", type=int, help="a number added to all IDs, the reserved one included")
    parser.add_argument(
        "--encoding", help="another encoding for the same weights: self_extend, or {name: rerope, window: 20}"
    )
    parser.add_argument("--prompt-ids-only", action="store_true", help="predicted IDs: only those the prompt has")
    parser.add_argument("--device", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--out", type=Path, help="write the scores, of text the losses too, to this .json or .csv file")
    parser.add_argument("--json", action="store_true", help="print the same as JSON, and no progress")
    add_trust(parser)
    parser.set_defaults(verb=run, takes_settings=True)


def run(args: argparse.Namespace, settings: list[str]) -> int:
    if args.out is not None and args.out.suffix not in (".json", ".csv"):
        raise BadInput(f"--out must end in .json or .csv, got {args.out}")
    if args.out is not None and not args.out.parent.is_dir():
        raise BadInput(f"there is no folder {args.out.parent} for --out")
    changes = short_flags(evaluation_changes(settings), device=args.device, batch_tokens=args.batch_tokens)
    # the device that a run was trained on may be another machine's
    device = choose_device(build(ExecutionConfig, changes.get("execution", {}), "execution").device)
    folders = list(find_runs(args.run))
    if not folders:
        raise BadInput(f"{args.run} holds no run")
    as_csv = args.out is not None and args.out.suffix == ".csv"
    if as_csv and len({folder.config(args.trust).task.open_ended for folder in folders}) > 1:
        raise BadInput("runs on text and others do not share columns: --out with a .json file takes both")
    results = []
    for folder in folders:
        results.append(_evaluate(folder, args, changes, device))
    rows = [{**_label(result), **row} for result in results for row in _rows(result)]
    if args.out is not None:
        content = _as_csv(results) if as_csv else json.dumps(rows)
        write_atomically(args.out, content.encode())
    if args.json:
        print(json.dumps(rows))
        return 0
    tested = dict.fromkeys(result.card.test_ids for result in results)
    title = ", ".join([str(args.run), *(f"IDs {ids}" for ids in tested if ids != "plain")])
    for table in tables(results, title, out.width):
        out.print(table)
    return 0


def _label(result: Result) -> dict[str, str]:
    """Columns in front of the scores.  What was done to the IDs is told, so that no control passes for a result."""
    label = {"run": str(result.folder.path), "variant": result.info.variant}
    return label if result.card.test_ids == "plain" else {**label, "test_ids": result.card.test_ids}


def _rows(result: Result) -> list[dict[str, Any]]:
    return [*to_json(result.scores), *losses_to_json(result.losses)]


def _as_csv(results: list[Result]) -> str:
    """Scores, or of text, which is judged by them, the losses."""
    labels = [_label(result) for result in results]
    if any(result.losses for result in results):
        return losses_to_csv(results, labels)
    scores = [score for result in results for score in result.scores]
    return to_csv(scores, [label for label, result in zip(labels, results, strict=True) for _ in result.scores])


def _evaluate(folder: RunFolder, args: argparse.Namespace, changes: Plain, device: str) -> Result:
    config, model = load_model(folder, device, args.trust)
    asked = _asked(config.evaluate, args, changes.get("evaluate", {}))
    execution = build(ExecutionConfig, {**to_plain(config.execution), **changes.get("execution", {})}, "execution")
    if asked.prompt_ids_only and config.ids.supplier(config.task) != "model":
        raise BadInput(f"--prompt-ids-only concerns predicted IDs, which ids {config.ids.name} does not use")
    skipped = left_out(config.task, asked)
    with watch(say, quiet=args.json) as observer:
        if not folder.finished:
            observer.say(f"{folder.path} is not finished: its newest checkpoint is tested")
        for line in skipped:
            observer.say(f"left out: {line}")
        report = observer.phase(f"test {folder.path}", work_of_test(config.task, asked))
        expect_test(model, config, asked, execution, device, observer)
        info = folder.info()
        scores, text = run_test(model, config.task, config.ids, asked, info.seed, device, execution, report)
    lengths = legal_lengths(config.task, config.train.lengths)
    card = make_card(config.task, config.ids, lengths, asked, config.train.prime)
    return Result(folder, info, scores, card, info.variant or info.recipe, [] if text is None else text.losses)


def _asked(stored: EvalConfig, args: argparse.Namespace, changes: Plain) -> EvalConfig:
    """Return the run's own test with the changes of the flags."""
    flags: Plain = {"lengths": args.lengths, "samples": args.samples}
    flags |= {"free_samples": args.free_samples, "control": args.control, "shift": args.shift}
    flags["encoding"] = None if args.encoding is None else read_value(args.encoding)
    for flag in ("relabel_ids", "prompt_ids_only"):
        if getattr(args, flag):
            flags[flag] = True
    given = {name: value for name, value in flags.items() if value is not None}
    for name in changes:
        if name in given:
            raise BadInput(f"--{name.replace('_', '-')} and --evaluate.{name} are one setting: give one of them")
    given |= changes
    if given.get("relabel_ids") is True:
        given.setdefault("free_samples", 0)
    if isinstance(given.get("samples"), int) and "free_samples" not in given:
        given["free_samples"] = min(given["samples"], stored.free_samples)
    return build(EvalConfig, {**to_plain(stored), **given}, "evaluate")
