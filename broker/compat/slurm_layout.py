"""How many nodes, tasks, cpus, GPUs and how much memory an sbatch script asks for.

Slurm gives an allocation of nodes in which tasks are laid out; a job here is a gang of replicas.
One node is one replica: what a replica gets is what Slurm would give on the fullest node.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.compat import slurm_values as values
from broker.compat.slurm_asked import Asked
from broker.compat.slurm_gpus import Gpus, read_gpus

_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of an allocation. Per node: `cpus`, `gpus`, `memory_bytes` (None = not said)."""

    nodes: int
    tasks: int
    tasks_per_node: int
    cpus_per_task: int
    cpus: int
    gpus: int
    gpu_models: tuple[str, ...] = ()
    memory_bytes: int | None = None


def arrange(asked: Asked) -> Layout | None:
    """The layout asked for; None when the options contradict each other (told)."""
    gpus = read_gpus(asked)
    nodes = _nodes(asked, gpus)
    tasks, per_node = _tasks(asked, nodes, gpus)
    if nodes is None:
        nodes = -(-tasks // per_node) if tasks is not None and per_node else 1
    if tasks is None:
        tasks = nodes * (per_node or 1)
    nodes = _not_more_nodes_than_tasks(asked, nodes, tasks)
    fullest = -(-tasks // nodes)
    if per_node is not None and fullest > per_node:
        asked.error(
            "ntasks-per-node", f"{tasks} tasks do not fit on {nodes} nodes with {per_node} each"
        )
        return None
    if tasks % nodes:
        asked.translated("ntasks", f"every node gets room for {fullest} tasks")
    gpu_count = gpus.per_node(asked, nodes, tasks) if gpus else 0
    if gpu_count is None:
        return None
    cpus_per_task = _cpus_per_task(asked)
    cpus = _cpus(asked, fullest * cpus_per_task, gpu_count)
    return Layout(
        nodes=nodes,
        tasks=tasks,
        tasks_per_node=fullest,
        cpus_per_task=cpus_per_task,
        cpus=cpus,
        gpus=gpu_count,
        gpu_models=gpus.models if gpus and gpu_count else (),
        memory_bytes=_memory(asked, cpus, gpu_count),
    )


def _nodes(asked: Asked, gpus: Gpus | None) -> int | None:
    found = asked.read("nodes", values.nodes)
    if found is None:
        total = gpus.implied_nodes() if gpus else None
        return total
    least, most = found
    if least < most:
        asked.translated("nodes", f"{least} nodes: a job has one size here")
    return least


def _tasks(asked: Asked, nodes: int | None, gpus: Gpus | None) -> tuple[int | None, int | None]:
    """(tasks in all, tasks a node), each None if not said."""
    tasks, per_node = asked.number("ntasks"), asked.number("ntasks-per-node")
    per_gpu = asked.number("ntasks-per-gpu")
    if per_gpu is not None:
        total = gpus.total(nodes or 1) if gpus else None
        if total is None:
            asked.error("ntasks-per-gpu", "no GPUs are asked for")
        elif tasks is None:
            tasks = total * per_gpu
        elif tasks != total * per_gpu:
            asked.error("ntasks-per-gpu", f"{total} GPUs would have {total * per_gpu} tasks")
    sockets, per_socket = asked.number("sockets-per-node"), asked.number("ntasks-per-socket")
    if per_socket is not None:
        if sockets is None or per_node is not None:
            asked.warning(
                "ntasks-per-socket", "sockets are the site's matter: not carried over"
            )
        else:
            per_node = per_socket * sockets
            asked.translated("ntasks-per-socket", f"{per_node} tasks a node")
    if "ntasks-per-core" in asked:
        asked.number("ntasks-per-core")
        asked.ignored("ntasks-per-core", "every cpu asked for is given")
    return tasks, per_node


def _not_more_nodes_than_tasks(asked: Asked, nodes: int, tasks: int) -> int:
    if tasks >= nodes:
        return nodes
    asked.warning(
        "nodes", f"{tasks} tasks run on {tasks} nodes, not {nodes}: as sbatch does it"
    )
    return tasks


def _cpus_per_task(asked: Asked) -> int:
    """Cpus of a task, as -c says; 1 if not said."""
    return asked.number("cpus-per-task") or 1


def _cpus(asked: Asked, of_tasks: int, gpus: int) -> int:
    cpus = of_tasks
    per_gpu = asked.number("cpus-per-gpu")
    if per_gpu is not None:
        if "cpus-per-task" in asked:
            asked.error("cpus-per-gpu", "contradicts --cpus-per-task: give one of them")
        elif not gpus:
            asked.error("cpus-per-gpu", "no GPUs are asked for")
        else:
            cpus = max(cpus, per_gpu * gpus)
    least = asked.number("mincpus")
    if least is not None:
        asked.understood("mincpus", f"at least {least} cpus a node")
        cpus = max(cpus, least)
    return max(cpus, _processors(asked))


def _processors(asked: Asked) -> int:
    """The least cpus of a node that has the sockets, cores and threads asked for."""
    found = asked.read("extra-node-info", _sockets)
    if found:
        asked.translated("extra-node-info", f"at least {found} cpus a node")
        return found
    product, said = 1, False
    for name in ("sockets-per-node", "cores-per-socket", "threads-per-core"):
        number = asked.number(name)
        if number is not None:
            asked.ignored(name, "sockets, cores and threads are the site's matter: cpus count")
            product, said = product * number, said or name == "cores-per-socket"
    return product if said else 0


def _sockets(text: str) -> int:
    fields = text.split(":")
    if len(fields) > 3:
        raise values.BadValue("not sockets:cores:threads")
    product = 1
    for field in fields:
        product *= 1 if field == "*" else values.count(field)
    return product


def _memory(asked: Asked, cpus: int, gpus: int) -> int | None:
    """Bytes a node; None = not said, or told to be wrong."""
    named = [name for name in _MEMORY if name in asked]
    spoken = [name for name in named if asked.line(name) == 0]
    if spoken and len(spoken) < len(named):  # the command line puts the script's aside
        for name in set(named) - set(spoken):
            asked.ignored(name, f"the command line says {asked.written(spoken[0])}")
        named = spoken
    if len(named) > 1:
        others = " and ".join(asked.written(name) for name in named[:-1])
        asked.error(named[-1], f"contradicts {others}: give one of them")
        return None
    for name in named:
        size_bytes = asked.read(name, values.memory_bytes)
        if size_bytes == 0:
            asked.error(
                name, "all memory of a node cannot be asked for: say how much is needed"
            )
            return None
        if size_bytes is None:
            return None
        if name == "mem-per-gpu" and not gpus:
            asked.error(name, "no GPUs are asked for")
            return None
        return size_bytes * {"mem": 1, "mem-per-cpu": cpus, "mem-per-gpu": gpus}[name]
    return None
