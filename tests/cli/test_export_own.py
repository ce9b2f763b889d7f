"""Runs as models of the type `longreach`: the logits and answers of ours, in Hugging Face's interfaces."""

import hashlib
import json
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch
from helpers import draw, execute_in
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, pipeline

import longreach as lr
from longreach.cli.main import main
from longreach.runs import load_model

SIZE = {"layers": 1, "width": 16, "heads": 2}
RUNS = {
    "plain": (lr.RandomStart(max_id=40), {"encoding": lr.LearnedConfig(), "tie_embeddings": True, "copy_head": True}),
    "rule": (lr.Coupled(max_id=40), {"attention": lr.ScaledSoftmaxConfig()}),
    "ppc": (lr.Predicted(max_id=40), {"position_head": lr.PointerConfig()}),
    "drawn": (lr.Randomized(max_id=60), {"attention": lr.ScaledSoftmaxConfig()}),
}
PROMPTS = ["1 0 1 1", "1", "0 1 1 0 1 1"]


def change(folder, name, edit):
    content = json.loads((folder / name).read_text())
    edit(content)
    (folder / name).write_text(json.dumps(content))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs whose models have large random weights: untrained ones would answer every prompt alike."""
    place = tmp_path_factory.mktemp("runs")
    made = {}
    for name, (ids, model) in RUNS.items():
        config = lr.RunConfig(
            task=lr.ParityScratchpad(),
            ids=ids,
            model=lr.TransformerConfig(**SIZE, **model),
            train=lr.TrainConfig(lengths=lr.Span(1, 6), steps=1, batch_size=4),
            evaluate=lr.EvalConfig(lengths=lr.Lengths((4,)), samples=4, free_samples=2),
            execution=lr.ExecutionConfig(save_every=1),
        )
        made[name] = execute_in(place / name, config)
        (path,) = made[name].checkpoints.glob("*.safetensors")
        numbers = torch.Generator().manual_seed(0)
        weights = {
            key: torch.randn(value.shape, generator=numbers) if key.startswith("model") and value.dim() > 1 else value
            for key, value in load_file(path).items()
        }
        save_file(weights, path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        change(path.parent, f"{path.stem}.json", lambda facts, digest=digest: facts.update(sha256=digest))
    return made


@pytest.fixture(scope="module")
def folders(runs, tmp_path_factory):
    place = tmp_path_factory.mktemp("folders")
    for name, run in runs.items():
        lr.export(run.path, place / name, format="longreach", longest=50)
    return {name: place / name for name in runs}


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize("name", RUNS)
def test_logits_are_ours(runs, folders, name):
    config, ours = load_model(runs[name])
    theirs, sample = load(folders[name]), draw(config.task, [5, 2, 6])
    zeros = torch.zeros(3, dtype=torch.long)
    ids = config.ids.evaluation_ids(config.task, sample, lr.stream(0, "predict", zeros))
    with torch.no_grad():
        expected = ours.all_logits(sample.tokens, ids)
        width, size = sample.tokens.shape[1], sample.num_tokens
        place = torch.arange(width)[None]
        left = (place >= width - size[:, None]).long()  # the mask of rows that are padded on the left
        tokens = torch.zeros_like(sample.tokens).masked_scatter(left.bool(), sample.tokens[place < size[:, None]])
        prompt = None if name == "plain" else sample.prompt_tokens
        on_left = theirs(tokens, left, prompt_tokens=prompt).logits
        on_right = theirs(sample.tokens, place < size[:, None], prompt_tokens=prompt).logits
        given = theirs(sample.tokens, position_ids=ids if name == "ppc" else ids[:, 0]).logits
    for row, count in enumerate(size.tolist()):
        for found in (on_left[row, width - count :], on_right[row, :count], given[row, :count]):
            torch.testing.assert_close(found, expected[row, :count])


@pytest.mark.parametrize("name", RUNS)
def test_answers_of_a_padded_batch_are_those_of_predict(runs, folders, name):
    theirs, tokenizer = load(folders[name]), AutoTokenizer.from_pretrained(folders[name])
    config, ours = load_model(runs[name])
    batch = tokenizer([f"{prompt} ; =" for prompt in PROMPTS], padding=True, return_tensors="pt")
    assert [row[row > 0].tolist() for row in batch["input_ids"]] == [config.task.parse(prompt) for prompt in PROMPTS]
    width, model = batch["input_ids"].shape[1], (config, ours)
    told = {most: [lr.predict(model, prompt, max_tokens=most).answer for prompt in PROMPTS] for most in (None, 9)}
    for options in ({}, {"max_new_tokens": 9}, {"max_length": width + 9}, {"max_new_tokens": 9, "use_cache": False}):
        found = theirs.generate(**batch, **options)
        assert torch.equal(found[:, :width], batch["input_ids"])
        rows = found[:, width:].tolist()
        spelt = [config.task.spell(row).rstrip(" _") for row in rows]  # these models write padding, too
        assert spelt == [answer.rstrip(" _") for answer in told[9 if options else None]]
    assert len(set(told[9])) > 1
    assert torch.equal(theirs.generate(batch["input_ids"]), theirs.generate(**batch))  # blanks are no word of the task


def test_sampling_is_that_of_predict_and_follows_the_seed(runs, folders):
    theirs, (config, ours) = load(folders["plain"]), load_model(runs["plain"])
    tokens = torch.tensor([config.task.parse("1 0 1")])
    drawn = {"do_sample": True, "temperature": 1.5, "top_k": 4, "top_p": 0.95, "max_new_tokens": 12}
    for seed in range(3):
        told = lr.predict((config, ours), "1 0 1", temperature=1.5, top_k=4, top_p=0.95, seed=seed, max_tokens=12)
        found = theirs.generate(tokens, seed=seed, **drawn)[0, tokens.shape[1] :].tolist()
        assert config.task.spell(found) == told.answer
    with torch.random.fork_rng():
        torch.manual_seed(3)
        first, second = (theirs.generate(tokens.expand(8, -1), **drawn) for _ in range(2))
        torch.manual_seed(3)
        assert torch.equal(theirs.generate(tokens.expand(8, -1), **drawn), first)
    assert not torch.equal(first, second)


def test_criteria_stop_rows_one_by_one(folders):
    theirs = load(folders["plain"])
    tokens = torch.tensor([[0, 4, 5, 2], [5, 4, 4, 2]])
    whole = theirs.generate(tokens, max_new_tokens=6)

    def criterion(sequences, scores, **options):
        return torch.tensor([sequences.shape[1] >= 6, False])

    cut = theirs.generate(tokens, max_new_tokens=6, stopping_criteria=[criterion])
    assert torch.equal(cut[1], whole[1, : cut.shape[1]])
    assert torch.equal(cut[0, :6], whole[0, :6])
    assert not cut[0, 6:].any()


def test_a_saved_model_is_the_same_and_trains(runs, folders, tmp_path):
    theirs = load(folders["rule"])
    theirs.save_pretrained(tmp_path / "again")
    again = lr.load_huggingface(str(folders["rule"]))[0].train()
    for one in (load(tmp_path / "again"), again, lr.from_huggingface(theirs), lr.from_huggingface(again)):
        state = one.state_dict()
        assert all(
            torch.equal(value, state[key]) for key, value in (theirs if one is again else one).state_dict().items()
        )
    files = sorted(path.name for path in folders["rule"].iterdir())
    assert [name for name in files if "safetensors" in name] == ["model.safetensors"]
    assert {"README.md", "config.json", "tokenizer.json", "vocabulary.json"} < set(files)
    tokens = torch.tensor([[4, 5, 2, 4, 5, 3]])
    loss = again(tokens, labels=tokens, prompt_tokens=3).loss
    expected = torch.nn.functional.cross_entropy(again(tokens, prompt_tokens=3).logits[0, :-1], tokens[0, 1:])
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert all(weight.grad is not None for weight in again.parameters())


def test_a_fresh_process_needs_one_import(folders):
    script = f"""
    import sys
    import longreach.hf
    assert "transformers" not in sys.modules
    import torch
    from transformers import LlamaForCausalLM, AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained({str(folders["ppc"])!r})
    print(model.generate(torch.tensor([[5, 4, 1, 2]])).tolist())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    here = load(folders["ppc"]).generate(torch.tensor([[5, 4, 1, 2]]))
    assert done.stdout.splitlines()[-1] == str(here.tolist())


def test_a_pipeline_prints_the_answers(runs, folders):
    """Its defaults allow 256 tokens, and older releases draw them unless told otherwise."""
    ask = pipeline("text-generation", model=str(folders["ppc"]))
    found = ask(["1 0 1 ; =", "1;="], return_full_text=False, do_sample=False, batch_size=2)
    for prompt, (answer,) in zip(("1 0 1", "1"), found, strict=True):
        told = lr.predict(load_model(runs["ppc"]), prompt, max_tokens=256).answer
        assert answer["generated_text"].split() == [word for word in told.split() if word not in "._"]


def test_the_line_says_which_format_and_why(runs, tmp_path, capsys):
    assert main(["export", str(runs["plain"].path), str(tmp_path / "own")]) == 0
    line = capsys.readouterr().out
    assert "LongreachForCausalLM" in line
    assert "import longreach.hf (Hugging Face has no such model with copy_head)" in line
    card = (tmp_path / "own" / "README.md").read_text()
    assert "import longreach.hf" in card
    assert "| trained lengths | 1..6 |" in card
    arguments = ["export", str(runs["plain"].path), str(tmp_path / "x"), "--format", "huggingface"]
    assert main(arguments) == 2
    assert "with copy_head" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


BAD_OPTIONS = {
    "num_beams=4": {"num_beams": 4},
    "repetition_penalty=1.2": {"repetition_penalty": 1.2},
    "temperature=0.5 without do_sample=True": {"temperature": 0.5},
    "frobnicate='yes'": {"frobnicate": "yes"},
    "eos_token_id must be 3": {"eos_token_id": 2},
    "max_new_tokens must be at least 1, got -2": {"max_length": 2},
    "seed=4 needs do_sample=True": {"seed": 4},
    "num_beams=2": {"generation_config": GenerationConfig(num_beams=2)},
    "ask for max_new_tokens=": {"max_new_tokens": 500},
    "one piece of input_ids": {"attention_mask": torch.tensor([[1, 0, 1, 1]])},
    "the shape (1, 4) of input_ids": {"attention_mask": torch.ones(1, 3)},
}


@pytest.mark.parametrize("told", BAD_OPTIONS)
def test_generation_that_cannot_be_done_is_refused(folders, told):
    theirs = load(folders["plain"])
    with pytest.raises(lr.BadInput) as error:
        theirs.generate(torch.tensor([[4, 5, 4, 2]]), **BAD_OPTIONS[told])
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_calls_that_cannot_be_right_are_refused(folders):
    theirs, tokens = load(folders["rule"]), torch.tensor([[4, 5, 2, 4]])
    table = load(folders["plain"])
    for told, call in {
        "give prompt_tokens": lambda: theirs(tokens),
        "prompt_tokens must be from 1": lambda: theirs(tokens, prompt_tokens=5),
        "has no cache": lambda: theirs(tokens, prompt_tokens=3, use_cache=True),
        "must be in 0..5, got 2..9": lambda: theirs(tokens + 5 * (tokens == 4)),
        r"must have the shape \(1, 1, 4\), got \(1, 2, 4\)": lambda: theirs(
            tokens, position_ids=tokens.expand(1, 2, 4)
        ),
        r"must have the shape \(1, 1, 4\), got \(1, 3\)": lambda: theirs(tokens, position_ids=tokens[:, :3]),
        "beyond the table": lambda: table(tokens, position_ids=100 * tokens),
    }.items():
        with pytest.raises(lr.BadInput, match=told):
            call()
    with pytest.raises(Exception, match="WordLevel error"):
        AutoTokenizer.from_pretrained(folders["rule"])("1 x =")


def test_a_folder_from_a_stranger_executes_nothing(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = shutil.copytree(folders["plain"], tmp_path / "mailed")
    for place in (folder, tmp_path):
        (place / "payload.py").write_text("raise SystemExit('executed')")
    (folder / "modeling.py").write_text("raise SystemExit('executed')")
    change(folder, "config.json", lambda config: config["run"]["task"].update(name="payload.Task"))
    with pytest.raises(
        lr.BadInput, match=r"names the task payload.Task, which is not installed: import its module first"
    ):
        load(folder)
    change(folder, "config.json", lambda config: config["run"]["task"].update(name="jsonl", path="secret.jsonl"))
    with pytest.raises(lr.BadInput, match=r"config\.json"):
        load(folder)
    mapped = {"AutoConfig": "modeling.Config", "AutoModelForCausalLM": "modeling.Model"}
    shutil.copy(folders["plain"] / "config.json", folder)
    change(folder, "config.json", lambda config: config.update(auto_map=mapped, _attn_implementation="a/b:c"))
    assert type(load(folder)).__name__ == "LongreachForCausalLM"


@pytest.mark.parametrize(
    "edit",
    [
        lambda config: config.pop("run"),
        lambda config: config["run"]["model"].update(width=10**12),
        lambda config: config["run"].update(ids=3),
        lambda config: config.update(vocab_size=99),
        lambda config: config["run"]["model"].update(layers=2),
    ],
)
def test_a_damaged_folder_is_one_line(folders, tmp_path, edit):
    folder = shutil.copytree(folders["plain"], tmp_path / "damaged")
    change(folder, "config.json", edit)
    with pytest.raises(lr.BadInput) as error:
        load(folder)
    assert "\n" not in str(error.value)


def test_a_new_model_has_weights_and_a_configuration_is_read_alone(folders):
    config = AutoConfig.from_pretrained(folders["ppc"])
    before = torch.random.get_rng_state()
    new = AutoModelForCausalLM.from_config(config)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(bool(torch.isfinite(weight).all()) for weight in new.parameters())
    assert new.get_input_embeddings().weight.std() < 0.03
