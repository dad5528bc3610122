"""Keys of everything kept in etcd, and who alone may write each.

One writer per key: `specs`, `intents`, `idempotency`, `tokens`, `tenants`, `policies` and
`enrolments` are the API's; `jobs` is created by the API and from then on the leader's; `attempts`,
`tasks`, `seqs` and `broker` are the leader's; `freeze` is the API's; `clusters` and `reports`
belong to the replica that holds the session, a record under `replicas` to the replica it names.
"""

from __future__ import annotations

ROOT = "/tradewind/v1/"
SPECS = ROOT + "specs/"
JOBS = ROOT + "jobs/"
INTENTS = ROOT + "intents/"
ATTEMPTS = ROOT + "attempts/"
TASKS = ROOT + "tasks/"
REPORTS = ROOT + "reports/"
CLUSTERS = ROOT + "clusters/"
SEQS = ROOT + "seqs/"
ENROLMENTS = ROOT + "enrolments/"
TENANTS = ROOT + "tenants/"
DATASETS = ROOT + "datasets/"
POLICIES = ROOT + "policies/"
TOKENS = ROOT + "tokens/"
IDEMPOTENCY = ROOT + "idempotency/"
EPOCH = ROOT + "broker/epoch"
LEADER = ROOT + "broker/leader"
REPLICAS = ROOT + "replicas/"
SHARES = ROOT + "broker/shares"
HOLDS = ROOT + "broker/holds"
WAITS = ROOT + "broker/waits/"
PREEMPTIONS = ROOT + "broker/preemptions"
PROPOSAL = ROOT + "broker/proposal"
FREEZE = ROOT + "freeze"

REPORT_KINDS = ("capacity", "price", "latency", "cache")


def spec(job: str) -> str:
    """Immutable spec of a job."""
    return SPECS + job


def job(job: str) -> str:
    """State of a job."""
    return JOBS + job


def intent(job: str) -> str:
    """What users asked of a job since it was submitted: cancel, hold, priority."""
    return INTENTS + job


def attempt(cluster: str, uid: str) -> str:
    """One attempt, listed by cluster so that a returning site is one range."""
    return f"{ATTEMPTS}{cluster}/{uid}"


def task_chunk(job: str, chunk: int) -> str:
    """States of 16,384 array tasks; chunk numbers sort as text."""
    return f"{TASKS}{job}/{chunk:04d}"


def tasks_of(job: str) -> str:
    """Prefix of all task chunks of a job."""
    return f"{TASKS}{job}/"


def report(cluster: str, kind: str) -> str:
    """Latest report of one kind."""
    return f"{REPORTS}{cluster}/{kind}"


def cluster(name: str) -> str:
    """Identity of a cluster."""
    return CLUSTERS + name


def dispatch_seq(cluster: str) -> str:
    """Number of the last command decided for a cluster; never goes back."""
    return f"{SEQS}{cluster}/dispatch"


def event_seq(cluster: str) -> str:
    """Number of the last event of a cluster that is in the books; never goes back."""
    return f"{SEQS}{cluster}/events"


def enrolment(token_sha256: str) -> str:
    """An invitation, by the hash of its token."""
    return ENROLMENTS + token_sha256


def replica(name: str) -> str:
    """Where a broker is reached, while it lives."""
    return REPLICAS + name


def tenant(name: str) -> str:
    """Quota and defaults of a tenant."""
    return TENANTS + name


def dataset(name: str) -> str:
    """Size and places of a dataset."""
    return DATASETS + name


def policy(name: str) -> str:
    """The version of a policy in force."""
    return POLICIES + name


def policy_version(name: str, version: int) -> str:
    """One version of a policy, kept for ever; version numbers sort as text."""
    return f"{POLICIES}{name}/v/{version:08d}"


def policy_versions(name: str) -> str:
    """Prefix of all versions of a policy."""
    return f"{POLICIES}{name}/v/"


def token(token_id: str) -> str:
    """A bearer token's hash, by the public part of it."""
    return TOKENS + token_id


def idempotency(tenant: str, key_sha256: str) -> str:
    """What a request with this Idempotency-Key made."""
    return f"{IDEMPOTENCY}{tenant}/{key_sha256}"


def last_part(key: str) -> str:
    """The part after the last slash: the record's own name."""
    return key.rsplit("/", 1)[1]
