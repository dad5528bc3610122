"""All cases, in the order in which they are tried."""

from regional_agent.conformance import cases_ends, cases_fence, cases_site, cases_submit
from regional_agent.conformance.suite import CASES, Case

__all__ = ["ALL", "cases_ends", "cases_fence", "cases_site", "cases_submit"]

ALL: tuple[Case, ...] = tuple(CASES)
