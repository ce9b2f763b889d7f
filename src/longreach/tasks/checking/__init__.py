"""Checks of a task: what every sample, answer and position ID must satisfy."""

from longreach.tasks.checking.check import Findings, check_task, legal_lengths_within
from longreach.tasks.checking.drawn import CheckRecord, is_foreign

__all__ = ["CheckRecord", "Findings", "check_task", "is_foreign", "legal_lengths_within"]
