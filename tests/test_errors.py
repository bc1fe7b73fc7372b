"""Errors: exit codes and messages."""

from bertmill.errors import BertmillError, DataError, IntegrityError, NonFiniteError, ResourceError, UsageError


def test_each_error_has_its_documented_exit_code() -> None:
    codes = {kind: kind.exit_code for kind in (UsageError, DataError, IntegrityError, NonFiniteError, ResourceError)}
    assert list(codes.values()) == [2, 3, 4, 5, 6]
    assert all(issubclass(kind, BertmillError) for kind in codes)


def test_a_message_states_where_what_and_the_remedy() -> None:
    error = DataError("has no label", where="train.tsv:7", remedy="add one")
    assert str(error) == "train.tsv:7: has no label; add one"
