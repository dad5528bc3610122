"""`--constraint` and `--licenses` of sbatch scripts."""

from __future__ import annotations

import pytest

from broker.compat.slurm_job import import_sbatch


def imported(*words: str) -> tuple[dict[str, object], list[str]]:
    lines = "".join(f"#SBATCH {word}\n" for word in words)
    found = import_sbatch("x", f"#!/bin/sh\n{lines}\ntrue\n")
    errors = [note.text for note in found.errors]
    return dict((found.data or {}).get("resources", {})), errors


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("ib", ["ib"]),
        ("ib&icelake", ["ib", "icelake"]),
        ("icelake|genoa", ["genoa|icelake"]),
        ("(icelake|genoa)&ib", ["genoa|icelake", "ib"]),
        ("ib&(icelake|genoa)", ["genoa|icelake", "ib"]),
        ("a|b&c", ["a|b", "c"]),  # from left to right, as Slurm does
        ("(a&b)|c", ["a|c", "b|c"]),
        ("a&a", ["a"]),
        (" a & b ", ["a", "b"]),
    ],
)
def test_a_constraint_is_what_nodes_must_have(text: str, features: list[str]) -> None:
    assert imported(f"--constraint='{text}'") == (
        imported()[0] | {"features": features},
        [],
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[rack1|rack2]", "the same on all nodes"),
        ("a*2&b*1", "so many nodes of each kind"),
        ("a&", "a word is missing"),
        ("(a", "a ) is missing"),
        ("a)", "out of place"),
        ("a b", "out of place"),
        ("a,b", "cannot be read"),
        ("&".join(f"w{n}" for n in range(40)), "too many"),
        ("(" * 40 + "a", "too many parentheses"),
        ("|".join(f"(a{n}&b{n})" for n in range(12)), "too many"),
    ],
)
def test_one_that_cannot_be_kept_is_an_error(text: str, why: str) -> None:
    (error,) = imported(f"--constraint='{text}'")[1]
    assert why in error and "resources.features" in error


def test_models_of_gpu_stay_models() -> None:
    resources, errors = imported("--gpus=1", "--constraint='a100|h100'")
    assert not errors and "features" not in resources
    resources, errors = imported("--gpus=h100:1", "--constraint=ib")
    assert not errors and resources["features"] == ["ib"]


def test_licences_are_extras_of_each_node() -> None:
    assert imported("--licenses=matlab:2,ansys")[0]["extras"] == {"matlab": 2, "ansys": 1}
    resources, errors = imported("--nodes=2", "--licenses=matlab:3")
    assert not errors and resources["extras"] == {"matlab": 2}
    for text in ("matlab@server:2", "a:2;b:1", "a:0", "a,a"):
        (error,) = imported(f"--licenses='{text}'")[1]
        assert "write names with counts" in error
