"""TensorFlow's ClusterCoordinator, for bench/coordinator.py.

    tensorflow_coordinator.py serve CLUSTER JOB TASK   a tf.distribute.Server; says that it is up
    tensorflow_coordinator.py coordinate CLUSTER       schedules what each line of standard input
                                                       says: see bench/_closures.py

What it says is a line of JSON each.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
# Behind the packages: bench/tensorflow.py is not the TensorFlow that is meant.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import tensorflow as tf
from _closures import Closures


def say(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


def serve(cluster: dict[str, list[str]], job: str, task: int) -> None:
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster), job_name=job, task_index=task, protocol="grpc"
    )
    say({"target": server.target})
    server.join()


def coordinate(cluster: dict[str, list[str]]) -> None:
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    closures = Closures(tf, strategy, tf.distribute.coordinator.ClusterCoordinator(strategy))
    say({"workers": len(cluster["worker"])})
    for line in sys.stdin:
        what, seconds = line.split()
        say(closures.window(what, float(seconds)))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        coordinate(json.loads(sys.argv[2]))
