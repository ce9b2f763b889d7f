"""Conditions on a table: `variant=aligned`, `length>=100`."""

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from longreach.config import move_path
from longreach.errors import BadInput

_COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    ">=": pc.greater_equal,
    "<=": pc.less_equal,
    ">": pc.greater,
    "<": pc.less,
}


@dataclass(frozen=True)
class ColumnCondition:
    column: str
    relation: str
    value: str

    def keep(self, table: pa.Table) -> pa.Table:
        """The rows that fulfil it; one without a value fulfils none."""
        column = table[self.column]
        return table.filter(_COMPARE[self.relation](column, self._value(column.type)))

    def _value(self, kind: pa.DataType) -> pa.Scalar:
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            try:
                return pa.scalar(float(self.value))
            except ValueError as error:
                raise BadInput(f"{self.column} is a number, got {self.value!r}") from error
        if self.relation not in ("=", "!="):
            raise BadInput(f"{self.column} is not a number: only = and != compare it")
        if pa.types.is_boolean(kind):
            if self.value not in ("true", "false"):
                raise BadInput(f"{self.column} is true or false, got {self.value!r}")
            return pa.scalar(self.value == "true")
        return pa.scalar(self.value)


def parse_condition(text: str) -> ColumnCondition:
    parts = re.fullmatch(r"\s*([\w.]+)\s*(>=|<=|!=|=|>|<)\s*(.*?)\s*", text)
    if parts is None or parts[3].startswith("="):
        raise BadInput(f"{text!r} is no condition: expected NAME=VALUE, or one of != >= <= > <")
    column, relation, value = parts.groups()
    return ColumnCondition(move_path(column), relation, value)
