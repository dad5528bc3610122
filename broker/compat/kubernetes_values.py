"""Quantities of Kubernetes, and its names of accelerators."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

from broker.compat.yaml_items import Item

_QUANTITY = re.compile(
    r"([0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(m|u|n|k|Ki|[MGTPE]i?|[eE][-+]?[0-9]{1,2})?",
    re.ASCII,
)
_FACTORS = {
    "": Decimal(1), "m": Decimal("0.001"), "u": Decimal("0.000001"), "n": Decimal("0.000000001"),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "P": Decimal(10**15), "E": Decimal(10**18), "Ki": Decimal(1 << 10), "Mi": Decimal(1 << 20),
    "Gi": Decimal(1 << 30), "Ti": Decimal(1 << 40), "Pi": Decimal(1 << 50), "Ei": Decimal(1 << 60),
}  # fmt: skip

# Extended resources that count whole accelerators, and the models each may be.
CARDS: dict[str, tuple[str, ...]] = {
    "nvidia.com/gpu": (),
    "amd.com/gpu": (
        "MI355X",
        "MI325X",
        "MI300X",
        "MI300A",
        "MI250X",
        "MI250",
        "MI210",
        "MI100",
    ),
    "gpu.intel.com/i915": ("Max-1550",),
    "habana.ai/gaudi": ("Gaudi", "Gaudi2", "Gaudi3"),
    "google.com/tpu": ("TPU-v2", "TPU-v3", "TPU-v4", "TPU-v5e", "TPU-v5p", "TPU-v6e"),
    "aws.amazon.com/neuron": ("Trainium", "Trainium2", "Inferentia", "Inferentia2"),
    "huawei.com/Ascend910": ("910B",),
}
# Node labels that name the model of accelerator.
MODEL_LABELS = frozenset(
    (
        "nvidia.com/gpu.product",
        "cloud.google.com/gke-accelerator",
        "cloud.google.com/gke-tpu-accelerator",
        "k8s.amazonaws.com/accelerator",
        "karpenter.k8s.aws/instance-gpu-name",
        "gpu.nvidia.com/class",
        "gpu.nvidia.com/model",
        "skypilot.co/accelerator",
        "amd.com/gpu.product-name",
        "accelerator",
    )
)
REGION_LABELS = frozenset(
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
)
EVERYWHERE = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}


class BadValue(ValueError):
    """A value that cannot be used: why, and what would be right."""


def quantity(item: Item) -> Decimal:
    """The number of a quantity such as `500m`, `2`, `1.5Gi` or `1e3`. Raises BadValue."""
    text = (item.scalar or "").strip()
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise BadValue("not a quantity: write for example 500m, 2, 64Gi")
    suffix = match[2] or ""
    number = Decimal(match[1])
    if suffix[:1] in ("e", "E") and suffix not in _FACTORS:
        return number * Decimal(10) ** int(suffix[1:])
    return number * _FACTORS[suffix]


def bytes_of(item: Item) -> int:
    """Whole bytes of a quantity, rounded up. Raises BadValue."""
    size = int(quantity(item).to_integral_value(ROUND_CEILING))
    if not 0 < size <= 1 << 60:
        raise BadValue("nothing, or more than 1 EiB")
    return size


def cpus_of(item: Item) -> int | float:
    """Cpus of a quantity, in thousandths rounded up. Raises BadValue."""
    milli = int((quantity(item) * 1000).to_integral_value(ROUND_CEILING))
    if not 0 < milli <= 4_096_000:
        raise BadValue("outside 1m to 4096")
    return milli // 1000 if milli % 1000 == 0 else milli / 1000


def whole(item: Item, least: int = 0) -> int:
    """A whole number. Raises BadValue."""
    value: object = item.value
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 2**31:
        raise BadValue(f"not a whole number from {least} on")
    return value
