"""A few random histories; `make fuzz` runs many."""

from __future__ import annotations

import pytest

from tests.simulation.histories import replay, trouble


@pytest.mark.parametrize("seed", range(1, 16))
def test_history(seed: int) -> None:
    problem = trouble(seed)
    assert not problem, f"{problem}\nreplay: {replay(seed)}"
