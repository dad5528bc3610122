"""docs/job-spec.md says what the code does: its examples are jobs, its tables hold every key."""

import json
import re
from pathlib import Path

import pytest
import yaml

from federation.accelerators import ACCELERATORS
from federation.jobs import InvalidJob, JobSpec, parse_job_file, parse_job_spec

PAGE = (Path(__file__).parents[3] / "docs" / "job-spec.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_every_yaml_example_is_a_job_file():
    examples = [parse_job_file(yaml.safe_load(text)) for text in blocks("yaml")]
    assert len(examples) == 3
    assert set(examples[1].model_dump(by_alias=True, exclude_unset=True)) == set(
        JobSpec.model_json_schema()["properties"]
    ) - {"run"}


def test_every_json_example_is_a_spec():
    assert [parse_job_spec(json.loads(text)).run for text in blocks("json")] == ["python train.py"]


def test_the_errors_shown_are_the_errors_given():
    with pytest.raises(InvalidJob) as caught:
        parse_job_spec({"run": "x", "recources": {}, "resources": {"memory": 64}})
    for line in blocks("text")[0].splitlines():
        assert line in str(caught.value)


def test_every_key_and_every_accelerator_stands_in_a_table():
    schema = JobSpec.model_json_schema()
    keys = set(schema["properties"])
    for part in ("Resources", "Placement"):
        keys |= set(schema["$defs"][part]["properties"])
    rows = " ".join(re.findall(r"^\| (`[^|]*) \|", PAGE, re.MULTILINE))
    assert not {key for key in keys if f"`{key}`" not in rows}
    assert not {name for name in ACCELERATORS if name != "CPU" and f"`{name}`" not in PAGE}
