"""A coordinator's own loop: job_coordinator.py PROTOCOL DATA FOLDER. It is the chief of TF_CONFIG.
The position of the worker's iterator is in the checkpoint."""

import sys

import job_data

import sidereal as sr
from sidereal.distribute.coordinator import ClusterCoordinator

_, path, folder = sys.argv[1:]

strategy = sr.distribute.ParameterServerStrategy(
    sr.distribute.cluster_resolver.TFConfigClusterResolver(),
    sr.distribute.experimental.partitioners.FixedShardsPartitioner(2),
)
coordinator = ClusterCoordinator(strategy)
with strategy.scope():
    table = sr.Variable(sr.zeros([job_data.FEATURES, 1]))
    bias, rows = sr.Variable(0.0), sr.Variable(0, dtype="int64")
optimizer = sr.optimizers.Adagrad(job_data.RATE)
data = sr.data.Dataset.from_tensor_slices(job_data.training(path)).repeat().batch(job_data.BATCH)
iterator = iter(coordinator.create_per_worker_dataset(data))

checkpoint = sr.train.Checkpoint(
    table=table, bias=bias, rows=rows, optimizer=optimizer, iterator=iterator
)
manager = sr.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
manager.restore_or_initialize()


@sr.function
def step(iterator):
    ids, label = next(iterator)
    weights = [*table.variables, bias]
    with sr.GradientTape() as tape:
        logit = sr.reduce_sum(sr.nn.embedding_lookup(table, ids), 1) + bias
        loss = sr.reduce_mean(sr.nn.sigmoid_cross_entropy_with_logits(label, logit))
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    return rows.assign_add(sr.cast(sr.shape(label)[0], "int64"))


for begin in range(int(rows.numpy()) // job_data.BATCH, job_data.STEPS, 40):
    count = min(40, job_data.STEPS - begin)
    for value in [coordinator.schedule(step, (iterator,)) for _ in range(count)]:
        job_data.say_step(value.fetch() // job_data.BATCH)
    coordinator.join()
    manager.save()

job_data.say_result(path, rows.numpy(), table.numpy(), bias.numpy())
