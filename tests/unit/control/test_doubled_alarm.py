"""Two sites that report the same cards: one alarm, not one a report."""

from broker.act.gateway import CapacityArrived, SessionOpened
from broker.control.sites import Sites
from broker.model.fleet import Capacity, PoolCapacity
from broker.state.backends.memory import MemoryStore
from broker.state.group_commit import GroupCommitter
from broker.state.projection import Projection
from federation.system import SystemClock


def test_the_same_cards_are_told_once():
    alarms: list[str] = []
    store = MemoryStore(SystemClock())
    projection = Projection(store, alarms.append)
    sites = Sites(projection, GroupCommitter(store), SystemClock(), alarms.append)
    for number, name in enumerate(("a", "b"), 1):
        sites.arrived(
            SessionOpened(name, number, "", "", False, 0, 0, "", "", (), "", b"", "", 0, 0)
        )
    for number, name in ((1, "a"), (2, "b"), (1, "a"), (2, "b")):
        pools = (PoolCapacity("h100", (), cards=("u1", f"u-{name}")),)
        capacity = Capacity(1, 1, 1, 0, 0, pools)
        sites.arrived(CapacityArrived(name, number, capacity, b""))
    assert alarms == ["a and b report 1 of the same cards: they are counted once"]
