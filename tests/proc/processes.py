"""Starting, watching and killing the processes of a local cluster, by way of /proc."""

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import time

#: Seconds a loaded machine may take for what usually takes one or two.
PATIENCE_S = 60
#: Looks at a cluster whose tasks are there, or gone, once: however long they take to answer.
ONCE = ("top", "--once", "--interval", "0.1", "--timeout", str(PATIENCE_S))


def state(pid: int) -> str:
    """"R", "S", ... as in proc(5); "" when there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def is_running(pid: int) -> bool:
    return state(pid) not in ("", "Z", "X")


def arguments(pid: int) -> list[str]:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def children(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def tasks_of(launcher: int) -> dict[str, int]:
    """Process ids of a launcher's tasks, by "/job:ps/task:0"."""
    tasks = {}
    for pid in children(launcher):
        words = arguments(pid)
        if "serve" in words:
            job = words[words.index("--job") + 1]
            tasks[f"/job:{job}/task:{words[words.index('--task') + 1]}"] = pid
    return tasks


def wait_for_end(pids: list[int], seconds: float) -> float:
    """Waits until all these processes have ended; returns the seconds it took."""
    started = time.monotonic()
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        left = started + seconds - time.monotonic()
        ended = select.select([handle], [], [], max(0, left))[0]
        os.close(handle)
        assert ended, f"after {seconds} s still running: {' '.join(arguments(pid))}"
    return time.monotonic() - started


class Launcher:
    """A running `sidereal train`, in a session of its own as from a terminal."""

    def __init__(self, command: list[str]):
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self.process.pid
        self.errors = b""
        self.tasks: dict[str, int] = {}

    def wait_for_text(self, text: bytes) -> None:
        """Until `text` has come on standard error."""
        deadline = time.monotonic() + PATIENCE_S
        stream = self.process.stderr
        while text not in self.errors:
            left = deadline - time.monotonic()
            assert left > 0, f"no {text!r} in {self.errors!r}"
            if select.select([stream], [], [], left)[0]:
                chunk = os.read(stream.fileno(), 65536)
                assert chunk, f"ended without {text!r}: {self.errors!r}"
                self.errors += chunk

    def wait_for_progress(self, count: int) -> None:
        """Until it trains (the first progress line) with `count` tasks."""
        self.wait_for_text(b"samples/s")
        self.tasks = tasks_of(self.pid)
        assert len(self.tasks) == count, self.tasks

    def wait(self, seconds: float) -> tuple[int, str]:
        """(exit code, standard error) once it has ended."""
        _, rest = self.process.communicate(timeout=seconds)
        return self.process.returncode, (self.errors + rest).decode()

    def left(self) -> dict[str, int]:
        """Tasks that still run."""
        return {name: pid for name, pid in self.tasks.items() if is_running(pid)}

    def clean_up(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for pid in self.left().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()


def error_of(finished, code=1):
    """The one error line of a run that failed."""
    assert finished.returncode == code, finished.stderr
    lines = [s for s in finished.stderr.splitlines() if s.startswith("sidereal: error: ")]
    assert len(lines) == 1, finished.stderr
    return lines[0].removeprefix("sidereal: error: ")
