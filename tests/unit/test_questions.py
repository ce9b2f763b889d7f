"""Which questions a trained model is asked, and how old run folders say it."""

from dataclasses import replace

import torch

from longreach.api import EvalConfig, Lengths, Sequential, Span, VariableAssignment
from longreach.config import upgrade_recorded
from longreach.evaluation import make_card
from longreach.evaluation.evaluate import Cell, draw_samples
from longreach.seeding import derived_seed
from longreach.tasks import Copy

TEST = EvalConfig(lengths=Lengths((6,)), samples=8, free_samples=0)


def _prompts(config: EvalConfig, seed: int) -> torch.Tensor:
    task = Copy()
    return draw_samples(Sequential(), Cell(task, 6, {}), config.of_run(seed), 0, 8, "cpu")[0].tokens


def test_every_training_seed_has_questions_of_its_own():
    assert torch.equal(_prompts(TEST, 3), _prompts(TEST, 3))
    assert not torch.equal(_prompts(TEST, 3), _prompts(TEST, 4))
    assert not torch.equal(_prompts(TEST, 3), _prompts(replace(TEST, seed=1), 3))
    shared = replace(TEST, questions="shared")
    assert torch.equal(_prompts(shared, 3), _prompts(shared, 4))
    assert not torch.equal(_prompts(shared, 3), _prompts(TEST, 3))


def test_derived_seeds_are_seeds_and_differ():
    found = {derived_seed(seed, name) for seed in range(100) for name in ("a", "b")}
    assert len(found) == 200
    assert all(0 <= seed < 2**63 for seed in found)


def test_the_card_names_questions_and_settings_of_the_task():
    task = VariableAssignment(hops=Span(2, 2), num_names=60, into_chain=0.25)
    card = make_card(task, Sequential(), (4, 5), TEST)
    assert card.questions == "others for every training seed"
    assert card.task_settings == 'hops="2", num_names=60, into_chain=0.25'
    shared = make_card(Copy(), Sequential(), (4, 5), replace(TEST, questions="shared", seed=7))
    assert shared.questions == "the same for every training seed, evaluate.seed 7"
    assert shared.task_settings == "the defaults"


def test_old_run_folders_keep_their_questions_and_their_law():
    old = {"task": {"name": "variable_assignment", "into_chain": 0.25}, "evaluate": {"seed": 0}}
    assert upgrade_recorded(old) == {
        "task": {"name": "variable_assignment", "into_chain": 0.25, "distractors": "pointers"},
        "evaluate": {"seed": 0, "questions": "shared"},
    }
    new = {
        "task": {"name": "variable_assignment", "distractors": "chains"},
        "evaluate": {"seed": 0, "questions": "fresh"},
    }
    assert upgrade_recorded(new) == new
    wrapped = {"task": {"name": "index_hints", "of": {"name": "variable_assignment"}}}
    assert upgrade_recorded(wrapped)["task"]["of"]["distractors"] == "pointers"
