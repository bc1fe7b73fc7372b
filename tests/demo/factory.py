"""Small documented packages on disk, and documented objects without a source file."""

from __future__ import annotations

from pathlib import Path

from bertmill.demo.docstrings import parse_docstring
from bertmill.demo.documentation import Doc

SUBJECTS = ("graph", "matrix", "signal", "tensor", "table", "model", "path", "tree")
VERBS = ("Compute", "Return", "Estimate", "Draw", "Normalize", "Count", "Merge", "Split")


def make_doc(docstring: str, name: str = "compute", module: str = "lib.sub.module", library: str = "lib") -> Doc:
    """A documented object with this docstring."""
    return Doc(library, module, name, (), parse_docstring(docstring))


def function_source(number: int, library: str) -> str:
    """The source of a documented function, different for each number and library."""
    verb, subject = VERBS[number % 8], SUBJECTS[number // 8 % 8]
    return f'''
def {verb.lower()}_{subject}_{number}(count, n_rows=1):
    """{verb} the {subject} of {library} number {number} for the given rows.

    This function of {library} works on every {subject} that has at least {number} rows, and it keeps the order of them.

    Parameters
    ----------
    count : int
        The count of the {subject} entries numbered {number} in {library}.
    n_rows : float, optional
        How many rows of the {subject} of {library} to use, where `n_rows` is at least {number} here.

    Returns
    -------
    result : ndarray
        The {subject} number {number} after the function of {library} was applied.
    """
'''


def write_library(root: Path, library: str, num_modules: int, per_module: int = 4) -> None:
    """Write a package with modules in subpackages: library.part0.module0, …"""
    for number in range(num_modules):
        path = root / f"part{number % 3}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        functions = [function_source(number * per_module + each, library) for each in range(per_module)]
        path.write_text(f'"""Functions of the module {number} of {library}."""\n' + "".join(functions))
