"""Docstrings below the fields of a class, which Python does not keep."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import ModuleType

_Docs = dict[str, str]


def field_docs(cls: type) -> Mapping[str, str]:
    """Return the docstrings below the fields in the body of a class, by field; empty where there is no source."""
    module = sys.modules.get(cls.__module__)
    return {} if module is None else _docs_of_module(module).get(cls.__qualname__, {})


@cache
def _docs_of_module(module: ModuleType) -> dict[str, _Docs]:
    """Parse a module once, and return the docstrings of fields by the qualified name of their class."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):  # a class of an interactive session
        return {}
    return dict(_docs_below(tree, ""))


def _docs_below(node: ast.AST, place: str) -> Iterator[tuple[str, _Docs]]:
    """Yield the qualified name and the docstrings of every class below a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield f"{place}{child.name}", _docs_of_body(child.body)
            yield from _docs_below(child, f"{place}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docs_below(child, f"{place}{child.name}.<locals>.")
        elif isinstance(child, ast.stmt):
            yield from _docs_below(child, place)


def _docs_of_body(body: list[ast.stmt]) -> _Docs:
    found: _Docs = {}
    for field, doc in pairwise(body):
        if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) and isinstance(doc.value.value, str):
            if isinstance(field, ast.AnnAssign):
                target: ast.expr = field.target
            elif isinstance(field, ast.Assign):
                target = field.targets[0]
            else:
                continue
            if isinstance(target, ast.Name):
                found[target.id] = doc.value.value
    return found
