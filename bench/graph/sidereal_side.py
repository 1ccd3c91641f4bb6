"""One training step of a model of bench graph as a sidereal.function."""

from __future__ import annotations

from typing import Any

import numpy as np
import work
from side import arguments, serve

import sidereal as sr


def optimizer_of(model: work.Model) -> Any:
    if model.optimizer == "adam":
        return sr.optimizers.Adam(model.rate)
    if model.optimizer == "adagrad":
        return sr.optimizers.Adagrad(model.rate, initial_accumulator_value=0.1)
    return sr.optimizers.SGD(model.rate)


def run_tower(weights: dict[str, sr.Variable], tower: work.Layers, x: Any) -> Any:
    activation = sr.nn.relu if tower.activation == "relu" else sr.nn.sigmoid
    last = len(tower.widths) - 2
    for i in range(last + 1):
        x = sr.nn.bias_add(
            sr.matmul(x, weights[f"{tower.name}/w{i}"]), weights[f"{tower.name}/b{i}"]
        )
        if i < last:
            x = activation(x)
    return x


def mlp(weights: Any, model: work.Model, x: Any) -> Any:
    return run_tower(weights, model.towers[0], x)


def deepfm(weights: Any, model: work.Model, ids: Any) -> Any:
    rows = sr.nn.embedding_lookup(weights["embedding"], ids)
    first = sr.reduce_sum(sr.nn.embedding_lookup(weights["linear"], ids), 1)
    total = sr.square(sr.reduce_sum(rows, 1))
    second = 0.5 * sr.reduce_sum(total - sr.reduce_sum(sr.square(rows), 1), 1, keepdims=True)
    deep = sr.reshape(rows, (-1, work.DEEPFM_FIELDS * work.DEEPFM_DIM))
    return first + second + run_tower(weights, model.towers[0], deep)


def dlrm(weights: Any, model: work.Model, dense: Any, ids: Any) -> Any:
    bottom = sr.nn.relu(run_tower(weights, model.towers[0], dense))
    rows = [
        sr.nn.embedding_lookup(weights[table.name], ids[i]) for i, table in enumerate(model.tables)
    ]
    vectors = sr.stack([bottom, *rows], 1)
    products = sr.matmul(vectors, vectors, transpose_b=True)
    row, column = work.pairs()
    count = work.DLRM_TABLES + 1
    flat = sr.reshape(products, (-1, count * count))
    pairs = sr.gather(flat, row * count + column, axis=1)
    return run_tower(weights, model.towers[1], sr.concat([bottom, pairs], 1))


def din(weights: Any, model: work.Model, item: Any, kind: Any, items: Any, kinds: Any, mask: Any):
    def look(first: Any, second: Any) -> Any:
        found = (("item", first), ("kind", second))
        return sr.concat([sr.nn.embedding_lookup(weights[n], ids) for n, ids in found], -1)

    query, keys = look(item, kind), look(items, kinds)
    spread = sr.broadcast_to(sr.expand_dims(query, 1), keys.shape)
    features = sr.concat([spread, keys, spread - keys, spread * keys], -1)
    flat = sr.reshape(features, (-1, 8 * work.DIN_DIM))
    scores = sr.reshape(run_tower(weights, model.towers[0], flat), mask.shape)
    scores = sr.nn.softmax(sr.where(mask > 0, scores, -1e9))
    interest = sr.squeeze(sr.matmul(sr.expand_dims(scores, 1), keys), 1)
    return run_tower(weights, model.towers[1], sr.concat([interest, query, interest * query], 1))


def main() -> None:
    given = arguments(__doc__)
    model = work.MODELS[given.case]
    if given.threads > 1:
        sr.config.threading.set_intra_op_parallelism_threads(given.threads)
    weights = {name: sr.Variable(value, name=name) for name, value in model.weights().items()}
    variables = list(weights.values())
    optimizer = optimizer_of(model)
    forward = globals()[model.name]

    @sr.function(compute_dtype="bfloat16" if given.bfloat16 else "float32")
    def step(*inputs: Any) -> Any:
        with sr.GradientTape() as tape:
            logits = forward(weights, model, *inputs[:-1])
            losses = sr.nn.sigmoid_cross_entropy_with_logits(inputs[-1], logits)
            loss = sr.reduce_mean(losses)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    data = [[sr.constant(x) for x in batch] for batch in work.batches(model.name, given.batch)]
    serve(lambda i: step(*data[i % len(data)]), lambda loss: float(np.asarray(loss)))


if __name__ == "__main__":
    main()
