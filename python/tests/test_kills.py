"""Whatever ends, stands still or comes back of a cluster with standbys: what was answered is there,
and nothing twice. A few of what `kills.py` draws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kills import run


@pytest.mark.parametrize("protocol, voters", [("star_server", 0), ("grpc", 3)])
def test_what_was_answered_is_there_once(
    record_property: Callable[[str, object], None], protocol: str, voters: int
) -> None:
    lines: list[str] = []
    try:
        roles = run(protocol, 4, 1, lines.append, voters)
    except AssertionError as error:
        raise AssertionError("\n".join([*lines, str(error)])) from error
    record_property("away_s", roles.away)
    record_property("noticed_s", roles.noticed)
