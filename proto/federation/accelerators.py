"""The canonical names of accelerators, and every other spelling they are met under.

One name inside the federation; those of NVML, Kubernetes product labels, Slurm GRES types and
SkyPilot are aliases of it. Matching is exact but for case, blanks, `-` and `_`; never by
substring, so `L40` is not `L4`. A name sold with several memory sizes (`A100`) means either, as
alternatives. A device is what schedulers count: half of an MI250X, half of a K80.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from federation.units import GIB

MAX_PER_REPLICA = 4_096
# A card sold as 24 GB reports 22 to 24 GiB (base 10 against 2, ECC, firmware).
MEMORY_TOLERANCE = 0.12


class InvalidAccelerator(ValueError):
    """An accelerator name or request that cannot be used; names the rule and a remedy."""

    def __init__(self, value: object, rule: str, remedy: str) -> None:
        shown = repr(value)[:80] if isinstance(value, str) else type(value).__name__
        super().__init__(f"accelerator {shown} is not valid: {rule}; {remedy}")
        self.value = value
        self.rule = rule
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One model: its canonical name, maker, and nominal memory in GiB (0 for `CPU`)."""

    name: str
    vendor: str
    memory_gib: int

    @property
    def memory_bytes(self) -> int:
        """Nominal memory."""
        return self.memory_gib * GIB


@dataclass(frozen=True, slots=True)
class AcceleratorRequest:
    """So many accelerators of one canonical name, per replica."""

    name: str
    count: int

    def __str__(self) -> str:
        return f"{self.name}:{self.count}"


def _nvidia(name: str, memory_gib: int, aliases: str = "") -> tuple[Accelerator, str]:
    return Accelerator(name, "nvidia", memory_gib), aliases


def _other(name: str, vendor: str, memory_gib: int, aliases: str = "") -> tuple[Accelerator, str]:
    return Accelerator(name, vendor, memory_gib), aliases


# name, memory, other spellings separated by `|` (case, blanks, `-` and `_` do not matter)
_TABLE: tuple[tuple[Accelerator, str], ...] = (
    _other("CPU", "none", 0),
    _nvidia("GB300", 288, "NVIDIA GB300|GB300-288GB"),
    _nvidia("GB200", 186, "NVIDIA GB200|GB200-192GB"),
    _nvidia("B300", 288, "NVIDIA B300|NVIDIA B300 SXM6 AC|B300-SXM6-288GB"),
    _nvidia("B200", 180, "NVIDIA B200|B200-SXM|B200-180GB|B200-192GB|B200-SXM-180GB"),
    _nvidia("GH200", 96, "NVIDIA GH200 480GB|GH200-480GB|GH200-96GB|NVIDIA GH200"),
    _nvidia("H200", 141, "NVIDIA H200|H200-SXM|H200-141GB|H200-SXM-141GB|H200 SXM5"),
    _nvidia("H200-NVL", 141, "NVIDIA H200 NVL"),
    _nvidia(
        "H100", 80,
        "NVIDIA H100 80GB HBM3|H100-SXM|H100-SXM5|H100-80GB|H100-80GB-HBM3|H100-SXM5-80GB"
        "|H100-SXM-80GB|NVIDIA H100|H100-MEGA-80GB|H100 HBM3",
    ),
    _nvidia("H100-PCIe", 80, "NVIDIA H100 PCIe|H100-PCIE-80GB"),
    _nvidia("H100-NVL", 94, "NVIDIA H100 NVL|H100NVL|H100-NVL-94GB"),
    _nvidia("H800", 80, "NVIDIA H800|H800-SXM5|H800-80GB"),
    _nvidia("H20", 96, "NVIDIA H20|H20-96GB"),
    _nvidia(
        "A100-40GB", 40,
        "NVIDIA A100-SXM4-40GB|NVIDIA A100-PCIE-40GB|A100-SXM4-40GB|A100-PCIE-40GB|A100-SXM-40GB"
        "|A100-PCI-40GB|A100_40|A100-40|TESLA-A100-40GB",
    ),
    _nvidia(
        "A100-80GB", 80,
        "NVIDIA A100-SXM4-80GB|NVIDIA A100 80GB PCIe|NVIDIA A100-PCIE-80GB|A100-SXM4-80GB"
        "|A100-PCIE-80GB|A100-SXM-80GB|A100-80GB-SXM|A100-80GB-PCIe|A100_80|A100-80"
        "|TESLA-A100-80GB",
    ),
    _nvidia("A800-80GB", 80, "NVIDIA A800-SXM4-80GB|NVIDIA A800 80GB PCIe|A800"),
    _nvidia("L40S", 48, "NVIDIA L40S|L40S-48GB"),
    _nvidia("L40", 48, "NVIDIA L40|L40-48GB"),
    _nvidia("L4", 24, "NVIDIA L4|L4-24GB|TESLA-L4"),
    _nvidia("A40", 48, "NVIDIA A40|A40-48GB"),
    _nvidia("A30", 24, "NVIDIA A30|A30-24GB"),
    _nvidia("A16", 16, "NVIDIA A16"),
    _nvidia("A10G", 24, "NVIDIA A10G|A10G-24GB"),
    _nvidia("A10", 24, "NVIDIA A10|A10-24GB"),
    _nvidia("A2", 16, "NVIDIA A2"),
    _nvidia("T4", 16, "Tesla T4|NVIDIA T4|NVIDIA Tesla T4|T4-16GB"),
    _nvidia("T4G", 16, "NVIDIA T4G"),
    _nvidia(
        "V100-16GB", 16,
        "Tesla V100-SXM2-16GB|Tesla V100-PCIE-16GB|NVIDIA V100-SXM2-16GB|V100-SXM2-16GB"
        "|V100-PCIE-16GB|Tesla V100-FHHL-16GB|V100-16|NVIDIA V100-PCIE-16GB",
    ),
    _nvidia(
        "V100-32GB", 32,
        "Tesla V100-SXM2-32GB|Tesla V100-PCIE-32GB|Tesla V100-SXM3-32GB|NVIDIA V100-SXM2-32GB"
        "|V100-SXM2-32GB|V100-PCIE-32GB|V100-SXM3-32GB|V100-32|Tesla V100S-PCIE-32GB|V100S"
        "|NVIDIA V100-PCIE-32GB",
    ),
    _nvidia("P100", 16, "Tesla P100-PCIE-16GB|Tesla P100-SXM2-16GB|Tesla P100|P100-16GB"),
    _nvidia("P100-12GB", 12, "Tesla P100-PCIE-12GB"),
    _nvidia("P40", 24, "Tesla P40"),
    _nvidia("P4", 8, "Tesla P4"),
    _nvidia("K80", 12, "Tesla K80|NVIDIA K80|NVIDIA Tesla K80"),
    _nvidia("M60", 8, "Tesla M60"),
    _nvidia("RTX-PRO-6000", 96, "NVIDIA RTX PRO 6000 Blackwell Server Edition|RTXPRO6000"
            "|NVIDIA RTX PRO 6000 Blackwell Workstation Edition|RTX PRO 6000 Blackwell"),
    _nvidia("RTX-6000-Ada", 48, "RTX 6000 Ada Generation|RTX6000-Ada"),
    _nvidia("RTX-5000-Ada", 32, "NVIDIA RTX 5000 Ada Generation|RTX 5000 Ada Generation"),
    _nvidia("RTX-4000-Ada", 20, "NVIDIA RTX 4000 Ada Generation|RTX 4000 Ada Generation"),
    _nvidia("RTX-A6000", 48, "NVIDIA RTX A6000|A6000"),
    _nvidia("RTX-A5000", 24, "NVIDIA RTX A5000|A5000"),
    _nvidia("RTX-A4000", 16, "NVIDIA RTX A4000|A4000"),
    _nvidia("RTX-6000", 24, "Quadro RTX 6000|NVIDIA Quadro RTX 6000|QuadroRTX6000"),
    _nvidia("RTX-8000", 48, "Quadro RTX 8000|NVIDIA Quadro RTX 8000|QuadroRTX8000"),
    _nvidia("RTX-5090", 32, "NVIDIA GeForce RTX 5090|GeForce RTX 5090"),
    _nvidia("RTX-5080", 16, "NVIDIA GeForce RTX 5080|GeForce RTX 5080"),
    _nvidia("RTX-4090", 24, "NVIDIA GeForce RTX 4090|GeForce RTX 4090"),
    _nvidia("RTX-4080", 16, "NVIDIA GeForce RTX 4080|GeForce RTX 4080"),
    _nvidia("RTX-3090", 24, "NVIDIA GeForce RTX 3090|GeForce RTX 3090"),
    _nvidia("RTX-3090-Ti", 24, "NVIDIA GeForce RTX 3090 Ti|GeForce RTX 3090 Ti"),
    _nvidia("RTX-3080", 10, "NVIDIA GeForce RTX 3080|GeForce RTX 3080"),
    _nvidia("RTX-2080-Ti", 11, "NVIDIA GeForce RTX 2080 Ti|GeForce RTX 2080 Ti"),
    _nvidia("GTX-1080-Ti", 11, "NVIDIA GeForce GTX 1080 Ti|GeForce GTX 1080 Ti"),
    _nvidia("Titan-RTX", 24, "NVIDIA TITAN RTX"),
    _other("MI355X", "amd", 288, "AMD Instinct MI355X"),
    _other("MI325X", "amd", 256, "AMD Instinct MI325X"),
    _other("MI300X", "amd", 192, "AMD Instinct MI300X|MI300X-192GB|AMD Instinct MI300X OAM"),
    _other("MI300A", "amd", 128, "AMD Instinct MI300A"),
    _other("MI250X", "amd", 64, "AMD Instinct MI250X|AMD Instinct MI250X/MI250|MI250X-128GB"),
    _other("MI250", "amd", 64, "AMD Instinct MI250"),
    _other("MI210", "amd", 64, "AMD Instinct MI210"),
    _other("MI100", "amd", 32, "AMD Instinct MI100"),
    _other("MI50", "amd", 32, "AMD Instinct MI50"),
    _other("Gaudi", "intel", 32, "HL-205|Gaudi1|Gaudi HL-205|Habana Gaudi"),
    _other("Gaudi2", "intel", 96, "HL-225|HL-225H|Gaudi HL-225|Habana Gaudi2"),
    _other("Gaudi3", "intel", 128, "HL-325L|Habana Gaudi3"),
    _other("Max-1550", "intel", 128, "Intel Data Center GPU Max 1550|PVC"),
    _other("TPU-v2", "google", 16, "tpu-v2-podslice|v2"),
    _other("TPU-v3", "google", 32, "tpu-v3-podslice|tpu-v3-device|tpu-v3-slice"),
    _other("TPU-v4", "google", 32, "tpu-v4-podslice|tpu-v4-device"),
    _other("TPU-v5e", "google", 16, "tpu-v5-lite-podslice|tpu-v5-lite-device|tpu-v5litepod"),
    _other("TPU-v5p", "google", 95, "tpu-v5p-slice"),
    _other("TPU-v6e", "google", 32, "tpu-v6e-slice|Trillium"),
    _other("Trainium", "aws", 32, "trn1"),
    _other("Trainium2", "aws", 96, "trn2"),
    _other("Inferentia", "aws", 8, "inf1"),
    _other("Inferentia2", "aws", 32, "inf2"),
    _other("910B", "huawei", 64, "Ascend 910B|Ascend910B|huawei.com/Ascend910B"),
)  # fmt: skip

# Names that leave the memory size open: any of these will do.
_AMBIGUOUS: dict[str, tuple[str, ...]] = {
    "A100": ("A100-40GB", "A100-80GB"),
    "NVIDIA A100": ("A100-40GB", "A100-80GB"),
    "A100-SXM4": ("A100-40GB", "A100-80GB"),
    "A100-PCIE": ("A100-40GB", "A100-80GB"),
    "Tesla A100": ("A100-40GB", "A100-80GB"),
    "V100": ("V100-16GB", "V100-32GB"),
    "Tesla V100": ("V100-16GB", "V100-32GB"),
    "NVIDIA Tesla V100": ("V100-16GB", "V100-32GB"),
    "NVIDIA V100": ("V100-16GB", "V100-32GB"),
    "V100-SXM2": ("V100-16GB", "V100-32GB"),
    "V100-PCIE": ("V100-16GB", "V100-32GB"),
    "Tesla V100-SXM2": ("V100-16GB", "V100-32GB"),
}

ACCELERATORS: dict[str, Accelerator] = {entry.name: entry for entry, _ in _TABLE}


def _key(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.strip()).casefold()


def _index() -> dict[str, tuple[str, ...]]:
    index: dict[str, tuple[str, ...]] = {}
    for entry, aliases in _TABLE:
        spellings = [entry.name, *filter(None, aliases.split("|"))]
        if entry.vendor == "nvidia":
            spellings += [f"NVIDIA {name}" for name in spellings if "NVIDIA" not in name]
        for alias in spellings:
            if index.setdefault(_key(alias), (entry.name,)) != (entry.name,):
                raise ValueError(f"alias {alias} stands for two accelerators")
    for alias, names in _AMBIGUOUS.items():
        index[_key(alias)] = names
    return index


_BY_KEY = _index()


def canonical_names(name: object) -> tuple[str, ...]:
    """The canonical names `name` may stand for; several when its memory size is left open.

    Raises InvalidAccelerator with the nearest known name.
    """
    if isinstance(name, str) and len(name) <= 120:
        found = _BY_KEY.get(_key(name.removeprefix("nvidia.com/")))
        if found is not None:
            return found
    raise InvalidAccelerator(name, "unknown accelerator", _suggestion(name))


def _suggestion(name: object) -> str:
    if isinstance(name, str) and len(name) <= 120:
        near = get_close_matches(_key(name), _BY_KEY, n=1, cutoff=0.6)
        if near:
            return f"did you mean {' or '.join(_BY_KEY[near[0]])}?"
    return "known are for example H100, A100-80GB, L40S, T4, MI300X"


def identify(reported: str, memory_bytes: int | None = None) -> Accelerator:
    """The one accelerator a site means by `reported`, told apart by memory where needed.

    Raises InvalidAccelerator when the name is unknown, open without a memory size, or of a model
    whose nominal memory the reported one contradicts.
    """
    candidates = [ACCELERATORS[name] for name in canonical_names(reported)]
    if memory_bytes is not None:
        fitting = [entry for entry in candidates if fits_memory(entry, memory_bytes)]
        if not fitting:
            sizes = " or ".join(f"{entry.memory_gib}GiB" for entry in candidates)
            raise InvalidAccelerator(
                reported, f"reports {memory_bytes / GIB:.1f}GiB", f"this model has {sizes}"
            )
        candidates = fitting
    if len(candidates) > 1:
        names = " or ".join(entry.name for entry in candidates)
        raise InvalidAccelerator(reported, "its memory size is open", f"say {names}")
    return candidates[0]


def fits_memory(accelerator: Accelerator, memory_bytes: int) -> bool:
    """Whether a card reporting `memory_bytes` can be this model (nominal size +- 12 %)."""
    nominal = accelerator.memory_bytes
    return abs(memory_bytes - nominal) <= nominal * MEMORY_TOLERANCE


def at_least(accelerator: Accelerator, memory_bytes: int) -> bool:
    """Whether the model's nominal memory is at least this: a card sold as 24 GB counts as 24 GiB,
    though it reports 22, so that both `24GB` and `24GiB` mean it."""
    return accelerator.memory_bytes >= memory_bytes


def parse_accelerators(value: object) -> tuple[AcceleratorRequest, ...]:
    """The alternatives in `"H100:8"`, `"A100"` or `["H100:8", "A100-80GB:8"]`, in that order.

    An open name gives one alternative per memory size. Raises InvalidAccelerator on an unknown
    name, a count outside 1 to 4,096, counts that differ, or a name given twice.
    """
    if isinstance(value, str):
        requests = _one(value)
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        if not 1 <= len(value) <= 32:
            raise InvalidAccelerator(value, "1 to 32 alternatives", 'write ["H100:8", "H200:8"]')
        requests = tuple(request for item in value for request in _one(item))
    else:
        raise InvalidAccelerator(value, "not text", 'write "H100:8" or a list of such texts')
    names = [request.name for request in requests]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidAccelerator(twice, "named twice", "leave one of them out")
    if len({request.count for request in requests}) > 1:
        raise InvalidAccelerator(
            ", ".join(map(str, requests))[:80],
            "alternatives ask for different counts",
            "a job has one shape: give all the same count, or submit two jobs",
        )
    return requests


def _one(value: object) -> tuple[AcceleratorRequest, ...]:
    if not isinstance(value, str):
        raise InvalidAccelerator(value, "not text", 'write "H100:8"')
    name, colon, count_text = value.rpartition(":")
    if not colon:
        name, count_text = value, "1"
    if not re.fullmatch(r"[1-9][0-9]{0,3}", count_text.strip(), re.ASCII):
        raise InvalidAccelerator(value, "the count after ':' is a whole number", 'write "H100:8"')
    count = int(count_text)
    if count > MAX_PER_REPLICA:
        raise InvalidAccelerator(value, f"more than {MAX_PER_REPLICA}", "use replicas")
    names = canonical_names(name)
    if "CPU" in names:
        raise InvalidAccelerator(
            value, "CPU is not an accelerator", "leave accelerators out and set cpus"
        )
    return tuple(AcceleratorRequest(found, count) for found in names)
