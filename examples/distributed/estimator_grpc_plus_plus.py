"""A model that is there over GRPC++, with tensors that travel together joined:

    sidereal launch --chief --ps 2 --workers 2 estimator_grpc_plus_plus.py FOLDER

FOLDER gets the checkpoints and must be there for all tasks. With --protocol any other protocol.
"""

import argparse

import estimator_model

import sidereal.v1 as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model_dir")
parser.add_argument("--protocol", default="grpc++")
parser.add_argument("--steps", type=int, default=2000)
options = parser.parse_args()
model_dir, train_save_summary_steps = options.model_dir, 100

session_config = tf.ConfigProto(
    tensor_fuse=True,  # Enable Send/Recv Ops Fusion
    inter_op_parallelism_threads=16,
    intra_op_parallelism_threads=1,
)

run_config = tf.estimator.RunConfig(
    model_dir=model_dir,
    save_summary_steps=train_save_summary_steps,
    protocol=options.protocol,
    session_config=session_config,
)

fc = tf.feature_column
user = fc.categorical_column_with_hash_bucket("user", 500)
item = fc.categorical_column_with_identity("item", estimator_model.ITEMS)
classifier = tf.estimator.DNNLinearCombinedClassifier(
    linear_feature_columns=[fc.crossed_column(["user", item], 20_000)],
    linear_optimizer=tf.train.FtrlOptimizer(0.05),
    dnn_feature_columns=[fc.embedding_column(user, 8), fc.embedding_column(item, 8)],
    dnn_hidden_units=[32, 16],
    loss_reduction=tf.losses.Reduction.SUM_OVER_BATCH_SIZE,
    dnn_optimizer=tf.train.AdagradOptimizer(0.2),
    config=run_config,
)

tf.estimator.train_and_evaluate(
    classifier,
    tf.estimator.TrainSpec(estimator_model.train_input_fn, max_steps=options.steps),
    tf.estimator.EvalSpec(estimator_model.eval_input_fn, steps=None),
)
if run_config.is_chief:
    metrics = classifier.evaluate(estimator_model.eval_input_fn)
    print(f"step {metrics['global_step']}: auc {metrics['auc']:.4f}, loss {metrics['loss']:.4f}")
