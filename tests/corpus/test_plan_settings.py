"""Settings of plans: what cannot be planned is refused at once."""

from typing import Any

import pytest

from bertmill.corpus.plan_settings import PlanSettings
from bertmill.errors import UsageError


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objective": "nsp"}, "no objective called 'nsp'"),
        ({"length": 4}, r"length 4 is too short for mlm\+nsp; from 5 on"),
        ({"objective": "clm", "length": 2}, "from 3 on"),
        ({"short_seq_prob": 1.5}, "from 0 to 1, not 1.5"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PlanSettings(**wrong)
