"""Errors: exit codes and messages."""

import copy
import pickle
from pathlib import Path

import pytest

from bertmill import BertConfig, BertModel, BertTokenizer
from bertmill.errors import (
    BertmillError,
    DataError,
    IntegrityError,
    MissingError,
    NonFiniteError,
    ResourceError,
    StoppedError,
    UnfinishedRunError,
    UsageError,
)


def test_each_error_has_its_documented_exit_code() -> None:
    codes = {kind: kind.exit_code for kind in (UsageError, DataError, IntegrityError, NonFiniteError, ResourceError)}
    assert list(codes.values()) == [2, 3, 4, 5, 6]
    assert all(issubclass(kind, BertmillError) for kind in codes)


def test_a_message_states_where_what_and_the_remedy() -> None:
    error = DataError("has no label", where="train.tsv:7", remedy="add one")
    assert str(error) == "train.tsv:7: has no label; add one"


def test_errors_are_also_the_built_in_errors_that_users_catch() -> None:
    assert issubclass(UsageError, ValueError)
    assert issubclass(DataError, ValueError)
    assert issubclass(MissingError, UsageError)
    assert issubclass(MissingError, OSError)
    assert issubclass(IntegrityError, OSError)
    assert issubclass(ResourceError, OSError)


@pytest.mark.parametrize("kind", [UsageError, MissingError, DataError, IntegrityError, NonFiniteError, ResourceError])
def test_an_error_survives_pickling(kind: type[BertmillError]) -> None:
    error = kind("is missing", where="model", remedy="restore it")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back)) == (kind, "model: is missing; restore it")
    assert (back.what, back.where, back.remedy) == ("is missing", "model", "restore it")


def test_a_missing_or_damaged_model_is_an_os_error(tmp_path: Path) -> None:
    for load in (BertModel.from_pretrained, BertTokenizer.from_pretrained, BertConfig.from_pretrained):
        with pytest.raises(OSError, match="there is no model folder"):
            load(tmp_path / "nowhere")
        with pytest.raises(OSError, match=str(tmp_path)):
            load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(OSError, match="is not JSON"):
        BertModel.from_pretrained(tmp_path)


def test_an_invalid_argument_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="hidden_size"):
        BertConfig(hidden_size=-1)


def test_errors_with_other_arguments_survive_pickling_and_copying(tmp_path: Path) -> None:
    for error in (StoppedError("stopped by SIGTERM", 143), UnfinishedRunError(tmp_path)):
        for back in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
            assert type(back) is type(error)
            assert str(back) == str(error)
            assert vars(back) == vars(error)
