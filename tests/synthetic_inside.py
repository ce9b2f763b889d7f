"""Generations without a model: three steps over two levels of IDs, and heads of which one reads what a step needs."""

import torch

from longreach.evaluation.inside import GeneratedStep, Inside, LevelStep, Pointed
from longreach.evaluation.inside_data import page_data
from longreach.model import IdChoice
from longreach.tasks import Copy, Level

PROMPT, ANSWER = ["a", "b", "c", ";", "="], ["a", "b", "c", "."]
IDS = [[1, 2, 3, 0, 0, 1, 2, 3], [1, 1, 1, 1, 2, 2, 2, 2]]
READER = (1, 0)
"""Layer and head that give 0.9 of their attention to the token that a step needs."""


def inside(answer=ANSWER, ids=IDS, truth=ANSWER, words=PROMPT, levels=("place", "part")) -> Inside:
    """Copy the prompt; `answer` and `ids` are those of the model, `truth` is the right answer or None."""
    tokens, start = [*words, *answer], len(words)
    read = len(tokens) - 1
    weights = torch.zeros(2, 2, len(answer), read)
    steps = []
    for number, word in enumerate(answer):
        index = start + number - 1
        weights[:, :, number, : index + 1] = 1 / (index + 1)
        weights[READER][number, : index + 1] = 0.1 / index
        weights[READER][number, number] = 0.9
        is_read = index + 1 < read
        matches = [[place for place in range(index) if level[place] == level[index] != 0] for level in ids]
        parts = [
            LevelStep(
                level=name,
                read_id=ids[level][index],
                id=ids[level][index + 1] if is_read else None,
                id_probability=0.75 if is_read else None,
                true_id=IDS[level][index + 1] if is_read and truth else None,
                points_at=Pointed(number, 0, 0.5) if is_read and level == 0 else None,
                matches=matches[level],
                heads=[],
            )
            for level, name in enumerate(levels)
        ]
        steps.append(
            GeneratedStep(
                number=number,
                index=index,
                reads=tokens[index],
                read_ids=[level[index] for level in ids],
                writes=word,
                given=False,
                token_probability=0.875,
                true_token=truth[number] if truth else None,
                ids=[part.id for part in parts] if is_read else None,
                id_probability=0.5 if is_read else None,
                true_ids=[part.true_id for part in parts] if is_read and truth else None,
                depends_on=[number] if truth else None,
                levels=parts,
                shares_id_with=[],
                heads=[],
            )
        )
    choices = torch.tensor([[[0, 1, 2, 3]]])
    return Inside(
        words=tokens,
        prompt_tokens=start,
        ids=torch.tensor(ids),
        levels=(Level(levels[0]), Level(levels[1], size=2)),
        predicts_ids=True,
        stopped=True,
        true_answer=list(truth) if truth else None,
        knows_ids=bool(truth),
        steps=steps,
        weights=weights,
        token_probabilities=torch.full((len(answer), 6), 1 / 6),
        id_choices=[IdChoice(choices, torch.zeros(1, len(answer), 4)) for _ in levels],
    )


def page_samples(*insides: Inside) -> list[dict]:
    """Return what `render_inside_page` takes."""
    task = Copy()
    return [{"name": f"sample {number}"} | page_data(inside, task) for number, inside in enumerate(insides)]


def three_samples() -> list[dict]:
    """Return a right answer, one whose second token and third ID are wrong, and one of unknown truth."""
    wrong_ids = [[*IDS[0][:7], 2], IDS[1]]
    return page_samples(inside(), inside(answer=["a", "c", "c", "."], ids=wrong_ids), inside(truth=None))
