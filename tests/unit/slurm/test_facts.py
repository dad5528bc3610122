"""What Slurm tells of nodes and sites beside their size, as its clients print it (22.05, unless
said otherwise)."""

from __future__ import annotations

from pathlib import Path

from federation.features import as_expression
from regional_agent.slurm import completions
from regional_agent.slurm.licences import Licence, parse_licences
from regional_agent.slurm.node_features import SETS_MAX, features_of
from regional_agent.slurm.nodes import NodeFacts
from regional_agent.slurm.topology import parse_topology

LICENCES = """\
LicenseName=ansys Total=1 Used=0 Free=1 Reserved=0 Remote=no
LicenseName=matlab Total=4 Used=3 Free=1 Reserved=1 Remote=no
LicenseName=a@b Total=4 Used=0 Free=4 Reserved=0 Remote=yes
"""
LATER_LICENCES = "LicenseName=matlab Total=10 Used=2 Free=7 Reserved=1 Remote=no LastConsumed=0 "
"""As the manual of 24.05 has it: more fields follow."""
SWITCHES = """\
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=alpha-n[1-2]
SwitchName=s2 Level=0 LinkSpeed=1 Nodes=alpha-n3
SwitchName=core Level=1 LinkSpeed=1 Nodes=alpha-n[1-3] Switches=s[1-2]
"""
BLOCKS = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b2 Nodes=n[3-4]\n"
"""As the manual of 23.11 has it."""
HEAD = "UserId=root(0) GroupId=root(0)"
TAIL = "SubmitTime=2026-12-01T00:27:29 EligibleTime=2026-12-01T00:27:30"
DONE = f"""\
JobId=11 {HEAD} Name=my job JobState=FAILED Partition=main TimeLimit=1 \
StartTime=2026-12-01T00:27:30 EndTime=2026-12-01T00:27:33 NodeList=n3 NodeCnt=1 ProcCnt=1 \
WorkDir=/a b/work ReservationName= Tres=cpu=1,mem=100M Account= QOS= WcKey= Cluster=unknown {TAIL} \
ArrayJobId=8 ArrayTaskId=1 DerivedExitCode=0:0 ExitCode=1:0 \n\
JobId=9 {HEAD} Name=j9-1 JobState=TIMEOUT StartTime=Unknown EndTime=2026-12-01T00:27:30 \
WorkDir=/s/j9-1/work ReservationName= {TAIL} DerivedExitCode=0:0 ExitCode=0:9 \n\
"""


def a_node(name: str, *features: str) -> NodeFacts:
    return NodeFacts(name, ("main",), True, "", 0, 0, 8, 0, 1000, 0, features, "idle")


def test_licences_are_those_a_job_can_name() -> None:
    assert parse_licences(LICENCES) == (Licence("ansys", 1, 0), Licence("matlab", 3, 3))
    assert parse_licences(LATER_LICENCES) == (Licence("matlab", 9, 2),)
    assert parse_licences("No licenses configured in Slurm.\n") == ()


def test_a_node_is_under_its_lowest_switch_or_in_its_block() -> None:
    assert parse_topology(SWITCHES) == {"alpha-n1": "s1", "alpha-n2": "s1", "alpha-n3": "s2"}
    assert parse_topology(BLOCKS) == {"n1": "b1", "n2": "b1", "n3": "b2", "n4": "b2"}
    assert parse_topology("") == {}


def test_features_are_told_by_node_and_what_no_job_could_write_is_named() -> None:
    some = [a_node("n1", "ib", "icelake"), a_node("n2", "ib", "é"), a_node("n3")]
    found, left_out = features_of(some)
    assert found == (frozenset({"ib", "icelake"}), frozenset({"ib"}), frozenset())
    assert left_out == ("é",)
    assert features_of([a_node("n1"), a_node("n2")]) == ((), ())


def test_where_every_node_has_a_word_of_its_own_those_are_left_out() -> None:
    some = [a_node(f"n{n}", "ib", f"serial{n}", f"rack{n // 20}") for n in range(100)]
    found, left_out = features_of(some)
    assert len(left_out) == 100 and len(set(found)) == 5 <= SETS_MAX
    assert found[0] == frozenset({"ib", "rack0"})
    alike = [a_node(f"n{n}", *(f"w{n}x{k}" for k in range(3))) for n in range(200)]
    assert len(set(features_of(alike)[0])) <= SETS_MAX


def test_what_is_wanted_is_written_for_slurm() -> None:
    assert as_expression(()) == ""
    assert as_expression(("ib",)) == "ib"
    assert as_expression(("a|b",)) == "a|b"
    assert as_expression(("ib", "a|b")) == "ib&(a|b)"


def test_ends_are_read_from_the_file_of_completed_jobs(tmp_path: Path) -> None:
    path = tmp_path / "jobcomp.txt"
    filler = DONE.replace("JobId=9 ", "JobId=7 ").replace("ArrayJobId=8", "ArrayJobId=5")
    path.write_text(DONE + filler * 600 + "JobId=9 half a li")
    jobs = {(job.local_id, job.index): job for job in completions.completed(path, {"8", "9"})}
    failed, late = jobs["8", 1], jobs["9", 0]
    assert (failed.state, failed.code, failed.ended_s - failed.started_s) == ("FAILED", 1, 3)
    assert (failed.name, failed.work) == ("my job", "/a b/work")
    assert (late.state, late.signal, late.started_s) == ("TIMEOUT", 9, 0)
    assert len(jobs) == 2 and path.stat().st_size > completions.CHUNK_BYTES


def test_a_job_is_found_by_name_and_directory(tmp_path: Path) -> None:
    path = tmp_path / "jobcomp.txt"
    path.write_text(DONE)
    found = completions.completed_in(path, "j9-1", "/s/j9-1/work")
    assert found is not None and found.local_id == "9"
    assert completions.completed_in(path, "j9-1", "/elsewhere") is None


def test_of_a_job_that_ended_twice_the_later_end_counts(tmp_path: Path) -> None:
    path = tmp_path / "jobcomp.txt"
    again = DONE.replace("JobState=TIMEOUT", "JobState=COMPLETED").replace("0:9", "0:0")
    path.write_text(DONE + again)
    (job,) = completions.completed(path, {"9"})
    assert job.state == "COMPLETED"
