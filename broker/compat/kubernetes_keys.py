"""Keys of pods and containers, and what becomes of each."""

from __future__ import annotations

POD_IGNORED = {
    "restartPolicy": "attempts are counted by `retry`",
    "serviceAccountName": "the job runs with no account of a cluster",
    "serviceAccount": "the job runs with no account of a cluster",
    "automountServiceAccountToken": "the job runs with no account of a cluster",
    "enableServiceLinks": "no services of a cluster are known to the job",
    "tolerations": "the site decides where its taints are tolerated",
    "schedulerName": "the site decides on its scheduler",
    "priority": "priorities of a cluster are not carried over",
    "preemptionPolicy": "priorities of a cluster are not carried over",
    "dnsPolicy": "names are resolved as the site does it",
    "imagePullSecrets": "the site pulls images with its own credentials",
    "shareProcessNamespace": "there is one container",
    "setHostnameAsFQDN": "names are the site's",
    "os": "jobs run on Linux",
    "runtimeClassName": "the site decides how it runs containers",
}
POD_WARNED = {
    "priorityClassName": "not carried over: use `tradewind priority`",
    "affinity": "rules about one cluster's nodes are not carried over",
    "topologySpreadConstraints": "rules about one cluster's nodes are not carried over",
    "nodeName": "a node of one cluster is not carried over",
    "securityContext": "the site decides as whom the job runs",
    "hostname": "names are the site's",
    "subdomain": "names are the site's: members find each other by MASTER_ADDR",
    "hostAliases": "names are the site's",
    "dnsConfig": "names are resolved as the site does it",
    "hostNetwork": "the site decides on networks",
    "hostIPC": "the site decides what is shared with its host",
    "hostPID": "the site decides what is shared with its host",
    "schedulingGates": "gates of one cluster are not waited for",
    "overhead": "the site counts its own overhead",
}
CONTAINER_IGNORED = {
    "name": "",
    "imagePullPolicy": "the site decides when it pulls",
    "terminationMessagePath": "what a job prints is its log",
    "terminationMessagePolicy": "what a job prints is its log",
    "stdin": "a batch job has no input",
    "stdinOnce": "a batch job has no input",
    "tty": "no terminal is given to a batch job",
    "resizePolicy": "a running job keeps its size",
}
CONTAINER_WARNED = {
    "livenessProbe": "probes are not made",
    "readinessProbe": "probes are not made",
    "startupProbe": "probes are not made",
    "securityContext": "the site decides as whom it runs",
    "ports": "the members of a job reach each other; nothing is published",
    "lifecycle": "hooks are not run",
}

POD_READ = frozenset(
    (
        "containers",
        "volumes",
        "nodeSelector",
        "terminationGracePeriodSeconds",
        "activeDeadlineSeconds",
        "initContainers",
        "ephemeralContainers",
    )
)
CONTAINER_READ = frozenset(
    ("image", "command", "args", "env", "resources", "workingDir", "volumeMounts")
)
