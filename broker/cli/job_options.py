"""A job file and the options of `submit` and `plan`, made into one job."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.cli.exits import Exit, Failure
from broker.compat.kinds import is_foreign
from federation.jobs import InvalidJob, JobFile, parse_job_file

MAX_JOB_FILE_BYTES = 1 << 20


@dataclass(slots=True)
class JobOptions:
    """What was said on the command line; None or empty = not said."""

    fields: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, Any] = field(default_factory=dict)
    placement: dict[str, Any] = field(default_factory=dict)
    env: Sequence[str] = ()
    labels: Sequence[str] = ()
    files: Sequence[str] = ()
    outputs: Sequence[str] = ()


def read_job(file: str | None, command: Sequence[str] | None, options: JobOptions) -> JobFile:
    """The job of `file` or of `command` with the options on top; raises Failure.

    Paths in it are absolute: those of a file are relative to where the file lies, those of options
    to where we are.
    """
    data = _start(file, command, options)
    _merge(data, {key: value for key, value in options.fields.items() if value is not None})
    for part, said in (("resources", options.resources), ("placement", options.placement)):
        given = {key: value for key, value in said.items() if value not in (None, [], ())}
        if given:
            data[part] = {**_object(data.get(part), part), **given}
    _add_pairs(data, "env", options.env)
    _add_pairs(data, "labels", options.labels)
    if options.files:
        data["files"] = {**_files(data.get("files")), **_file_options(options.files)}
    if options.outputs:
        data["outputs"] = [*_listed(data.get("outputs")), *options.outputs]
    try:
        return parse_job_file(data)
    except InvalidJob as invalid:
        raise bad_job(invalid, file) from None


def bad_job(invalid: InvalidJob, file: str | None = None) -> Failure:
    """The faults of a job, a line each."""
    lines = "\n  ".join(str(error) for error in invalid.errors)
    return Failure(Exit.BAD_INPUT, f"{file or 'the job'} is not a job:\n  {lines}")


def _start(
    file: str | None, command: Sequence[str] | None, options: JobOptions
) -> dict[str, Any]:
    if file is not None and command:
        raise Failure(
            Exit.BAD_INPUT,
            "a job file and a command after --",
            "give one of them; the program a file runs stands in it as run: or command:",
        )
    if command:
        return {"name": Path(command[0]).name or None, "command": list(command)}
    if file is None:
        raise Failure(
            Exit.BAD_INPUT,
            "nothing to run",
            "give a job file, or a command: tradewind submit -- python train.py",
        )
    return load_job_file(file, options)


def load_job_file(file: str, options: JobOptions) -> dict[str, Any]:
    """The mapping in a job file, its paths made absolute; raises Failure.

    Scripts and manifests of other systems are read as jobs too (docs/import.md).
    """
    path = Path(file)
    text = _text(path)
    if is_foreign(text):
        from broker.cli.foreign_jobs import foreign_job

        said = {**options.fields, **options.resources}
        given = [key for key, value in said.items() if value not in (None, [], ())]
        return foreign_job(path, text, options.placement.get("clusters") or (), given)
    data = _parse(path, text)
    if not isinstance(data, dict):
        raise Failure(
            Exit.BAD_INPUT, f"{file} is not a job", "a job is a mapping of keys: run: echo hello"
        )
    base = path.resolve().parent
    data.setdefault("name", path.stem[:128] or None)
    if isinstance(data.get("workdir"), str):
        data["workdir"] = _absolute(data["workdir"], base)
    files = data.get("files")
    if isinstance(files, str):
        files = [files]
    if isinstance(files, list):
        data["files"] = [_absolute(item, base) for item in files]
    elif isinstance(files, dict):
        data["files"] = {key: _absolute(value, base) for key, value in files.items()}
    return data


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_JOB_FILE_BYTES:
            raise Failure(Exit.BAD_INPUT, f"{path} is larger than 1 MiB", "is it a job file?")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Failure(
            Exit.BAD_INPUT,
            f"no job file {path}",
            f"to run it as a command: tradewind submit -- {path}",
        ) from None
    except UnicodeDecodeError:
        raise Failure(Exit.BAD_INPUT, f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise Failure(Exit.BAD_INPUT, f"cannot read {path}: {error.strerror}") from None


def _parse(path: Path, text: str) -> Any:
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Failure(Exit.BAD_INPUT, f"{path} is not JSON: {error}") from None
    import yaml

    try:
        return yaml.load(text, Loader=_strict_loader())  # noqa: S506 - a SafeLoader, made strict
    except (yaml.YAMLError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise Failure(Exit.BAD_INPUT, f"{path} is not YAML: {said[:300]}") from None


def _strict_loader() -> Any:
    """A safe YAML loader that refuses a key written twice, and aliases (bombs)."""
    import yaml

    class StrictLoader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.constructor.ConstructorError(None, None, "aliases are not used", mark)
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = getattr(key_node, "value", None)
                if isinstance(key, str) and key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key!r} stands twice", key_node.start_mark
                    )
                seen.add(key if isinstance(key, str) else id(key_node))
            return super().construct_mapping(node, deep)

    return StrictLoader


def _absolute(value: Any, base: Path) -> Any:
    return os.path.normpath(base / Path(value).expanduser()) if isinstance(value, str) else value


def _merge(data: dict[str, Any], fields: Mapping[str, Any]) -> None:
    for key, value in fields.items():
        data[key] = _absolute(value, Path.cwd()) if key == "workdir" else value


def _object(value: Any, key: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Failure(Exit.BAD_INPUT, f"{key} of the job file is not a mapping of keys")
    return value


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


def _files(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {Path(item).name: item for item in value if isinstance(item, str)}
    return dict(value) if isinstance(value, dict) else {}


def _file_options(options: Sequence[str]) -> dict[str, str]:
    files: dict[str, str] = {}
    for option in options:
        source, colon, destination = option.partition(":")
        target = destination if colon else Path(source).name
        if target in files:
            raise Failure(
                Exit.BAD_INPUT, f"--file: two files would be called {target}", "write SRC:NAME"
            )
        files[target] = str(_absolute(source, Path.cwd()))
    return files


def _add_pairs(data: dict[str, Any], key: str, pairs: Sequence[str]) -> None:
    if not pairs:
        return
    merged = dict(_object(data.get(key), key))
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            option = "--env" if key == "env" else "--label"
            raise Failure(Exit.BAD_INPUT, f"{option} {pair!r} has no value", "write NAME=VALUE")
        merged[name] = value
    data[key] = merged
