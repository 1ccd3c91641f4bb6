"""What people do on their first days with Model: what they type because they know Keras or pandas,
data that does not fit, trainings that diverge. Each is taken, or the error says what to write."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import PATIENCE_S, PROGRAM, Tasks, children_of

import sidereal as sr
import sidereal.v1 as tf
from conftest import planted, small_model
from sidereal import (
    _compare_command,
    _evaluate_command,
    _export_command,
    _plot,
    _predict_command,
    _runs_command,
    _serve_model_command,
    launch,
)
from sidereal.keras import layers

Cluster = sr.LocalCluster
#: Seconds after which who has no business there has heard so, where it takes a fraction of one.
REFUSED_S = 5.0


class Table:
    """A DataFrame as far as data goes: columns by name, each of which becomes an array."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(self._columns[name])


def ages(shape: tuple[int, ...] = (1,)) -> sr.Model:
    """A model of one number for each row."""
    model = sr.Model()
    age = model.input("age", sr.float32, shape)
    model.compile(layers.Dense(1)(age if shape else sr.expand_dims(age, 1)), "sgd")
    return model


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: m.fit(np.zeros((3, 4)), np.zeros(3)), ["labels are the column 'label'"]),
        (lambda m: m.fit(x={}, y=[]), ["by the names of the inputs", "'label'"]),
        (lambda m: m.fit({}, validation_data={}), ["'validation_data'", "write validation="]),
        (lambda m: m.fit({}, validation_split=0.1), ["'validation_split'", "validation="]),
        (lambda m: m.fit({}, callbacks=[]), ["'callbacks'", "on_progress=", "keras.Model"]),
        (lambda m: m.fit({}, sample_weight=[1]), ["the column 'sample_weight'", "model.input("]),
        (lambda m: m.fit({}, epoch=3), ["'epoch'", "did you mean epochs?"]),
        (lambda m: m.fit({}, epochs="3"), ["fit(): epochs is '3'", "a whole number"]),
        (lambda m: m.fit({}, epochs=2.0), ["fit(): epochs is 2.0"]),
        (lambda m: m.fit({}, batch_size=None), ["batch_size is None"]),
        (lambda m: m.fit({}, learning_rate_decay="x"), ["learning_rate_decay is 'x'"]),
        (lambda m: m.fit([1, 2]), ["batch 0 is int", "ids int64[?,4]", "a dict of arrays"]),
        (lambda m: m.compile(m, loss=3), ["compile(): loss is 3", "a name"]),
        (lambda m: m.compile(m, metrics=["auc"]), ["'metrics'", "keras.Model takes metrics"]),
        (lambda m: sr.LocalCluster(ps=["a"]), ["LocalCluster(): ps is ['a']"]),
        (lambda m: sr.optimizers.Adam(lr=1), ["'lr'", "it takes learning_rate"]),
    ],
)
def test_a_call_that_would_be_right_elsewhere_says_what_to_write(
    call: Callable[[Any], Any], said: list[str]
) -> None:
    model = sr.Model() if said[0].startswith(("compile", "'metrics'")) else small_model()
    with pytest.raises(TypeError) as caught:
        call(model)
    for part in said:
        assert part in str(caught.value)


def test_an_optimizer_has_the_name_of_its_class_too() -> None:
    assert isinstance(sr.optimizers.get("Adam"), sr.optimizers.Adam)
    assert isinstance(sr.optimizers.get("adam"), sr.optimizers.Adam)
    with pytest.raises(ValueError, match=r"no optimizer 'adm', perhaps 'adam'; the optimizers are"):
        sr.optimizers.get("adm")


def test_a_data_frame_is_data(cluster: Cluster) -> None:
    rows = planted(64)
    table = Table({"score": rows["ids"][:, 0] * 0.1, "label": rows["label"]})
    model = sr.Model()
    model.compile(layers.Dense(1)(model.input("score", sr.float32, (1,))), "sgd")
    assert model.fit(table, cluster=cluster, verbose=False).rows == 64
    same = {"score": table["score"].astype("f")}
    np.testing.assert_array_equal(model.predict(table), model.predict(same))


def test_a_column_without_extents_is_one_number_for_each_row(cluster: Cluster) -> None:
    model = ages()
    flat = np.arange(8, dtype="f")
    model.fit({"age": flat, "label": np.zeros(8)}, cluster=cluster, verbose=False)
    np.testing.assert_array_equal(
        model.predict({"age": flat}), model.predict({"age": flat[:, None]})
    )


def test_columns_that_are_not_read_are_named(cluster: Cluster) -> None:
    model = small_model()
    with pytest.warns(UserWarning, match=r"does not read .*: weight, day; its inputs are ids"):
        model.fit(
            {**planted(8), "weight": np.ones(8), "day": np.ones(8)}, cluster=cluster, verbose=False
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(planted(8), verbose=False)


def test_files_with_other_columns_are_refused_by_the_names_of_these(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "x.csv"
    file.write_text("label,site,user\n1,2,3\n0,1,1\n")
    with pytest.raises(sr.errors.InvalidArgumentError) as caught:
        small_model().fit(sr.data.csv(file), cluster=cluster, verbose=False)
    for part in ("2 categorical columns (site, user)", "ids int64[?,4]"):
        assert part in str(caught.value)


def click_file(path: Path, rows: int = 600, columns: str = "label,age,city,kind") -> Path:
    """Clicks of two columns of texts and one of numbers, with these columns in this order."""
    rng = np.random.default_rng(rows)
    with open(path, "w") as file:
        file.write(columns + "\n")
        for i in range(rows):
            city, kind, age = rng.integers(0, 8), rng.integers(0, 3), rng.integers(10, 90)
            label = int(rng.random() < (0.1 + 0.1 * city))
            row = {"label": label, "age": age, "city": f"c{city}", "kind": f"k{kind}", "row": i}
            file.write(",".join(str(row[name]) for name in columns.split(",")) + "\n")
    return path


def test_new_rows_need_no_label_and_columns_may_stand_in_any_order(
    cluster: Cluster, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"numeric": ["age"], "hash_buckets": 50}
    train = click_file(tmp_path / "train.csv")
    spec = sr.data.csv(train, **options)
    model = sr.models.build("fm", spec, optimizer=sr.optimizers.Adagrad(0.2))
    model.fit(spec, cluster=cluster, epochs=5, batch_size=32, verbose=False)
    known, found = model.predict(spec), model.evaluate(spec)
    assert found.auc > 0.7
    turned = click_file(tmp_path / "turned.csv", columns="kind,age,label,city")
    assert model.evaluate(sr.data.csv(turned, **options)).auc == found.auc
    new = click_file(tmp_path / "new.csv", columns="row,kind,age,city")
    np.testing.assert_array_equal(model.predict(sr.data.csv(new, **options)), known)


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_data_without_a_row_is_refused(protocol: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("label,a,b,c,d\n")
    some = tmp_path / "some.csv"
    some.write_text("label,a,b,c,d\n" + "1,2,3,4,5\n0,1,1,1,1\n" * 8)
    model = small_model()
    nothing = sr.data.csv(empty, id_space=200)
    with sr.LocalCluster(in_process=True, protocol=protocol) as cluster:
        with pytest.raises(sr.errors.InvalidArgumentError, match=r"no row to train on in .*empty"):
            model.fit(nothing, cluster=cluster, verbose=False)
        both = sr.data.csv(empty, some, id_space=200)
        assert model.fit(both, cluster=cluster, verbose=False).rows == 16
        with pytest.raises(sr.errors.InvalidArgumentError, match=r"no row to evaluate on in .*emp"):
            model.evaluate(nothing)


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_the_loss_of_a_fit_is_that_of_its_last_steps(protocol: str) -> None:
    with sr.LocalCluster(in_process=True, protocol=protocol) as cluster:
        for rows in (32 * 60, 32 * 250):  # Fewer steps than count, and more.
            result = small_model().fit(
                planted(rows), cluster=cluster, batch_size=32, record_losses=True, verbose=False
            )
            assert len(result.losses) == rows // 32
            assert result.loss == pytest.approx(result.losses[-100:].mean(), rel=1e-5)


def test_what_a_model_has_learned_is_where_its_cluster_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = small_model()
    with sr.LocalCluster(in_process=True) as cluster:
        model.fit(planted(64), cluster=cluster, verbose=False)
    for use in (lambda: model.predict(planted(8)), model.inference_function):
        with pytest.raises(sr.errors.FailedPreconditionError, match="export before the cluster's"):
            use()
    capsys.readouterr()
    with sr.LocalCluster(in_process=True) as another:
        model.fit(planted(64), cluster=another, verbose=False)
        assert "the model begins anew" in capsys.readouterr().err
        model.fit(planted(64), cluster=another, verbose=False)
        model.fit(planted(64), checkpoint_dir=tmp_path, verbose=False)
    with sr.LocalCluster(in_process=True) as third:
        result = model.fit(
            planted(64), cluster=third, checkpoint_dir=tmp_path, epochs=2, verbose=False
        )
        assert result.checkpoints.resumed_from != ""
    assert "begins anew" not in capsys.readouterr().err


def test_saving_a_model_as_an_object_says_how_it_is_saved(cluster: Cluster, tmp_path: Path) -> None:
    model = small_model()
    model.initialize(cluster)
    with pytest.raises(sr.errors.InvalidArgumentError, match=r"Model\.export\(path\) saves what"):
        sr.saved_model.save(model, tmp_path / "m.srsm")
    model.export(tmp_path / "m.srsm")
    sr.saved_model.save(model.inference_function(), tmp_path / "n.srsm")
    for keep in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"neither copied nor pickled: export\(path\) writes"):
            keep(model)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("save", ["export(path)", "checkpoint_dir="]),
        ("load", ["sidereal.saved_model.load(path)", "checkpoint_dir="]),
        ("save_weights", ["export(path)", "checkpoint_dir="]),
        ("load_weights", ["fit(checkpoint_dir=..., resume=...)"]),
        ("get_weights", ["get_variable(name)"]),
        ("set_variable", ["embeddings_initializer=", "fit(checkpoint_dir=..., resume=...)"]),
        ("fitt", []),
    ],
)
def test_a_method_that_others_have_says_what_to_write(name: str, said: list[str]) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(small_model(), name)
    for part in (f"'Model' object has no attribute '{name}'", *said):
        assert part in str(caught.value)
    assert not hasattr(small_model(), name)


def test_the_summary_of_a_model_is_its_variables(capsys: pytest.CaptureFixture[str]) -> None:
    small_model().summary()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["variable", "shape", "parameters"]
    assert "vectors/embeddings  (200, 8)  1,600" in lines
    assert lines[-1] == "2,345 parameters"


def test_files_are_found_from_where_the_driver_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.csv").write_text("label,a,b,c,d\n" + "1,2,3,4,5\n0,1,1,1,1\n" * 8)
    with sr.LocalCluster() as cluster:  # Its processes stay in the folder that they began in.
        monkeypatch.chdir(tmp_path)
        spec = sr.data.csv("x.csv", id_space=200)
        assert small_model().fit(spec, cluster=cluster, verbose=False).rows == 16


def test_an_id_that_no_table_has_is_named_with_column_and_row(cluster: Cluster) -> None:
    data = planted(300)
    data["ids"][77, 1] = 1000
    with pytest.raises(sr.errors.InvalidArgumentError) as caught:
        small_model().fit(data, cluster=cluster, batch_size=32, verbose=False)
    for part in ("id 1000 is outside the table's 200 rows", "column 'ids' has 1000 in row 77"):
        assert part in str(caught.value)


def test_a_negative_id_is_no_id(cluster: Cluster) -> None:
    model = small_model()
    model.initialize(cluster)
    ids = planted(4)["ids"]
    ids[:, 2] = -1
    others = ids.copy()
    others[:, 2] = [-1, -3, -7, -1]
    np.testing.assert_array_equal(model.predict({"ids": ids}), model.predict({"ids": others}))


def test_a_negative_id_of_a_file_is_refused_as_what_it_is(tmp_path: Path, cluster: Cluster) -> None:
    file = tmp_path / "x.csv"
    file.write_text("label,a,b,c,d\n1,2,3,-5,5\n")
    with pytest.raises(sr.errors.InvalidArgumentError) as caught:
        small_model().fit(sr.data.csv(file, id_space=200), cluster=cluster, verbose=False)
    assert "x.csv:2: id -5 in column 'c' is negative" in str(caught.value)


def test_a_name_is_of_one_input() -> None:
    model = sr.Model()
    model.input("a", sr.int64)
    with pytest.raises(sr.errors.AlreadyExistsError, match="has an input 'a' already"):
        model.input("a", sr.int64)


def test_a_layer_that_is_called_twice_has_one_table() -> None:
    for name in (None, "items"):
        model = sr.Model()
        shared = layers.Embedding(500, 16, name=name)
        both = [shared(model.input(column, sr.int64)) for column in ("item", "before")]
        model.compile(layers.Dense(1)(both[0] * both[1]))
        tables = [one for one in model.variables() if one.shape == (500, 16)]
        assert len(tables) == 1


def test_nan_in_the_data_ends_a_training_with_its_column_and_row(cluster: Cluster) -> None:
    numbers = np.ones((100, 2), "f")
    numbers[77, 1] = np.nan
    with pytest.raises(sr.errors.InvalidArgumentError) as caught:
        ages((2,)).fit(
            {"age": numbers, "label": np.zeros(100)}, cluster=cluster, batch_size=10, verbose=False
        )
    for part in ("is nan at step", "column 'age' has nan in row", "not finite in row 77"):
        assert part in str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("loss", [None, "mse"])
def test_numbers_that_are_none_are_named_when_they_are_predicted_from(
    cluster: Cluster, bad: float, loss: str | None
) -> None:
    model = sr.Model()
    hidden = layers.Dense(4, "tanh")(model.input("age", sr.float32, (2,)))
    output = layers.Dense(1)(hidden) + sr.reduce_sum(model.input("pay", sr.float32, (2,)), 1, True)
    model.compile(output * 0.0 + output, "sgd", loss=loss)  # Zero times infinity is no number.
    model.initialize(cluster)
    data = {"age": np.ones((100, 2)), "pay": np.ones((100, 2)), "label": np.zeros(100)}
    assert np.isfinite(model.predict(data)).all()
    data["pay"][[77, 80], 1] = bad
    for use in (model.predict, model.evaluate):
        with pytest.raises(sr.errors.InvalidArgumentError, match=r"'pay' .* not finite in row 77:"):
            use(data)


def test_what_a_model_itself_makes_of_numbers_is_its_own(cluster: Cluster) -> None:
    data = {"age": np.array([1.0, np.nan, 0.0, -1.0]), "label": np.zeros(4)}
    model = sr.Model()
    age = model.input("age", sr.float32, (1,))
    known = sr.where(sr.math.is_nan(age), sr.ones_like(age), age)
    model.compile(sr.math.log(known), "sgd", loss=sr.reduce_mean(layers.Dense(1)(known)))
    model.initialize(cluster)
    np.testing.assert_array_equal(model.predict(data)[:, 0], [0, 0, -np.inf, np.nan])
    assert np.isfinite(model.evaluate(data).loss)


def test_a_training_that_diverges_ends_and_names_the_learning_rate(cluster: Cluster) -> None:
    model = sr.Model()
    age = model.input("age", sr.float32, (1,))
    output = layers.Dense(1)(age)
    loss = sr.reduce_mean(sr.square(output - sr.expand_dims(model.input("y", sr.float32), 1)))
    model.compile(output, sr.optimizers.SGD(1e6), loss=loss)
    data = {"age": np.ones(500, "f"), "y": np.zeros(500, "f")}
    with pytest.raises(sr.errors.InvalidArgumentError, match="is the learning rate too large"):
        model.fit(data, cluster=cluster, batch_size=2, verbose=False)


def test_data_of_one_class_has_no_auc_and_a_log_loss(cluster: Cluster) -> None:
    model = small_model()
    model.initialize(cluster)
    one_class = planted(50)
    one_class["label"][:] = 0
    found = model.evaluate(one_class)
    assert np.isnan(found.auc) and found.log_loss > 0 and found.rows == 50
    fitted = model.fit(planted(64), validation=one_class, epochs=3, patience=1, verbose=False)
    assert fitted.epochs >= 2  # Judged by the loss: it is learned what the validation wants.


def test_validation_is_told_after_each_epoch(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[int, float]] = []

    def watch(progress: sr.Progress) -> None:
        if progress.validation is not None:
            seen.append((progress.epoch, progress.validation.auc))

    fitted = small_model().fit(
        planted(200), validation=planted(100, 1), epochs=3, cluster=cluster, on_progress=watch
    )
    told = list(dict.fromkeys(auc for _, auc in seen))
    assert told == [one.auc for one in fitted.validation] and len(told) == 3
    lines = capsys.readouterr().err.splitlines()
    for epoch, auc in enumerate(told, 1):
        begin = f"epoch {epoch}/3: validation auc {auc:.4f}, loss "
        assert any(line.startswith(begin) for line in lines)


@pytest.mark.parametrize("protocol", launch.PROTOCOLS)
def test_a_local_cluster_serves_nobody_else(
    clusters: Callable[..., Cluster], protocol: str
) -> None:
    cluster = clusters(in_process=True, protocol=protocol)
    addresses = {"ps": cluster.ps, "worker": cluster.worker}
    for wrong in (sr.SecurityOptions(), sr.SecurityOptions(secret="b" * 32)):
        stranger = sr.RemoteCluster(addresses, security=wrong)
        begin = time.monotonic()
        with pytest.raises(sr.errors.UnauthenticatedError, match="secret"):
            small_model().fit(planted(8), cluster=stranger, verbose=False)
        assert time.monotonic() - begin < REFUSED_S
    assert small_model().fit(planted(8), cluster=cluster, verbose=False).rows == 8


def test_help_of_a_command_of_the_package_is_where_that_of_others_is() -> None:
    shown = [
        subprocess.run(
            [sys.executable, "-m", "sidereal", *words], capture_output=True, text=True, timeout=60
        )
        for words in (["help", "launch"], ["launch", "--help"])
    ]
    assert [one.returncode for one in shown] == [0, 0]
    assert shown[0].stdout == shown[1].stdout and "--ps" in shown[0].stdout


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        (_predict_command, ["--modle", "x"], "predict: error: there is no option --modle; did you "
         "mean --model? (see sidereal predict --help)"),
        (_evaluate_command, ["--model=x", "--wach=y"], "no option --wach; did you mean --watch?"),
        (_export_command, ["--formt", "onnx"], "no option --formt; did you mean --format?"),
        (_serve_model_command, ["--rest-prt", "3"], "--rest-prt; did you mean --rest-port?"),
        (_compare_command, ["a", "b", "--josn"], "--josn; did you mean --json?"),
        (_runs_command, ["--josn"], "--josn; did you mean --json?"),
        (_plot, ["a", "--smoth=0.5"], "--smoth; did you mean --smooth?"),
        (launch, ["--wrokers", "2", "x.py"], "--wrokers; did you mean --workers?"),
        (launch, ["--color"], "sidereal launch: error: there is no option --color (see"),
    ],
)  # fmt: skip
def test_a_typo_in_a_command_of_the_package_is_answered_with_what_was_meant(
    command: Any, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_options_of_a_script_are_its_own() -> None:
    words = ["--ps", "2", "--work", "3", "x.py", "--wrokers", "4"]
    options = launch.parser().parse_args(words)
    assert (options.ps, options.workers, options.arguments) == (2, 3, ["--wrokers", "4"])


@pytest.mark.parametrize("command", [_predict_command, _evaluate_command])
def test_what_a_file_has_in_its_header_does_not_reach_the_terminal(
    command: Any, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ages()
    model.initialize(cluster)
    model.export(tmp_path / "m.srsm")
    file = tmp_path / "x.csv"
    words = ["--model", str(tmp_path / "m.srsm"), "--data", str(file)]
    file.write_bytes(b"label,\x1b[31mred,caf\xc3\xa9,\xc2\x9bx,\xff\n1,2,3,4,5\n")
    assert command.main(words) == 1
    told = capsys.readouterr().err
    assert "it has: label, \\x1b[31mred, caf\u00e9, \\xc2\\x9bx, \\xff\n" in told
    file.write_bytes(b",".join([bytes(range(14, 256)), *[b"\x1b"] * 99]))
    assert command.main(words) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and told[:-1].isprintable() and len(told) < 1000


KILLED = """
    import os, signal, sys
    import numpy as np
    from sidereal import _arrays

    _arrays.SHARED_MEMORY = sys.argv[1]  # Other tests have files in /dev/shm.
    with _arrays.as_spec([("x", "float32", (-1,))], {"x": np.ones(1000, "f")}) as spec:
        (name, file), = spec.arrays
        print(name, np.load(file).sum(), os.listdir(sys.argv[1]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_arrays_of_a_driver_that_is_killed_leave_no_file(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), tmp_path], stdout=subprocess.PIPE,
        text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == ["x", "1000.0", "[]"]
    assert not list(tmp_path.iterdir())


def test_patience_without_validation_is_refused(cluster: Cluster) -> None:
    with pytest.raises(sr.errors.InvalidArgumentError, match="patience is 2 and there is no valid"):
        small_model().fit(planted(8), cluster=cluster, patience=2)


def test_a_trace_that_cannot_be_written_is_refused_before_the_training(cluster: Cluster) -> None:
    model = small_model()
    with pytest.raises(sr.errors.NotFoundError, match=r"/nosuch is no folder"):
        model.fit(planted(8), cluster=cluster, trace="/nosuch/x", verbose=False)
    with pytest.raises(sr.errors.FailedPreconditionError, match="on no cluster yet"):
        model.predict({"ids": planted(8)["ids"]})


FAILS = """
    import numpy as np
    import sidereal as sr
    from conftest import planted, small_model

    with sr.LocalCluster() as cluster:
        data = planted(64)
        data["ids"][7, 1] = 1000
        try:
            small_model().fit(data, cluster=cluster, verbose=False)
        except sr.errors.InvalidArgumentError as error:
            print(error)
"""

INTERRUPTED = """
    import signal
    import sidereal as sr
    from conftest import planted, small_model

    with sr.LocalCluster() as cluster:
        try:
            small_model().fit(
                planted(1000), cluster=cluster, epochs=100000, verbose=False,
                on_progress=lambda progress: signal.raise_signal(signal.SIGINT),
            )
        except KeyboardInterrupt:
            print("interrupted")
"""


LOST = """
    import os, signal
    import sidereal as sr
    from conftest import planted, small_model
    from session_servers import children_of

    with sr.LocalCluster() as cluster:
        (worker,) = (pid for pid, words in children_of(os.getpid()).items() if "b worker" in words)
        try:
            small_model().fit(
                planted(1000), cluster=cluster, epochs=100000, verbose=False,
                on_progress=lambda progress: os.kill(worker, signal.SIGKILL),
            )
        except sr.errors.UnavailableError as error:
            print(str(error).partition(" (Killed)")[0])  # How its connections ended comes behind.
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (FAILS, "id 1000 is outside"),
        (INTERRUPTED, "interrupted"),
        (LOST, "was killed by signal 9"),
    ],
)
def test_what_a_program_catches_its_tasks_do_not_tell_as_well(program: str, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True,
        timeout=60, cwd=Path(__file__).parent,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert said in ended.stdout and "127.0.0.1:" not in ended.stdout
    for other in (said, "sidereal-arrays-", " E ", "no such file"):
        assert other not in ended.stderr, ended.stderr


def test_a_cluster_with_a_task_that_hangs_is_stopped(capfd: pytest.CaptureFixture[str]) -> None:
    with sr.LocalCluster():
        tasks = {
            pid: words for pid, words in children_of(os.getpid()).items() if " serve " in words
        }
        victim = next(pid for pid, words in tasks.items() if "--job ps" in words)
        os.kill(victim, signal.SIGSTOP)
        begin = time.monotonic()
    assert time.monotonic() - begin < PATIENCE_S
    assert not set(tasks) & set(children_of(os.getpid()))
    assert "did not stop within 5 s and is killed task=/job:ps/task:0" in capfd.readouterr().err


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
def test_a_ps_that_was_started_again_is_named(protocol: str) -> None:
    tasks = Tasks(protocol)
    try:
        model = small_model()
        model.fit(planted(64), cluster=sr.RemoteCluster(tasks.cluster), verbose=False)
        tasks.restart(1)
        lost = r"^/job:ps/replica:0/task:1 was started again, and what it held of the model is lost"
        for use in (
            lambda: model.predict({"ids": planted(8)["ids"]}),
            lambda: model.get_variable("vectors/embeddings"),
            lambda: model.fit(planted(64), verbose=False),
        ):
            with pytest.raises(sr.errors.AbortedError, match=lost):
                use()
        again = sr.RemoteCluster(tasks.cluster)
        assert model.fit(planted(64), cluster=again, verbose=False).rows == 64
    finally:
        tasks.processes.end()


def test_a_session_may_be_on_a_server_without_a_cluster() -> None:
    server = subprocess.Popen(
        [PROGRAM, "serve", "--job", "worker", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        with tf.Graph().as_default():
            total = tf.constant(2.0) + 3.0
            with tf.Session(f"grpc://{server.stdout.readline().strip()}") as session:
                assert session.run(total) == 5
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("address", ["nohost", "a:99999", "a:", ":1", "a:b"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(sr.errors.InvalidArgumentError, match="is not the address of a ps task"):
        sr.RemoteCluster({"ps": [address], "worker": ["b:1"]})
    with pytest.raises(sr.errors.InvalidArgumentError, match="/task:0: address '"):
        sr.train.Server({"ps": [address]}, job_name="ps", task_index=0)


def test_a_cluster_that_is_no_json_is_refused_with_the_place() -> None:
    with pytest.raises(sr.errors.InvalidArgumentError, match="is no JSON: line 2, column 18"):
        sr.RemoteCluster('{"ps": ["h:1"],\n "worker": ["h:2"')
