"""The README and the docs do what they say: their commands run, their code works, their links lead somewhere.

Training is cut to a few steps here, and samples and repetitions to a few; everything else is as printed.
"""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from longreach.cli.catalogue import measured_speeds
from longreach.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
SHORT = ["--train.steps", "3", "--execution.save_every", "3", "--evaluate.samples", "4", "--evaluate.free_samples", "2"]
SHORT += ["--evaluate.lengths", "4,8"]
FEWER = {
    ("run",): [*SHORT, "--device", "cpu"],
    ("check",): ["--samples", "64"],
    ("diagnose",): ["--samples", "64"],
    ("bench", "train"): ["--repeats", "2"],
}
"""Flags for a verb, where a command does not set the first of them."""


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.M | re.S)


def _commands(page: Path) -> list[list[str]]:
    lines = [line for block in _blocks(page, "console") for line in block.splitlines() if line.startswith("$ ")]
    return [shlex.split(line[2:], comments=True) for line in lines]


def _write_files(page: Path, folder: Path) -> None:
    """Write the blocks that begin with the name of a file."""
    for block in [*_blocks(page, "python"), *_blocks(page, "yaml")]:
        name = re.match(r"# (\w+\.(?:py|yaml))\n", block)
        if name is not None:
            (folder / name[1]).write_text(block)


@pytest.mark.parametrize("page", [page for page in PAGES if _commands(page)], ids=lambda page: page.name)
def test_every_command_runs(page, tmp_path, monkeypatch, capsys):
    for folder in ("examples", "recipes", "results", "sweeps"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    _write_files(page, tmp_path)
    done = set()
    for command in _commands(page):
        assert command[0] == "longreach"
        arguments = command[1:]
        for verb, flags in FEWER.items():
            if tuple(arguments[: len(verb)]) == verb and (verb == ("run",) or flags[0] not in arguments):
                arguments += flags
        assert main(arguments) == 0, shlex.join(command)
        done.add(arguments[0])
    assert done
    capsys.readouterr()


def test_the_example_of_a_run_works(tmp_path, monkeypatch, capsys):
    (code,) = (block for block in _blocks(ROOT / "README.md", "python") if "scores = lr.run(" in block)
    monkeypatch.chdir(tmp_path)
    exec(compile(code.replace('"steps": 300', '"steps": 3'), "README.md", "exec"), {})
    assert "reach@0.9: " in capsys.readouterr().out


def test_the_example_of_the_python_page_works(tmp_path, monkeypatch, capsys):
    (code,) = _blocks(ROOT / "docs" / "python.md", "python")
    monkeypatch.chdir(tmp_path)
    exec(compile(code.replace('"steps": 300', '"steps": 3'), "python.md", "exec"), {})
    assert "-> " in capsys.readouterr().out
    assert (tmp_path / "runs" / "copy" / "report" / "report.html").is_file()


def test_the_example_of_the_page_on_programs_works(capsys):
    (code,) = _blocks(ROOT / "docs" / "programs.md", "python")
    exec(compile(code, "programs.md", "exec"), {"__name__": "programs"})
    sample, ids = capsys.readouterr().out.splitlines()
    left, right, _ = (sorted(words.split()) for words in sample.split("  ->  ")[0].split(";"))
    assert sample.endswith(f"->  {' '.join(sorted(left + right))} .")
    assert ids.startswith("[1, 2, 3, 4, 0, 0, 0, 0, 1, ")


def _save_tiny_model(folder: Path, **changes: int) -> None:
    """Write a Llama of one layer that reads bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from longreach.text import as_subwords
    from longreach.text.tokenizer import Bytes

    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
        LlamaForCausalLM(LlamaConfig(vocab_size=258, eos_token_id=1, **sizes, **changes)).save_pretrained(folder)
    as_subwords(Bytes()).save(folder)


def test_the_example_of_the_page_on_longer_texts_works(tmp_path, monkeypatch, capsys):
    pytest.importorskip("accelerate")
    from stories import long_story, write_jsonl

    monkeypatch.chdir(tmp_path)
    _save_tiny_model(tmp_path / "tiny", max_position_embeddings=32)
    write_jsonl(tmp_path / "books.jsonl", [long_story(number, 6) for number in range(40)])
    (code,) = _blocks(ROOT / "docs" / "extend.md", "python")
    shorter = {"HuggingFaceTB/SmolLM2-135M": "tiny", "to=32_768": "to=64, steps=1, batch_size=1, samples=64"}
    for printed, other in shorter.items():
        assert code.count(printed) == 1
        code = code.replace(printed, other)
    exec(compile(code, "extend.md", "exec"), {})
    assert "At 64 tokens, scaling, PoSE beside scaling only" in capsys.readouterr().out
    assert (tmp_path / "smollm2-32k" / "model.safetensors").exists()


def test_the_examples_of_the_hugging_face_page_work(tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    import torch

    monkeypatch.chdir(tmp_path)
    _save_tiny_model(tmp_path / "tiny")
    (tmp_path / "book.txt").write_text("Whoever reads this reads it again. " * 60)
    code = "".join(_blocks(ROOT / "docs" / "hf.md", "python"))
    for printed, shorter in (("HuggingFaceTB/SmolLM2-135M", "tiny"), ("max_steps=200", "max_steps=2, use_cpu=True")):
        assert code.count(printed) == 1
        code = code.replace(printed, shorter)
    names: dict[str, object] = {}
    exec(compile(code, "hf.md", "exec"), names)
    assert names["trainer"].state.global_step == 2
    assert names["logits"].shape == (1, 4, 258)
    assert bool(torch.isfinite(names["loss"]))


@pytest.mark.parametrize("steps", [2, pytest.param(200, marks=pytest.mark.slow)])
def test_the_examples_of_the_page_on_ppc_work(steps, tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    monkeypatch.chdir(tmp_path)
    code = "".join(_blocks(ROOT / "docs" / "hf_ppc.md", "python"))
    assert code.count("max_steps=200") == 1
    if steps == 2:
        code = code.replace('"32", "test.jsonl", samples=50', '"32", "test.jsonl", samples=2')
    names: dict[str, object] = {}
    code = code.replace("max_steps=200", f"max_steps={steps}, use_cpu=True, disable_tqdm=True")
    exec(compile(code, "hf_ppc.md", "exec"), names)
    assert names["trainer"].state.global_step == steps
    assert names["output"].id_loss.isfinite()
    if steps > 2:
        assert names["right"] >= 45  # 4 times the longest trained length


def test_the_examples_of_the_page_on_reach_work(tmp_path, monkeypatch, capsys):
    from transformers import LlamaConfig, LlamaForCausalLM

    from longreach.text import as_subwords
    from longreach.text.tokenizer import Bytes

    monkeypatch.chdir(tmp_path)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=258, max_position_embeddings=256, **sizes)).save_pretrained("tiny")
    as_subwords(Bytes()).save(tmp_path / "tiny")
    text = "Whoever reads this reads it again. " * 60
    (tmp_path / "book.txt").write_text(text)
    (tmp_path / "notes.jsonl").write_text(f"{json.dumps({'body': text})}\n" * 2)
    page = (ROOT / "docs" / "reach.md").read_text().replace("HuggingFaceTB/SmolLM2-135M", "tiny")
    commands = re.findall(r"^longreach .*$", page, flags=re.M)
    assert len(commands) == 3
    for command in commands:
        assert main(shlex.split(command, comments=True)[1:]) == 0, command
    assert (tmp_path / "reach" / "smollm2" / "reach.html").is_file()
    capsys.readouterr()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S)
    names: dict[str, object] = {}
    exec(compile(code, "reach.md", "exec"), names)
    assert f"holds to {names['held']}" in capsys.readouterr().out
    assert not names["again"].measured["as it is"].retrieval


def test_the_program_with_hidden_state_is_refused(tmp_path, monkeypatch, capsys):
    _write_files(ROOT / "docs" / "your_task.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["check", "hidden.Hidden"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "hidden.Hidden: " in error
    assert "must follow from the words read since the last write, not from Python variables" in error


@pytest.mark.parametrize("name", ["MergeDigits", "TranslateNames", "Repeat", "Blocks", "Pick"])
def test_the_development_programs_pass_the_check(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    import longreach as lr

    found = lr.check(f"examples.development_programs.{name}", lengths=(2, 9), samples=24)
    assert found.passed, found.faults


@pytest.mark.parametrize(
    ("page", "file", "name"),
    [("README.md", "my_program.py", "Merge"), ("docs/positions.md", "my_ids.py", "RandomStride")],
)
def test_the_classes_of_the_pages_are_those_of_the_examples_and_fit_in_20_lines(page, file, name):
    (shown,) = (block for block in _blocks(ROOT / page, "python") if f"class {name}" in block)
    definition = shown[shown.index("@dataclass") :]
    assert definition in (ROOT / "examples" / file).read_text()
    assert len([line for line in shown.splitlines() if line.strip()]) <= 20


def test_the_example_task_and_policy_work_together(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from helpers import TINY, answer_of, draw

    from examples.my_ids import RandomStride
    from examples.my_task import CopyDigits
    from longreach.api import build_model
    from longreach.decoding import generate
    from longreach.seeding import stream

    task, policy = CopyDigits(), RandomStride(max_stride=5)
    sample = draw(task, [3, 6])
    assert [task.solve(sample, row) for row in range(2)] == [answer_of(sample, row) for row in range(2)]
    assert task.words(task.solve(task.prompt_batch(task.parse("3 1 4 ="), 9), 0)) == ["3", "1", "4", "."]
    plain = policy.assign(task, sample)
    strides = policy.relabel(task, sample, plain, stream(0, "x", sample.length)).diff(dim=2)
    assert ((strides >= 1) & (strides <= 5)).all()
    generate(build_model(TINY, len(task.vocabulary), 0), task, policy, sample)


def test_the_ten_lines_stand_in_the_examples():
    (shown,) = (block for block in _blocks(ROOT / "README.md", "python") if "scores = lr.run(" in block)
    assert shown in (ROOT / "examples" / "ten_lines.py").read_text()
    assert len([line for line in shown.splitlines() if line.strip()]) == 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def _figures() -> list[list[str]]:
    """Return the commands of all pages that draw a figure of the docs from a file of results."""
    text = "\n".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    found = re.findall(r"longreach report results[^`\n]*docs/figures/[a-z_]*[.]svg", text)
    return [shlex.split(command)[1:] for command in sorted(set(found))]


@pytest.mark.parametrize("command", _figures(), ids=lambda command: Path(command[-1]).stem)
def test_figures_show_the_results_that_are_committed(command, tmp_path, monkeypatch):
    """The bytes of an SVG depend on matplotlib, whose version it names."""
    monkeypatch.chdir(ROOT)
    assert main([*command[:-1], str(tmp_path / "again.svg")]) == 0
    committed, again = (ROOT / command[-1]).read_text(), (tmp_path / "again.svg").read_text()
    version = re.compile(r"Matplotlib v[\d.]+")
    if version.search(committed)[0] == version.search(again)[0]:
        assert committed == again
    assert committed.count("<path") == again.count("<path")


def test_every_drawn_figure_is_shown_and_has_its_command():
    pages = "\n".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    drawn = {Path(command[-1]).name for command in _figures()}
    assert drawn == {path.name for path in (ROOT / "docs" / "figures").glob("*.svg")}
    assert all(f"figures/{name})" in pages for name in drawn)


def test_make_targets_that_the_docs_name_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    for page in PAGES:
        assert set(re.findall(r"^make ([a-z-]+)", page.read_text(), flags=re.M)) <= targets


def test_every_package_folder_has_its_page():
    index = (ROOT / "docs" / "index.md").read_text()
    for folder in (ROOT / "src" / "longreach").iterdir():
        if (folder / "__init__.py").exists():
            assert f"`{folder.name}/`" in index


def test_the_catalogue_of_the_docs_is_what_the_registry_says(capsys):
    assert main(["list", "--markdown"]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "catalogue.md").read_text()


def test_every_entry_of_the_catalogue_says_where_it_comes_from_and_how_fast_it_is(capsys):
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    measured = measured_speeds()
    assert len(measured) >= 50
    for row in listed["task"]:
        if row["name"] in ("jsonl", "text"):  # which are read and not drawn
            continue
        assert row["tokens_per_second"] == measured.get(row["name"])  # none where it was not measured
        assert measured.get(row["name"], 2e6) >= 2e6, row["name"]
        assert row["k"], row["name"]
        assert "->" in row["summary"], row["name"]
    for kind in ("task", "ids", "encoding", "attention"):
        for row in listed[kind]:
            assert row["paper"] == "" or re.search(r"(19|20)\d\d", row["paper"]), row["name"]
