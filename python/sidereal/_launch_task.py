"""Runs one task of `sidereal launch`, on this machine or at the other end of ssh. Standard library
only: it starts without the package.

The first line of standard input says what to run, as JSON: "argv", "env" (added to the
environment), "cwd", "secret", "grace_s" and "signals" (end by the signal that ended the task,
rather than with 128 and its number). What the task prints goes where this program's output goes.

Standard input is also the lifeline. Its end, however it comes about, means that the launcher is
gone: everything the task started gets SIGTERM and, grace_s later, SIGKILL. A further line, or
SIGTERM to this program, asks for the same; "kill" leaves out the grace.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

PR_SET_PDEATHSIG = 1
#: How the shell says that a command cannot be run.
CANNOT_RUN = 127


def write_secret(secret: str) -> str:
    """A new file that only this user can read, in a folder of its own."""
    path = os.path.join(tempfile.mkdtemp(prefix="sidereal-"), "secret")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret + "\n")
    return path


def die_with_parent() -> None:
    """In the new process: should this program be killed, the task is killed as well."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(config: dict[str, Any], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        config["argv"],
        env=environment,
        cwd=config["cwd"],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one call of the system, and no threads
    )


class Group:
    """A task and all it started: one process group, named by a leader that is not reaped before
    the end, so that its number cannot become another's."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.handle = os.pidfd_open(leader)

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.leader, number)

    def is_over(self) -> bool:
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.leader, flags) is not None


def watch(group: Group, grace_s: float) -> None:
    """Returns when the task has ended, by itself or because that was asked for."""
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    deadline: float | None = None
    with selectors.DefaultSelector() as selector:
        for descriptor in (group.handle, sys.stdin.fileno(), wake):
            selector.register(descriptor, selectors.EVENT_READ)
        while not group.is_over():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = {key.fd for key, _ in selector.select(left)}
            if deadline is not None and time.monotonic() >= deadline:
                group.send(signal.SIGKILL)
                deadline = time.monotonic() + 1
            asked = wake in ready and bool(os.read(wake, 64))
            if sys.stdin.fileno() in ready:
                said = os.read(sys.stdin.fileno(), 64)
                if b"kill" in said:
                    group.send(signal.SIGKILL)
                if not said:
                    selector.unregister(sys.stdin.fileno())
                asked = True
            if asked and deadline is None:
                group.send(signal.SIGTERM)
                deadline = time.monotonic() + grace_s


def run(config: dict[str, Any]) -> int:
    """Runs the task to its end: its exit code, negative for a signal."""
    environment = {**os.environ, **config["env"]}
    # One secret: that of this cluster.
    environment.pop("SIDEREAL_SECRET", None)
    secret = write_secret(config["secret"])
    try:
        environment["SIDEREAL_SECRET_FILE"] = secret
        try:
            process = start(config, environment)
        except OSError as error:
            print(f"cannot run {config['argv'][0]} in {config['cwd']}: {error}", flush=True)
            return CANNOT_RUN
        group = Group(process.pid)
        watch(group, float(config["grace_s"]))
        group.send(signal.SIGKILL)  # What the task left behind.
        return process.wait()
    finally:
        shutil.rmtree(os.path.dirname(secret), ignore_errors=True)


def main() -> None:
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            return  # The launcher went before it said what to do.
        line += byte
    config = json.loads(line)
    code = run(config)
    if code < 0 and config["signals"]:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # If anybody dumps, then the task.
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
