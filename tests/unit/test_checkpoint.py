"""A checkpoint is whole or it is not there."""

import json
import resource
import subprocess
import sys
import textwrap

import pytest
import torch
from helpers import TINY

from longreach.api import OptimizerConfig, build_model
from longreach.errors import RunFailed
from longreach.training import (
    build_optimizer,
    list_checkpoints,
    load_checkpoint,
    newest_intact,
    prune,
    remove_later,
    save_checkpoint,
)


def _trained(seed=0):
    model = build_model(TINY, 7, seed)
    optimizer = build_optimizer(OptimizerConfig(), model)
    tokens, ids = torch.arange(6)[None], torch.arange(6)[None, None]
    for _ in range(3):
        model.all_logits(tokens, ids).logsumexp(-1).sum().backward()
        optimizer.step()
    return model, optimizer


def test_everything_comes_back_bit_for_bit(tmp_path):
    model, optimizer = _trained()
    saved = save_checkpoint(tmp_path, 3, model, optimizer, score=0.5)
    other = build_model(TINY, 7, seed=9)
    other_optimizer = build_optimizer(OptimizerConfig(), other)
    load_checkpoint(saved, other, other_optimizer)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])
    before, after = optimizer.state_dict()["state"], other_optimizer.state_dict()["state"]
    assert before.keys() == after.keys()
    for index, state in before.items():
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(after[index][name]))


@pytest.mark.parametrize("damage", ["truncate", "flip", "missing", "record"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path, damage):
    model, optimizer = _trained()
    good = save_checkpoint(tmp_path, 1, model, optimizer, None)
    bad = save_checkpoint(tmp_path, 2, model, optimizer, None)
    content = bytearray(bad.path.read_bytes())
    if damage == "truncate":
        bad.path.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        content[-1] ^= 1
        bad.path.write_bytes(content)
    elif damage == "missing":
        bad.path.unlink()
    else:
        bad.path.with_suffix(".json").write_text("{")
    said = []
    assert newest_intact(tmp_path, said.append) == good
    assert len(said) == 1
    assert str(bad.path) in said[0]
    if damage != "record":
        with pytest.raises(RunFailed, match="is damaged"):
            load_checkpoint(bad, model)


def test_the_newest_and_the_best_are_kept(tmp_path):
    model, optimizer = _trained()
    for step, score in ((1, 0.2), (2, 0.9), (3, None), (4, 0.9), (5, 0.1), (6, 0.3)):
        save_checkpoint(tmp_path, step, model, optimizer, score)
        prune(tmp_path, keep_last=2, step=step)
    assert [checkpoint.step for checkpoint in list_checkpoints(tmp_path)] == [4, 5, 6]
    assert len(list(tmp_path.iterdir())) == 6


def test_what_a_killed_process_left_is_cleared_away(tmp_path):
    model, optimizer = _trained()
    for step in range(1, 7):
        save_checkpoint(tmp_path, step, model, optimizer, score=None)
    (tmp_path / "step-00000001.json").write_text("{")
    (tmp_path / "step-00000002.json").unlink()
    (tmp_path / "step-00000006.json").write_text("{")
    (tmp_path / ".step-00000007.safetensors.1.part").write_text("half")
    (tmp_path / "step-notes.json").write_text("not ours")
    # a run that goes back to step 4 keeps what it starts from, and what came after until it has something better
    prune(tmp_path, keep_last=1, step=4)
    left = {"step-00000004", "step-00000005", "step-00000006", "step-notes"}
    assert {path.stem for path in tmp_path.iterdir()} == left
    remove_later(tmp_path, step=4)
    assert {path.stem for path in tmp_path.iterdir()} == {"step-00000004", "step-notes"}
    assert newest_intact(tmp_path, warn=pytest.fail).step == 4


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path):
    """The limit on file size stands in for a full disk: writing fails in the middle, as it does there."""
    script = textwrap.dedent(f"""
        import resource, signal, sys
        sys.path[:0] = {sys.path!r}
        from pathlib import Path
        from unit.test_checkpoint import _trained
        from longreach.errors import RunFailed
        from longreach.training import save_checkpoint
        model, optimizer = _trained()
        folder = Path({str(tmp_path)!r})
        save_checkpoint(folder, 1, model, optimizer, None)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))
        try:
            save_checkpoint(folder, 2, model, optimizer, None)
        except RunFailed as error:
            print(error)
    """)
    tests = str(__import__("pathlib").Path(__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={"PYTHONPATH": tests})
    assert "could not save step 2" in done.stdout, done.stderr
    assert "earlier checkpoints are intact" in done.stdout
    assert newest_intact(tmp_path, warn=pytest.fail).step == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001.json", "step-00000001.safetensors"]


def test_nothing_is_unpickled(tmp_path):
    model, optimizer = _trained()
    saved = save_checkpoint(tmp_path, 1, model, optimizer, None)
    evil = b"cos\nsystem\n(S'touch " + str(tmp_path / "hacked").encode() + b"'\ntR."
    saved.path.write_bytes(evil)
    import hashlib

    facts = {"step": 1, "score": None, "sha256": hashlib.sha256(evil).hexdigest()}
    saved.path.with_suffix(".json").write_text(json.dumps(facts))
    with pytest.raises(RunFailed, match="is damaged"):
        load_checkpoint(saved, model)
    assert not (tmp_path / "hacked").exists()
