"""What a look at a Grid Engine site makes of what its clients print (8.1.9, as it was seen)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.local_queue import LocalQueue
from federation.runs import Runs
from regional_agent.gridengine.amounts import amount, parse_amounts
from regional_agent.gridengine.configuration import (
    Configuration,
    Environment,
    parse_environment,
    parse_lines,
    parse_memory,
    parse_per_job,
    parse_queues,
    seconds,
)
from regional_agent.gridengine.hosts import parse_hosts, parse_waiting
from regional_agent.gridengine.quotas import (
    Bound,
    Used,
    Whose,
    bounds,
    parse_quotas,
    parse_used,
    too_much,
    used_of,
)
from regional_agent.gridengine.said import parse_qstat
from regional_agent.gridengine.site import GridEngineSite
from regional_agent.sense.gridengine import Answers, GridEngineLook, put_together

QUEUES = """\
qname                 slow.q
seq_no                10
pe_list               NONE
h_rt                  INFINITY

qname                 gpu.q
seq_no                0
pe_list               smp mpi,[@fast=mpi]
h_rt                  48:00:00
"""
QUOTAS = """\
{
   name         cards
   description  NONE
   enabled      TRUE
   limit        users ada hosts @fast to gpu=1
   limit        users {!eve,*} to gpu=6,slots=100
}
{
   name         off
   enabled      FALSE
   limit        users {*} to gpu=1
}
{
   name         projects
   enabled      TRUE
   limit        name few projects physics to gpu=4
   limit        projects !* to gpu=$num_proc
}
"""
COMPLEXES = """\
#name  shortcut type relop requestable consumable default urgency
gpu    gpu      INT  <=    YES         JOB        0       0
lic    lic      INT  <=    YES         YES        0       0
"""
OURS = "j0123456789abcdef-1"


def job(number: int, name: str, master: str = "MASTER", task: str = "") -> str:
    more = f"<jobvalue jobid='{number}' name='taskid'>{task}</jobvalue>" if task else ""
    return (
        f"<job name='{number}'><jobvalue jobid='{number}' name='qinstance_name'>gpu.q@x</jobvalue>"
        f"<jobvalue jobid='{number}' name='job_name'>{name}</jobvalue>"
        f"<jobvalue jobid='{number}' name='pe_master'>{master}</jobvalue>{more}</job>"
    )


def host(name: str, queues: str, resources: str, jobs: str = "") -> str:
    said = "".join(
        f"<resourcevalue name='{key}' dominance='hc'>{value}</resourcevalue>"
        for key, _, value in (pair.partition("=") for pair in resources.split(","))
    )
    return f"<host name='{name}'>{said}{queues}{jobs}</host>"


def queue(name: str, used: int, slots: int, state: str = "", resv: int = 0, kind: str = "BIP"):
    values = {"qtype_string": kind, "slots_used": used, "slots": slots, "slots_resv": resv,
              "state_string": state}  # fmt: skip
    said = "".join(
        f"<queuevalue qname='{name}' name='{key}'>{value}</queuevalue>"
        for key, value in values.items()
    )
    return f"<queue name='{name}'>{said}</queue>"


HOSTS = (
    "<qhost><host name='global'><hostvalue name='num_proc'>-</hostvalue></host>"
    + host("a", queue("gpu.q", 3, 16), "gpu=5,mem_total=64G,mem_used=2G",
           job(7, f"tradewind.{OURS}.0") + job(7, f"tradewind.{OURS}.0", "SLAVE") + job(9, "x"))
    + host("b", queue("gpu.q", 1, 16, "dE"), "gpu=8,mem_total=64G,mem_used=1G",
           job(7, f"tradewind.{OURS}.0", "SLAVE"))
    + host("c", queue("slow.q", 2, 4, resv=1), "mem_total=8G,mem_used=1G,slots=1",
           job(8, "y", task="3"))
    + host("d", queue("slow.q", 0, 4, kind="IP"), "mem_total=8G")
    + "</qhost>"
)  # fmt: skip
WAITING = """<?xml version='1.0'?><job_info><queue_info/><job_info>
<job_list state="pending"><JB_job_number>4</JB_job_number><JB_name>w</JB_name><state>qw</state>
 <slots>4</slots><hard_request name="gpu" resource_contribution="0.0">2</hard_request></job_list>
<job_list state="pending"><JB_job_number>5</JB_job_number><JB_name>h</JB_name><state>hqw</state>
 <slots>1</slots></job_list>
<job_list state="pending"><JB_job_number>6</JB_job_number><JB_name>q</JB_name><state>qw</state>
 <slots>1</slots><tasks>3-5:1</tasks><hard_req_queue>slow.q</hard_req_queue></job_list>
</job_info></job_info>"""
SITE = GridEngineSite(accelerator="L40S", owner="ada")
AMOUNTS = {"a": {"gpu": 8.0}, "b": {"gpu": 8.0}, "c": {"slots": 4.0}, "d": {}}


def configuration(quotas: str = "") -> Configuration:
    environments = {"mpi": Environment("mpi", "$fill_up", 99, spreads=True)}
    return Configuration(parse_queues(QUEUES), environments, frozenset(), 75_000, 20,
                         parse_quotas(quotas))  # fmt: skip


def look(
    site: GridEngineSite = SITE, hosts: str = HOSTS, opened: frozenset[str] | None = None
) -> GridEngineLook:
    said = Answers(parse_hosts(hosts), parse_waiting(WAITING), configuration(), AMOUNTS, opened)
    return put_together(site, said, frozenset({OURS}))


def test_pools_are_hosts_alike_of_one_queue_and_interactive_ones_are_none() -> None:
    pools = {pool.name: pool for pool in look().seen.pools}
    assert set(pools) == {"gpu-q-l40s", "slow-q-cpu"}
    gpu, cpu = pools["gpu-q-l40s"], pools["slow-q-cpu"]
    assert (gpu.nodes, gpu.accelerators_per_node, gpu.cpus_milli) == (2, 8, 16_000)
    assert (cpu.nodes, cpu.accelerators_per_node, cpu.accelerator) == (1, 4, "CPU")
    assert look().sources["gpu-q-l40s"].walltime_max_s == 48 * 3600
    assert [e.name for e in look().sources["gpu-q-l40s"].environments] == ["mpi"]


def test_what_is_left_is_what_nobody_holds_or_has_reserved() -> None:
    nodes = look().seen.nodes
    free, troubled = nodes["gpu-q-l40s"]
    assert (free.accelerators_used, free.cpus_used_milli, free.takes_jobs) == (3, 3000, True)
    assert free.memory_used_bytes == 2 * 2**30
    (cpu,) = nodes["slow-q-cpu"]
    assert cpu.accelerators_used == 3  # two used and one reserved; three of four by the host
    assert not troubled.takes_jobs


@pytest.mark.parametrize("state", ["a", "au", "d", "D", "C", "E", "s", "S", "A", "c", "o", "zz"])
def test_lesson_25_a_queue_in_any_trouble_takes_nothing_new(state: str) -> None:
    (node,) = look(hosts=f"<qhost>{host('a', queue('gpu.q', 0, 4, state), 'gpu=8')}</qhost>")\
        .seen.nodes["gpu-q-l40s"]
    assert not node.takes_jobs


def test_jobs_of_others_are_counted_and_ours_are_where_they_run() -> None:
    seen = look().seen
    pool = "gpu-q-l40s"
    assert seen.running == {OURS: (((pool, 0), (pool, 0), (pool, 1)),)}
    assert (seen.others_running, seen.others_waiting) == (2, 5)


def test_those_in_front_are_those_that_may_start_in_the_queue() -> None:
    queues = look().seen.queues
    assert queues["gpu-q-l40s"] == LocalQueue(1, 8)
    assert queues["slow-q-cpu"] == LocalQueue(4, 8)


def test_an_empty_queue_starts_at_once() -> None:
    said = Answers(parse_hosts(HOSTS), (), configuration(), AMOUNTS)
    queues = put_together(SITE, said, frozenset()).seen.queues
    assert queues["gpu-q-l40s"] == LocalQueue(0, 0, 0, 0)


def test_cards_nobody_can_name_are_left_out_with_a_note() -> None:
    found = look(replace(SITE, accelerator=""))
    assert [pool.name for pool in found.seen.pools] == ["slow-q-cpu"]
    assert "say gridengine: {accelerator: NAME}" in found.notes[0]


def test_a_resource_may_name_the_model() -> None:
    hosts = "".join(
        host(name, queue("gpu.q", 0, 16), f"gpu=8,kind={kind}")
        for name, kind in (("a", "ada48"), ("b", "h100"))
    )
    site = GridEngineSite(model="kind", types={"ada48": "L40S"})
    found = look(site, f"<qhost>{hosts}</qhost>")
    assert {name: source.value for name, source in found.sources.items()} == {
        "gpu-q-h100": "h100", "gpu-q-l40s": "ada48",
    }  # fmt: skip


def test_queues_that_are_closed_to_us_are_left_out() -> None:
    found = look(opened=frozenset({"gpu.q@a"}))
    assert [(p.name, p.nodes) for p in found.seen.pools] == [("gpu-q-l40s", 1)]
    assert not look(opened=frozenset()).seen.pools


def test_only_the_queues_of_the_settings_are_used_in_their_order() -> None:
    both = f"<qhost>{host('a', queue('gpu.q', 0, 4) + queue('slow.q', 0, 4), 'x=1')}</qhost>"
    assert [p.name for p in look(hosts=both).seen.pools] == ["gpu-q-l40s"]
    slow = replace(SITE, queues=("slow.q", "gpu.q"))
    assert [p.name for p in look(slow, both).seen.pools] == ["slow-q-l40s"]


def most(resource: str, whose: Whose, *queues: str) -> list[float]:
    return [b.most for b in bounds(parse_quotas(QUOTAS), resource, whose, queues or ("gpu.q",))]


def test_quotas_of_a_user_and_a_project() -> None:
    assert most("gpu", Whose("ada")) == [6]  # what is said of single hosts is theirs
    assert most("gpu", Whose("ada", "physics")) == [6, 4]
    assert most("slots", Whose("ada")) == [100]
    assert most("gpu", Whose("eve")) == []
    assert most("gpu", Whose()) == []


def test_the_first_rule_that_fits_counts_and_queues_in_braces_count_by_themselves() -> None:
    quotas = parse_quotas(
        "{\n name s\n enabled TRUE\n limit users @team queues {*} to gpu=2\n"
        " limit users {*} queues gpu.q to gpu=6\n limit name rest to gpu=9\n}\n"
    )
    queues = ("gpu.q", "old.q", "slow.q")

    def found(whose: Whose) -> list[Bound]:
        return list(bounds(quotas, "gpu", whose, queues))

    assert found(Whose("ada")) == [
        Bound("s/2", frozenset({"gpu.q"}), 6), Bound("s/rest", frozenset({"old.q", "slow.q"}), 9),
    ]  # fmt: skip
    assert found(Whose("ada", lists=frozenset({"team"}))) == [
        Bound("s/1", frozenset({queue}), 2) for queue in queues
    ]
    assert quotas[0][0].lists == {"team"}
    assert too_much(quotas, Whose("ada"), "gpu.q", {"gpu": 6}) is None
    over = too_much(quotas, Whose("ada"), "gpu.q", {"slots": 99, "gpu": 7})
    assert over == ("gpu=7", "gpu=6 at most, by quota s/2")


def test_what_is_used_of_a_quota() -> None:
    used = parse_used(
        "<r xmlns='x'><qquota_rule name='s/2'><users>ada</users><queues>gpu.q</queues>"
        "<limit resource='gpu' limit='6' value='4'/><limit resource='slots' value='9'/>"
        "</qquota_rule></r>"
    )
    assert used == (Used("s/2", "gpu", "gpu.q", 4), Used("s/2", "slots", "gpu.q", 9))
    assert used_of(Bound("s/2", frozenset({"gpu.q"}), 6), "gpu", used) == 4
    assert used_of(Bound("s/2", frozenset({"slow.q"}), 6), "gpu", used) == 0
    with pytest.raises(ValueError, match="no XML"):
        parse_used("error: denied")


def test_memory_is_asked_for_where_it_is_counted_or_forced() -> None:
    found = parse_memory(
        "#name shortcut type relop requestable consumable\n"
        "h_vmem h_vmem MEMORY <= YES JOB\nh_rss h_rss MEMORY <= YES NO\n"
        "mem_free mf MEMORY <= FORCED NO\ngpu gpu INT <= FORCED YES\n"
    )
    assert (found.asked(""), found.must("")) == (("h_vmem", "mem_free"), ("mem_free",))
    assert (found.asked("ram"), found.must("ram")) == (("ram",), ())


def test_what_qconf_shows() -> None:
    queues = parse_queues(QUEUES)
    assert [(q.name, q.environments, q.walltime_max_s) for q in queues] == [
        ("gpu.q", ("smp", "mpi"), 172_800), ("slow.q", (), 0),
    ]  # fmt: skip
    assert parse_per_job(COMPLEXES) == {"gpu"}
    said = parse_lines("hostname a\ncomplex_values gpu=8,h_vmem=64G, \\\n   lic=2\n")
    assert parse_amounts(said["complex_values"]) == {"gpu": 8, "h_vmem": 64 * 2**30, "lic": 2}
    text = "pe_name mpi\nslots 99\nallocation_rule 8\ncontrol_slaves TRUE\n"
    assert parse_environment(text) == Environment("mpi", "8", 99, spreads=True)


def test_units_and_times() -> None:
    assert (amount("23.541G"), amount("4k"), amount("8.000000"), amount("NONE")) == (
        23.541 * 2**30, 4000.0, 8.0, 0.0,
    )  # fmt: skip
    assert (seconds("01:00:30"), seconds("90"), seconds("INFINITY")) == (3630, 90, 0)


def test_a_job_is_silent_where_a_host_of_it_is() -> None:
    job = "<job_list><JB_job_number>7</JB_job_number><state>r</state>{}</job_list>"
    task = job.format("<tasks>3</tasks>")
    queues = "".join(
        f"<Queue-List><name>main.q@{host}</name><state>{state}</state>{jobs}</Queue-List>"
        for host, state, jobs in (("n1", "au", job + task), ("n2", "d", job))
    )
    waiting = "<job_list><JB_job_number>8</JB_job_number><state>qw</state></job_list>"
    found = parse_qstat(f"<j><queue_info>{queues}</queue_info><job_info>{waiting}</job_info></j>")
    assert [(j.local_id, j.indices, j.silent) for j in found] == [
        ("7", None, "main.q@n1"), ("7", Runs(((3, 3),)), "main.q@n1"), ("7", None, ""),
        ("8", None, ""),
    ]  # fmt: skip


def test_something_that_is_no_xml_is_an_error() -> None:
    with pytest.raises(ValueError, match="qhost wrote no XML"):
        parse_hosts("error: denied")
