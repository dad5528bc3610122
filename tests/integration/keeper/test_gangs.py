"""Gangs on one host: ranks find each other, and live and die together."""

import socket
from pathlib import Path

from federation.runs import Runs
from regional_agent.act.schedulers.port import Outcome, OutcomeKind
from regional_agent.session.ledger import Place
from tests.keeper_site import PYTHON, Site, array, order, wait_for_file

RENDEZVOUS = """
import os, socket
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(at) as server:
        met = sorted(int(server.accept()[0].recv(9)) for _ in range(world - 1))
    print("met", met, os.environ["TRADEWIND_HEAD_ADDRESS"] == "%s:%d" % at)
else:
    while True:
        try:
            socket.create_connection(at).sendall(b"%d" % rank)
            break
        except ConnectionRefusedError:
            pass
"""


async def test_ranks_meet_at_the_head(site: Site) -> None:
    state = await site.run(order(argv=(PYTHON, "-c", RENDEZVOUS), replicas=3))
    assert state.outcome == Outcome(OutcomeKind.SUCCEEDED)
    assert await site.log("job-1") == "met [1, 2] True\n"


async def test_each_rank_has_its_own_variables_cards_and_logs(site: Site) -> None:
    seats = (Place("h100", 0, (0, 1)), Place("h100", 0, (2, 3)), Place("h100", 1, (0, 1)))
    show = "echo $RANK $WORLD_SIZE $LOCAL_RANK $TRADEWIND_NODE $CUDA_VISIBLE_DEVICES"
    await site.run(order(run=show, replicas=3, places=seats, accelerator="H100"))
    shown = [await site.log("job-1", s) for s in ("output", "output.r1", "output.r2")]
    assert shown == ["0 3 0 0 0,1\n", "1 3 1 0 2,3\n", "2 3 0 1 0,1\n"]
    extents = await site.scheduler.log_extents("job-1")
    assert [e.stream for e in extents] == ["output", "output.r1", "output.r2"]


async def test_one_lost_member_ends_the_gang(site: Site) -> None:
    run = "echo $$ > pid$RANK; [ $RANK = 1 ] && { sleep 0.3; exit 9; }; exec sleep 60"
    state = await site.run(order(run=run, replicas=3, grace_s=2), timeout_s=8)
    assert state.outcome == Outcome(OutcomeKind.FAILED, exit_code=9)
    await site.until_nothing_runs("job-1")


async def test_a_killed_member_ends_the_gang_even_if_others_ignore_the_signal(
    site: Site,
) -> None:
    run = "trap '' TERM; [ $RANK = 0 ] && kill -9 $$; sleep 60"
    state = await site.run(order(run=run, replicas=2, grace_s=1), timeout_s=8)
    assert state.outcome == Outcome(OutcomeKind.SIGNALLED, signal=9)


async def test_a_member_that_is_done_early_is_no_loss(site: Site) -> None:
    run = "[ $RANK = 1 ] && exit 0; sleep 0.5; echo done"
    state = await site.run(order(run=run, replicas=2))
    assert state.outcome == Outcome(OutcomeKind.SUCCEEDED)
    assert await site.log("job-1") == "done\n"


async def test_cancel_reaches_every_rank(site: Site) -> None:
    run = "echo $$ > pid$RANK; exec sleep 60"
    await site.scheduler.submit(order(run=run, replicas=3))
    for rank in range(3):
        await wait_for_file(site.work("job-1") / f"pid{rank}")
    await site.scheduler.cancel("job-1", grace_s=5)
    assert (await site.ended("job-1")).outcome == Outcome(OutcomeKind.CANCELLED)
    await site.until_nothing_runs("job-1")


async def test_an_array_of_gangs(site: Site) -> None:
    run = "echo $RANK >> task$TRADEWIND_TASK; [ $TRADEWIND_TASK = 2 ] && exit 3; exit 0"
    state = await site.run(array("job-1", run, 4, 2, replicas=2))
    assert state.tasks.with_outcome(OutcomeKind.SUCCEEDED) == Runs(((0, 1), (3, 3)))
    assert state.tasks.with_outcome(OutcomeKind.FAILED) == Runs(((2, 2),))
    ran = [sorted((site.work("job-1") / f"task{n}").read_text().split()) for n in (0, 1, 3)]
    assert ran == [["0", "1"]] * 3


def test_the_rendezvous_port_is_a_free_one(tmp_path: Path) -> None:
    from regional_agent.act.keeper.spawn import free_port

    with socket.create_server(("127.0.0.1", free_port())):
        pass
