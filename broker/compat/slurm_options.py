"""Every option of sbatch: its long and short form, whether it takes a value, and what becomes of
it where no code of its own decides that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from broker.compat.notes import Level


class Takes(StrEnum):
    """Whether an option has a value; an optional one is written with `=` only."""

    NOTHING = "nothing"
    VALUE = "value"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class Option:
    """One option. With a `level` nothing but a note is made of it, and `text` says why."""

    long: str
    short: str = ""
    takes: Takes = Takes.VALUE
    level: Level | None = None
    text: str = ""
    env: str = ""


def _read(long: str, short: str = "", env: str = "", takes: Takes = Takes.VALUE) -> Option:
    return Option(long, short, takes, env=env)


def _flag(long: str, short: str = "", env: str = "") -> Option:
    return Option(long, short, Takes.NOTHING, env=env)


def _ignored(long: str, text: str, short: str = "", takes: Takes = Takes.VALUE) -> Option:
    return Option(long, short, takes, Level.IGNORED, text)


def _warned(long: str, text: str, short: str = "", takes: Takes = Takes.VALUE) -> Option:
    return Option(long, short, takes, Level.WARNING, text)


def _refused(long: str, text: str, short: str = "", takes: Takes = Takes.VALUE) -> Option:
    return Option(long, short, takes, Level.ERROR, text)


_SITE = "is a matter of one site; Tradewind chooses the place"
_NODES = "names nodes of one site, and is not carried over"
_BINDING = "binding is left to the site"
_STEPS = "concerns job steps, and is not carried over"

OPTIONS: tuple[Option, ...] = (
    # What the job needs
    _read("nodes", "N"), _read("ntasks", "n"), _read("cpus-per-task", "c"),
    _read("ntasks-per-node"), _read("ntasks-per-gpu"), _read("ntasks-per-socket"),
    _read("ntasks-per-core"), _read("mincpus"), _read("extra-node-info", "B"),
    _read("sockets-per-node"), _read("cores-per-socket"),
    _read("threads-per-core", env="SBATCH_THREADS_PER_CORE"),
    _read("cpus-per-gpu", env="SBATCH_CPUS_PER_GPU"),
    _read("gres", env="SBATCH_GRES"), _read("gpus", "G", "SBATCH_GPUS"),
    _read("gpus-per-node", env="SBATCH_GPUS_PER_NODE"), _read("gpus-per-socket"),
    _read("gpus-per-task", env="SBATCH_GPUS_PER_TASK"), _read("tres-per-task"),
    _read("mem", env="SBATCH_MEM_PER_NODE"), _read("mem-per-cpu", env="SBATCH_MEM_PER_CPU"),
    _read("mem-per-gpu", env="SBATCH_MEM_PER_GPU"), _read("tmp"),
    _read("time", "t", "SBATCH_TIMELIMIT"), _read("array", "a", "SBATCH_ARRAY_INX"),
    _read("constraint", "C", "SBATCH_CONSTRAINT"), _read("prefer"), _read("licenses", "L"),
    _read("exclusive", "", "SBATCH_EXCLUSIVE", Takes.OPTIONAL), _read("switches"),
    # What it is called, who pays, in what order
    _read("job-name", "J", "SBATCH_JOB_NAME"), _read("account", "A", "SBATCH_ACCOUNT"),
    _read("partition", "p", "SBATCH_PARTITION"), _read("qos", "q", "SBATCH_QOS"),
    _read("comment"), _read("clusters", "M", "SBATCH_CLUSTERS"),
    _read("dependency", "d"), _read("begin", "b"), _read("signal", env="SBATCH_SIGNAL"),
    _flag("requeue", env="SBATCH_REQUEUE"), _flag("no-requeue", env="SBATCH_NO_REQUEUE"),
    # Its surroundings
    _read("chdir", "D"), _read("workdir"), _read("output", "o", "SBATCH_OUTPUT"),
    _read("error", "e", "SBATCH_ERROR"), _read("input", "i", "SBATCH_INPUT"),
    _read("open-mode", env="SBATCH_OPEN_MODE"), _read("export", env="SBATCH_EXPORT"),
    _read("container-image"), _read("wrap"),
    # What is asked of the submit command itself
    _flag("wait", "W", "SBATCH_WAIT"), _flag("parsable"), _flag("test-only"), _flag("quiet", "Q"),
    _flag("verbose", "v"), _flag("help", "h"), _flag("usage"), _flag("version", "V"),
    _flag("ignore-pbs", env="SBATCH_IGNORE_PBS"),
    # Without effect, and nothing is lost
    _ignored("mail-type", "Tradewind sends no mail: use `tradewind wait` or the event stream"),
    _ignored("mail-user", "Tradewind sends no mail"),
    _ignored("acctg-freq", "usage is sampled as the site does it"),
    _ignored("cpu-freq", "the site decides on frequencies"),
    _ignored("gpu-freq", "the site decides on frequencies"),
    _ignored("power", "the site decides on power"), _ignored("delay-boot", _SITE),
    _ignored("profile", "profiles of the site are not collected"),
    _ignored("propagate", "limits of the submitting shell are not sent", takes=Takes.OPTIONAL),
    _ignored("mem-bind", _BINDING), _ignored("gpu-bind", _BINDING), _ignored("hint", _BINDING),
    _ignored("tres-bind", _BINDING), _ignored("gres-flags", _BINDING),
    _ignored("distribution", "srun of this job lays tasks out in blocks", "m"),
    _ignored("wckey", "accounting labels of a site are not carried over"),
    _ignored("mcs-label", "labels of a site are not carried over"),
    _ignored("nice", "priorities of a site are not carried over", takes=Takes.OPTIONAL),
    _ignored("time-min", "the job asks for its whole --time"),
    _ignored("use-min-nodes", _SITE, takes=Takes.NOTHING),
    _ignored("spread-job", _SITE, takes=Takes.NOTHING),
    _ignored("wait-all-nodes", "the members of a gang start together here anyway"),
    _ignored("kill-on-invalid-dep", "a job whose dependency can never hold ends here anyway"),
    _ignored("no-kill", "one lost member ends the attempt", "k", Takes.OPTIONAL),
    _ignored("oversubscribe", "the site decides on sharing", "s", Takes.NOTHING),
    _ignored("share", "the site decides on sharing", takes=Takes.NOTHING),
    _ignored("gid", "the job runs as the site maps its tenant"),
    _ignored("extra", "a text for plugins of one site"),
    _ignored("stepmgr", _STEPS, takes=Takes.NOTHING),
    _ignored("resv-ports", _STEPS, takes=Takes.OPTIONAL),
    _ignored("oom-kill-step", "out of memory ends the attempt", takes=Takes.OPTIONAL),
    _ignored("consolidate-segments", _SITE, takes=Takes.NOTHING),
    _ignored("spread-segments", _SITE, takes=Takes.NOTHING),
    _ignored("segment", _SITE), _ignored("jobid", "ids are given by the broker"),
    _ignored("priority", "priorities of a site are not carried over; use `tradewind priority`"),
    # The job may run otherwise
    _warned("nodelist", _NODES, "w"), _warned("exclude", _NODES, "x"),
    _warned("nodefile", _NODES, "F"),
    _warned("batch", "the features of the first node are a site's own, and not carried over"),
    _warned("cluster-constraint", "features of clusters are not known here; name clusters"),
    _warned("contiguous", "neighbouring nodes cannot be asked for", takes=Takes.NOTHING),
    _warned("core-spec", "cores for the system are the site's matter", "S"),
    _warned("thread-spec", "threads for the system are the site's matter"),
    _warned("overcommit", "every cpu asked for is given", "O", Takes.NOTHING),
    _warned("reservation", "reservations of a site are not used"),
    _warned("network", "network settings of a site are not carried over"),
    _warned("get-user-env", "the login environment of the site is not read", takes=Takes.OPTIONAL),
    _warned("deadline", "not carried over: a job file has `deadline:`"),
    _warned("reboot", "nodes are not rebooted", takes=Takes.NOTHING),
    _warned("container-mounts", "directories of a site are not mounted into the container"),
    _warned("container-workdir", "the job starts in its own directory"),
    _warned("container-name", "containers are not kept between jobs"),
    _warned("container-save", "containers are not saved"),
    _warned("container-mount-home", "the home directory of a site is not mounted",
            takes=Takes.NOTHING),
    _warned("no-container-mount-home", "the home directory of a site is not mounted",
            takes=Takes.NOTHING),
    _warned("container-remap-root", "the site decides as whom a container runs",
            takes=Takes.NOTHING),
    _warned("no-container-remap-root", "the site decides as whom a container runs",
            takes=Takes.NOTHING),
    _warned("container-writable", "the site decides whether a container is writable",
            takes=Takes.NOTHING),
    _warned("container-readonly", "the site decides whether a container is writable",
            takes=Takes.NOTHING),
    _warned("container-entrypoint", "the entry point of the image is not run", takes=Takes.NOTHING),
    _warned("no-container-entrypoint", "the entry point of the image is not run",
            takes=Takes.NOTHING),
    _warned("checkpoint", "checkpoints of Slurm are not made; write them in the job"),
    _warned("checkpoint-dir", "checkpoints of Slurm are not made; write them in the job"),
    # There is no right job for it
    _refused("hold", "a job cannot be held before it is there: submit it without, then"
             " `tradewind hold`", "H", Takes.NOTHING),
    _refused("bb", "burst buffers are of one site; stage data in the job"),
    _refused("bbf", "burst buffers are of one site; stage data in the job"),
    _refused("container", "an OCI bundle lies at one site; name an image: --container-image"),
    _refused("container-id", "containers are not named here"),
    _refused("export-file", "variables cannot be read from a file here; write --export=NAME=VALUE"),
    _refused("uid", "a job runs as its submitter; only root of a site may say otherwise"),
)  # fmt: skip

BY_LONG = {option.long: option for option in OPTIONS}
BY_SHORT = {option.short: option for option in OPTIONS if option.short}
# Variables of the submitting shell that stand for an option.
ENV_NAMES = {option.env: option for option in OPTIONS if option.env}


def find_long(name: str) -> Option | tuple[str, ...]:
    """The option of that long name or unique beginning; else the names it may begin."""
    exact = BY_LONG.get(name)
    if exact is not None:
        return exact
    begun = tuple(long for long in BY_LONG if long.startswith(name)) if name else ()
    return BY_LONG[begun[0]] if len(begun) == 1 else begun
