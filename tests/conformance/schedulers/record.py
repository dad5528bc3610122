"""Run the suite and record it for the documentation:
`python -m tests.conformance.schedulers.record process containers simulated slurm slurmrestd
gridengine kubernetes kubernetes-carried ray`, then `python docs/draw_schedulers.py`. With
`--cases=withdraw_queued,gang` only these are tried, and the others stand as they were recorded."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from regional_agent.conformance.cases import ALL
from regional_agent.conformance.rig import Rig
from regional_agent.conformance.suite import Verdict, as_json, try_all
from tests.conformance.schedulers.gridengine_rig import GridEngineRig
from tests.conformance.schedulers.kubernetes_rig import CarriedKubernetesRig, KubernetesRig
from tests.conformance.schedulers.ray_rig import RayRig
from tests.conformance.schedulers.real_kubernetes_rig import RealKubernetesRig
from tests.conformance.schedulers.rigs import ContainerRig, ProcessRig, SimulatedRig
from tests.conformance.schedulers.slurm_rig import SlurmRestRig, SlurmRig
from tests.image_store import ImageStore
from tests.schedulers import gridengine_cluster, ray_head
from tests.schedulers.slurm_cluster import SlurmSite

RUNS = Path(__file__).resolve().parents[3] / "docs" / "conformance"


def _recorded(kind: str) -> dict[str, Verdict]:
    path = RUNS / f"{kind}.json"
    known = json.loads(path.read_bytes())["cases"] if path.exists() else []
    return {case["case"]: Verdict(**case) for case in known}


async def _record(rig: Rig) -> None:
    asked = [word.removeprefix("--cases=") for word in sys.argv if word.startswith("--cases=")]
    some = {name for names in asked for name in names.split(",")}
    cases = [which for which in ALL if which.name in some] if some else list(ALL)

    def told(verdict: Verdict) -> None:
        print(f"{rig.kind} {verdict.case}: {verdict.result} {verdict.text}", flush=True)

    verdicts = await try_all(rig, cases, "c", told)
    await rig.close()  # type: ignore[attr-defined]
    known = _recorded(rig.kind) if some else {}
    # Figures differ from run to run.
    known |= {v.case: Verdict(v.case, v.says, v.result) for v in verdicts}
    verdicts = [known[which.name] for which in ALL if which.name in known]
    body = json.dumps(as_json(rig.kind, verdicts), indent=1)
    (RUNS / f"{rig.kind}.json").write_text(body + "\n", encoding="utf-8")


def _record_ray() -> None:
    if why := ray_head.missing():
        sys.exit(why)
    with tempfile.TemporaryDirectory(prefix="twray") as scratch:
        head = ray_head.RayHead(Path(scratch))
        try:
            head.start()
            asyncio.run(_record(RayRig(head, head.scratch / "agent")))
        finally:
            head.stop()


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for kind in [word for word in sys.argv[1:] if not word.startswith("--")]:
            if kind == "process":
                asyncio.run(_record(ProcessRig(Path(scratch) / "state")))
            elif kind == "containers":
                store = ImageStore(Path(scratch) / "images")
                asyncio.run(_record(ContainerRig(Path(scratch) / "contained", store)))
            elif kind == "simulated":
                asyncio.run(_record(SimulatedRig()))
            elif kind in ("slurm", "slurmrestd"):
                site = SlurmSite(["alpha"]).start()
                try:
                    site.clusters["alpha"].start_rest()
                    rig = SlurmRig if kind == "slurm" else SlurmRestRig
                    asyncio.run(_record(rig(site.clusters["alpha"], site.scratch / "agent")))
                finally:
                    site.stop()
            elif kind == "gridengine":
                cell = gridengine_cluster.GridEngine(hosts=2).start()
                try:
                    asyncio.run(_record(GridEngineRig(cell, cell.scratch / "agent")))
                finally:
                    cell.stop()
            elif kind == "kubernetes":
                asyncio.run(_record(KubernetesRig(Path(scratch) / "agent")))
            elif kind == "kubernetes-carried":
                asyncio.run(_record(CarriedKubernetesRig(Path(scratch) / "carried")))
            elif kind == "kubernetes-server":
                config = Path(os.environ["TRADEWIND_TEST_KUBECONFIG"])
                asyncio.run(_record(RealKubernetesRig(Path(scratch) / "real", config)))
            elif kind == "ray":
                _record_ray()
            else:
                sys.exit(f"unknown {kind!r}: process, containers, simulated, slurm, slurmrestd, "
                         "gridengine, kubernetes or ray")


if __name__ == "__main__":
    main()
