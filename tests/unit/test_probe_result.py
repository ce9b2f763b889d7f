"""What a probe found: the definitions of k, and its files."""

import json
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from longreach.cli.probe_tables import print_shown, print_summary
from longreach.errors import BadInput
from longreach.probe import Cost, ProbeConfig, Probed


def probed() -> Probed:
    """Three predictions in a text of six tokens."""
    weights = torch.tensor([[0, 2.0, 0, 0, 0, 0], [0, 0.05, -1.0, 1.0, 0, 0], [0, 0, 0, 0, 0, 0]])
    always = torch.tensor([[1, 0, 1, 0, 0, 0], [1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 0]]).bool()
    return Probed(
        title="six tokens",
        model="tiny (fp32)",
        pieces=("The", " cat", " sat", " on", " the", " ‘mat’"),
        tokens=torch.tensor([5, 3, 8, 9, 1, 2]),
        targets=torch.tensor([3, 5, 5]),
        loss=torch.tensor([1.0, 2.0, 0.5]),
        entropy=torch.tensor([1.5, 0.2, 0.1]),
        weights=weights,
        always=always,
        sizes=(0, 1, 2),
        loss_at=torch.tensor([[3.0, 1.05, 1.0], [2.0, 4.0, 2.0], [0.9, 0.7, 0.7]]),
        faithfulness=torch.tensor([0.9, 0.5, float("nan")]),
        settings=ProbeConfig(tau=0.1, eps=0.1, largest_k=2),
        cost=Cost(320, 0, 1920, 100, 0.5),
    )


def test_k_by_weights_counts_both_signs_and_names_the_tokens():
    found = probed()
    assert found.k_weights.tolist() == [1, 2, 0]
    assert [tokens.tolist() for tokens in found.influential] == [[1], [2, 3], []]
    assert found.span.tolist() == [2, 3, 0]


def test_weights_within_three_times_the_noise_do_not_count():
    noisy = replace(probed(), noise=torch.tensor([0.6, 0.4, 0.0]))
    assert noisy.k_weights.tolist() == [1, 0, 0]
    assert noisy.k_participation.tolist() == [1, 0, 0]


def test_tables_say_what_noise_is(capsys):
    noisy = replace(probed(), noise=torch.tensor([0.6, 0.4, 0.0]))
    print_summary([noisy])
    assert "3 x noise" in capsys.readouterr().out
    print_shown(noisy, 3)
    assert "not an interval" in " ".join(capsys.readouterr().out.split())
    print_summary([probed()])
    print_shown(probed(), 3)
    assert "noise" not in capsys.readouterr().out


def test_k_that_suffices_is_the_smallest_one_tried_that_does():
    assert probed().k_sufficient.tolist() == [1, 0, -1]


def test_participation_of_equal_weights_is_their_number():
    even = replace(probed(), weights=torch.tensor([[0, 1.0, 0, 0, 0, 0], [0, 1, -1, 1.0, 1, 0], [0.0] * 6]))
    assert even.k_participation.tolist() == [1.0, 4.0, 0.0]


@pytest.mark.parametrize("noise", [None, torch.tensor([0.1, 0.2, 0.3])])
def test_files_give_it_back(tmp_path, noise):
    found = replace(probed(), noise=noise)
    found.save(tmp_path / "deep" / "folder")
    again = Probed.load(tmp_path / "deep" / "folder")
    for field in fields(Probed):
        before, after = getattr(found, field.name), getattr(again, field.name)
        if isinstance(before, Tensor):
            torch.testing.assert_close(after, before, rtol=0, atol=0, equal_nan=True)
        else:
            assert after == before


def test_records_without_fingerprints_can_be_read(tmp_path):
    probed().save(tmp_path)
    record = json.loads((tmp_path / "probe.json").read_text())
    before = {name: value for name, value in record.items() if not name.endswith("fingerprint")}
    assert len(before) == len(record) - 2
    (tmp_path / "probe.json").write_text(json.dumps(before))
    assert Probed.load(tmp_path).model_fingerprint == ""


@pytest.mark.parametrize("name", ["probe.json", "probe.safetensors"])
def test_damaged_files_are_named(tmp_path, name):
    probed().save(tmp_path)
    (tmp_path / name).write_bytes(b"{")
    with pytest.raises(BadInput, match=name):
        Probed.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(BadInput, match="No such file"):
        Probed.load(tmp_path)


def test_a_record_of_another_format_is_refused(tmp_path):
    probed().save(tmp_path)
    (tmp_path / "probe.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(BadInput, match="this version"):
        Probed.load(tmp_path)


@pytest.mark.parametrize(("name", "value"), [("masks", 0), ("keep", 1.0), ("tau", 0.0), ("window", 0), ("held_out", 1)])
def test_bad_settings_are_refused_with_their_value(name, value):
    with pytest.raises(ValueError, match=f"probe.{name} must be .*{value}"):
        ProbeConfig(**{name: value})
