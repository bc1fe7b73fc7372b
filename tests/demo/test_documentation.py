"""Tests for collecting documentation: which docstrings are found in which files, and how they are split."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertmill.demo import documentation
from bertmill.demo.documentation import (
    STANDARD_LIBRARY,
    Doc,
    collect_docs,
    find_sources,
    installed_libraries,
    read_source,
    shuffled,
    split_by_group,
)
from bertmill.errors import UsageError
from tests.demo.factory import make_doc, write_library


def write(root: Path, **files: str) -> dict[str, Path]:
    """Write a library `lib` with these files; two underscores in a name separate folder and file."""
    for name, content in files.items():
        path = root / "lib" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return {"lib": root / "lib"}


def collect(roots: dict[str, Path]) -> list[Doc]:
    return collect_docs(find_sources(roots), workers=1)


SOURCE = '''"""The module explains itself in a sentence."""
import missing_module

class Graph:
    """A graph of nodes and edges."""

    def add(self, node, /, *others, weight=1, **more):
        """Add a node to the graph."""
        def inner():
            """This docstring is never collected."""

if True:
    def count(graph):
        """Count the nodes of a graph."""
'''


def test_modules_classes_and_functions_are_found_with_names_and_arguments(tmp_path: Path) -> None:
    docs = collect(write(tmp_path, part__graphs=SOURCE))
    assert [(doc.module, doc.name, doc.arguments) for doc in docs] == [
        ("lib.part.graphs", "", ()),
        ("lib.part.graphs", "Graph", ()),
        ("lib.part.graphs", "Graph.add", ("node", "weight", "others", "more")),
        ("lib.part.graphs", "count", ("graph",)),
    ]
    assert [doc.title for doc in docs] == ["lib.part.graphs", "lib.Graph", "lib.Graph.add", "lib.count"]
    assert docs[-1].text.summary == "Count the nodes of a graph."


def test_docstrings_added_by_calls_are_found(tmp_path: Path) -> None:
    source = '''
add_newdoc("lib.core", "zeros", """Return a new array of zeros.""")
add_newdoc("lib.core", "flatiter", ("base", """A reference to the array."""))
add_docstr(lib.abs, r"""Computes the absolute value.""" + """

Args:
    {input}
    x (int): the {{only}} argument of it
""".format(**common_args))
print("Nothing is added here.")
'''
    docs = collect(write(tmp_path, docs=source))
    assert [doc.name for doc in docs] == ["zeros", "flatiter.base", "abs"]
    assert docs[2].text.parameters[0].name == "x"


def test_tests_vendored_packages_and_files_with_little_documentation_are_skipped(tmp_path: Path) -> None:
    text = '"""A sentence that explains the module."""\n'
    files = dict.fromkeys(["a", "tests__b", "_vendor__c", "test_d", "conftest", "my-folder__e"], text)
    roots = write(tmp_path, **files, code=text + "x = 1\n" * 200)
    assert [file.module for file in find_sources(roots)] == ["lib.a", "lib.code"]
    assert [doc.module for doc in collect(roots)] == ["lib.a"]


def test_files_that_cannot_be_parsed_are_skipped(tmp_path: Path) -> None:
    text = '"""A sentence that explains the module."""\n'
    roots = write(tmp_path, a=text, broken=text + "def f(:\n", escapes=text + 'x = "\\d"\n')
    latin = "# coding: latin-1\n" + '"""Das ist alles für heute."""\n'
    (tmp_path / "lib/latin.py").write_bytes(latin.encode("latin-1"))
    docs = collect(roots)
    assert [doc.module for doc in docs] == ["lib.a", "lib.escapes", "lib.latin"]
    assert docs[2].text.summary == "Das ist alles für heute."


def test_modules_of_the_standard_library_have_no_prefix(tmp_path: Path) -> None:
    path = tmp_path / "email" / "__init__.py"
    path.parent.mkdir()
    path.write_text('"""A package to handle mail."""\n')
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages/other.py").write_text('"""Another package to handle mail."""\n')
    (doc,) = collect({STANDARD_LIBRARY: tmp_path})
    assert (doc.module, doc.title, doc.group) == ("email", "email", "email")


def test_the_result_does_not_depend_on_the_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documentation, "UNIT_BYTES", 2000)
    write_library(tmp_path / "lib", "lib", num_modules=6)
    files = find_sources({"lib": tmp_path / "lib"})
    calls: list[tuple[int, int]] = []
    docs = collect_docs(files, workers=1, on_progress=lambda read, more: calls.append((read, more)))
    assert collect_docs(files, workers=2) == docs
    assert len(docs) == 6 * 5
    assert len(calls) > 2
    assert calls[-1][0] == sum(more for _, more in calls) == sum(file.num_bytes for file in files)


def test_a_fraction_of_the_modules_can_be_selected(tmp_path: Path) -> None:
    write_library(tmp_path / "lib", "lib", num_modules=40, per_module=1)
    roots = {"lib": tmp_path / "lib"}
    some, all_ = find_sources(roots, 0.5), find_sources(roots)
    assert 8 < len(some) < 32
    assert set(some) < set(all_)


def test_the_error_names_a_library_that_is_missing_or_undocumented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="the library empty has no source files"):
        find_sources({"empty": tmp_path / "empty"})
    with pytest.raises(UsageError, match="the library lib has no documentation"):
        collect(write(tmp_path, a="x = 1\n"))
    monkeypatch.setattr(documentation, "LIBRARIES", ("stdlib", "no_such_library"))
    with pytest.raises(UsageError, match="the library no_such_library is not installed; pip install no_such_library"):
        installed_libraries()


def test_the_installed_libraries_have_documentation() -> None:
    files = find_sources(installed_libraries())
    assert {file.library for file in files} == set(documentation.LIBRARIES)
    (file,) = [file for file in files if file.module == "networkx.algorithms.shortest_paths.generic"]
    doc = next(doc for doc in read_source(file) if doc.name == "shortest_path")
    assert doc.title == "networkx.shortest_path"
    assert doc.text.summary == "Compute shortest paths in the graph."
    assert "source" in [item.name for item in doc.text.parameters]
    assert len(doc.text.returns) == 1


def test_a_split_keeps_groups_whole_and_removes_repeated_paragraphs(tmp_path: Path) -> None:
    for library in ("one", "two"):
        write_library(tmp_path / library, library, num_modules=20)
    docs = collect({library: tmp_path / library for library in ("one", "two")})
    copy = "Every module has this paragraph of text."
    docs = [doc._replace(text=doc.text._replace(others=(copy,))) for doc in docs]
    train, heldout = split_by_group(docs, 0.2)
    assert not {doc.group for doc in train} & {doc.group for doc in heldout}
    assert {doc.library for doc in heldout} == {doc.library for doc in train} == {"one", "two"}
    assert 0.1 < len(heldout) / len(docs) < 0.3
    assert copy in train[0].text.others
    assert not any(copy in doc.text.others for doc in heldout)
    assert split_by_group(docs[::-1], 0.2)[1] == heldout[::-1]


def test_shuffling_depends_only_on_names() -> None:
    docs = [make_doc("Explain something here.", name=f"f{number}") for number in range(20)]
    assert shuffled(docs) == shuffled(docs[::-1]) != docs
