"""The folder of a model is found by name, also in other packages, without running their code."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from bertmill.checkpoint import names
from bertmill.checkpoint.names import find_model, not_a_model
from bertmill.errors import UsageError


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that contains a model and must not be imported."""
    package = tmp_path / "carrier_of_models"
    (package / "models/my-bert").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    offers = {
        "my-bert": "carrier_of_models:models/my-bert",
        "absent": "no_such_package_anywhere:model",
        "outside": "carrier_of_models:../..",
        "empty": "carrier_of_models:nothing",
        "dotted": "carrier_of_models.inner:model",
        "bare": "carrier_of_models",
    }
    entries = [EntryPoint(name, value, names.GROUP) for name, value in offers.items()]
    monkeypatch.setattr(names, "entry_points", lambda group: entries)
    return package


def test_a_package_offers_a_model_without_being_imported(offer: Path) -> None:
    assert find_model("my-bert") == offer / "models/my-bert"
    assert "carrier_of_models" not in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "pip install no-such-package-anywhere"),
        ("empty", "does not contain the model"),
        ("dotted", "not package:folder"),
        ("bare", "not package:folder"),
        ("unheard-of", "installed models: absent, bare, dotted"),
        ("", "the model name is empty"),
    ],
)
def test_an_unknown_name_is_a_usage_error(offer: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_model(name)


def test_a_package_cannot_point_outside_itself(offer: Path) -> None:
    with pytest.raises(Exception, match="points outside the folder"):
        find_model("outside")


def test_a_folder_is_found_by_its_path_and_minilm_is_installed(tmp_path: Path) -> None:
    assert find_model(tmp_path) == tmp_path
    assert (find_model("minilm") / "config.json").is_file()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "FOLDER: is something else"),
        ({"a/b/c/config.json": "{}"}, "FOLDER: is something else"),
        ({"manifest.json": '{"corpus": {}}'}, "FOLDER: is a corpus, not a model; pre-train a model on it"),
        ({"manifest.json": "{}", "vocab.txt": ""}, "FOLDER: is a vocabulary, not a model; build a corpus"),
        ({"vocab.txt": "", "model.safetensors": ""}, "FOLDER: is something else"),  # an incomplete model
        ({"run/model/config.json": "{}"}, "FOLDER: is not a model folder, but contains one; use FOLDER/run/model"),
        (
            {f"{name}/config.json": "{}" for name in "edcba"},
            "FOLDER: is not a model folder, but contains some; use one of FOLDER/a, FOLDER/b, FOLDER/c and 2 more",
        ),
    ],
)
def test_a_folder_that_is_no_model_is_described(files: dict[str, str], message: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert str(not_a_model(tmp_path, "is something else")).startswith(message.replace("FOLDER", str(tmp_path)))
