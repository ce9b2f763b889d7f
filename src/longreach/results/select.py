"""Runs that fulfil conditions, and their scores."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from longreach.config.registry import nearest
from longreach.errors import BadInput
from longreach.results.table import ABOUT, cells, varied
from longreach.results.where import ColumnCondition


@dataclass(frozen=True)
class Selection:
    """Scores are laid out only when they are asked for: there are a hundred times as many as runs."""

    every: pa.Table
    """All runs, from `load_runs`."""
    conditions: tuple[ColumnCondition, ...] = ()
    columns: tuple[str, ...] = ()
    """Settings to show besides those that vary."""

    @cached_property
    def shown(self) -> list[str]:
        """Columns of runs.  Settings that vary do so among all runs: a condition takes no column away."""
        known = [name for name in self.every.column_names if name != "scores"]
        asked = {*self.columns, *(condition.column for condition in self.conditions), *varied(self.every), *ABOUT}
        return [name for name in known if name in asked]

    @cached_property
    def cells(self) -> pa.Table:
        """One row per run and cell."""
        table = cells(self._runs, self.shown)
        for condition in self._on_cells:
            self._check(condition.column, table.column_names)
            table = condition.keep(table)
        for name in self.columns:
            self._check(name, table.column_names)
        return table

    @cached_property
    def runs(self) -> pa.Table:
        """One row per run of which a cell is left."""
        table = self._runs.select(self.shown)
        if self._on_cells:
            table = table.filter(pc.is_in(table["run"], value_set=pc.unique(self.cells["run"])))
        return table

    @cached_property
    def _runs(self) -> pa.Table:
        table = self.every
        for condition in self.conditions:
            if condition not in self._on_cells:
                table = condition.keep(table)
        return table

    @cached_property
    def _on_cells(self) -> list[ColumnCondition]:
        return [condition for condition in self.conditions if condition.column not in self.shown]

    def _check(self, name: str, known: Collection[str]) -> None:
        if name not in known:
            settings = [setting for setting in self.every.column_names if setting != "scores"]
            raise BadInput(f"there is no column {name!r}{nearest(name, [*known, *settings])}")
