"""A prompt typed by a person, with room for an answer."""

from longreach.errors import BadInput
from longreach.model import Model
from longreach.runs import RunConfig
from longreach.tasks import Sample


def typed_prompt(config: RunConfig, model: Model, text: str, max_tokens: int | None = None) -> Sample:
    """Return a prompt with room for `max_tokens` tokens.

    By default there is plenty of room, but no more than the model's tables have IDs for.  Where the IDs of tests are
    drawn, there is as much room as they are drawn for.
    """
    task = config.task
    if task.has_given:
        raise BadInput(
            f"parts of an answer of {task.name} are drawn: a prompt is not enough, see `longreach inspect --length`"
        )
    tokens = task.parse(text)
    if max_tokens is not None:
        if max_tokens < 1:
            raise BadInput(f"--max-tokens must be at least 1, got {max_tokens}")
        return task.prompt(tokens, max_tokens)
    room = 1 if task.stop_token is None else 2 * len(tokens) + 16
    if config.ids.draws_test_ids:
        most = task.max_tokens(task.prompt_length(tokens)) - len(tokens)
        return task.prompt(tokens, max(1, min(room, most)))
    sample = task.prompt(tokens, room)
    if model.largest_id is None:
        return sample
    beyond = (config.ids.evaluation_ids(task, sample)[0] > model.largest_id).any(0)
    return task.prompt(tokens, max(1, room - int(beyond.sum())))
