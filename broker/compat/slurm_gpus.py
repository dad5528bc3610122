"""GPUs in every form Slurm knows: --gres, --gpus, and per node, socket and task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.compat import slurm_values as values
from broker.compat.accelerator_names import ANY_NVIDIA, UnknownModel, is_model, models
from broker.compat.slurm_asked import Asked
from broker.compat.slurm_values import Gres

_FORMS = ("gres", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "tres-per-task")
_FRACTIONS = ("mps", "shard")


@dataclass(frozen=True, slots=True)
class Gpus:
    """Counts by form (`gpus` is a total, the others are per node, socket, task) and models."""

    counts: dict[str, int] = field(default_factory=dict)
    models: tuple[str, ...] = ()

    def implied_nodes(self) -> int | None:
        """The nodes that a total and a count per node make."""
        total, each = self.counts.get("gpus"), self._each()
        return -(-total // each) if total and each else None

    def total(self, nodes: int) -> int | None:
        """GPUs in all, where that does not hang on the tasks."""
        each = self._each()
        return self.counts.get("gpus", each * nodes if each else None)

    def _each(self) -> int | None:
        return self.counts.get("gpus-per-node", self.counts.get("gres"))

    def per_node(self, asked: Asked, nodes: int, tasks: int) -> int | None:
        """GPUs a node; None when the forms contradict each other (told)."""
        found: dict[str, int] = {}
        for name, number in self.counts.items():
            total = self._in_all(asked, name, number, nodes, tasks)
            if total is None:
                return None
            found[name] = total
        if len(set(found.values())) > 1:
            first, *others = found
            for name in others:
                if found[name] != found[first]:
                    asked.error(
                        name,
                        f"means {found[name]} GPUs in all, {asked.written(first)} means"
                        f" {found[first]}",
                    )
            return None
        total = next(iter(found.values()), 0)
        if total % nodes:
            name = next(iter(found))
            asked.error(name, f"{total} GPUs do not part evenly over {nodes} nodes")
            return None
        return total // nodes

    def _in_all(
        self, asked: Asked, name: str, number: int, nodes: int, tasks: int
    ) -> int | None:
        if name == "gpus":
            return number
        if name in ("gpus-per-task", "tres-per-task"):
            return number * tasks
        if name == "gpus-per-socket":
            sockets = asked.number("sockets-per-node")
            if sockets is None:
                asked.error(name, "needs --sockets-per-node too")
                return None
            return number * sockets * nodes
        return number * nodes


def read_gpus(asked: Asked) -> Gpus | None:
    """The GPUs asked for; None if there are none, or something about them was told to be wrong."""
    counts: dict[str, int] = {}
    kinds: dict[str, str] = {}
    for name in _FORMS:
        found = asked.read(name, values.gpus if name.startswith("gpus") else _gres_of(name))
        cards = _cards(asked, name, found or ())
        if cards is None:
            continue
        counts[name] = cards.count
        if cards.type:
            kinds.setdefault(cards.type, name)
    if not any(counts.values()):
        return None
    names = _names(asked, kinds, next(name for name, number in counts.items() if number))
    return None if names is None else Gpus(counts, names)


def _gres_of(name: str) -> Callable[[str], tuple[Gres, ...]]:
    if name != "tres-per-task":
        return values.gres

    def of_tres(text: str) -> tuple[Gres, ...]:
        parts = [part for part in text.split(",") if part.strip().startswith("gres")]
        if len(parts) < len(text.split(",")):
            raise values.BadValue("only gres/gpu:N is read here; give cpus by --cpus-per-task")
        return values.gres(",".join(parts))

    return of_tres


def _cards(asked: Asked, name: str, found: tuple[Gres, ...]) -> Gres | None:
    cards = [one for one in found if one.name == "gpu"]
    for one in found:
        if one.name in _FRACTIONS:
            asked.error(
                name, f"{one.name}: parts of a GPU cannot be asked for; ask for whole ones"
            )
        elif one.name != "gpu":
            asked.warning(name, f"{one.name}: only GPUs are known here; the rest is left out")
    if len(cards) > 1:
        asked.error(
            name, "two kinds of GPU on one node cannot be asked for: a job has one shape"
        )
        return None
    return cards[0] if cards else None


def _names(asked: Asked, kinds: dict[str, str], form: str) -> tuple[str, ...] | None:
    try:
        named = {kind: models([kind]) for kind in kinds}
    except UnknownModel as error:
        kind = next(kind for kind in kinds if not is_model(kind))
        asked.error(kinds[kind], f"{error}: write the model, as in gpu:a100:2")
        return None
    if len(set(named.values())) > 1:
        name = list(kinds.values())[-1]
        asked.error(name, f"two models at once: {' and '.join(kinds)}")
        return None
    if named:
        return next(iter(named.values()))
    return _any_model(asked, form)


def _any_model(asked: Asked, form: str) -> tuple[str, ...]:
    """Without a type: the models that --constraint names, else any usual card."""
    if "constraint" in asked:
        words = [word.strip("[]() ") for word in asked.given["constraint"].value.split("|")]
        if words and all(is_model(word) for word in words):
            asked.translated("constraint", f"GPU models: {' or '.join(words)}")
            return models(words)
    asked.warning(
        form, "no model of GPU is named: any NVIDIA card of the federation will do, and cost"
        " decides which; name one, as in gpu:a100:2"
    )  # fmt: skip
    return ANY_NVIDIA
