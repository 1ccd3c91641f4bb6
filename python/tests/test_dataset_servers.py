"""Datasets that servers read: definitions go there with the graph."""

import numpy as np
import pytest
from session_servers import Processes, addresses

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors
from sidereal.launch import PROTOCOLS

Dataset = sr.data.Dataset
#: Of a step that waits for ever; a loaded machine has begun it by then.
SHORT = tf.RunOptions(timeout_in_ms=1000)


@pytest.fixture(params=PROTOCOLS)
def worker(request):
    """The target of a worker in a process of its own, without Python, beside a ps."""
    cluster = {"ps": addresses(1), "worker": addresses(1)}
    with tf.Graph().as_default():
        processes = Processes()
        try:
            for job in cluster:
                processes.serve(cluster, job, 0, "--protocol", request.param)
            yield f"{request.param}://{cluster['worker'][0]}"
        finally:
            processes.end()


def test_a_worker_trains_on_a_dataset_that_it_reads(worker, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 2)).astype(np.float32)
    y = x @ np.float32([1.0, -2.0])
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{a},{b},{c}\n" for (a, b), c in zip(x, y)))
    ds = sr.data.CsvDataset(path, [0.0, 0.0, 0.0]).shuffle(64).batch(16).repeat(60)
    ds = ds.map(lambda a, b, c: (sr.stack([a, b], axis=1), c), num_parallel_calls=2).prefetch(4)
    with tf.device("/job:ps/task:0"):
        w = tf.Variable(np.zeros((2, 1), np.float32))
    with tf.device("/job:worker/task:0"):
        features, label = tf.data.make_one_shot_iterator(ds).get_next()
        error = tf.squeeze(tf.matmul(features, w), [1]) - label
        loss = tf.reduce_mean(error * error)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    steps = 0
    with tf.Session(worker) as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(errors.OutOfRangeError, match="End of sequence"):
            while True:
                session.run(train)
                steps += 1
        np.testing.assert_allclose(session.run(w)[:, 0], [1.0, -2.0], atol=1e-2)
    assert steps == 4 * 60


def test_a_worker_refuses_what_it_cannot_read(worker):
    with tf.device("/job:worker/task:0"):
        missing = tf.data.make_one_shot_iterator(sr.data.TextLineDataset("/no/such/file"))
        line = missing.get_next()
    with tf.Session(worker) as session, pytest.raises(errors.NotFoundError, match="no such file"):
        session.run(line)


def test_positions_are_read_and_set_where_the_data_are(worker, tmp_path):
    path = tmp_path / "lines"
    path.write_text("".join(f"{i}\n" for i in range(40)))
    lines = sr.data.TextLineDataset(str(path)).shuffle(8, seed=1).batch(4).prefetch(2)
    with tf.device("/job:worker/task:0"):
        it = tf.data.make_one_shot_iterator(lines)
        element, here = it.get_next(), it.save()
        position = tf.placeholder(tf.string, [])
        back = it.restore(position)
    with tf.Session(worker) as session:
        session.run(element)
        saved = session.run(here)
        rest = [session.run(element).tolist() for _ in range(3)]
        session.run(back, {position: saved})
        assert [session.run(element).tolist() for _ in range(3)] == rest
        local = iter(lines)
        local.restore(saved)
        assert [next(local).numpy().tolist() for _ in range(3)] == rest
        for wrong in (b"", saved[:-1], b"x" * 100, saved + b"x"):
            with pytest.raises(errors.InvalidArgumentError):
                session.run(back, {position: wrong})
        assert session.run(element).tolist() == next(local).numpy().tolist()


def test_a_position_that_is_waited_for_keeps_nobody_else(worker):
    with tf.device("/job:worker/task:0"):
        it = tf.data.make_one_shot_iterator(Dataset.range(1 << 60).filter(lambda x: x < 0))
        value, here = it.get_next(), it.save()
        other = tf.data.make_one_shot_iterator(Dataset.range(9)).get_next()
    config = tf.ConfigProto(isolate_session_state=True)
    with tf.Session(worker, config=config) as session:
        assert session.run(other) == 0
        for number, waits in enumerate((value, here), 1):
            with pytest.raises(errors.DeadlineExceededError, match="iterator"):
                session.run(waits, options=SHORT)
            assert session.run(other) == number


def test_a_cache_is_a_file_of_the_worker(worker, tmp_path):
    ds = Dataset.range(5).map(lambda x: x * x).cache(str(tmp_path / "cache")).repeat(2)
    with tf.device("/job:worker/task:0"):
        value = tf.data.make_one_shot_iterator(ds).get_next()
    with tf.Session(worker) as session:
        assert [session.run(value) for _ in range(10)] == [x * x for x in range(5)] * 2
    assert [int(x) for x in Dataset.range(0).cache(tmp_path / "cache")] == [0, 1, 4, 9, 16]


def test_closing_a_session_ends_its_iterators(worker):
    with tf.device("/job:worker/task:0"):
        ds = Dataset.range(10).repeat().map(lambda x: x + 1, num_parallel_calls=2)
        value = tf.data.make_one_shot_iterator(ds).get_next()
    config = tf.ConfigProto(isolate_session_state=True)
    for _ in range(3):
        with tf.Session(worker, config=config) as session:
            assert [session.run(value) for _ in range(12)] == [i % 10 + 1 for i in range(12)]


def test_a_step_that_waits_for_an_element_ends_in_time(worker):
    with tf.device("/job:worker/task:0"):
        never = Dataset.range(1 << 60).filter(lambda x: x < 0)
        value = tf.data.make_one_shot_iterator(never).get_next()
        one = tf.constant(1.0)
    config = tf.ConfigProto(isolate_session_state=True)
    with tf.Session(worker, config=config) as session:
        assert session.run(one) == 1.0
        with pytest.raises(errors.DeadlineExceededError, match="iterator"):
            session.run(value, options=SHORT)
    # The thread that looks for an element has ended with the session.
    with tf.Session(worker, config=config) as session:
        assert session.run(one) == 1.0
