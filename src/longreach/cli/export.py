"""`longreach export RUN FOLDER`: a trained model as a folder that Hugging Face's transformers reads."""

import argparse
import json

from longreach.errors import BadInput
from longreach.hf import to_huggingface
from longreach.runs import RunFolder, load_model
from longreach.tasks import Text
from longreach.terminal.console import out
from longreach.text import as_subwords


def run(args: argparse.Namespace, settings: list[str]) -> int:
    folder = RunFolder(args.run)
    if args.longest < 1:
        raise BadInput(f"--longest must be at least 1, got {args.longest}")
    if args.folder.exists() and (not args.folder.is_dir() or any(args.folder.iterdir())):
        raise BadInput(f"{args.folder} exists already")
    config, model = load_model(folder, trust=args.trust)  # says so where there is no run
    if not folder.finished:
        raise BadInput(f"{folder.path} is not finished: resume it first")
    if config.ids.supplier(config.task) != "count":
        raise BadInput(
            f"Hugging Face counts tokens for position IDs: it cannot give them as ids {config.ids.name} does"
        )
    theirs = to_huggingface(model, args.longest, config.task.stop_token)
    theirs.save_pretrained(args.folder)
    (args.folder / "vocabulary.json").write_text(json.dumps(config.task.vocabulary))
    if isinstance(config.task, Text):
        as_subwords(config.task.opened.tokenizer).save(args.folder)
    out.print(f"{args.folder}: {type(theirs).__name__}, {theirs.num_parameters():,} parameters", highlight=False)
    if config.ids.draws_test_ids:
        out.print(
            f"Hugging Face counts tokens for position IDs, as ids {config.ids.name} with test: dense", highlight=False
        )
    return 0
