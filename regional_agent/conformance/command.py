"""`tradewind-agent conformance`: the suite on this site, as its settings say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from federation.environment import Clock
from regional_agent.act.isolation import IsolationMissing
from regional_agent.act.schedulers.port import SchedulerUnavailable
from regional_agent.conformance.cases import ALL
from regional_agent.conformance.own_site import OwnSite
from regional_agent.conformance.suite import Verdict, try_all
from regional_agent.settings import SettingsError, load_settings
from regional_agent.site_view import SiteProblem


async def conformance(
    state: Path, clock: Clock, only: Sequence[str], told: Callable[[Verdict], None]
) -> tuple[str, list[Verdict]]:
    """The kind of scheduler and what was found; `only` names cases, empty for all of them.

    Raises SiteProblem where the suite cannot be tried.
    """
    unknown = [name for name in only if name not in {each.name for each in ALL}]
    if unknown:
        known = ", ".join(each.name for each in ALL)
        raise SiteProblem(f"no case {', '.join(unknown)}; there are {known}")
    try:
        rig = OwnSite(load_settings(state), clock)
    except (SettingsError, IsolationMissing, OSError) as problem:
        raise SiteProblem(str(problem)) from problem
    cases = [each for each in ALL if not only or each.name in only]
    mark = f"cf{clock.now_ms() // 1000 % 10**8:08d}"
    try:
        return rig.kind, await try_all(rig, cases, mark, told)
    except SchedulerUnavailable as problem:
        raise SiteProblem(str(problem)) from problem
    finally:
        await rig.close()
