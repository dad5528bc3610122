"""All cases, in the order in which they are tried."""

from regional_agent.conformance import (
    cases_ends,
    cases_fence,
    cases_site,
    cases_submit,
    cases_withdraw,
)
from regional_agent.conformance.suite import CASES, Case

__all__ = ["ALL", "cases_ends", "cases_fence", "cases_site", "cases_submit", "cases_withdraw"]

ALL: tuple[Case, ...] = tuple(CASES)
