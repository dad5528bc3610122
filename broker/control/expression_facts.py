"""What expressions of policies may ask of a job and of a cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.model.fleet import ClusterIdentity, ClusterState
from federation.ids import Cluster, Region
from federation.jobs import JobSpec, parse_job_spec

GIB = 1024**3


def job_facts(spec: JobSpec) -> Mapping[str, Mapping[str, Any]]:
    """`job.` and its names. Amounts are per replica; hours are 0 where nothing was said."""
    resources = spec.resources
    return {
        "job": {
            "tenant": spec.tenant or "",
            "kind": spec.kind,
            "labels": dict(spec.labels),
            "priority": spec.priority,
            "image": spec.image or "",
            "replicas": resources.replicas,
            "accelerators": list(resources.accelerator_models),
            "accelerator_count": resources.accelerator_count,
            "cpus": resources.cpus_milli / 1000,
            "memory_gib": resources.memory_bytes / GIB,
            "max_runtime_h": (spec.max_runtime_s or 0) / 3600,
            "expected_runtime_h": (spec.expected_runtime_s or 0) / 3600,
            "tasks": spec.array.tasks.count if spec.array else 1,
            "user_region": spec.placement.user_region or "",
        }
    }


def cluster_facts(identity: ClusterIdentity) -> Mapping[str, Mapping[str, Any]]:
    """`cluster.` and its names."""
    return {
        "cluster": {
            "name": str(identity.name),
            "region": str(identity.region),
            "scheduler": identity.scheduler,
            "isolation": identity.isolation,
            "capabilities": list(identity.capabilities),
        }
    }


SAMPLE_JOB = job_facts(parse_job_spec({"run": "true", "tenant": "default"}))
SAMPLE_CLUSTER = cluster_facts(
    ClusterIdentity(Cluster("a"), Region("a"), ClusterState.JOINED, "process", "per-user")
)
