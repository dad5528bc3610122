"""What marks and books say of one task, put together."""

import pytest

from regional_agent.act.schedulers.batch.attempt import TaskEnd
from regional_agent.act.schedulers.batch.judging import copy_ended
from regional_agent.act.schedulers.port import Outcome, OutcomeKind

STOPPED = Outcome(OutcomeKind.SIGNALLED, signal=15)
FINE = Outcome(OutcomeKind.SUCCEEDED)


@pytest.mark.parametrize(
    ("mark", "stopped", "said", "copied"),
    [
        (STOPPED, True, FINE, True),
        (STOPPED, True, STOPPED, False),  # the books tell of the same run
        (FINE, True, FINE, False),  # it was told to stop, and was done
        (STOPPED, False, FINE, False),
    ],
)
def test_a_second_copy_that_ended_unrun_is_no_end_of_the_first(mark, stopped, said, copied) -> None:
    """Guards that what a site stopped and started again counts as preempted, however late its
    books are read."""
    assert copy_ended(TaskEnd(mark, 1, sure=False, stopped=stopped), said) is copied
