"""Jobs of TensorFlow's ClusterCoordinator, for bench/coordinator.py and bench/tensorflow.py.

    tensorflow_coordinator.py coordinate CLUSTER           bench/_closures.py
    tensorflow_coordinator.py train SIZES FOLDER CLUSTER   bench/_deepfm_job.py, on the data of a
                                                           folder; SIZES: full or quick

Servers are those of tensorflow_task.py. It says a line of JSON when it has begun, and one for each
line of standard input: a kind of work, and for how many seconds.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
# Behind the packages: bench/tensorflow.py is not the TensorFlow that is meant.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import tensorflow as tf
from _closures import Closures
from _deepfm_job import SIZES, Job, ModelOfVariables


def say(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


def coordinator_of(cluster: dict[str, list[str]]) -> tuple[Any, Any]:
    """A strategy, and its coordinator."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    return strategy, tf.distribute.coordinator.ClusterCoordinator(strategy)


def main() -> int:
    what, *arguments, cluster = sys.argv[1:]
    begun = coordinator_of(json.loads(cluster))
    job: Any
    if what == "coordinate":
        job = Closures(tf, *begun)
        say({})
    else:
        job = Job(tf, *begun, ModelOfVariables, SIZES[arguments[0]], Path(arguments[1]))
        say({"losses": job.losses})
    for line in sys.stdin:
        kind, seconds = line.split()
        say(job.window(kind, float(seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
