"""Scripts run unchanged: what the wrapper sets, and the stand-in for srun, run by real shells."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.compat.integer_ids import derived
from broker.compat.reading import import_text
from broker.compat.sge_job import CommandLine as SgeLine
from broker.compat.sge_job import import_qsub
from broker.compat.slurm_job import CommandLine, import_sbatch
from broker.compat.srun_options import ACTED_FLAGS, ACTED_ON, EMPTY, EMPTY_FLAGS

JOB = "j0k3v1m8zq2c4d5e6"
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]


@dataclass(frozen=True)
class Site:
    """A place that runs jobs as a site does: HOME and the working directory are the job's."""

    place: Path
    shell: str = "sh"

    def run(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the text of a job's `run`."""
        path = self.place / "run"
        path.write_text(script)
        words = [self.shell, "sh"] if self.shell == "busybox" else [self.shell]
        base = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.place), "TRADEWIND_JOB": JOB,
            "TRADEWIND_ATTEMPT": f"{JOB}-1", "TRADEWIND_TASK": "", "TRADEWIND_RANK": "0",
            "TRADEWIND_WORLD_SIZE": "1", "TRADEWIND_CLUSTER": "alpha", "TRADEWIND_POOL": "cpu",
        }  # fmt: skip
        return subprocess.run(
            [*words, str(path)], cwd=self.place, env=base | env, capture_output=True, text=True,
            timeout=30, check=False,
        )  # fmt: skip

    def sbatch(self, script: str, *words: str, args: tuple[str, ...] = (), **env: str) -> str:
        """Import an sbatch script and run it; what it printed."""
        imported = import_sbatch("job.sh", script, CommandLine(words, args))
        assert imported.job is not None, imported.errors
        ran = self.run(imported.job.run or "", **env)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


@pytest.fixture(params=SHELLS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return Site(tmp_path, request.param)


def test_the_variables_scripts_rely_on(site: Site) -> None:
    text = (
        "JOB_ID JOBID JOB_NAME NNODES NTASKS CPUS_PER_TASK CPUS_ON_NODE MEM_PER_NODE GPUS_ON_NODE"
        " SUBMIT_DIR PROCID JOB_PARTITION CLUSTER_NAME JOB_NUM_NODES TASKS_PER_NODE"
    )
    names = text.split()
    script = (
        "#!/bin/bash\n#SBATCH -n 4 -c 2 --mem=8G -p big --gres=gpu:a100:2 -J 'a b'\n"
        + "".join(f'echo "{name}=$SLURM_{name}"\n' for name in names)
    )
    told = dict(
        line.split("=", 1)
        for line in site.sbatch(script, TW_INTEGER_ID="12345678").split("\n")
        if line
    )
    assert told == {
        "JOB_ID": "12345678", "JOBID": "12345678", "JOB_NAME": "a b", "NNODES": "1",
        "NTASKS": "4", "CPUS_PER_TASK": "2", "CPUS_ON_NODE": "8", "MEM_PER_NODE": "8192",
        "GPUS_ON_NODE": "2", "SUBMIT_DIR": str(site.place), "PROCID": "0",
        "JOB_PARTITION": "big", "CLUSTER_NAME": "alpha", "JOB_NUM_NODES": "1",
        "TASKS_PER_NODE": "4",
    }  # fmt: skip


def test_without_a_number_it_is_derived_as_the_commands_derive_it(site: Site) -> None:
    script = "#!/bin/sh\n#SBATCH -n 1\necho $SLURM_JOB_ID\n"
    assert site.sbatch(script) == f"{derived(JOB)}\n"


def test_a_task_of_an_array_has_an_id_of_its_own(site: Site) -> None:
    script = "#!/bin/sh\n#SBATCH -a 1-9:4%2\nenv | grep SLURM_ | sort\n"
    out = site.sbatch(script, TW_INTEGER_ID="50000000", TRADEWIND_TASK="5")
    told = dict(line.split("=", 1) for line in out.splitlines())
    assert told["SLURM_ARRAY_JOB_ID"] == "50000000" and told["SLURM_JOB_ID"] == "50000006"
    assert told["SLURM_ARRAY_TASK_ID"] == "5" and told["SLURM_ARRAY_TASK_COUNT"] == "3"
    assert told["SLURM_ARRAY_TASK_MIN"] == "1" and told["SLURM_ARRAY_TASK_MAX"] == "9"
    assert told["SLURM_ARRAY_TASK_STEP"] == "4"


def test_the_script_is_not_changed(site: Site) -> None:
    odd = (
        '#!/bin/bash\n#SBATCH -n1\ncat "$0"\n# TRADEWIND_END\nTRADEWIND_END() { :; }\nexit 0\n'
    )
    odd += "TRADEWIND_END\n'\"`$(\\\n"
    assert site.sbatch(odd) == odd


def test_arguments_stdin_directory_and_other_interpreters(site: Site) -> None:
    (site.place / "sub").mkdir()
    (site.place / "sub" / "in.txt").write_text("from a file\n")
    script = (
        "#!/usr/bin/env python3\n#SBATCH -D sub -i in.txt\nimport os, sys\n"
        "print(sys.argv[1:], os.getcwd().endswith('/sub'), sys.stdin.read().strip())\n"
    )
    out = site.sbatch(script, args=("a b", "$c'"))
    assert out == "['a b', \"$c'\"] True from a file\n"


def test_a_directory_that_is_not_there_ends_the_job_with_a_word(site: Site) -> None:
    imported = import_text("x", "#!/bin/sh\n#SBATCH -D /no/such/place\ntrue\n")
    assert imported.job is not None
    ran = site.run(imported.job.run or "")
    assert ran.returncode == 125 and "no directory /no/such/place" in ran.stderr


def test_srun_starts_every_task_with_its_rank(site: Site) -> None:
    script = (
        "#!/bin/bash\n#SBATCH -n 3\n"
        "srun sh -c 'echo $SLURM_PROCID/$SLURM_NTASKS/$SLURM_LOCALID' | sort\n"
        "srun -n 1 echo one\nsrun --ntasks=2 -c 1 --cpu-bind=none -u echo two\n"
        "srun -l echo x | sort\n"
    )
    lines = site.sbatch(script).splitlines()
    assert lines == ["0/3/0", "1/3/1", "2/3/2", "one", "two", "two", "0: x", "1: x", "2: x"]


def test_srun_ends_as_its_worst_task(site: Site) -> None:
    script = (
        "#!/bin/bash\n#SBATCH -n 3\n"
        "srun sh -c 'exit $SLURM_PROCID'; echo $?\nsrun -l sh -c 'exit 7'; echo $?\n"
        "srun -n1 sh -c 'exit 4'; echo $?\n"
    )
    assert site.sbatch(script).splitlines() == ["2", "7", "4"]


def test_srun_of_a_script_inside_says_what_it_has_not(site: Site) -> None:
    """What could not be seen beforehand is refused when it runs, not passed over."""
    (site.place / "inner.sh").write_text(
        "srun -n2 --exclusive -c1 echo yes\nsrun --multi-prog conf\nsrun -o x echo no\n"
        "srun --mpi=pmi2 echo no\nsrun --gpus=3 echo no\necho end\n"
    )
    imported = import_text("x", "#!/bin/bash\n#SBATCH -n 2\nbash inner.sh\n")
    assert imported.job is not None and imported.only == ""
    ran = site.run(imported.job.run or "")
    assert ran.stdout.splitlines() == ["yes", "yes", "end"]
    assert ran.stderr.count("is not there outside Slurm") == 4


def test_srun_takes_every_option_that_is_said_to_do(site: Site) -> None:
    lines = []
    for name in sorted(ACTED_ON | EMPTY | ACTED_FLAGS | EMPTY_FLAGS):
        value = {"D": "/", "chdir": "/"}.get(name, "1")
        flag = name in ACTED_FLAGS | EMPTY_FLAGS
        if len(name) == 1:
            words = f"-{name}" if flag else f"-{name} {value}"
            lines.append(f"srun {words} -n1 true || echo bad {words}")
        else:
            lines.append(
                f"srun --{name}{'' if flag else '=' + value} -n1 true || echo bad {name}"
            )
            if not flag:
                lines.append(f"srun --{name} {value} -n1 true || echo bad {name} apart")
    script = "#!/bin/bash\n#SBATCH -n 1\n" + "\n".join(lines) + "\n"
    assert import_text("x", script).only == ""
    assert site.sbatch(script) == ""


def test_srun_parts_the_cards_by_task(site: Site) -> None:
    script = (
        "#!/bin/bash\n#SBATCH -n 2 --gpus-per-task=a100:2\n"
        "srun sh -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES' | sort\n"
    )
    out = site.sbatch(script, CUDA_VISIBLE_DEVICES="0,2,5,7")
    assert out.splitlines() == ["0 0,2", "1 5,7"]


def test_srun_passes_signals_on(site: Site) -> None:
    script = (
        "#!/bin/bash\n#SBATCH -n 2\n"
        "srun sh -c 'trap \"echo got\" TERM; sleep 2 & wait; wait' & step=$!\n"
        "sleep 0.7; kill -TERM $step; wait $step; wait $step\n"
    )
    assert site.sbatch(script).splitlines().count("got") == 2


@pytest.mark.parametrize(("rank", "ranks"), [("0", ["0", "1", "2"]), ("1", ["3", "4"])])
def test_several_nodes_each_run_their_share(site: Site, rank: str, ranks: list[str]) -> None:
    script = (
        "#!/bin/bash\n#SBATCH -N 2 -n 5\n"
        "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
        "srun sh -c 'echo $SLURM_PROCID $SLURM_NODEID $SLURM_NNODES $MASTER_ADDR' \n"
    )
    out = site.sbatch(
        script, TRADEWIND_RANK=rank, TRADEWIND_WORLD_SIZE="2",
        TRADEWIND_HEAD_ADDRESS="head.example:4711",
    )  # fmt: skip
    lines = sorted(out.splitlines())
    assert lines == [f"{each} {rank} 2 head.example" for each in ranks]


def test_on_a_slurm_site_its_own_variables_and_srun_are_used(site: Site) -> None:
    programs = site.place / "slurm"
    programs.mkdir()
    (programs / "srun").write_text("#!/bin/sh\necho the real one $SLURM_JOB_ID\n")
    (programs / "srun").chmod(0o755)
    script = "#!/bin/bash\n#SBATCH -n 2\nsrun hostname\necho $SLURM_NTASKS\n"
    path = f"{programs}:/usr/bin:/bin"
    out = site.sbatch(script, PATH=path, SLURM_JOB_ID="77", SLURM_NTASKS="9")
    assert out == "the real one 77\n9\n"


def test_what_needs_slurm_does_not_start_elsewhere(site: Site) -> None:
    imported = import_text("x", "#!/bin/bash\n#SBATCH -n 2\nsbcast a b\n")
    assert imported.job is not None and imported.only == "slurm"
    ran = site.run(imported.job.run or "")
    assert ran.returncode == 125 and "needs a Slurm site" in ran.stderr


def test_what_needs_slurm_runs_once_on_its_first_node(site: Site) -> None:
    programs = site.place / "slurm"
    programs.mkdir()
    (programs / "srun").write_text("#!/bin/sh\necho srun $SLURM_OVERLAP\n")
    (programs / "srun").chmod(0o755)
    imported = import_text("x", "#!/bin/bash\n#SBATCH -N 2\npython prepare.py\nsrun ./a\n")
    assert imported.job is not None and imported.only == "slurm"
    env = {"PATH": f"{programs}:/usr/bin:/bin", "SLURM_JOB_ID": "5"}
    assert site.run(imported.job.run or "", **env, TRADEWIND_RANK="1").stdout == ""
    assert site.run(imported.job.run or "", **env).stdout == "srun 1\n"


def test_grid_engine_variables(site: Site) -> None:
    script = (
        "#$ -S /bin/sh\n#$ -N tasks -t 2-10:4 -pe smp 3 -cwd\n"
        'echo "$JOB_NAME $SGE_TASK_ID $SGE_TASK_FIRST $SGE_TASK_LAST $SGE_TASK_STEPSIZE $NSLOTS"\n'
        'echo "$JOB_ID $PE $# $1"; cut -d" " -f2 "$PE_HOSTFILE"\n'
    )
    imported = import_qsub("x", script, SgeLine([], ["a b"]))
    assert imported.job is not None
    ran = site.run(imported.job.run or "", TRADEWIND_TASK="6", TW_INTEGER_ID="123")
    assert ran.stdout.splitlines() == ["tasks 6 2 10 4 3", "123 smp 1 a b", "3"], ran.stderr


def test_skypilot_setup_and_run(site: Site) -> None:
    task = (
        "num_nodes: 2\nresources: {accelerators: 'A100:4'}\n"
        "setup: |\n  echo setup > made\n"
        "run: |\n  cat made; echo $SKYPILOT_NODE_RANK $SKYPILOT_NUM_NODES"
        ' $SKYPILOT_NUM_GPUS_PER_NODE $(echo "$SKYPILOT_NODE_IPS" | head -n1)\n'
    )
    imported = import_text("task.yaml", task)
    assert imported.job is not None, imported.errors
    ran = site.run(
        imported.job.run or "", TRADEWIND_RANK="1", TRADEWIND_HEAD_ADDRESS="10.0.0.1:99"
    )
    assert ran.stdout.splitlines() == ["setup", "1 2 4 10.0.0.1"], ran.stderr


def test_a_failing_setup_ends_the_task(site: Site) -> None:
    imported = import_text("task.yaml", "setup: exit 9\nrun: echo no\n")
    assert imported.job is not None
    ran = site.run(imported.job.run or "")
    assert (ran.returncode, ran.stdout) == (9, "")
