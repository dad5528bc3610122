"""Generate the Python modules of every .proto under proto/federation, next to their sources.

    python proto/generate.py            write *_pb2.py and *_pb2.pyi
    python proto/generate.py --check    write nothing; exit 1 naming what is not current

protoc runs in a process of its own: in one process with OR-Tools it aborts.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

PROTO = Path(__file__).resolve().parent
PACKAGE = PROTO / "federation"


def sources(root: Path = PACKAGE) -> list[Path]:
    """Every .proto below `root`, in a fixed order."""
    return sorted(root.rglob("*.proto"))


def stub_plugin() -> Path:
    """The mypy-protobuf plugin of the interpreter that runs this, else the one on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "protoc-gen-mypy"
    found = str(beside) if beside.exists() else shutil.which("protoc-gen-mypy")
    if found is None:
        raise SystemExit("protoc-gen-mypy is missing: install the extra `dev`")
    return Path(found)


def generate(out: Path) -> None:
    """Write the modules of all sources below `out`, laid out as below proto/."""
    files = sources()
    if not files:
        raise SystemExit(f"no .proto found under {PACKAGE}")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"--proto_path={PROTO}",
            f"--plugin=protoc-gen-mypy={stub_plugin()}",
            f"--python_out={out}",
            f"--mypy_out=quiet:{out}",
            *(str(path.relative_to(PROTO)) for path in files),
        ],
        cwd=PROTO,
        check=True,
    )


def generated(root: Path) -> dict[Path, bytes]:
    """Generated modules below `root`/federation and their bytes, by path from `root`."""
    package = root / "federation"
    found = [*package.rglob("*_pb2.py"), *package.rglob("*_pb2.pyi")]
    return {path.relative_to(root): path.read_bytes() for path in found}


def stale() -> list[Path]:
    """Committed modules that differ from, lack or have no source any more."""
    with tempfile.TemporaryDirectory(prefix="tradewind-proto-") as scratch:
        generate(Path(scratch))
        fresh = generated(Path(scratch))
    here = generated(PROTO)
    return sorted(p for p in fresh.keys() | here.keys() if fresh.get(p) != here.get(p))


def main() -> int:
    """Exit status: 0 written or current, 1 stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare only")
    if not parser.parse_args().check:
        generate(PROTO)
        return 0
    differing = stale()
    for path in differing:
        print(f"stale: proto/{path} (run: python proto/generate.py)", file=sys.stderr)  # noqa: T201
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
