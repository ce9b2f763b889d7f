"""`longreach extend`: arms, folders that plain transformers reads, exact resumes, and refusals."""

import json
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from stories import long_story, write_jsonl
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer

import longreach as lr
from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.extension import Comparison, training
from longreach.extension.rope import describe_sliding, scaled_config
from longreach.extension.settings import ExtendConfig, usual_rate
from longreach.extension.training import TrainingRows
from longreach.runs import Observer
from longreach.text import Split, as_subwords
from longreach.text.tokenizer import Bytes
from longreach.verbs.extending import make_extension

SIZES = {"vocab_size": 258, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32}
SIZES |= {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
ASKED = {"to": 128, "steps": 4, "batch_size": 2, "samples": 512, "lr": 0.01, "test": 0.2}


def config_of(kind, **changes):
    return CONFIG_MAPPING[kind](**{**SIZES, **changes})


def save(folder, kind="llama", tokenizer=True, **changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config_of(kind, **changes)).save_pretrained(folder)
    if tokenizer:
        as_subwords(Bytes()).save(folder)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model and texts."""
    path = tmp_path_factory.mktemp("extend")
    save(path / "tiny")
    write_jsonl(path / "texts.jsonl", [long_story(number, 12) for number in range(30)])
    return path


@pytest.fixture(scope="module")
def made(place):
    return lr.extend(place / "tiny", place / "texts.jsonl", place / "long", **ASKED)


def logits_of(folder):
    tokens = torch.arange(2, 102)[None]
    with torch.no_grad():
        return lr.load_huggingface(str(folder))[0](tokens).logits


def test_all_arms_are_measured_on_the_same_tokens_and_read_the_same_tokens(made):
    assert [arm.name for arm in made.arms] == [
        *("as it is", "scaling only", "scaling, sequential training", "scaling, PoSE")
    ]
    assert [arm.tokens for arm in made.arms] == [0, 0, 256, 256]
    assert [arm.position_ids for arm in made.arms] == [None, None, "sequential", "pose"]
    assert [len(arm.training_losses) for arm in made.arms] == [0, 0, 4, 4]
    assert made.contexts == [16, 32, 64, 128]
    for arm in made.arms:
        assert [gain.context for gain in arm.measured.gains] == [32, 64, 128]
        assert all(loss.low < loss.nats < loss.high for loss in arm.losses)
    for row in made.comparisons:
        (control,) = (arm for arm in made.arms if arm.name == row.control)
        nats = [next(loss.nats for loss in arm.losses if loss.size == row.context) for arm in (control, made.result)]
        assert row.nats == pytest.approx(nats[0] - nats[1], abs=1e-5)
    assert len(made.comparisons) == 12
    loss, gain, *_ = made.tables().values()
    assert loss["context"] == ["16", "32", "64", "128"]
    assert gain["context"] == ["32", "64", "128"]  # half of 16 is not measured


def test_the_folder_loads_in_plain_transformers_with_the_same_logits(made, place):
    script = """
    import sys, torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
    assert AutoTokenizer.from_pretrained(sys.argv[1])("ab")["input_ids"] == [99, 100]
    assert model.config.max_position_embeddings == 128 and model.config.use_cache
    torch.save(model(torch.arange(2, 102)[None]).logits.detach(), sys.argv[2])
    assert not any(name.startswith("longreach") for name in sys.modules)
    """
    lines = "\n".join(line.strip() for line in script.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", lines, made.path, str(place / "logits.pt")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(torch.load(place / "logits.pt", weights_only=True), logits_of(made.path))
    assert AutoConfig.from_pretrained(made.path).rope_parameters == {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    assert not torch.equal(logits_of(made.path), logits_of(place / "tiny"))
    assert sorted(path.name for path in Path(made.path).iterdir()) == [
        *("README.md", "config.json", "extend.json", "generation_config.json"),
        *("model.safetensors", "tokenizer.json", "tokenizer_config.json"),
    ]


def test_the_card_and_the_file_say_what_was_done(made):
    card = Path(made.path, "README.md").read_text()
    for words in (
        "# tiny, extended to 128 tokens",
        "trained for 32 tokens",
        "4 steps of 2 rows of 32 tokens",
        "learning rate 0.01",
        "The last checkpoint is the result",
        "as it is; scaling only; scaling, sequential training. Trained arms read the same tokens",
        "| context | as it is | scaling only | scaling, sequential training | scaling, PoSE |",
        "At 128 tokens, scaling, PoSE beside scaling only",
        "At 32 tokens, scaling, PoSE changes the loss of the model as it is by",
        "longreach extend",
    ):
        assert words in card, words
    plain = json.loads(Path(made.path, "extend.json").read_text())
    assert plain["settings"]["window"] == 32
    assert plain["settings"]["trained"] == 32
    assert {"longreach", "torch", "transformers", "accelerate"} <= set(plain["versions"])
    assert plain["texts"]["held_out_documents"] + plain["texts"]["training_documents"] == 30
    assert plain["lines"] == made.lines()


def interrupted_at(step):
    """Return a watch whose second training is interrupted after a step."""
    trainings = 0

    def phase(title, total):
        nonlocal trainings
        trainings += title.startswith("train ")

        def report(done, note):
            if title.startswith("train ") and trainings == 2 and done == step:
                raise KeyboardInterrupt

        return report

    return lambda: nullcontext(Observer(phase=phase))


def test_a_resumed_extension_is_the_same_bit_for_bit(made, place):
    out = place / "resumed"
    arguments = str(place / "tiny"), [str(place / "texts.jsonl")], out, ASKED, "cpu"
    with pytest.raises(KeyboardInterrupt):
        make_extension(*arguments, resume=False, watch=interrupted_at(4))
    checkpoints = out / ".work" / "arms" / "scaling-PoSE" / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["checkpoint-2", "checkpoint-3"]
    (checkpoints / "checkpoint-3" / "whole").unlink()  # as if it had been killed while it was saved
    for changes, complaint in (
        ({"steps": 5}, "was begun with steps 4, not 5: choose another folder"),
        ({"lr": 0.02}, r"was begun with lr 0\.01, not 0\.02"),
        ({"rope": "linear"}, "was begun with rope 'yarn', not 'linear'"),
    ):
        with pytest.raises(BadInput, match=complaint):
            lr.extend(place / "tiny", place / "texts.jsonl", out, **(ASKED | changes), resume=True)
    texts = (place / "texts.jsonl").read_bytes()
    with (place / "texts.jsonl").open("ab") as file:
        file.write(texts.splitlines(keepends=True)[0])
    with pytest.raises(BadInput, match="was begun with other texts: choose another folder"):
        lr.extend(place / "tiny", place / "texts.jsonl", out, **ASKED, resume=True)
    (place / "texts.jsonl").write_bytes(texts)
    with pytest.raises(BadInput, match=r"resumed is not empty: add resume=True, or choose another folder"):
        lr.extend(place / "tiny", place / "texts.jsonl", out, **ASKED)
    again = make_extension(*arguments, resume=True, watch=lambda: nullcontext(Observer()))
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (out / name).read_bytes() == Path(made.path, name).read_bytes()
    same = [replace(arm, training_seconds=0.0) for arm in made.arms]
    assert [replace(arm, training_seconds=0.0) for arm in again.arms] == same
    assert again.comparisons == made.comparisons
    assert not (out / ".work").exists()
    finished = lr.extend(place / "tiny", place / "texts.jsonl", out, **ASKED, resume=True)
    assert str(finished) == str(again)


def test_adapters_are_merged_and_controls_can_be_left_out(place, capsys):
    pytest.importorskip("peft")
    before = torch.random.get_rng_state()
    out = place / "adapted"
    found = lr.extend(
        *(place / "tiny", place / "texts.jsonl", out),
        **(ASKED | {"window": 16, "rope": "none", "ids": "uniform_pose", "precision": "bf16"}),
        lora=2,
        controls="none",
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert [arm.name for arm in found.arms] == ["uniform PoSE"]
    assert "none (`--controls none`)" in (out / "README.md").read_text()
    assert "No controls were measured, so nothing shows what helped." in found.lines()
    ours, original = (load_file(folder / "model.safetensors") for folder in (out, place / "tiny"))
    assert ours.keys() == original.keys()
    assert ours["model.embed_tokens.weight"].dtype == torch.bfloat16
    assert torch.equal(ours["model.embed_tokens.weight"], original["model.embed_tokens.weight"].bfloat16())
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(ours[name], original[name].bfloat16())
    config = AutoConfig.from_pretrained(out)
    assert config.rope_parameters["rope_type"] == "default"
    assert config.max_position_embeddings == 128
    assert AutoTokenizer.from_pretrained(out).model_max_length >= 128
    capsys.readouterr()


def test_an_estimate_writes_nothing(place, capsys):
    before = sorted(place.iterdir())
    assert main(["extend", str(place / "tiny"), "--to", "64", "--estimate", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "arms: as it is; scaling only; scaling, sequential training; scaling, PoSE" in printed
    assert "memory: about " in printed
    assert sorted(place.iterdir()) == before
    large = lr.estimate_extension(place / "tiny", to=64, device="cpu", batch_size=1000)
    small = lr.estimate_extension(place / "tiny", to=64, device="cpu", batch_size=8)
    # logits dominate, and their copies are in fp32
    assert large.training_memory - small.training_memory > 992 * 32 * 258 * 4 * 3


@pytest.mark.parametrize("kind", ["llama", "qwen2", "mistral", "gpt_neox"])
def test_rope_parameters_are_those_of_each_method(kind):
    changes = {"rotary_pct": 0.5} if kind == "gpt_neox" else {}
    config = config_of(kind, num_attention_heads=1, **changes)
    own = config.rope_parameters
    expected = {
        "none": {},
        "linear": {"rope_type": "linear", "factor": 4.0},
        "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        "llama3": {
            "rope_type": "llama3",
            "factor": 4.0,
            "original_max_position_embeddings": 32,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
    }
    for method, parameters in expected.items():
        found = scaled_config(config, method, 32, 128)
        assert found.rope_parameters == {**own, **parameters}
        assert found.max_position_embeddings == 128
        assert config.rope_parameters == own
    raised = scaled_config(config, "ntk", 32, 128).rope_parameters
    dims = 16 * own.get("partial_rotary_factor", 1.0)
    assert raised == {**own, "rope_theta": pytest.approx(own["rope_theta"] * 4 ** (dims / (dims - 2)))}


def test_rope_by_layer_type_is_scaled_for_full_attention():
    types = ["sliding_attention", "full_attention"]
    config = config_of("gemma3_text", sliding_window=16, layer_types=types, head_dim=8)
    found = scaled_config(config, "yarn", 32, 128).rope_parameters
    assert found["sliding_attention"] == config.rope_parameters["sliding_attention"]
    full = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    assert found["full_attention"] == {**config.rope_parameters["full_attention"], **full}
    assert describe_sliding(config).startswith("1 of 2 layers of this gemma3_text model attend to the last 16 tokens")
    assert describe_sliding(config_of("mistral", sliding_window=16)).startswith("2 of 2 layers")
    assert describe_sliding(config_of("qwen2")) == ""


def test_a_scaled_model_is_scaled_by_a_larger_factor():
    own = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 16}
    found = scaled_config(config_of("llama", rope_parameters=own), "yarn", 32, 128)
    assert found.rope_parameters == {**own, "factor": 8.0}
    # some configurations keep the length before scaling, or the attention of their own factor
    own["attention_factor"] = 1.1
    unscaled = config_of("llama", rope_parameters=own, max_position_embeddings=16)
    found = scaled_config(unscaled, "yarn", 16, 128).rope_parameters
    assert found["factor"] == 8
    assert found.get("attention_factor") is None
    del own["attention_factor"]
    with pytest.raises(BadInput, match=r"scaled already \(yarn\), which linear cannot be laid on: use rope='none'"):
        scaled_config(config_of("llama", rope_parameters=own), "linear", 32, 128)


def without_full_attention():
    config = config_of("gemma3_text", head_dim=8)
    config.rope_parameters = {"sliding_attention": config.rope_parameters["sliding_attention"]}
    return config


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (lambda: CONFIG_MAPPING["gpt2"](), "gpt2 models have no rotary positions that can be set"),
        (
            lambda: config_of("llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
            "RoPE of type dynamic, whose frequencies depend on the length of a text",
        ),
        (without_full_attention, "RoPE for sliding_attention, none of which is full_attention"),
        (lambda: config_of("phi3", original_max_position_embeddings=32), "phi3 models refuse RoPE of type linear"),
    ],
    ids=["no rotary positions", "dynamic", "no full attention", "phi3"],
)
def test_models_that_cannot_be_extended_are_refused(config, complaint):
    with pytest.raises(BadInput, match=complaint) as refused:
        scaled_config(config(), "linear", 32, 128)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"to": 32}, r"to=32 must be above trained=32, the tokens that the model was trained for; give trained"),
        ({"window": 256}, r"window=256 must be at most to=128"),
        ({"lr": 0.0}, "lr must be above 0, got 0.0"),
        ({"test": 1.0}, "test must be above 0 and below 1"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"to": 2048, "controls": "none"}, None),
        ({"trained": 4096, "to": 8192, "window": 32}, "no two held-out documents have 2048 tokens of context"),
        ({"batch_size": 5000}, r"batch_size=5000 rows of 32 need 160000: add texts, or lower"),
        ({"test": 1e-9}, "none of 30 documents is held out to be measured"),
        ({"documents": 1}, "no document for training in|none of 1 documents is held out"),
        ({"field": "body"}, "has no text in a field 'body'; it has text"),
        ({"device": "moon"}, "device 'moon' cannot be used"),
    ],
)
def test_settings_that_do_not_fit_are_refused_or_said(changes, complaint, place, tmp_path):
    def extend():
        return lr.extend(place / "tiny", place / "texts.jsonl", tmp_path / "out", **(ASKED | changes))

    if complaint is None:  # the texts are too short to measure so far: what there is, is measured
        found = extend()
        assert found.contexts[-1] < 2048
        assert any(line.startswith(f"contexts above {found.contexts[-1]} are not measured") for line in found.lines())
        assert AutoConfig.from_pretrained(found.path).max_position_embeddings == 2048
        return
    with pytest.raises(BadInput, match=complaint) as refused:
        extend()
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.glob("out/.work/*.json"))  # other settings may use the folder


def test_files_that_do_not_fit_are_refused(place, tmp_path):
    save(tmp_path / "mute", tokenizer=False)
    save(tmp_path / "gpt2", "gpt2", n_positions=64, n_embd=16, n_head=2, n_layer=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    for model, data, out, complaint in (
        ("mute", "texts.jsonl", "out", "tokenizer"),
        ("gpt2", "texts.jsonl", "out", "gpt2 models have no rotary positions"),
        ("nowhere", "texts.jsonl", "out", "nowhere"),
        (place / "tiny", "none.jsonl", "out", "there is no file or folder .*none.jsonl"),
        (place / "tiny", "texts.jsonl", "full", "full holds something else than an extension"),
        (place / "tiny", "texts.jsonl", "a/b", "there is no folder .*a"),
    ):
        with pytest.raises(BadInput, match=complaint) as refused:
            lr.extend(tmp_path / model, place / data, tmp_path / out, **ASKED)
        assert "\n" not in str(refused.value)
    with pytest.raises(BadInput, match="no text is named"):
        lr.extend(place / "tiny", [], tmp_path / "out", **ASKED)


def test_a_prepared_corpus_brings_its_own_split(place, tmp_path):
    from longreach.text import PrepareConfig, prepare

    prepare([str(place / "texts.jsonl")], tmp_path / "corpus", PrepareConfig(tokenizer=str(place / "tiny"), test=0.3))
    found = lr.extend(
        *(place / "tiny", tmp_path / "corpus", tmp_path / "out"),
        **(ASKED | {"steps": 1, "test": None}),
        controls="none",
    )
    assert found.texts["held_out_documents"] == 5
    with pytest.raises(BadInput, match=r"test concerns texts, and .*corpus is a prepared corpus"):
        lr.extend(place / "tiny", tmp_path / "corpus", tmp_path / "b", **ASKED)
    prepare([str(place / "texts.jsonl")], tmp_path / "words", PrepareConfig(vocabulary=300))
    with pytest.raises(BadInput, match="words has other tokens than tiny"):
        lr.extend(place / "tiny", tmp_path / "words", tmp_path / "c", **(ASKED | {"test": None}))


def test_rows_follow_each_other_and_begin_as_the_model_reads_texts():
    split = Split("train", torch.arange(10, 33).numpy(), torch.tensor([0, 23]).numpy())
    rows = [row["input_ids"].tolist() for row in TrainingRows(split, 5, opening=(1,))]
    assert rows == [[1, *range(start + 1, start + 5)] for start in (10, 15, 20, 25)]


def test_the_usual_rate_falls_with_the_size_of_a_model():
    assert usual_rate(7_000_000_000, lora=False) == 2e-5
    assert usual_rate(7_000_000_000, lora=True) == 2e-4
    assert usual_rate(1_000, lora=False) == 1e-3


def test_contexts_double_up_to_the_target():
    config = ExtendConfig(to=700, trained=128, window=128, lr=1e-3)
    assert config.contexts == [64, 128, 256, 512, 700]
    assert replace(config, trained=127).contexts == [63, 127, 254, 508, 700]


def test_the_command_line_shows_a_finished_extension(made, place, capsys):
    flags = [word for name, value in ASKED.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    arguments = ["extend", str(place / "tiny"), "--data", str(place / "texts.jsonl"), "--out", made.path, *flags]
    assert main([*arguments, "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == made.to_plain()
    assert main([*arguments, "--resume"]) == 0
    assert capsys.readouterr().out.startswith(str(made))
    assert main(arguments) == 2
    assert "is not empty: add --resume, or choose another folder" in capsys.readouterr().err
    assert main([*arguments, "--resume", "--steps", "5"]) == 2
    assert "was begun with --steps 4, not 5" in capsys.readouterr().err
    assert main(arguments[:2] + flags) == 2
    assert "--data and --out are needed, except with --estimate" in capsys.readouterr().err


def test_scaling_without_an_effect_is_refused_and_sliding_windows_are_said(place, tmp_path):
    save(tmp_path / "pair", "gpt_neox", rotary_pct=0.25)  # its one pair of dimensions has no base to raise
    with pytest.raises(BadInput, match="RoPE of type ntk changes nothing in this gpt_neox model: choose another rope"):
        lr.estimate_extension(tmp_path / "pair", to=64, rope="ntk", device="cpu")
    save(tmp_path / "slides", "mistral", sliding_window=16)
    asked = ASKED | {"to": 64, "steps": 1, "samples": 64}
    found = lr.extend(tmp_path / "slides", place / "texts.jsonl", tmp_path / "out", **asked, controls="none")
    assert found.notes == [
        "2 of 2 layers of this mistral model attend to the last 16 tokens only, also after the extension"
    ]
    assert found.notes[0] in (tmp_path / "out" / "README.md").read_text()


def test_a_result_that_gains_nothing_is_said_in_words(made):
    rows = [Comparison("scaling only", 128, nats, nats - 0.1, nats + 0.1) for nats in (0.05, 0.2)]
    rows += [Comparison("scaling only", 128, 0.2, None, None), Comparison("scaling only", 128, -0.2, -0.3, -0.1)]
    lines = replace(made, comparisons=rows).lines()
    assert lines[:4] == [
        "At 128 tokens, scaling, PoSE beside scaling only gains nothing: it lowers the loss by 0.050 nats"
        " (-0.050 to 0.150).",
        "At 128 tokens, scaling, PoSE beside scaling only lowers the loss by 0.200 nats (0.100 to 0.300).",
        "At 128 tokens, scaling, PoSE beside scaling only changes the loss by -0.200 nats, in one document and so"
        " without an interval.",
        "At 128 tokens, scaling, PoSE beside scaling only raises the loss: by +0.200 nats (+0.100 to +0.300).",
    ]


def test_models_that_cannot_spell_the_needles_are_measured_without_them(place, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    save(tmp_path / "poor", tokenizer=False)
    backend = Tokenizer(models.WordLevel({"<pad>": 0, "<end>": 1, "<unk>": 2, "the": 3}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<end>"])
    backend.save(str(tmp_path / "poor" / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"}
    (tmp_path / "poor" / "tokenizer_config.json").write_text(json.dumps(settings))
    asked = ASKED | {"to": 64, "steps": 1, "samples": 64, "trained": 8, "window": 8}
    found = lr.extend(tmp_path / "poor", place / "texts.jsonl", tmp_path / "out", **asked, controls="none")
    assert "retrieval is not measured: the tokenizer cannot tell its words apart" in found.lines()
    assert len(found.tables()) == 2


def test_absent_packages_are_named_before_anything_is_trained(place, monkeypatch):
    find = training.importlib.util.find_spec
    for package, settings in (("accelerate", {}), ("peft", {"lora": 2})):
        monkeypatch.setattr(
            training.importlib.util, "find_spec", lambda name, absent=package: None if name == absent else find(name)
        )
        with pytest.raises(BadInput, match=f"needs the package {package}: pip install"):
            lr.estimate_extension(place / "tiny", to=64, device="cpu", **settings)
