"""An estimator over StarServer, on every task of a cluster:

    sidereal launch --chief --evaluator --ps 2 --workers 2 estimator_star_server.py FOLDER

FOLDER gets the checkpoints and must be there for all tasks. With --protocol any other protocol.
"""

import argparse

import estimator_model

import sidereal.v1 as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model_dir")
parser.add_argument("--protocol", default="star_server")
parser.add_argument("--steps", type=int, default=2000)
options = parser.parse_args()
model_dir, train_save_summary_steps = options.model_dir, 100

session_config = tf.ConfigProto(
    inter_op_parallelism_threads=16,
    intra_op_parallelism_threads=1,
)

run_config = tf.estimator.RunConfig(
    model_dir=model_dir,
    save_summary_steps=train_save_summary_steps,
    protocol=options.protocol,
    save_checkpoints_steps=options.steps // 2,
    keep_checkpoint_max=3,
    session_config=session_config,
)

classifier = tf.estimator.Estimator(
    model_fn=estimator_model.model_fn,
    params={"dimension": 8, "hidden_units": [32, 16], "learning_rate": 0.2},
    config=run_config,  # The protocol is in it.
)

result = tf.estimator.train_and_evaluate(
    classifier,
    tf.estimator.TrainSpec(estimator_model.train_input_fn, max_steps=options.steps),
    tf.estimator.EvalSpec(
        estimator_model.eval_input_fn, steps=None, start_delay_secs=0, throttle_secs=1
    ),
)
if result is not None:
    metrics, _ = result
    print(f"step {metrics['global_step']}: auc {metrics['auc']:.4f}, loss {metrics['loss']:.4f}")
