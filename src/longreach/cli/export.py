"""`longreach export RUN FOLDER`: a trained model as a folder that Hugging Face's transformers reads."""

import argparse
import json
from dataclasses import asdict

from longreach.terminal.console import out
from longreach.verbs.exporting import export


def run(args: argparse.Namespace, settings: list[str]) -> int:
    exported = export(args.run, args.folder, format=args.format, longest=args.longest, trust=args.trust)
    if args.json:
        print(json.dumps(asdict(exported)))
    else:
        out.print(str(exported), markup=False, highlight=False, soft_wrap=True)
    return 0
