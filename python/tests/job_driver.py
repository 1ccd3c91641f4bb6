"""A program that runs short jobs of one user on a cluster, as it is told line by line, for tests.

Of each it says what came of it: {"result": numbers}, {"refused": message} or {"taken": message}.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from leftovers import tasks_of
from session_servers import PATIENCE_S, PROGRAM

import sidereal as sr
from conftest import planted, small_model
from sidereal import errors, v1

#: Steps of a session; a job that ran beside another one of its name would count other ones.
STEPS = 20


def fit(job: dict[str, Any]) -> list[float]:
    """The losses of Model.fit()."""
    model = small_model(seed=job["seed"])
    result = model.fit(
        planted(256, seed=job["seed"]), cluster=sr.RemoteCluster(job["spec"]), batch_size=64,
        verbose=False, record_losses=True, name=job["name"], take_over=job["take_over"],
    )  # fmt: skip
    return [float(loss) for loss in result.losses]


def train(job: dict[str, Any]) -> list[float]:
    """The losses of `sidereal train`."""
    losses = Path(job["folder"]) / f"losses-{os.getpid()}"
    done = subprocess.run(
        [PROGRAM, "train", "--data", job["data"], "--label", "label", "--model", "lr", "--quiet",
         "--hash-buckets", "100", "--batch-size", "32", "--seed", str(job["seed"]), "--losses",
         losses, "--cluster", json.dumps(job["spec"]), "--name", job["name"],
         *["--take-over"] * job["take_over"]],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    if done.returncode == 0:
        return [float(line) for line in losses.read_text().split()]
    if "ALREADY_EXISTS: " in done.stderr:
        raise errors.AlreadyExistsError(None, None, done.stderr)
    if "FAILED_PRECONDITION: " in done.stderr:
        raise errors.FailedPreconditionError(None, None, done.stderr)
    raise AssertionError(done.stderr)


def session(job: dict[str, Any]) -> list[float]:
    """What a session finds in the variable of all jobs of its name, which it counts up."""
    config = v1.ConfigProto(lease_name=job["name"], take_over=job["take_over"])
    graph = v1.Graph()
    with graph.as_default(), v1.device("/job:ps/task:0"):
        v = v1.get_variable(job["name"], initializer=float(job["seed"]))
        up = v.assign_add(1.0)
    found = []
    with v1.Session(f"grpc://{job['spec']['worker'][0]}", graph=graph, config=config) as running:
        running.run(v.initializer)
        for _ in range(STEPS):
            running.run(up)
            found.append(float(running.run(v)))
    return found


#: A program as it was written for TensorFlow, but for the name of its job.
SCRIPT = """
with tf.Graph().as_default():
    with tf.device(tf.train.replica_device_setter(cluster=spec)):
        x = tf.placeholder(tf.float32, [None, 3])
        w = tf.get_variable(name, [3, 1], initializer=tf.constant_initializer(seed))
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    rows = [[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]]
    with tf.Session("grpc://" + spec["worker"][0], config=config) as sess:
        sess.run(tf.global_variables_initializer())
        for step in range(10):
            found.append(float(sess.run([loss, train], feed_dict={x: rows})[0]))
"""


def script(job: dict[str, Any]) -> list[float]:
    """The losses of a v1 script."""
    found: list[float] = []
    config = v1.ConfigProto(lease_name=job["name"], take_over=job["take_over"])
    names = {"tf": v1, "spec": job["spec"], "name": job["name"] + "-w", "config": config}
    exec(SCRIPT, names | {"seed": float(job["seed"]), "found": found})
    return found


def wait_while_it_runs(job: dict[str, Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    target = f"grpc://{job['spec']['worker'][0]}"
    while any(
        one["name"] == job["name"] for task in tasks_of(target) for one in task.get("jobs", [])
    ):
        assert time.monotonic() < deadline, "a short job runs for ever"


def run(job: dict[str, Any]) -> dict[str, Any]:
    kinds = {"fit": fit, "train": train, "session": session, "script": script}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return {"result": kinds[job["kind"]](job)}
        except errors.AlreadyExistsError as error:
            # One that queues comes again.
            if not job["queues"] or time.monotonic() > deadline:
                return {"refused": str(error)}
        except errors.FailedPreconditionError as error:
            return {"taken": str(error)}
        wait_while_it_runs(job)


def main() -> None:
    for line in sys.stdin:
        try:
            said = run(json.loads(line))
        except Exception as error:  # noqa: BLE001 - it is for the test to see
            said = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
