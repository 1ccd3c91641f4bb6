"""Versions of a model that is served: swapped under load, damaged, followed."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoints_written import write_checkpoint
from model_servers import GrpcClient, ModelServer, save_line
from session_servers import PATIENCE_S

import sidereal as sr
from sidereal import _description, errors
from sidereal.checkpoint_management import update_checkpoint_state
from sidereal.serving._models import VersionsSource


def put(models: Path, number: int, a: float) -> None:
    """A version that gives a x, moved to its place when it is whole."""
    made = save_line(models.parent / f"new{number}" / "model.srsm", a, 0).parent
    os.rename(made, models / str(number))


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end


class Load:
    """Clients that ask all the time, over REST and gRPC, and what each was told in order."""

    def __init__(self, server: ModelServer, clients: int) -> None:
        self._ending = threading.Event()
        self.told: list[list[float]] = [[] for _ in range(2 * clients)]
        self.failures: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(told, ask, server))
            for told, ask in zip(self.told, [self._rest, self._grpc] * clients)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, told: list[float], ask: Callable[..., None], server: ModelServer) -> None:
        try:
            ask(told, server)
        except Exception as error:  # noqa: BLE001 - shown by the test.
            self.failures.append(repr(error))

    def _rest(self, told: list[float], server: ModelServer) -> None:
        while not self._ending.is_set():
            status, body = server.ask("POST", "/v1/models/models:predict", {"instances": [1, 1]})
            assert status == 200, body
            first, second = json.loads(body)["predictions"]
            assert first == second
            told.append(first)

    def _grpc(self, told: list[float], server: ModelServer) -> None:
        with GrpcClient(server.grpc_port) as client:
            while not self._ending.is_set():
                found = client.predict("models", {"x": np.ones(2, np.float32)})["y"]
                assert found[0] == found[1]
                told.append(float(found[0]))

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)


def states(server: ModelServer) -> dict[str, str]:
    found = server.get("/v1/models/models")["model_version_status"]
    return {one["version"]: one["state"] for one in found}


def test_versions_are_swapped_while_requests_go_on(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    put(models, 1, 1)
    with ModelServer("--model", models, "--poll-s", 0.05) as server:
        load = Load(server, 3)
        try:
            until(lambda: all(load.told) or bool(load.failures))
            for number in (2, 3):
                put(models, number, number)
                until(
                    lambda number=number: bool(load.failures)  # type: ignore[misc]
                    or all(told[-1] == number for told in load.told)
                )
        finally:
            load.end()
        assert not load.failures
        for told in load.told:
            # Never an older one again.
            assert told == sorted(told) and set(told) <= {1, 2, 3} and told[-1] == 3
        # The one before ends once it has answered.
        until(lambda: states(server) == {"3": "AVAILABLE", "2": "END", "1": "END"})
        status, why = server.refusal("/v1/models/models/versions/1:predict", {"instances": [1]})
        assert status == 404 and "version 3 is served" in why
        # Taken away, the one below it is served again.
        os.rename(models / "3", tmp_path / "gone")
        until(lambda: states(server).get("2") == "AVAILABLE")
        assert server.predict("/v1/models/models:predict", {"instances": [1]}) == {
            "predictions": [2.0]
        }


def test_a_version_that_is_damaged_is_named_and_the_old_one_served(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    put(models, 1, 1)
    with ModelServer("--model", models, "--poll-s", 0.05) as server:
        good = (models / "1" / "model.srsm").read_bytes()
        # Moved there, or the server may find an empty file before.
        half = tmp_path / "half.srsm"
        half.write_bytes(good[: len(good) // 2])
        os.replace(half, models / "2.srsm")
        until(lambda: states(server) == {"2": "END", "1": "AVAILABLE"})
        (said, _) = server.get("/v1/models/models")["model_version_status"]
        assert "2.srsm" in said["status"]["error_message"]
        assert said["status"]["error_code"] != "OK"
        assert server.predict("/v1/models/models:predict", {"instances": [3]}) == {
            "predictions": [3.0]
        }
        until(lambda: "1" in states(server) and "version 1 still is: " in server.said())
        assert server.said().count("a new version is not served") == 1
        # Written whole, it is.
        os.replace(save_line(tmp_path / "whole.srsm", 2, 0), models / "2.srsm")
        until(lambda: states(server).get("2") == "AVAILABLE")


def test_what_a_folder_of_versions_may_have(tmp_path: Path) -> None:
    source = VersionsSource(str(tmp_path))
    with pytest.raises(errors.NotFoundError, match="no version of a model"):
        source.newest()
    save_line(tmp_path / "9.srsm", 1, 0)
    save_line(tmp_path / "10" / "any.srsm", 1, 0)
    (tmp_path / "11.partial").write_bytes(b"")
    (tmp_path / "temporary").mkdir()
    assert source.newest().number == 10
    save_line(tmp_path / "10" / "other.srsm", 1, 0)
    with pytest.raises(errors.NotFoundError, match="has 2 models"):
        source.newest()


def described(folder: Path) -> dict[str, np.ndarray]:
    """A folder with the description of a model of clicks; values of its variables."""
    schema = sr.data.Schema(fields=3, rows=20)
    model = sr.models.build("lr", schema, seed=1)
    model.describe(folder)
    found = _description.ModelDescription.load(folder)
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, (_, shape) in found.variables.items()
    }


def test_checkpoints_of_a_training_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    values = described(folder)
    write_checkpoint(folder / "model.ckpt-100", values)
    row = {"instances": [[1, 2, 3]]}
    path = "/v1/models/models:predict"
    with ModelServer("--model", folder, "--follow", "--poll-s", 0.05) as server:
        (before,) = server.predict(path, row)["predictions"]
        assert states(server) == {"100": "AVAILABLE"}
        write_checkpoint(
            folder / "model.ckpt-250", {name: -value for name, value in values.items()}
        )
        until(lambda: states(server).get("250") == "AVAILABLE")
        (after,) = server.predict(path, row)["predictions"]
        # The logit has the other sign.
        np.testing.assert_allclose(np.add(before, after), 1, atol=1e-5)
        assert abs(np.subtract(before, after)) > 1e-3
        # One that lost its data is passed over. It never was whole there, where it might be served.
        aside = tmp_path / "aside"
        aside.mkdir()
        write_checkpoint(aside / "model.ckpt-300", values)
        for file in sorted(aside.glob("model.ckpt-300.*")):  # The index is the last.
            if ".data-" in file.name:
                file.write_bytes(b"short")
            os.rename(file, folder / file.name)
        update_checkpoint_state(folder, str(folder / "model.ckpt-300"))
        until(lambda: "300" in states(server) or bool(server.said()))
        assert server.predict(path, row)["predictions"] == [after]
        assert states(server)["250"] == "AVAILABLE"
    with ModelServer("--model", folder, "--checkpoint", folder / "model.ckpt-100") as server:
        assert server.predict(path, row)["predictions"] == [before]
