"""Old idempotency keys and cycle figures go; new ones stay."""

from __future__ import annotations

from pathlib import Path

from broker.control.housekeeping import CYCLES_KEPT_MS, Housekeeping
from broker.control.submission import Request
from broker.control.viewing import Viewer
from broker.feedback.ports import CycleEntry
from federation.system import SystemClock
from tests.unit.control.federation import Federation, Site


class Later(SystemClock):
    """The clock of three days on."""

    def now_ms(self) -> int:
        return super().now_ms() + 3 * 24 * 3600 * 1000


async def test_only_what_is_old_is_forgotten(tmp_path: Path) -> None:
    federation = await Federation.make(tmp_path, Site("us-east"))
    plane = await federation.start()
    submissions = plane.services.submissions()
    request = Request(Viewer("ada", ("default",)), b"1", idempotency_key="k")
    await submissions.submit([{"command": ["true"]}], request)
    ledger, now_ms = federation.backends.ledger, SystemClock().now_ms()
    for cycle, at_ms in (("old", now_ms - CYCLES_KEPT_MS - 1), ("new", now_ms)):
        figures = CycleEntry(
            cycle=cycle, revision=1, at_ms=at_ms, wall_s=0, cpu_s=0, status="optimal"
        )
        await ledger.record_cycle(figures)
    assert await Housekeeping(submissions, ledger, SystemClock()).tidy() == (0, 1)
    assert (await Housekeeping(submissions, ledger, Later()).tidy())[0] == 1
    await federation.kill()
    await federation.sites.close()
