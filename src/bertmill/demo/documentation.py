"""The documentation inside installed packages: the docstrings of their source files, parsed and never imported.

Files are parsed in worker processes; the result does not depend on their number. Read are the docstrings of modules,
classes and functions, not of functions inside of functions, and those that are added to compiled objects by a call such
as `add_newdoc("numpy", "zeros", …)`. Tests, vendored and generated packages are left out. So are files of which only a
small part is documentation: parsing them would take half of the time.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bertmill.demo.docstrings import Docstring, parse_docstring
from bertmill.errors import UsageError
from bertmill.machine import available_cores
from bertmill.parallel.pool import cut_into_units, map_in_processes
from bertmill.randomness import keyed_seed
from bertmill.rows.split import SplitKey, split_rows

STANDARD_LIBRARY = "stdlib"
LIBRARIES = (STANDARD_LIBRARY, "torch", "numpy", "scipy", "sklearn", "sympy", "networkx")
MIN_DOCUMENTED = 0.15  # the share of a file inside of triple quotes
UNIT_BYTES = 1 << 20
GROUP_DEPTH = 3  # scipy.stats.distributions
SEED = 0

_SKIPPED_FOLDERS = {
    *("__pycache__", "test", "tests", "testing", "benchmarks", "vendor", "_vendor", "vendored", "_vendored"),
    *("externals", "generated", "_generated", "array_api_compat", "array_api_extra"),
    *("encodings", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "turtledemo"),
}
_SKIPPED_FILES = re.compile(r"test_.*|.*_test\.py|conftest\.py|setup\.py")
_ADDS_DOCSTRING = re.compile(r"_?add_(?:newdoc|docstr)\w*")
_TEMPLATE_FIELD = re.compile(r"(?<!\{)\{\w+\}(?!\})")
_NAME = re.compile(r"[\w.]+")

_Found = tuple[str, tuple[str, ...], str | None]  # name, names of arguments, docstring


class SourceFile(NamedTuple):
    """A file of Python code."""

    library: str
    module: str
    path: str
    num_bytes: int


class Doc(NamedTuple):
    """A documented object."""

    library: str
    module: str
    name: str  # within its module, such as Graph.add_node; empty for the module itself
    arguments: tuple[str, ...]  # names in the signature
    text: Docstring

    @property
    def title(self) -> str:
        """A short name: networkx.Graph.add_node, shutil.copytree."""
        package = self.module.partition(".")[0]
        return f"{package}.{self.name}" if self.name else self.module

    @property
    def group(self) -> str:
        """What a split keeps together."""
        return group_of(self.library, self.module)


def group_of(library: str, module: str) -> str:
    """The part of a library that a module belongs to: scipy.stats.distributions, or a top-level standard module."""
    return ".".join(module.split(".")[: 1 if library == STANDARD_LIBRARY else GROUP_DEPTH])


def installed_libraries() -> dict[str, Path]:
    """Where the source of each of LIBRARIES is; UsageError if one is not installed."""
    return {library: _root(library) for library in LIBRARIES}


def _root(library: str) -> Path:
    if library == STANDARD_LIBRARY:
        return Path(sysconfig.get_path("stdlib"))
    spec = importlib.util.find_spec(library)  # of a whole package: it is not imported
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    if not folders:
        package = {"sklearn": "scikit-learn"}.get(library, library)
        raise UsageError(f"the library {library} is not installed", remedy=f"pip install {package}")
    return Path(folders[0])


def find_sources(roots: Mapping[str, Path], share: float = 1.0) -> list[SourceFile]:
    """The source files of libraries, in order; with a `share` below 1, those of about so many of their modules.

    UsageError if a library has none.
    """
    found: list[SourceFile] = []
    for library, root in roots.items():
        files = list(_library_files(library, root))
        if not files:
            raise UsageError(f"the library {library} has no source files", where=root, remedy="install it with them")
        found += [file for file in files if _is_in(file, share)]
    return found


def _is_in(file: SourceFile, share: float) -> bool:
    return share >= 1 or keyed_seed(SEED, "share", group_of(file.library, file.module)) < share * 2**64


def _library_files(library: str, root: Path) -> Iterator[SourceFile]:
    prefix = () if library == STANDARD_LIBRARY else (library,)
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name.isidentifier() and name not in _SKIPPED_FOLDERS)
        inside = Path(folder).relative_to(root).parts
        for name in sorted(names):
            if name.endswith(".py") and not _SKIPPED_FILES.fullmatch(name):
                stem = () if name == "__init__.py" else (name.removesuffix(".py"),)
                path = Path(folder, name)
                yield SourceFile(library, ".".join((*prefix, *inside, *stem)), str(path), path.stat().st_size)


def collect_docs(
    files: Sequence[SourceFile],
    *,
    workers: int | None = None,
    on_progress: Callable[[int, int], object] = lambda _read, _more: None,
) -> list[Doc]:
    """The documented objects of source files, in the order of the files.

    `on_progress` is told how many bytes of source have been read, and how many of them since the last time. UsageError
    if a library has no documentation.
    """
    units = list(cut_into_units(files, UNIT_BYTES, lambda file: file.num_bytes))
    docs: list[Doc] = []
    num_read = 0
    for unit, found in zip(units, _map(units, workers or available_cores()), strict=True):
        docs += found
        num_bytes = sum(file.num_bytes for file in unit)
        num_read += num_bytes
        on_progress(num_read, num_bytes)
    undocumented = {file.library for file in files} - {doc.library for doc in docs}
    if undocumented:
        what = f"the library {min(undocumented)} has no documentation in its source files"
        raise UsageError(what, remedy="install it with docstrings")
    return docs


def _map(units: Sequence[list[SourceFile]], num_workers: int) -> Iterable[list[Doc]]:
    if num_workers == 1:
        return (_read_unit(None, unit) for unit in units)
    return map_in_processes(_read_unit, units, num_workers, _no_state)


def _no_state() -> None:
    return None


def _read_unit(_state: None, unit: list[SourceFile]) -> list[Doc]:
    return [doc for file in unit for doc in read_source(file)]


def read_source(file: SourceFile) -> list[Doc]:
    """The documented objects of a file; none if it cannot be parsed or has little documentation."""
    try:
        source = Path(file.path).read_bytes()
        num_quoted = sum(map(len, source.split(b'"""')[1::2]))
        if num_quoted < MIN_DOCUMENTED * len(source):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    found: list[_Found] = [("", (), ast.get_docstring(tree, clean=False)), *_documented(tree.body, "")]
    docs = []
    for name, arguments, docstring in found:
        text = parse_docstring(docstring) if docstring else Docstring()
        if text.paragraphs:
            docs.append(Doc(file.library, file.module, name.removeprefix(f"{file.library}."), arguments, text))
    return docs


def _documented(body: Sequence[ast.stmt], prefix: str) -> Iterator[_Found]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield prefix + node.name, _arguments(node.args), ast.get_docstring(node, clean=False)
            case ast.ClassDef():
                yield prefix + node.name, (), ast.get_docstring(node, clean=False)
                yield from _documented(node.body, f"{prefix}{node.name}.")
            case ast.If() | ast.Try():
                yield from _documented([*node.body, *node.orelse], prefix)
            case ast.Expr(value=ast.Call() as call):
                yield from _added(call)


def _arguments(arguments: ast.arguments) -> tuple[str, ...]:
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return tuple(each.arg for each in every if each is not None and each.arg not in ("self", "cls"))


def _added(call: ast.Call) -> Iterator[_Found]:
    """The docstring that a call adds to an object: `add_docstr(torch.abs, "…")`, `add_newdoc("m", "c", ("f", "…"))`."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name) if _ADDS_DOCSTRING.fullmatch(name) and len(call.args) > 1:
            *places, text = call.args
        case _:
            return
    if isinstance(text, ast.Tuple) and text.elts:
        places, text = [*places, *text.elts[:-1]], text.elts[-1]
    names = [name for place in places if _NAME.fullmatch(name := _literal(place) or ast.unparse(place))]
    yield ".".join(names[1:] or names), (), _literal(text)  # the first of several is a module


def _literal(node: ast.expr) -> str:
    """A string that is written out, also in parts; fields of a template become empty. Otherwise empty."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _literal(left) + _literal(right)
        case ast.Call(func=ast.Attribute(value=template, attr="format")):
            return _TEMPLATE_FIELD.sub("", _literal(template)).replace("{{", "{").replace("}}", "}")
    return ""


def split_by_group(docs: Sequence[Doc], share: float) -> tuple[list[Doc], list[Doc]]:
    """Docs to train with, and about `share` of each library that is held out: no group is on both sides.

    Paragraphs that also occur on the first side are removed from the second.
    """
    train, heldout = split_rows(docs, share, SEED, lambda doc: SplitKey(doc.group, doc.library))
    known = {paragraph for doc in train for paragraph in doc.text.paragraphs}
    cleaned = (doc._replace(text=doc.text.without(known)) for doc in heldout)
    return train, [doc for doc in cleaned if doc.text.paragraphs]


def shuffled(docs: Iterable[Doc]) -> list[Doc]:
    """The docs in an order that depends on their names alone."""
    return sorted(docs, key=lambda doc: (keyed_seed(SEED, doc.module, doc.name), doc.module, doc.name))
