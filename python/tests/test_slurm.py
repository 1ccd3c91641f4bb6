"""The resolver of Slurm in steps of a real one: a controller, nodes and munge on loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sidereal._launch_task import die_with_parent
from sidereal.launch import ReservedPorts

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun")
#: Seconds a loaded machine may take for what usually takes two.
PATIENCE_S = 60
#: Two to be named, and one whose name leads here.
NODES = ("sr1", "sr2", "localhost")

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=sr1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName=sr2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[3]} CPUs=4
PartitionName=pair Nodes=sr1,sr2 Default=YES MaxTime=INFINITE State=UP
PartitionName=here Nodes=localhost MaxTime=INFINITE State=UP
"""

SCRIPT = """
import json, os, sys
from sidereal.distribute.cluster_resolver import SlurmClusterResolver

jobs = json.loads(sys.argv[1])
resolver = SlurmClusterResolver(jobs, port_base=4000, gpus_per_node=0)
secret = open(os.environ["SIDEREAL_SECRET_FILE"]).read()
job, index = resolver.get_task_info()
line = {"cluster": resolver.cluster_spec().as_dict(), "job": job, "index": index,
        "rank": int(os.environ["SLURM_PROCID"]), "node": os.environ["SLURMD_NODENAME"],
        "master": resolver.master(job, index), "secret": secret}
sys.stdout.write(json.dumps(line) + "\\n")
"""


#: Rank 0 is the ps. Each worker adds its rank to a variable there, until all have.
TRAINING = """
import json, sys
import sidereal as sr
from sidereal import v1 as tf
from sidereal.distribute.cluster_resolver import SlurmClusterResolver

resolver = SlurmClusterResolver({"ps": 1, "worker": 2}, port_base=int(sys.argv[1]), gpus_per_node=0)
job, index = resolver.get_task_info()
server = sr.train.Server(resolver.cluster_spec(), job, index)
with tf.device("/job:ps/task:0"):
    total = tf.Variable(0, dtype=sr.int64, name="total")
    done = tf.FIFOQueue(10, [sr.int64], shapes=[[]], shared_name="done")
    add = total.assign_add(index + 1)
    with tf.control_dependencies([add]):
        ready = done.enqueue([index])
    one = done.dequeue()
missing = tf.report_uninitialized_variables()
with tf.Session(server.target) as session:
    if job == "ps":
        session.run(tf.global_variables_initializer())
        session.run(one), session.run(one)
        print(json.dumps({"rank": 0, "total": int(session.run(total))}))
    else:
        while len(session.run(missing)):
            pass
        session.run(ready)
"""


def where(program: str) -> str | None:
    """Daemons are in folders that are not on everybody's path."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


pytestmark = pytest.mark.skipif(
    any(where(program) is None for program in PROGRAMS),
    reason=f"skipped: not all of {', '.join(PROGRAMS)} are here (./dev setup installs them)",
)


class Daemon:
    """A program in the foreground that says when it is ready."""

    def __init__(self, words: Sequence[str], ready: str, environment: dict[str, str]) -> None:
        self.lines: list[str] = []
        self._known = threading.Event()
        self._ready = ready
        self._process = subprocess.Popen(
            [where(words[0]) or words[0], *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one call of the system
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        self._known.wait(PATIENCE_S)
        if not any(ready in line for line in self.lines):
            self.stop()
            pytest.fail(f"{words[0]} does not start:\n" + "".join(self.lines))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)
            if self._ready in line:
                self._known.set()
        self._known.set()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Slurm:
    """A cluster of nodes that are all this machine, that ends with `stack`."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
        config = CONFIG.format(
            folder=folder,
            host=os.uname().nodename.partition(".")[0],
            user=subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip(),
            ports=self._reserve(stack, 4),
        )
        (folder / "slurm.conf").write_text(config)
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = {name: f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "seed")}
        munged = ["munged", "-F", "--force", f"--socket={folder}/munge.sock", "--num-threads=10"]
        self._start(stack, [*munged, *files.values()], "work threads")
        self._start(stack, ["slurmctld", "-D"], "Running as primary controller")
        for node in NODES:
            self._start(stack, ["slurmd", "-D", "-N", node], "slurmd started on")

    def _reserve(self, stack: ExitStack, count: int) -> list[int]:
        reserved = ReservedPorts(count)
        stack.callback(reserved.close)
        return reserved.ports

    def _start(self, stack: ExitStack, words: list[str], ready: str) -> None:
        stack.callback(Daemon(words, ready, self.environment).stop)

    def run(self, options: str, *words: str) -> list[dict[str, Any]]:
        """srun with these options: what each task printed, by rank."""
        finished = subprocess.run(
            ["srun", *options.split(), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=self.environment | {"SIDEREAL_SECRET_FILE": str(self.folder / "secret")},
        )
        assert finished.returncode == 0, finished.stderr
        lines = [json.loads(line) for line in finished.stdout.splitlines()]
        return sorted(lines, key=lambda line: line["rank"])


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    # Not in pytest's folder: everybody must be able to come to munge's socket.
    folder = Path(tempfile.mkdtemp(prefix="sidereal-slurm-"))
    folder.chmod(0o755)
    (folder / "task.py").write_text(SCRIPT)
    (folder / "training.py").write_text(TRAINING)
    (folder / "secret").write_text("a secret on a disk that all nodes share")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield Slurm(folder, stack)


def tasks(slurm: Slurm, options: str, jobs: dict[str, int] | None) -> list[dict[str, Any]]:
    return slurm.run(options, sys.executable, str(slurm.folder / "task.py"), json.dumps(jobs))


def test_all_tasks_of_a_step_agree_on_the_cluster(slurm: Slurm) -> None:
    lines = tasks(slurm, "-n3 --ntasks-per-node=2", None)
    assert [line["rank"] for line in lines] == [0, 1, 2]
    cluster = {"worker": ["sr1:4000", "sr1:4001", "sr2:4000"]}
    assert [line["cluster"] for line in lines] == [cluster] * 3
    assert [(line["job"], line["index"]) for line in lines] == [("worker", i) for i in range(3)]
    assert [line["node"] for line in lines] == ["sr1", "sr1", "sr2"]
    assert lines[2]["master"] == "grpc://sr2:4000"


def test_jobs_take_the_ranks_in_the_order_of_their_names(slurm: Slurm) -> None:
    lines = tasks(slurm, "-n3 --ntasks-per-node=2", {"worker": 2, "ps": 1})
    cluster = {"ps": ["sr1:4000"], "worker": ["sr1:4001", "sr2:4000"]}
    assert [line["cluster"] for line in lines] == [cluster] * 3
    assert [(line["job"], line["index"]) for line in lines] == [
        ("ps", 0),
        ("worker", 0),
        ("worker", 1),
    ]


def test_a_step_of_one_node_is_as_slurm_lays_it_out(slurm: Slurm) -> None:
    lines = tasks(slurm, "-N1 -n3", {"worker": 3})
    node = lines[0]["node"]
    assert node in ("sr1", "sr2")
    assert lines[0]["cluster"] == {"worker": [f"{node}:{4000 + i}" for i in range(3)]}


def test_the_secret_comes_to_all_tasks_by_the_name_of_its_file(slurm: Slurm) -> None:
    lines = tasks(slurm, "-n2 --ntasks-per-node=1", None)
    assert {line["node"] for line in lines} == {"sr1", "sr2"}
    assert {line["secret"] for line in lines} == {"a secret on a disk that all nodes share"}


def test_servers_of_a_step_train_together(slurm: Slurm) -> None:
    # Tasks of a node have ports in a row.
    rows = (ReservedPorts(3, range(base, base + 3)) for base in range(11000, 32000, 7))
    reserved = next(row for row in rows if len(row.ports) == 3)
    training = str(slurm.folder / "training.py")
    (line,) = slurm.run("-p here -n3", sys.executable, training, str(reserved.ports[0]))
    assert line == {"rank": 0, "total": 3}
    reserved.close()


#: A task that ends when all have said who they are: the first end may be that of the others.
LAUNCHED = f"""
import json, os, signal, sys, time

config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
# In one write, which print() makes two of: srun puts what it says itself between these.
sys.stdout.write(json.dumps({{
    "config": config, "job": os.environ["SLURM_JOB_ID"],
    "secret": open(os.environ["SIDEREAL_SECRET_FILE"]).read()}}) + "\\n")
sys.stdout.flush()
code, said = sys.argv[1:]
open(os.path.join(said, job + str(index)), "w").close()
if job == "ps":
    signal.pause()
until = time.monotonic() + {PATIENCE_S}
while len(os.listdir(said)) < 3:
    assert time.monotonic() < until
sys.exit(int(code) if index else 0)
"""


@pytest.mark.parametrize("code", [0, 3])
def test_launch_runs_tasks_on_the_nodes_of_an_allocation(slurm: Slurm, code: int) -> None:
    (slurm.folder / "launched.py").write_text(LAUNCHED)
    said = slurm.folder / f"said{code}"
    said.mkdir()
    words = [sys.executable, "-m", "sidereal", "launch", "--on", "slurm", "--workers", "2",
             "--port", "5000", str(slurm.folder / "launched.py"), str(code), str(said)]  # fmt: skip
    done = subprocess.run(
        ["salloc", "--quiet", "-p", "here", "-n3", *words], capture_output=True, text=True,
        timeout=PATIENCE_S, env=slurm.environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    facts = {}
    for line in done.stdout.splitlines():
        name, _, text = line.partition("] ")
        if text.startswith("{"):  # srun says how tasks ended.
            facts[name.removeprefix("[")] = json.loads(text)
    cluster = {"ps": ["localhost:5000"], "worker": ["localhost:5001", "localhost:5002"]}
    assert set(facts) == {"ps 0", "worker 0", "worker 1"}
    assert all(fact["config"]["cluster"] == cluster for fact in facts.values())
    assert len({fact["secret"] for fact in facts.values()}) == 1
    assert len({fact["job"] for fact in facts.values()}) == 1
    assert code == 0 or "worker 1 on localhost failed first: exit code 3" in done.stderr


def test_launch_without_an_allocation_says_what_to_do() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    done = subprocess.run(
        [sys.executable, "-m", "sidereal", "launch", "--on", "slurm", "x.py"],
        capture_output=True, text=True, timeout=PATIENCE_S, env=environment,
    )  # fmt: skip
    assert done.returncode == 1
    assert "SLURM_JOB_ID" in done.stderr and "salloc" in done.stderr
