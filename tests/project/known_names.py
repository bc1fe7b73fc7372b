"""Search Python code for lines that depend on the names or classes of a registry."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator


def lines_that_know(
    code: str, names: Collection[str], classes: Collection[str], *, field_names: Collection[str] = ()
) -> Iterator[int]:
    """Yield the numbers of lines that compare, check or match a name or class, or use it as a key.

    `field_names` are names that are also ordinary keys: a dict may contain one of them among other keys.
    """
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Compare(left=left, comparators=others):
                parts: list[ast.AST] = [left, *others]
            case ast.Dict(keys=keys):
                parts = [key for key in keys if key is not None]
                if len(keys) > 1:
                    parts = [key for key in parts if not (isinstance(key, ast.Constant) and key.value in field_names)]
            case ast.Subscript(slice=ast.Constant() as key):
                parts = [key]
            case ast.MatchValue(value=value) | ast.MatchClass(cls=value):
                parts = [value]
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, checked]):
                parts = [checked]
            case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
                parts = list(keywords)
            case ast.Call(func=ast.Attribute(attr="startswith" | "endswith" | "get" | "pop"), args=arguments):
                parts = list(arguments)
            case _:
                continue
        if any(_is_known(each, names, classes) for part in parts for each in ast.walk(part)):
            yield node.lineno


def _is_known(node: ast.AST, names: Collection[str], classes: Collection[str]) -> bool:
    match node:
        case ast.Constant(value=str(name)):
            return name in names or name in classes
        case ast.keyword(arg=str(name)):
            return name in names
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in classes
    return False
