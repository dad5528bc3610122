"""The features of a pool's nodes, as far as they are reported. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from federation.features import FEATURE
from regional_agent.slurm.nodes import NodeFacts

SETS_MAX = 32
"""Different sets of features in one pool; each makes groups of nodes of its own in every report."""
WORDS_MAX = 48
"""Features of one node."""


def features_of(
    nodes: Sequence[NodeFacts],
) -> tuple[tuple[frozenset[str], ...], tuple[str, ...]]:
    """By node what jobs may ask for, empty where no node has any; and the words left out: those no
    job could write down, and, where nodes differ in too many ways (racks, serial numbers), the
    rarest."""
    counts = Counter(word for node in nodes for word in set(node.features))
    left_out = {word for word in counts if not re.fullmatch(FEATURE, word)}
    kept = sorted(counts.keys() - left_out, key=lambda word: (-counts[word], word))
    while True:
        known = frozenset(kept)
        found = tuple(known.intersection(node.features) for node in nodes)
        if len(set(found)) <= SETS_MAX and max(map(len, found), default=0) <= WORDS_MAX:
            break
        fewest = counts[kept[-1]]
        rare = [word for word in kept if counts[word] == fewest]
        drop = rare if len(rare) < len(kept) else rare[len(rare) // 2 :]
        left_out.update(drop)
        kept = [word for word in kept if word not in left_out]
    return (found if kept else ()), tuple(sorted(left_out))
