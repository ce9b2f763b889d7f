"""Random settings and damaged files, put to the command line in a process that may crash: tests/test_fuzz.py starts it.

Every case is one command.  It must end with exit code 0, or with lines for people and exit code 1 or 2, within ten
seconds of CPU time.  A case that fails is printed as JSON, and so is the case at hand before it begins, so that the
last one is known if the process dies.
"""

import copy
import faulthandler
import hashlib
import io
import json
import math
import random
import re
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from probes import probed
from stories import stories, write_jsonl

from longreach.cli import run as run_verb
from longreach.cli.main import main
from longreach.config import to_plain
from longreach.config.registry import entries, kinds
from longreach.runs import load_recipe, shipped_recipes

SECONDS = 10
"""CPU time of a case."""
MEMORY = 3 << 30
"""Bytes; a case that needs more must say so."""

NUMBERS = [0, 1, -1, 2, 3, 7, 64, 1000, 2**31, 2**32, 2**40, 2**63 - 1, -(2**63), 0.5, -0.5, 1e-300, 1e300]
NO_NUMBERS = [math.inf, -math.inf, math.nan]
TEXTS = ["", "x", "1..8", "8..1", "3:9:3", "0", "-3", "1:99999999999", "$_$", "\x1b[31m", "[/bold]", "é", "a" * 300]
OTHERS = [None, True, False, [], {}, [1, 2], [[]], {"name": "rope"}, {"name": 3}, {"a": {"b": 1}}]
RAW = ["9" * 5000, "!!int abc", "[" * 3000, "{a: &x [*x]}", "- - -", "'", "\0", "&a [*a]", "? [1]", "!!binary x"]


class Hang(BaseException):
    """A case took too long."""


# -- one case


def outcome(command: list[str], refuse: Callable[[int, str], str] = lambda code, out: "") -> str:
    """Return what is wrong with the end of a command, or an empty text."""
    out, say = io.StringIO(), io.StringIO()
    faulthandler.dump_traceback_later(12 * SECONDS, exit=True)  # C code that never comes back hears no signal
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with redirect_stdout(out), redirect_stderr(say):
            code = main(command)
    except SystemExit as ended:
        code = ended.code
    except Hang:
        return f"took more than {SECONDS} s"
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
    told = say.getvalue()
    if code not in (0, 1, 2):
        return f"ended with {code!r}: {told}"
    if code and not [line for line in told.splitlines() if line.startswith(("longreach: ", "longreach "))]:
        return f"ended with {code} and no line: {told!r}"
    if "Traceback" in told or re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", told + out.getvalue()):
        return f"a traceback or a control character: {told!r} {out.getvalue()[:500]!r}"
    if code == 0 and re.search(r"\b(NaN|Infinity)\b|\"(hits|samples|tokens|documents|bytes)\": -", out.getvalue()):
        return f"nonsense: {out.getvalue()[:500]}"
    return refuse(code, told)


def run_cases(cases: Iterator[tuple[dict[str, Any], list[str], Callable[[int, str], str]]]) -> None:
    def hang(number: int, frame: object) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, hang)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    for number, (about, command, refuse) in enumerate(cases):
        print(json.dumps({"case": number, **about, "command": command}), flush=True)
        wrong = outcome(command, refuse)
        if wrong:
            print(json.dumps({"failed": number, "wrong": wrong[-3000:]}), flush=True)
    print(json.dumps({"done": True}), flush=True)


def silent(code: int, told: str) -> str:
    return ""


# -- settings


def leaves(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every place of a recipe that a flag can change, parts and their fields alike."""
    if path:
        yield path
    if isinstance(values, dict):
        for key, value in values.items():
            yield from leaves(value, (*path, key))


def flag_value(draw: random.Random, path: tuple[str, ...]) -> Any:
    if path[-1] in kinds() and draw.random() < 0.7:
        return draw.choice(list(entries(path[-1])))
    return draw.choice(draw.choice([NUMBERS, NUMBERS, NO_NUMBERS, TEXTS, OTHERS, RAW]))


def settings_cases(draw: random.Random, count: int, folder: Path, train: int) -> Iterator[Any]:
    """Random fields of random recipes with random values; `train` of the cases train two steps for real."""
    small = ["--model.layers", "1", "--model.width", "16", "--model.heads", "2", "--train.steps", "2"]
    small += ["--train.batch_size", "4", "--evaluate.samples", "4", "--evaluate.free_samples", "2", "--seeds", "1"]
    recipes = [name for name in shipped_recipes() if "text" not in name]
    execute = run_verb.execute_together

    def stop(*arguments: Any, **options: Any) -> bool:
        raise SystemExit(0)  # all checks were passed

    for number in range(count):
        name = draw.choice(recipes)
        recipe = load_recipe(name)
        variant = draw.choice(list(recipe.variants))
        paths = list(leaves(to_plain(recipe.variants[variant])))
        chosen = [draw.choice(paths) for _ in range(draw.choice([1, 1, 1, 2, 3]))]
        values = [flag_value(draw, path) for path in chosen]
        flags = []
        for path, value in zip(chosen, values, strict=True):
            text = value if isinstance(value, str) else yaml.safe_dump(value, default_flow_style=True).split("\n...")[0]
            flags.append(f"--{'.'.join(path)}={text.strip() if not isinstance(value, str) else value}")
        out = folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        only = ["--only", variant] if variant else []
        command = ["run", name, *only, "--out", str(out), "--device", "cpu", "--json", *small, *flags]
        really = number * train // count != (number + 1) * train // count
        run_verb.execute_together = execute if really else stop

        # a whole section, such as --evaluate, is replaced by the flags of its fields
        kept = [value for path, value in zip(chosen, values, strict=True) if len(path) > 1]

        def refuse(code: int, told: str, kept: list[Any] = kept) -> str:
            if code == 0 and any(isinstance(value, float) and not math.isfinite(value) for value in kept):
                return "a setting that is not finite passed"
            return ""

        yield {"recipe": name, "variant": variant}, command, refuse


# -- files


def swap(draw: random.Random, content: Any) -> Any:
    """Another value, or none, in some place of JSON or YAML."""
    content = copy.deepcopy(content)
    around: Any = content
    while True:
        keys = list(around) if isinstance(around, dict) else list(range(len(around))) if around else []
        if not keys:
            return draw.choice(OTHERS)
        key = draw.choice(keys)
        if isinstance(around[key], dict | list) and around[key] and draw.random() < 0.8:
            around = around[key]
            continue
        if draw.random() < 0.2:
            del around[key]
        else:
            around[key] = draw.choice(draw.choice([NUMBERS, NO_NUMBERS, TEXTS, OTHERS]))
        return content


def damage(draw: random.Random, path: Path) -> str:
    """Damage a file in one of many ways, and say in which."""
    content = path.read_bytes()
    how = draw.choice(["flip", "flip", "cut", "swap", "swap", "swap", "empty", "noise", "deep", "twice", "number"])
    if how == "swap" and path.suffix in (".json", ".yaml", ".jsonl"):
        if path.suffix == ".jsonl":
            lines = content.decode().splitlines()
            place = draw.randrange(len(lines))
            lines[place] = json.dumps(swap(draw, json.loads(lines[place])))
            path.write_text("\n".join(lines) + "\n")
        elif path.suffix == ".json":
            path.write_text(json.dumps(swap(draw, json.loads(content))))
        else:
            path.write_text(yaml.safe_dump(swap(draw, yaml.safe_load(content))))
        return how
    spoilt = bytearray(content)
    if how == "cut":
        del spoilt[draw.randrange(len(spoilt)) :]
    elif how == "empty":
        spoilt.clear()
    elif how == "noise":
        spoilt = bytearray(draw.randbytes(draw.choice([1, 100, 5000])))
    elif how == "deep":
        spoilt = bytearray(b"[" * 50_000)
    elif how == "twice":
        spoilt += content
    elif how == "number":
        place = re.search(rb"[0-9]+", content)
        if place:
            spoilt[place.start() : place.end()] = b"9" * 5000
    else:
        how = "flip"
        for _ in range(draw.choice([1, 1, 3, 20])):
            spoilt[draw.randrange(min(len(spoilt), draw.choice([64, 1 << 30])))] ^= 1 << draw.randrange(8)
    path.write_bytes(spoilt)
    return how


def vouch(path: Path) -> None:
    """Make the record of a checkpoint fit its content."""
    record = path.with_suffix(".json")
    facts = json.loads(record.read_text()) | {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    record.write_text(json.dumps(facts))


def material(folder: Path) -> dict[str, list[list[str]]]:
    """Folders of every kind, and commands that read each; HERE stands for the folder, NEW for one to write."""
    tiny = ["--model.layers", "1", "--model.width", "16", "--model.heads", "2", "--train.steps", "4"]
    tiny += ["--train.batch_size", "4", "--evaluate.samples", "4", "--evaluate.free_samples", "2"]
    tiny += [
        "--evaluate.lengths",
        "4,8",
        "--execution.log_every",
        "1",
        "--execution.save_every",
        "2",
        "--device",
        "cpu",
    ]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert main(["run", "demo", "--only", "counting", "--out", str(folder / "runs"), *tiny]) == 0
        probed().save(folder / "probe")
        (folder / "corpus").mkdir()
        write_jsonl(folder / "docs.jsonl", stories(30))
        texts = ["text", "prepare", str(folder / "docs.jsonl"), "--valid", "0.2", "--test", "0.2", "--out"]
        assert main([*texts, str(folder / "corpus" / "bpe"), "--tokenizer", "bpe", "--vocabulary", "300"]) == 0
        for name in ("hf", "documents", "rows", "sweep"):
            (folder / name).mkdir()
        assert main(["results", str(folder / "runs")]) == 0
    _hugging_face(folder / "hf")
    write_jsonl(folder / "documents" / "docs.jsonl", stories(5))
    pq.write_table(pa.table({"text": stories(5)}), folder / "documents" / "docs.parquet")
    rows = [{"tokens": [n % 5, n % 3, n % 2], "answer": [n % 7], "length": 3} for n in range(80)]
    (folder / "rows" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sweep = {"recipe": "demo", "variants": ["counting"], "seeds": 2, "retries": 1, "resources": {"cpus": 1}}
    sweep |= {"grid": {"train.steps": [2, 3], "train.batch_size": [2, 4]}}
    (folder / "sweep" / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    (folder / "text.txt").write_text("a b c d e f g h " * 4)
    run = "HERE/counting/seed-0"
    test = ["--lengths", "4", "--samples", "2", "--device", "cpu", "--json"]
    probe = ["--masks", "8", "--held-out", "4", "--largest-k", "2", "--length", "12", "--device", "cpu", "--json"]
    return {
        "runs": [
            ["report", "HERE", "--out", "NEW"],
            ["eval", run, *test],
            ["predict", run, "--prompt", "1 0 1", "--device", "cpu", "--json"],
            ["results", "HERE", "--json"],
            ["results", "HERE"],
            ["inspect", run, "--device", "cpu", "--json"],
            ["diagnose", run, "--samples", "8", "--target", "12", "--json"],
            ["run", "demo", "--only", "counting", "--out", "HERE", "--resume", *tiny, "--json"],
        ],
        "probe": [["report", "HERE", "--out", "NEW"]],
        "corpus": [["text", "check", "HERE/bpe"], ["text", "show", "HERE/bpe", "--json"]],
        "documents": [["text", "prepare", "HERE", "--out", "NEW", "--valid", "0", "--test", "0"]],
        "rows": [["diagnose", "HERE/rows.jsonl", "--steps", "2", "--samples", "8", "--target", "3", "--json"]],
        "sweep": [["sweep", "status", "HERE/sweep.yaml", "--out", "NEW", "--json"]],
        "hf": [["probe", "HERE", str(folder / "text.txt"), *probe]],
    }


def _hugging_face(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(["<s>", *"abcdefgh"])}
    backend = Tokenizer(models.WordLevel(words, unk_token="<s>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<s>", eos_token="<s>").save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(words), max_position_embeddings=64, initializer_range=0.5, **shape)
    LlamaForCausalLM(config).save_pretrained(folder)


def files_cases(draw: random.Random, count: int, folder: Path) -> Iterator[Any]:
    whole = folder / "whole"
    whole.mkdir()
    commands = material(whole)
    weights = {"runs": 10, "probe": 2, "corpus": 4, "documents": 2, "rows": 1, "sweep": 2, "hf": 4}
    for _ in range(count):
        kind = draw.choices(list(weights), list(weights.values()))[0]
        here, new = folder / kind, folder / "new"
        shutil.rmtree(here, ignore_errors=True)
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(whole / kind, here)
        files = [path for path in sorted(here.rglob("*")) if path.is_file() and "tensorboard" not in path.parts]
        files = [path for path in files if "report" not in path.parts and path.suffix not in (".png", ".html")]
        chosen = draw.choice([path for path in files if path.stat().st_size])  # a lock has no content
        how = damage(draw, chosen)
        if chosen.suffix == ".safetensors" and chosen.with_suffix(".json").exists() and draw.random() < 0.7:
            vouch(chosen)
        words = draw.choice(commands[kind])
        command = [word.replace("HERE", str(here)).replace("NEW", str(new)) for word in words]
        yield {"file": str(chosen.relative_to(here)), "how": how}, command, silent


if __name__ == "__main__":
    mode, seed, count, place = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    drawn = random.Random(seed)
    run_cases(settings_cases(drawn, count, place, 20) if mode == "settings" else files_cases(drawn, count, place))
