"""From the names of accelerators in old scripts to those of the job format."""

from __future__ import annotations

from collections.abc import Sequence

from federation.accelerators import InvalidAccelerator, canonical_names

# What "a GPU" without a type may be: CUDA cards a batch site is likely to have. The job format
# takes at most 32 alternatives of one count.
ANY_NVIDIA: tuple[str, ...] = (
    "GB300", "GB200", "B300", "B200", "GH200", "H200", "H200-NVL", "H100", "H100-PCIe", "H100-NVL",
    "H800", "H20", "A100-40GB", "A100-80GB", "A800-80GB", "L40S", "L40", "L4", "A40", "A30", "A10",
    "A10G", "T4", "V100-16GB", "V100-32GB", "P100", "RTX-PRO-6000", "RTX-6000-Ada", "RTX-A6000",
    "RTX-A5000", "RTX-4090", "RTX-3090",
)  # fmt: skip


class UnknownModel(ValueError):
    """A name that stands for no accelerator known here; says which may be meant."""


def models(names: Sequence[str]) -> tuple[str, ...]:
    """Canonical names of these models, each once, in order. Raises UnknownModel."""
    found: dict[str, None] = {}
    for name in names:
        try:
            found.update(dict.fromkeys(canonical_names(name)))
        except InvalidAccelerator as error:
            text = f"{name[:60]!r} is no accelerator known here; {error.remedy}"
            raise UnknownModel(text) from None
    if "CPU" in found:
        raise UnknownModel("CPU is no accelerator")
    return tuple(found)


def is_model(name: str) -> bool:
    """Whether `name` stands for an accelerator."""
    try:
        return "CPU" not in canonical_names(name)
    except InvalidAccelerator:
        return False


def request(names: Sequence[str], count: int) -> str | list[str]:
    """The value of `accelerators` for so many of any of these."""
    texts = [f"{name}:{count}" for name in names]
    return texts[0] if len(texts) == 1 else texts
