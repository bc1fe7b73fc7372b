"""The docstrings of installed packages, read from their source files; nothing is imported.

Files are parsed in worker processes; the result does not depend on the number of workers.

- Collected: docstrings of modules, classes and functions, and those that a call such as
  `add_newdoc("numpy", "zeros", …)` adds to a compiled object. Functions inside functions are ignored.
- Skipped: tests, vendored and generated packages, and files with little documentation (parsing them
  would double the time).
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
MIN_DOCUMENTED = 0.15  # minimum fraction of a file inside triple quotes
UNIT_BYTES = 1 << 20  # of source per unit of work
GROUP_DEPTH = 3  # parts of a module name: scipy.stats.distributions
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

_Found = tuple[str, tuple[str, ...], str | None]  # name, argument names, docstring


class SourceFile(NamedTuple):
    """A Python source file of a library."""

    library: str
    module: str
    path: str
    num_bytes: int


class Doc(NamedTuple):
    """A documented module, class or function."""

    library: str
    module: str
    name: str  # within its module, such as Graph.add_node; empty for the module itself
    arguments: tuple[str, ...]  # the argument names in its signature
    text: Docstring

    @property
    def title(self) -> str:
        """The name for display: networkx.Graph.add_node, shutil.copytree."""
        package = self.module.partition(".")[0]
        return f"{package}.{self.name}" if self.name else self.module

    @property
    def group(self) -> str:
        """The group of its module; a split keeps groups whole."""
        return group_of(self.library, self.module)


def group_of(library: str, module: str) -> str:
    """The part of a library to which a module belongs: scipy.stats.distributions, or email for email.message."""
    return ".".join(module.split(".")[: 1 if library == STANDARD_LIBRARY else GROUP_DEPTH])


def installed_libraries() -> dict[str, Path]:
    """The source folder of each of LIBRARIES; UsageError if one is not installed."""
    return {library: _root(library) for library in LIBRARIES}


def _root(library: str) -> Path:
    if library == STANDARD_LIBRARY:
        return Path(sysconfig.get_path("stdlib"))
    spec = importlib.util.find_spec(library)  # does not import a top-level package
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    if not folders:
        package = {"sklearn": "scikit-learn"}.get(library, library)
        raise UsageError(f"the library {library} is not installed", remedy=f"pip install {package}")
    return Path(folders[0])


def find_sources(roots: Mapping[str, Path], share: float = 1.0) -> list[SourceFile]:
    """The source files of the libraries, in a fixed order; UsageError if a library has none.

    A `share` below 1 keeps about that fraction of the groups of modules.
    """
    found: list[SourceFile] = []
    for library, root in roots.items():
        files = list(_library_files(library, root))
        if not files:
            what = f"the library {library} has no source files"
            raise UsageError(what, where=root, remedy="install it with its sources")
        found += [file for file in files if keyed_seed(SEED, "share", group_of(library, file.module)) < share * 2**64]
    return found


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
    """The documented objects of the source files, in file order; UsageError if a library has no documentation.

    `on_progress` receives the number of source bytes read in total, and since the previous call.
    """
    units = list(cut_into_units(files, UNIT_BYTES, lambda file: file.num_bytes))
    num_workers = workers or available_cores()
    results = (
        map_in_processes(_read_unit, units, num_workers, object)
        if num_workers > 1
        else (_read_unit(None, unit) for unit in units)
    )
    docs: list[Doc] = []
    num_read = 0
    for unit, found in zip(units, results, strict=True):
        docs += found
        num_bytes = sum(file.num_bytes for file in unit)
        num_read += num_bytes
        on_progress(num_read, num_bytes)
    undocumented = {file.library for file in files} - {doc.library for doc in docs}
    if undocumented:
        what = f"the library {min(undocumented)} has no documentation in its source files"
        raise UsageError(what, remedy="install it with docstrings")
    return docs


def _read_unit(_state: object, unit: list[SourceFile]) -> list[Doc]:
    return [doc for file in unit for doc in read_source(file)]


def read_source(file: SourceFile) -> list[Doc]:
    """The documented objects of a file; empty if it cannot be parsed or has little documentation."""
    try:
        source = Path(file.path).read_bytes()
        num_quoted = sum(map(len, source.split(b'"""')[1::2]))
        if num_quoted < MIN_DOCUMENTED * len(source):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escape sequences
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
    """The docstring that a call adds: `add_docstr(torch.abs, "…")`, `add_newdoc("m", "c", ("f", "…"))`."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name) if _ADDS_DOCSTRING.fullmatch(name) and len(call.args) > 1:
            *places, text = call.args
        case _:
            return
    if isinstance(text, ast.Tuple) and text.elts:
        places, text = [*places, *text.elts[:-1]], text.elts[-1]
    names = [name for place in places if _NAME.fullmatch(name := _literal(place) or ast.unparse(place))]
    yield ".".join(names[1:] or names), (), _literal(text)  # the first of several names is the module


def _literal(node: ast.expr) -> str:
    """The text of a string literal, a sum of literals or a template without its fields; otherwise empty."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _literal(left) + _literal(right)
        case ast.Call(func=ast.Attribute(value=template, attr="format")):
            return _TEMPLATE_FIELD.sub("", _literal(template)).replace("{{", "{").replace("}}", "}")
    return ""


def split_by_group(docs: Sequence[Doc], share: float) -> tuple[list[Doc], list[Doc]]:
    """Split docs into (train, held-out) by group; the fraction `share` of each library is held out.

    Paragraphs that also occur in train are removed from the held-out docs.
    """
    train, heldout = split_rows(docs, share, SEED, lambda doc: SplitKey(doc.group, doc.library))
    known = {paragraph for doc in train for paragraph in doc.text.paragraphs}
    cleaned = (doc._replace(text=doc.text.without(known)) for doc in heldout)
    return train, [doc for doc in cleaned if doc.text.paragraphs]


def shuffled(docs: Iterable[Doc]) -> list[Doc]:
    """The docs in a pseudo-random order that depends only on their names."""
    return sorted(docs, key=lambda doc: (keyed_seed(SEED, doc.module, doc.name), doc.module, doc.name))
