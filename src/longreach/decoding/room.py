"""Prompts with room for an answer."""

from collections.abc import Sequence

from longreach.model import Model
from longreach.positions.ids import IdPolicy
from longreach.tasks import Sample, Task


def prompt_with_room(
    task: Task, policy: IdPolicy, model: Model, tokens: Sequence[int], most: int | None = None
) -> Sample:
    """Return a batch of one prompt with room for `most` tokens, by default for twice the prompt and 16.

    There is no more room than the model's tables have IDs for.  Where the IDs of tests are drawn, the default is as
    much room as they are drawn for.
    """
    room = most
    if room is None:
        room = 1 if task.stop_token is None else 2 * len(tokens) + 16
        if policy.draws_test_ids:
            drawn = task.max_tokens(task.prompt_length(tokens)) - len(tokens)
            return task.prompt_batch(tokens, max(1, min(room, drawn)))
    sample = task.prompt_batch(tokens, room)
    if model.largest_id is None or policy.draws_test_ids:
        return sample
    beyond = (policy.evaluation_ids(task, sample)[0] > model.largest_id).any(0)
    return task.prompt_batch(tokens, max(1, room - int(beyond.sum())))
