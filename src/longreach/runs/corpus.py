"""The corpus of a run on text, known by its fingerprint: another one may come to lie in the same folder."""

from longreach.errors import BadInput
from longreach.runs.folder import RunFolder
from longreach.tasks import Task, Text


def corpus_of(task: Task) -> str:
    """Return the fingerprint of the text that windows are taken from; empty for other tasks."""
    return task.opened.fingerprint if isinstance(task, Text) else ""


def verify_corpus(task: Task) -> None:
    """Raise `BadInput` if a file of the text is not the one that was prepared; every file is read once per process."""
    if isinstance(task, Text):
        task.opened.verify()


def refuse_other_corpus(folder: RunFolder, task: Task) -> None:
    """Tokens of another corpus may mean something else.  A run that did not note its own is taken at its word."""
    if isinstance(task, Text) and folder.info().corpus not in ("", corpus_of(task)):
        raise BadInput(f"{task.corpus} is not the corpus that {folder.path} was trained on: it was prepared anew")
