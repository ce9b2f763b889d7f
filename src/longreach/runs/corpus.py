"""The files that a run reads its samples from, known by their fingerprint: their content may change later."""

from longreach.errors import BadInput
from longreach.runs.folder import RunFolder
from longreach.tasks import Jsonl, Task, Text


def corpus_of(task: Task) -> str:
    """Return the fingerprint of the files that samples are read from; empty for other tasks."""
    return task.fingerprint if task.reads_files else ""


def verify_corpus(task: Task) -> None:
    """Raise `BadInput` if a file of the text is not the one that was prepared; every file is read once per process."""
    if isinstance(task, Text):
        task.opened.verify()


def refuse_other_corpus(folder: RunFolder, task: Task) -> None:
    """Raise `BadInput` if the files have changed since a run began.  A run that did not note its own is trusted."""
    if not task.reads_files or folder.info().corpus in ("", corpus_of(task)):
        return
    if isinstance(task, Text):
        raise BadInput(f"{task.corpus} is not the corpus that {folder.path} was trained on: it was prepared anew")
    file = task.path if isinstance(task, Jsonl) else f"the file of {task.name}"
    raise BadInput(f"{file} has changed since {folder.path} was trained on it")
