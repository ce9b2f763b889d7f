"""Checks of coupled IDs and of dependencies."""

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.tasks.base import Form, NotStated, Sample
from longreach.tasks.checking.drawn import Drawn, words
from longreach.tasks.plain import FORMS, PlainTask

_MOST_PAIRS = 1 << 24
_MOST_ROWS = 64


def check_coupling(drawn: Drawn) -> None:
    """Raise BadInput for IDs with gaps, outside their level or in the padding, and for IDs that follow the answer."""
    task, sample = drawn.task, drawn.sample
    levels = task.coupling_levels
    if not levels:
        return
    for form in FORMS:
        ids = _coupling(drawn, sample, form)
        padding = torch.arange(ids.shape[2]) >= sample.num_tokens[:, None]
        _refuse(drawn, form, ids, (ids < 0), "an ID is below 0")
        _refuse(drawn, form, ids, (ids != 0) & padding[:, None], "padding has an ID: it must be 0")
        for number, level in enumerate(levels):
            mine = ids[:, number : number + 1]
            if not level.grows:
                _refuse(drawn, form, mine, mine > level.size, f"level {level.name} has IDs up to {level.size}")
                continue
            ordered = mine.sort(2).values
            gaps = ordered.diff(dim=2, prepend=torch.zeros_like(ordered[:, :, :1])) > 1
            _refuse(drawn, form, mine, gaps, f"IDs of level {level.name} must count from 1 without gaps")
        _check_leaks(drawn, ids, form)
        _check_widths(drawn, ids, form)


def _coupling(drawn: Drawn, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
    ids = drawn.call(drawn.task.coupling, sample, form)
    shape = (len(sample.tokens), len(drawn.task.coupling_levels), sample.tokens.shape[1])
    if tuple(ids.shape) != shape or ids.dtype != torch.int64:
        raise BadInput(
            f"{drawn.task.name}: {form} coupling must have the shape {shape} of torch.int64, for samples, levels and"
            f" tokens, got {tuple(ids.shape)} of {ids.dtype}"
        )
    return ids


def _refuse(drawn: Drawn, form: Form, ids: Tensor, wrong: Tensor, complaint: str) -> None:
    for row, level in wrong.any(2).nonzero()[:1].tolist():
        shown = " ".join(map(str, ids[row, level].tolist()[:80]))
        raise BadInput(f"{drawn.task.name}: {drawn.describe(row)}: {form} coupling: {complaint} (IDs {shown})")


def _check_leaks(drawn: Drawn, ids: Tensor, form: Form) -> None:
    """Raise BadInput if IDs that must follow from the prompt are others without the answer."""
    task, sample = drawn.task, drawn.sample
    try:
        without = _coupling(drawn, sample.prompt_only(), form)
    except NotStated as error:
        note = f"IDs of a typed prompt are not known, so predict will refuse it: {error}"
        drawn.notes.extend([] if note in drawn.notes else [note])
        return
    known = torch.arange(ids.shape[2]) < (sample.num_tokens if task.coupling_by_rule else sample.prompt_tokens)[:, None]
    for row, level, place in ((ids != without) & known[:, None]).nonzero()[:1].tolist():
        where = "of the prompt" if place < int(sample.prompt_tokens[row]) else "of the answer (coupling_by_rule)"
        raise BadInput(
            f"{task.name}: {drawn.describe(row)}: {form} coupling: the ID of token {place} {where} is"
            f" {int(ids[row, level, place])} beside its answer {drawn.answer(row)} and"
            f" {int(without[row, level, place])} without it: IDs must not tell the answer"
        )


def _check_widths(drawn: Drawn, ids: Tensor, form: Form) -> None:
    """Raise BadInput if IDs are others in a batch of samples of one length."""
    length = drawn.lengths[0]
    rows = (drawn.sample.length == length).nonzero()[:, 0]
    alone = _coupling(drawn, drawn.draw(rows, length), form)
    width = alone.shape[2]
    for place, level, token in (alone != ids[rows][:, :, :width]).nonzero()[:1].tolist():
        row = int(rows[place])
        raise BadInput(
            f"{drawn.task.name}: {drawn.describe(row)}: {form} coupling: the ID of token {token} is"
            f" {int(ids[row, level, token])} beside longer samples and {int(alone[place, level, token])} beside samples"
            " of its length: IDs must not depend on the batch"
        )


def check_dependencies(drawn: Drawn) -> None:
    """Raise BadInput if an answer token depends on a later token, or on more tokens than `sparsity` says."""
    task = drawn.task
    width = drawn.sample.tokens.shape[1]
    count = max(1, min(_MOST_ROWS, len(drawn.numbers), _MOST_PAIRS // width**2))
    sample = drawn.sample.rows(0, count)
    try:
        needs = drawn.call(task.depends_on, sample)
    except NotStated:
        drawn.notes.append("depends_on is not defined: dependencies were not checked")
        return
    if tuple(needs.shape) != (count, width, width) or needs.dtype != torch.bool:
        raise BadInput(
            f"{task.name}: depends_on must have the shape {(count, width, width)} of torch.bool, got"
            f" {tuple(needs.shape)} of {needs.dtype}"
        )
    for row, token, on in needs.triu().nonzero()[:1].tolist():
        raise BadInput(
            f"{task.name}: {drawn.describe(row)}: token {token} depends on token {on}, which does not stand before it"
        )
    for row, token in (needs.any(2) & ~(sample.answer & ~sample.given)).nonzero()[:1].tolist():
        raise BadInput(f"{task.name}: {drawn.describe(row)}: token {token} has dependencies, but is not predicted")
    if type(task).sparsity is PlainTask.sparsity:
        return  # it is found by drawing
    try:
        most = {n: drawn.call(task.sparsity, n) for n in drawn.lengths}
    except NotStated:
        return
    for row, token in (needs.sum(2) > torch.tensor([most[n] for n in sample.length.tolist()])[:, None]).nonzero()[:1]:
        on = needs[row, token].nonzero()[:, 0]
        raise BadInput(
            f"{task.name}: {drawn.describe(int(row))}: token {int(token)} depends on {len(on)} tokens,"
            f" {words(task, sample.tokens[row, on].tolist())}, but sparsity says at most"
            f" {most[int(sample.length[row])]}"
        )
