"""Manifests, container file and collector's configuration: valid, and as tight as they say."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from regional_agent.settings import load_settings
from regional_agent.site_file import load_site_policy

ROOT = Path(__file__).resolve().parents[3]
KUBERNETES = ROOT / "deploy/kubernetes"
JOBS = ROOT / "deploy/kubernetes-jobs"
CARRY = ROOT / "deploy/kubernetes-carry"
SCHEMA = json.loads((Path(__file__).parent / "kubernetes.schema.json").read_text())


def written() -> list[dict[str, Any]]:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    there = {f.name for f in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(listed) == there, "every file is listed"
    return [
        body for name in listed for body in yaml.safe_load_all((KUBERNETES / name).read_text())
    ]


def rendered(directory: Path = KUBERNETES) -> list[dict[str, Any]]:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    done = subprocess.run(
        ["kubectl", "kustomize", str(directory)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def check(bodies: list[dict[str, Any]]) -> None:
    validator = jsonschema_rs.validator_for(SCHEMA)
    for body in bodies:
        errors = [str(error) for error in validator.iter_errors(body)]
        assert not errors, (body["kind"], errors)


def test_manifests_are_valid_as_they_are_written() -> None:
    check(written())


def test_manifests_are_valid_as_kustomize_renders_them() -> None:
    bodies = rendered()
    check(bodies)
    assert {body["metadata"].get("namespace") for body in bodies if body["kind"] != "Namespace"} \
        == {"tradewind"}  # fmt: skip
    maps = [body for body in bodies if body["kind"] == "ConfigMap"]
    assert [sorted(each["data"]) for each in maps] == [["agent.yaml", "site.yaml"]]


def test_the_schema_finds_a_misspelt_field() -> None:
    (deployment,) = [body for body in written() if body["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["serviceAcountName"] = "x"
    with pytest.raises(AssertionError):
        check([deployment])


def test_the_role_is_small_and_has_no_secrets() -> None:
    bodies = written()
    assert not [body for body in bodies if body["kind"] in ("ClusterRole", "ClusterRoleBinding")]
    (role,) = [body for body in bodies if body["kind"] == "Role"]
    granted = {name for rule in role["rules"] for name in rule["resources"]}
    assert granted == {
        "jobs", "jobsets", "pods", "services", "resourcequotas", "resourceclaimtemplates",
        "localqueues",
    }  # fmt: skip
    assert "*" not in json.dumps(role)
    (binding,) = [body for body in bodies if body["kind"] == "RoleBinding"]
    assert binding["roleRef"]["kind"] == "Role"


def test_with_jobs_of_the_cluster_the_agent_may_list_what_tells_it_what_is_free() -> None:
    bodies = rendered(JOBS)
    check(bodies)
    (role,) = [body for body in bodies if body["kind"] == "ClusterRole"]
    granted = sorted(name for rule in role["rules"] for name in rule["resources"])
    assert granted == [
        "clusterqueues", "nodes", "pods", "resourceclaims", "resourceflavors", "resourceslices",
    ]  # fmt: skip
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list"}
    (claim,) = [body for body in bodies if body["kind"] == "PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    (said,) = [body["data"]["agent.yaml"] for body in bodies if body["kind"] == "ConfigMap"]
    assert "scheduler: kubernetes" in said
    assert len([body for body in bodies if body["kind"] == "Deployment"]) == 1


def test_where_files_are_carried_no_volume_is_shared_and_only_jobs_reach_the_agent() -> None:
    bodies = rendered(CARRY)
    check(bodies)
    by_kind = {body["kind"]: body for body in bodies}
    assert by_kind["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteOnce"]
    policy = by_kind["NetworkPolicy"]["spec"]
    (rule,) = policy["ingress"]
    (port,) = rule["ports"]
    (source,) = rule["from"]
    assert source.keys() == {"podSelector"} and policy["policyTypes"] == ["Ingress"]
    (served,) = by_kind["Service"]["spec"]["ports"]
    (said,) = [body["data"]["agent.yaml"] for body in bodies if body["kind"] == "ConfigMap"]
    url = yaml.safe_load(said)["kubernetes"]["carry"]["url"]
    assert url == f"https://{by_kind['Service']['metadata']['name']}:{served['port']}"
    assert port["port"] == served["targetPort"]
    assert not [body for body in bodies if body["kind"] == "Secret"]


@pytest.mark.parametrize(
    ("directory", "claim", "carried"),
    [(JOBS, "tradewind-agent", False), (CARRY, "", True)],
    ids=["volume", "carry"],
)
def test_the_settings_for_jobs_of_the_cluster_are_ones_the_agent_takes(
    directory: Path, claim: str, *, carried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = load_settings(Path("/state/agent"), directory / "settings/agent.yaml").kubernetes
    assert found is not None and found.volume_claim == claim
    assert (found.carry is not None) is carried


def test_the_pod_has_no_right_it_does_not_need() -> None:
    (deployment,) = [body for body in written() if body["kind"] == "Deployment"]
    spec = deployment["spec"]
    assert spec["replicas"] == 1 and spec["strategy"]["type"] == "Recreate", "one journal"
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in (*pod["initContainers"], *pod["containers"]):
        tight = container["securityContext"]
        assert tight["capabilities"] == {"drop": ["ALL"]}
        assert tight["readOnlyRootFilesystem"] and not tight["allowPrivilegeEscalation"]
    names = {volume["name"] for volume in pod["volumes"]}
    for container in (*pod["initContainers"], *pod["containers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} <= names


def test_the_settings_in_the_map_are_ones_the_agent_takes(tmp_path: Path) -> None:
    load_settings(tmp_path, KUBERNETES / "settings/agent.yaml")
    load_site_policy(KUBERNETES / "settings/site.yaml", named=True)


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "deploy/containers/Containerfile").read_text()
    lines = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    return [tuple(line.split(None, 1)) for line in lines if line.strip()]  # type: ignore[misc]


def test_the_container_file_is_sound() -> None:
    steps = instructions()
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "CMD"}
    assert {word for word, _ in steps} <= known, "no ADD, nothing unknown"
    assert steps[0][0] == "ARG" and ":latest" not in steps[0][1]
    last = max(i for i, (word, _) in enumerate(steps) if word == "FROM")
    users = [rest for word, rest in steps[last:] if word == "USER"]
    assert users and users[-1].split(":")[0].isdigit() and users[-1] != "0"
    for word, rest in steps:
        if word == "COPY" and "--from=" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
    assert any("--require-hashes" in rest for word, rest in steps if word == "RUN")
    ignored = (ROOT / ".containerignore").read_text().splitlines()
    assert ".git" in ignored and ".venv" in ignored


@pytest.mark.slow
@pytest.mark.timeout(1_500)  # it fetches and installs everything
def test_the_image_builds_where_its_base_is_and_has_both_programs(tmp_path: Path) -> None:
    """`TRADEWIND_TEST_BASE_IMAGE`: a base with Python and pip that podman has. Where podman needs
    more words: `TRADEWIND_TEST_PODMAN` (its own), `..._BUILD`, `..._RUN` (of `build`, `run`)."""
    podman, build, run = (
        shlex.split(os.environ.get(f"TRADEWIND_TEST_PODMAN{of}", usual))
        for of, usual in (("", "podman"), ("_BUILD", ""), ("_RUN", "--network none"))
    )
    if shutil.which(podman[0]) is None:
        pytest.skip("needs podman")
    base = os.environ.get("TRADEWIND_TEST_BASE_IMAGE") or instructions()[0][1].partition("=")[2]
    there = subprocess.run([*podman, "image", "exists", base], capture_output=True)
    if there.returncode:
        pytest.skip(f"podman has no image {base} here")
    done = subprocess.run(
        [*podman, "build", *build, "-f", "deploy/containers/Containerfile", "-t", "tradewind-test",
         "--build-arg", f"PYTHON={base}", "."],
        cwd=ROOT, capture_output=True, text=True, timeout=1_200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    for words, said in (
        (["tradewind", "--help"], "submit"),
        (["tradewind-agent", "--help"], "join"),
        (["python", "-c", "import regional_agent.act.carry.pod, os; print(os.getuid())"], "10001"),
    ):
        done = subprocess.run(
            [*podman, "run", "--rm", *run, "tradewind-test", *words],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0 and said in done.stdout, (words, done.stderr[-2_000:])


def test_the_collector_uses_what_it_defines() -> None:
    body = yaml.safe_load((ROOT / "deploy/telemetry/otel-collector.yaml").read_text())
    assert body.keys() == {"receivers", "processors", "exporters", "service"}
    used: dict[str, set[str]] = {"receivers": set(), "processors": set(), "exporters": set()}
    for pipeline in body["service"]["pipelines"].values():
        for part, names in used.items():
            names |= set(pipeline[part])
        assert pipeline["processors"][0] == "memory_limiter", "it has to come first"
    assert used == {part: set(body[part]) for part in used}
    assert body["receivers"]["otlp"]["protocols"]["http"]["endpoint"].startswith("127.0.0.1:")
    ports = re.findall(r"127\.0\.0\.1:\d+", json.dumps(body["receivers"]["prometheus"]))
    documented = (ROOT / "docs/telemetry.md").read_text()
    assert ports and all(port in documented for port in ports)
