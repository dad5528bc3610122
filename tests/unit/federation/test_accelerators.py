import pytest

from federation.accelerators import (
    ACCELERATORS,
    AcceleratorRequest,
    InvalidAccelerator,
    at_least,
    canonical_names,
    fits_memory,
    identify,
    parse_accelerators,
)
from federation.units import GIB, parse_bytes

MIB = 1 << 20


@pytest.mark.parametrize(
    "spelling, name",
    [
        # NVML product names
        ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB"), ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("Tesla T4", "T4"), ("NVIDIA L40S", "L40S"), ("NVIDIA L40", "L40"), ("NVIDIA L4", "L4"),
        ("NVIDIA A10G", "A10G"), ("NVIDIA A10", "A10"), ("Tesla K80", "K80"),
        ("NVIDIA GeForce RTX 3090", "RTX-3090"), ("NVIDIA RTX A6000", "RTX-A6000"),
        ("Quadro RTX 6000", "RTX-6000"), ("NVIDIA GB200", "GB200"),
        # Kubernetes labels
        ("NVIDIA-H100-80GB-HBM3", "H100"), ("NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA-A100-80GB-PCIe", "A100-80GB"), ("NVIDIA-H100-NVL", "H100-NVL"),
        ("Tesla-V100-PCIE-16GB", "V100-16GB"), ("NVIDIA-Tesla-V100-SXM2-16GB", "V100-16GB"),
        ("NVIDIA-GeForce-RTX-2080-Ti", "RTX-2080-Ti"),
        # Slurm GRES types
        ("h100", "H100"), ("a100_80gb", "A100-80GB"), ("nvidia_a100-sxm4-40gb", "A100-40GB"),
        ("tesla_v100-sxm2-32gb", "V100-32GB"), ("rtx3090", "RTX-3090"), ("l40s", "L40S"),
        # SkyPilot
        ("A100-80GB", "A100-80GB"), ("V100-32GB", "V100-32GB"), ("RTX4090", "RTX-4090"),
        ("RTX6000-Ada", "RTX-6000-Ada"), ("MI300X", "MI300X"), ("Gaudi HL-205", "Gaudi"),
        ("H100-SXM", "H100"), ("CPU", "CPU"),
    ],
)  # fmt: skip
def test_every_spelling_means_one_canonical_name(spelling, name):
    assert canonical_names(spelling) == (name,)


def test_every_canonical_name_means_itself_in_any_case():
    for name in ACCELERATORS:
        assert canonical_names(name) == (name,)
        assert canonical_names(name.lower()) == (name,)
        assert canonical_names(name.upper()) == (name,)


def test_names_never_match_by_substring():
    assert canonical_names("L4") == ("L4",)
    assert canonical_names("L40") == ("L40",)
    assert canonical_names("L40S") == ("L40S",)
    for near in (
        "L400",
        "L4S",
        "H10",
        "A100-8",
        "XH100",
        "H100x",
        "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
    ):
        with pytest.raises(InvalidAccelerator):
            canonical_names(near)


@pytest.mark.parametrize("name", ["A100", "a100", "NVIDIA-A100", "A100-SXM4"])
def test_a_name_without_its_memory_means_either(name):
    assert canonical_names(name) == ("A100-40GB", "A100-80GB")


@pytest.mark.parametrize(
    "name, hint", [("H1000", "H100"), ("A100-90GB", "A100-80GB"), ("MI300", "MI300"),
     ("L40X", "L40")]
)  # fmt: skip
def test_an_unknown_name_is_refused_with_the_nearest(name, hint):
    with pytest.raises(InvalidAccelerator) as caught:
        canonical_names(name)
    assert hint in caught.value.remedy


@pytest.mark.parametrize(
    "name",
    [
        "",
        pytest.param("x" * 100_000, id="long"),
        None,
        5,
        pytest.param("\ud800", id="surrogate"),
    ],
)
def test_nonsense_is_refused_briefly(name):
    with pytest.raises(InvalidAccelerator) as caught:
        canonical_names(name)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "reported, memory_mib, name",
    [("A100", 40_960, "A100-40GB"), ("A100", 81_920, "A100-80GB"), ("V100", 16_160, "V100-16GB"),
     ("V100", 32_510, "V100-32GB"), ("Tesla T4", 15_360, "T4"), ("NVIDIA L40S", 46_068, "L40S"),
     ("NVIDIA A10G", 23_028, "A10G"), ("NVIDIA H100 80GB HBM3", 81_559, "H100"),
     ("NVIDIA H200", 143_771, "H200"), ("Tesla K80", 11_441, "K80"),
     ("NVIDIA B200", 183_359, "B200"), ("NVIDIA GeForce RTX 2080 Ti", 11_264, "RTX-2080-Ti")],
)  # fmt: skip
def test_reported_memory_within_tolerance_identifies_the_card(reported, memory_mib, name):
    assert identify(reported, memory_mib * MIB).name == name


def test_a_card_is_not_identified_on_a_guess():
    with pytest.raises(InvalidAccelerator, match="say A100-40GB or A100-80GB"):
        identify("A100")
    with pytest.raises(InvalidAccelerator, match="reports 24.0GiB"):
        identify("A100", 24 * GIB)
    with pytest.raises(InvalidAccelerator, match="this model has 80GiB"):
        identify("H100", 40 * GIB)


def test_a_24_gb_card_counts_as_24_in_either_base_whatever_it_reports():
    card = ACCELERATORS["A10G"]
    assert fits_memory(card, 22 * GIB)
    assert at_least(card, parse_bytes("24GB"))
    assert at_least(card, parse_bytes("24GiB"))
    assert not at_least(card, parse_bytes("25GiB"))


def test_requests_and_their_alternatives():
    assert parse_accelerators("H100:8") == (AcceleratorRequest("H100", 8),)
    assert parse_accelerators("t4") == (AcceleratorRequest("T4", 1),)
    assert parse_accelerators("A100:2") == (
        AcceleratorRequest("A100-40GB", 2),
        AcceleratorRequest("A100-80GB", 2),
    )
    assert parse_accelerators(["H200:8", "NVIDIA-H100-80GB-HBM3:8"]) == (
        AcceleratorRequest("H200", 8),
        AcceleratorRequest("H100", 8),
    )


@pytest.mark.parametrize(
    "value, rule",
    [("H100:0", "whole number"), ("H100:-1", "whole number"), ("H100:1.5", "whole number"),
     ("H100:", "whole number"), ("H100:9999", "more than"), ("CPU:4", "CPU is not"),
     (["H100:8", "H200:4"], "different counts"), (["A100", "A100-80GB"], "named twice"),
     ([], "alternatives"), ([5], "not text"), (5, "not text"), (None, "not text"),
     ({"H100": 8}, "not text"), (["H100"] * 1000, "alternatives")],
)  # fmt: skip
def test_other_requests_are_refused(value, rule):
    with pytest.raises(InvalidAccelerator) as caught:
        parse_accelerators(value)
    assert rule in caught.value.rule
