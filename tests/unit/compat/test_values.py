"""Values of the old systems, each form, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.compat import kubernetes_values, sge_values
from broker.compat import slurm_values as slurm
from broker.compat.accelerator_names import ANY_NVIDIA, models, request
from broker.compat.integer_ids import LEAST, SPAN, cksum, derived, from_random, number_of
from broker.compat.shell_words import read_shell
from broker.compat.words import split_words
from broker.compat.yaml_items import Item, read_yaml
from federation.accelerators import parse_accelerators
from federation.units import GIB, MIB

MINUTE, HOUR, DAY = 60, 3600, 86_400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90 * MINUTE), ("90:30", 90 * MINUTE + 30),
        ("12:34:56", 12 * HOUR + 34 * MINUTE + 56),
        ("2-12", 2 * DAY + 12 * HOUR), ("2-12:30", 2 * DAY + 12 * HOUR + 30 * MINUTE),
        ("2-12:30:15", 2 * DAY + 12 * HOUR + 30 * MINUTE + 15), ("0", None), ("UNLIMITED", None),
        ("infinite", None), ("-1", None), ("0-0", None),
    ],
)  # fmt: skip
def test_all_six_formats_of_slurm_times(text: str, seconds: int | None) -> None:
    assert slurm.time_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "1:2:3:4", "ten", "-5", "1-", "1--2", "1-2-3", "9999-0", "1h"]
)
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(slurm.BadValue):
        slurm.time_s(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4000", 4000 * MIB),
        ("4G", 4 * GIB),
        ("512K", MIB // 2),
        ("1T", 1024 * GIB),
        ("1gb", GIB),
    ],
)
def test_slurm_counts_memory_in_mib(text: str, size: int) -> None:
    assert slurm.memory_bytes(text) == size


@given(st.text(max_size=20))
def test_slurm_values_raise_nothing_else(text: str) -> None:
    for parse in (
        slurm.time_s, slurm.memory_bytes, slurm.count, slurm.nodes, slurm.gres, slurm.gpus,
        slurm.dependencies, slurm.signal,
    ):  # fmt: skip
        try:
            parse(text)
        except slurm.BadValue as error:
            assert str(error)


def test_generic_resources_in_every_form() -> None:
    assert slurm.gres("gpu") == (slurm.Gres("gpu", "", 1),)
    assert slurm.gres("gpu:a100") == (slurm.Gres("gpu", "a100", 1),)
    assert slurm.gres("gres/gpu:a100:2,nvme:1K") == (
        slurm.Gres("gpu", "a100", 2), slurm.Gres("nvme", "", 1024),
    )  # fmt: skip
    assert slurm.gpus("a100:4,8") == (slurm.Gres("gpu", "a100", 4), slurm.Gres("gpu", "", 8))


def test_grid_engine_tells_k_from_K() -> None:
    assert sge_values.size_bytes("1k") == 1000 and sge_values.size_bytes("1K") == 1024
    assert sge_values.size_bytes("1.5G") == 3 * GIB // 2 and sge_values.size_bytes("100") == 100
    assert sge_values.time_s("3600") == HOUR and sge_values.time_s("1:30:0") == 90 * MINUTE
    assert sge_values.slots("4-8") == (4, True) and sge_values.slots("-8") == (1, True)


def test_quantities_of_kubernetes() -> None:
    def read(text: str) -> Decimal:
        return kubernetes_values.quantity(Item(text, 1, text))

    assert read("500m") == Decimal("0.5") and read("1.5Gi") == 3 * GIB // 2
    assert (
        read("2") == 2 and read("1e3") == 1000 and read("1E") == 10**18 and read("3k") == 3000
    )
    with pytest.raises(kubernetes_values.BadValue):
        read("1GB")


def test_any_card_is_a_request_the_job_format_takes() -> None:
    assert len(parse_accelerators(request(ANY_NVIDIA, 4))) == 32
    assert models(["a100"]) == ("A100-40GB", "A100-80GB")


def test_words_of_a_directive() -> None:
    split = split_words("""-J "two words" --x='a # b' c\\ d e#f g""")
    assert split.words == ("-J", "two words", "--x=a # b", "c d", "e") and split.cut == "#f g"
    assert split_words('"open').problem and split_words("").words == ()
    assert split_words('""').words == ("",)


def test_commands_of_a_shell_script() -> None:
    shell = read_shell(
        "#!/bin/sh\nA=1 B=$(inner x | head -1) srun -n 2 \\\n  prog 'a;b' > out 2>&1 &\n"
        "cat <<'E' | sort\nsrun hidden\nE\nif true; then exec last; fi # srun no\n"
    )
    names = [command.name for command in shell.commands if command.words]
    assert names == ["inner", "head", "srun", "cat", "sort", "true", "last", "srun"]
    srun = next(c for c in shell.commands if c.name == "srun")
    assert srun.words == ["srun", "-n", "2", "prog", "a;b"] and srun.background
    assert srun.redirects[0] == "out" and shell.heredocs == 1 and "if" in shell.keywords


def test_yaml_knows_its_lines() -> None:
    (root,) = read_yaml("a: 1\nb:\n  c: yes\n  d: [x, '2']\n")
    assert root.get("b", "c") == Item(True, 3, "yes")
    items = root.get("b", "d")
    assert items is not None and [i.value for i in items.entries()] == ["x", "2"]
    assert root.plain == {"a": 1, "b": {"c": True, "d": ["x", "2"]}}


# Integers for jobs --------------------------------------------------------------------------------


@given(st.binary(max_size=300))
def test_checksum_is_that_of_posix(data: bytes) -> None:
    program = shutil.which("cksum")
    if program is None or len(data) % 7:  # a process for a part of the examples is enough
        return
    ran = subprocess.run([program], input=data, capture_output=True, check=True)
    assert cksum(data) == int(ran.stdout.split()[0])


@given(st.integers(0, 2**32 - 1))
def test_numbers_fit_old_tools(bits: int) -> None:
    assert LEAST <= from_random(bits) < LEAST + SPAN < 2**31


def test_a_label_wins_over_what_is_derived() -> None:
    job = {"id": "j0k3v1m8zq2c4d5e6", "labels": {"integer-id": "12345678"}}
    assert number_of(job) == 12345678
    for label in ("", "x", "1" * 30, None):
        assert number_of({**job, "labels": {"integer-id": label}}) == derived(str(job["id"]))
    assert number_of({"id": job["id"]}) == derived(str(job["id"]))
