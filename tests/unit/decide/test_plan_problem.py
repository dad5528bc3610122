"""`tradewind plan --problem`: one JSON answer on standard output, errors with their path apart."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from broker.cli.plan_problem import run_plan_problem
from tests.unit.decide.problems import a_job, a_pool, a_problem, scalar

Streams = pytest.CaptureFixture[str]


def written(folder: Path, document: Any, name: str = "problem.json") -> str:
    path = folder / name
    data = json.dumps(document).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(path)


def answered(path: str, streams: Streams) -> dict[str, Any]:
    assert run_plan_problem(path, 5.0, as_json=True) == 0
    out, err = streams.readouterr()
    assert out.count("\n") == 1 and err == ""
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_the_answer_has_exactly_the_documented_keys(tmp_path: Path, capsys: Streams) -> None:
    document = a_problem(jobs=[a_job(count=20)], objective=scalar(9))
    answer = answered(written(tmp_path, document), capsys)
    assert answer.pop("cpu_s") > 0
    assert answer == {
        "version": 1,
        "status": "optimal",
        "objective_usd": 16 * 9 - 16.0,
        "bound_usd": 128.0,
        "gap": 0.0,
        "placed": {"0": 16},
        "cost_usd": 16.0,
        "assignments": [{"job": "j0", "pool": "p0", "count": 16}],
        "unplaced": [
            {
                "job": "j0",
                "count": 4,
                "code": "no_capacity",
                "text": "p0: no capacity: needs 1 x 1 free, has 0 x 1; "
                "1 more place of 1 accelerator",
            }
        ],
    }


def test_nodes_get_a_packing(tmp_path: Path, capsys: Streams) -> None:
    nodes = [{"count": 2, "free_accelerators": 3}, {"free_accelerators": 8}]
    document = a_problem(pools=[a_pool(nodes=nodes)], jobs=[a_job(count=3, replicas=2)])
    answer = answered(written(tmp_path, document), capsys)
    assert sorted(answer["packing"], key=lambda entry: entry["node"]) == [
        {"job": "j0", "pool": "p0", "node": 0, "replicas": 3},
        {"job": "j0", "pool": "p0", "node": 1, "replicas": 3},
    ]


def test_gzip_and_standard_input_are_read(
    tmp_path: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = answered(written(tmp_path, a_problem(), "problem.json.gz"), capsys)
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps(a_problem()).encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    again = answered("-", capsys)
    assert {**answer, "cpu_s": 0} == {**again, "cpu_s": 0}


def test_the_same_file_gets_the_same_bytes(tmp_path: Path, capsys: Streams) -> None:
    jobs = [a_job(f"j{n}", count=n, accelerators_per_replica=n) for n in (1, 2, 3, 4, 6)]
    path = written(tmp_path, a_problem(jobs=jobs, pools=[a_pool(), a_pool("p1", spot=False)]))
    first, second = (
        {**answered(path, capsys), "cpu_s": 0},
        {**answered(path, capsys), "cpu_s": 0},
    )
    assert json.dumps(first) == json.dumps(second)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (json.dumps(a_problem(jobs=[a_job(runtime=1)])), "jobs[0].runtime: unknown key"),
        ("nonsense", "not JSON"),
        ("", "not JSON"),
    ],
)
def test_a_bad_problem_exits_2_and_says_where(
    tmp_path: Path, capsys: Streams, data: str, said: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(data)
    assert run_plan_problem(str(path), 5.0, as_json=True) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err


def test_a_file_that_cannot_be_read_exits_2(tmp_path: Path, capsys: Streams) -> None:
    assert run_plan_problem(str(tmp_path / "none.json"), 5.0, as_json=True) == 2
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b"{}" * 1000)[:20])
    assert run_plan_problem(str(cut), 5.0, as_json=True) == 2
    out, err = capsys.readouterr()
    assert out == "" and "No such file" in err and "cut short" in err


def test_without_json_a_table_is_printed(tmp_path: Path, capsys: Streams) -> None:
    path = written(tmp_path, a_problem(jobs=[a_job(count=20)]))
    assert run_plan_problem(path, 5.0, as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("optimal: 16 of 20 copies placed")
    assert "  j0  x16  -> p0" in lines and any("waits: p0: no capacity" in line for line in lines)


def test_the_table_tells_what_only_joins_a_queue(tmp_path: Path, capsys: Streams) -> None:
    pool = a_pool(free_nodes={"1": 1}, queue={"start_s": 300, "max_pending": 2})
    path = written(tmp_path, a_problem(pools=[pool], jobs=[a_job(count=3)]))
    assert run_plan_problem(path, 5.0, as_json=False) == 0
    out, _ = capsys.readouterr()
    assert "j0  x1  -> p0\n" in out and "j0  x2  -> the queue of p0\n" in out
