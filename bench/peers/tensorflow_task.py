"""A process of TensorFlow's own distributed runtime, for bench/tensorflow.py and
bench/coordinator.py.

    tensorflow_task.py serve CLUSTER JOB TASK     a tf.train.Server over grpc; says its target
    tensorflow_task.py train MODEL CLUSTER TARGET trains a model of bench/_session_models.py: says
                                                  its first loss, then for each line of standard
                                                  input, "steps" and seconds, steps per second

What it says is a line of JSON each.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
# Behind the packages: bench/tensorflow.py is not the TensorFlow that is meant.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import tensorflow.compat.v1 as tf

from _session_models import MODELS, Trainer


def say(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


def serve(cluster: dict[str, list[str]], job: str, task: int) -> None:
    server = tf.train.Server(
        tf.train.ClusterSpec(cluster), job_name=job, task_index=task, protocol="grpc"
    )
    say({"target": server.target})
    server.join()


def train(name: str, cluster: dict[str, list[str]], target: str) -> None:
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    model = next(model for model in MODELS if model.name == name)
    trainer = Trainer(tf, model, cluster, target)
    say({"loss": trainer.loss})
    for line in sys.stdin:
        steps, seconds = trainer.window(float(line.split()[1]))
        say({"per_s": steps / seconds})
    trainer.close()


def main() -> int:
    if sys.argv[1] == "serve":
        serve(json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        train(sys.argv[2], json.loads(sys.argv[3]), sys.argv[4])
    return 0


if __name__ == "__main__":
    sys.exit(main())
