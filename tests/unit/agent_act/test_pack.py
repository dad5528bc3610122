"""What is kept of jobs that were handed over together."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from regional_agent.act.schedulers.batch.pack import Pack


def test_the_last_ones_of_a_pack_may_be_forgotten_at_once(tmp_path: Path) -> None:
    """Each by a thread of its own: whoever comes second finds the journal gone."""
    with ThreadPoolExecutor(4) as threads:
        for n in range(100):
            pack = Pack(tmp_path, f"p{n}", ("a", "b", "c", "d"), 1)
            pack.journal.touch()
            together = threading.Barrier(4)

            def forget(uid: str, pack: Pack = pack, at: threading.Barrier = together) -> None:
                at.wait(10)
                pack.forget(uid)

            list(threads.map(forget, pack.members))
            assert not pack.journal.exists()
