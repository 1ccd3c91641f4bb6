"""Tasks of `sidereal launch` as actors of a cluster of Ray, one placement group for all of them.

An actor stands for one task: it keeps a port of its node, starts the runner of the task
(_launch_task), and gives back what that prints, by a generator. A task lives as long as its actor
does, and that as long as the program that made it: Ray ends the actors of a driver that is gone,
and a runner whose actor is gone ends its task.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from . import _launch_places
from ._launch_places import REMOTE_RUNNER, PlaceError, ReservedPorts, Runner, Task, wanted

try:
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ImportError as error:
    raise PlaceError(
        f"--on ray needs the package ray, which is not installed: pip install ray ({error})"
    ) from None

CHUNK_BYTES_MAX = 64 * 1024
#: Pieces of output that are on their way to the launcher.
CHUNKS_MAX = 64
#: Of tasks: above those of Ray's own workers, below those that systems give to connections.
PORTS = range(20000, 32768)
#: Seconds that an actor has to start in, once there is room for it.
ACTOR_S = 120.0
#: The exit code of a task whose actor is lost: that of a process ended by SIGKILL.
LOST = 128 + 9


class TaskActor:
    """On a node: the port of a task, and its runner."""

    def __init__(self) -> None:
        self._ports: ReservedPorts | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def place(self, port: int | None) -> tuple[str, int | None]:
        """The address of the node, and a port there that is kept: this one, or any. None: the one
        wanted is taken."""
        host = ray.util.get_node_ip_address()
        candidates = random.sample(PORTS, 256) if port is None else [port]
        self._ports = ReservedPorts(1, candidates, host)
        return host, next(iter(self._ports.ports), None)

    def run(self, python: str, config: dict[str, Any]) -> Iterator[bytes | int]:
        """Runs a task to its end: what it prints, then its exit code."""
        process = subprocess.Popen(
            [python, "-c", REMOTE_RUNNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(config).encode() + b"\n")
        process.stdin.flush()
        self._process = process
        try:
            while content := os.read(process.stdout.fileno(), CHUNK_BYTES_MAX):
                yield content
            yield process.wait()
        finally:
            self._process = None
            process.stdout.close()
            with contextlib.suppress(OSError):
                process.stdin.close()

    def tell(self, line: bytes) -> None:
        """Sends the runner a line. Nothing when there is none."""
        process = self._process
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError, ValueError):
            process.stdin.write(line)
            process.stdin.flush()


class RayRunner:
    """What the launcher has of a task that an actor runs. A thread takes what comes from there."""

    def __init__(self, actor: Any, python: str, config: dict[str, Any]) -> None:
        self._actor = actor
        self.output, self._write = os.pipe()
        self.handle, self._ended = os.pipe()
        os.set_blocking(self.output, False)
        self._code = LOST
        pieces = actor.run.options(
            num_returns="streaming", _generator_backpressure_num_objects=CHUNKS_MAX
        ).remote(python, config)
        self._thread = threading.Thread(target=self._take, args=(pieces,), daemon=True)
        self._thread.start()

    def _take(self, pieces: Any) -> None:
        try:
            for piece in pieces:
                content = ray.get(piece)
                if isinstance(content, int):
                    self._code = content
                    continue
                while content:
                    content = content[os.write(self._write, content) :]
        except ray.exceptions.RayError as error:
            first = str(error).strip().splitlines()[0]
            with contextlib.suppress(OSError):
                os.write(self._write, f"the actor of this task is lost: {first}\n".encode())
        except OSError:
            pass  # Nobody reads: the launcher ends, and its actors with it.
        finally:
            os.close(self._write)
            os.close(self._ended)  # Whoever waits for the other end comes to its end.

    def tell(self, line: bytes) -> None:
        with contextlib.suppress(ray.exceptions.RayError):
            self._actor.tell.remote(line)

    def kill(self) -> None:
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(self._actor, no_restart=True)

    def wait(self) -> int:
        self._thread.join()
        return self._code

    def close(self) -> None:
        os.close(self.output)
        os.close(self.handle)


class OnRay:
    """Tasks are actors: each has a bundle of one placement group, with the processors it asks
    for. PlaceError where Ray has no room for all of them in time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._group: Any = None
        try:
            ray.init(
                address=options.ray_address, log_to_driver=False, include_dashboard=False
                if options.ray_address is None and "RAY_ADDRESS" not in os.environ else None,
                logging_level="warning",
            )  # fmt: skip
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise PlaceError(f"no cluster of Ray answers: {error}") from None
        self._actors: dict[str, Any] = {}
        try:
            self.tasks = self._make_room()
        except BaseException:
            self.close()
            raise

    def _make_room(self) -> list[Task]:
        options = self._options
        members = wanted(options)
        all_of_them = members + [("evaluator", 0)] * options.evaluator
        bundles = [{"CPU": options.cpus} if options.cpus else {"CPU": 0.001} for _ in all_of_them]
        self._group = placement_group(bundles, strategy=options.placement)
        if not self._group.wait(options.start_timeout):
            there = ray.cluster_resources().get("CPU", 0)
            left = ray.available_resources().get("CPU", 0)
            raise PlaceError(
                f"Ray has no room for {len(all_of_them)} tasks with {options.cpus:g} processors "
                f"each ({options.placement}) after {options.start_timeout:g} s: it has {there:g}, "
                f"of which {left:g} are free. Give fewer tasks, --cpus, or --start-timeout"
            )
        self._bundle = {f"{job} {index}": i for i, (job, index) in enumerate(all_of_them)}
        for name in self._bundle:
            self._actors[name] = self._new_actor(name)
        places = {name: self._place(name, None) for name in self._bundle}
        out = []
        for job, index in all_of_them:
            host, port = places[f"{job} {index}"]
            address = "" if job == "evaluator" else f"{host}:{port}"
            out.append(Task(job, index, host, address))
        return out

    def _new_actor(self, name: str) -> Any:
        strategy = PlacementGroupSchedulingStrategy(
            placement_group=self._group, placement_group_bundle_index=self._bundle[name]
        )
        # One thread for what it prints, one for what it is told.
        made = ray.remote(TaskActor).options(
            name=None, num_cpus=self._options.cpus or 0.001, max_concurrency=2, max_restarts=0,
            scheduling_strategy=strategy,
        )  # fmt: skip
        # Sent as it is: an actor that loaded the package would start late, and keep it in memory.
        modules = [sys.modules[__name__], _launch_places]
        for module in modules:
            ray.cloudpickle.register_pickle_by_value(module)
        try:
            return made.remote()
        finally:
            for module in modules:
                ray.cloudpickle.unregister_pickle_by_value(module)

    def _place(self, name: str, port: int | None) -> tuple[str, int]:
        try:
            host, kept = ray.get(self._actors[name].place.remote(port), timeout=ACTOR_S)
        except ray.exceptions.RayError as error:
            first = str(error).strip().splitlines()[0]
            raise PlaceError(f"the actor of {name} does not start: {first}") from None
        if kept is None:
            raise PlaceError(f"its port {port} of {host} is taken")
        return host, kept

    def start(self, task: Task, config: dict[str, Any]) -> Runner:
        try:
            ray.get(self._actors[task.name].tell.remote(b""), timeout=ACTOR_S)
        except ray.exceptions.RayError:
            # The actor is gone, perhaps with its node. The others know one address of the task.
            self._actors[task.name] = self._new_actor(task.name)
            host, _, port = task.address.rpartition(":")
            now, _ = self._place(task.name, int(port) if port else None)
            if task.address and now != host:
                raise PlaceError(f"its node {host} is gone; Ray has {now} instead") from None
        actor = self._actors[task.name]
        return RayRunner(actor, self._options.python, {**config, "signals": False})

    def close(self) -> None:
        for actor in self._actors.values():
            with contextlib.suppress(ray.exceptions.RayError, ValueError):
                ray.kill(actor, no_restart=True)
        with contextlib.suppress(ray.exceptions.RayError):
            if self._group is not None:
                remove_placement_group(self._group)
        ray.shutdown()
