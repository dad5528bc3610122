"""What one leader saw of capacity that sites take back is known to the next."""

from __future__ import annotations

from pathlib import Path

from broker.control.preemption_records import PreemptionKeeper, read_preemptions
from broker.model.jobs import JobPhase
from broker.state import keys
from federation.kv import Put, Txn
from tests.unit.control.federation import Federation, Site, until
from tests.unit.control.test_control import phase, submit

POOL = ("us-east", "cpu")


async def test_the_next_leader_goes_on_from_what_was_seen_and_counts_no_end_twice(
    tmp_path: Path,
) -> None:
    """Ended attempts are in etcd for ten minutes more: a new leader closes them again."""
    made = await Federation.make(tmp_path, Site("us-east", 4, take_back=2))
    plane = await made.start()
    assert plane.office.term is not None
    keeper = PreemptionKeeper(plane.office.starts.preemptions, plane.office.term.committer)
    (job,) = await submit(made)
    await until(lambda: phase(made, job) is JobPhase.ENDED)
    seen = plane.office.starts.preemptions.snapshot()
    assert seen[POOL][0] == 2 and seen[POOL][1] > 0
    await keeper.write()
    await until(lambda: read_preemptions(plane.services.projection) == seen)
    revision = plane.services.projection.revision
    await keeper.write()  # nothing is new
    assert plane.services.projection.revision == revision
    await made.kill()

    plane = await made.start()
    assert plane.office.starts.preemptions.snapshot() == seen
    (again,) = await submit(made)
    await until(lambda: phase(made, again) is JobPhase.ENDED)
    later = plane.office.starts.preemptions.snapshot()
    assert later[POOL][0] == 2 and later[POOL][1] > seen[POOL][1]
    await made.kill()
    await made.sites.close()


async def test_a_record_that_cannot_be_read_keeps_nobody_from_leading(tmp_path: Path) -> None:
    made = await Federation.make(tmp_path, Site("us-east"))
    await made.store.txn(Txn((), (Put(keys.PREEMPTIONS, b"\xff"),)))
    plane = await made.start()
    assert plane.office.starts.preemptions.snapshot() == {}
    await made.kill()
