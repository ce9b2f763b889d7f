"""Compare IDs with those of the authors' own generators, stored beside this file with their provenance.

Only tokens that both layouts have are compared.  Ours alone: the mark `;`, and the stop, whose ID is 0 as that of the
authors' EOS.  Theirs alone: BOS, with ID 0.
"""

import json
from pathlib import Path

import pytest
import torch

from longreach.api import Abacus, Coupled, IdPolicy, Sample, Task, stream
from longreach.config import build_part

Golden = dict[str, object]
SPELLED = {
    **{task: dict(zip("0123456789", "abcdefghij", strict=True)) for task in ("copy", "reverse")},
    "minesweeper": {"E": "-", "M": "*"},
}
"""Names of the authors' tokens in tasks whose vocabulary differs from theirs."""


def stored(name: str) -> list:
    text = (Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8")
    samples = [sample for case in json.loads(text)["cases"] for sample in case["samples"]]
    return [
        pytest.param(sample, id=f"{' '.join(map(str, sample['task'].values()))}: {sample['tokens']}")
        for sample in samples
    ]


def levels(rows: list[str]) -> torch.Tensor:
    return torch.tensor([[int(number) for number in row.split()] for row in rows])


def asked(golden: Golden) -> tuple[Task, Sample, torch.Tensor]:
    """Return the task, our sample with the authors' numbers, and which of its tokens they have too."""
    task: Task = build_part(Task, golden["task"], "task")
    spelled = SPELLED.get(task.name, {})
    theirs = [spelled.get(word, word) for word in golden["tokens"].split()]
    sign = theirs.index("=")
    example = task.words(task.sample(torch.tensor([2]), stream(0, "look", torch.tensor([0])), 2).tokens[0].tolist())
    words = [";", *theirs[: sign + 1]] if example[0] == ";" else [*theirs[:sign], *[";"] * example.count(";"), "="]
    tokens = task.parse(" ".join(words))
    answer = task.solve(task.prompt_batch(tokens, 1), 0)
    sample = task.prompt_batch(tokens, len(answer))
    sample.tokens[0, len(tokens) :] = torch.tensor(answer)
    ours = task.words(sample.tokens[0].tolist())
    shared = [place for place, word in enumerate(ours) if word not in (";", ".")][: len(theirs)]
    assert [ours[place].removesuffix("'") for place in shared] == theirs
    beyond = [word for word in ours[shared[-1] + 1 :] if word != "."]
    assert set(beyond) <= ({"0"} if task.name == "multiplication" else set())  # McLeish et al. write no zeros in front
    return task, sample, torch.tensor(shared)


def shifts(ids: torch.Tensor, theirs: torch.Tensor) -> list[int]:
    """Return by how much the IDs of each level are shifted; fail where tokens of one level differ in that."""
    assert ids.shape == theirs.shape
    assert torch.equal(ids > 0, theirs > 0)
    found = [(ours - others)[others > 0].unique().tolist() for ours, others in zip(ids, theirs, strict=True)]
    assert all(len(shift) == 1 for shift in found), f"{ids.tolist()} is not {theirs.tolist()} with an offset"
    return [shift[0] for shift in found]


def check(policy: IdPolicy, golden: Golden) -> None:
    task, sample, shared = asked(golden)
    theirs, moved = levels(golden["ids"]), levels(golden["shifted"])
    dense = shifts(policy.evaluation_ids(task, sample)[0][:, shared], theirs)
    assert set(dense) <= {0, 1}  # 1 where the mark takes the authors' first ID
    shifts(moved, theirs)
    many = sample.map(lambda tensor: tensor.repeat_interleave(20, dim=0))
    drawn = policy.training_ids(task, many, stream(0, "golden", torch.arange(20)))
    seen = [shifts(ids[:, shared], theirs) for ids in drawn]
    for offsets in zip(*seen, strict=True):
        assert len(set(offsets)) > 5


@pytest.mark.parametrize("golden", stored("position_coupling"))
def test_published_couplings_are_those_of_cho_et_al(golden):
    check(Coupled(form="published", relabelling="offset", max_id=60), golden)


def test_primes_do_not_change_the_published_ids():
    for golden in (param.values[0] for param in stored("position_coupling")):
        if golden["task"].get("carry") == "hidden" and "order" not in golden["task"]:
            written = {**golden, "task": {**golden["task"], "carry": "written"}}
            check(Coupled(form="published", relabelling="offset", max_id=60), written)


@pytest.mark.parametrize("golden", stored("abacus"))
def test_abacus_ids_are_those_of_mcleish_et_al(golden):
    check(Abacus(max_id=104), golden)
