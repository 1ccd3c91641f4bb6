"""`sidereal launch` as a process, for the tests of where it starts tasks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any


class Launch:
    """One launch: its lines as they come, and what its tasks said of themselves."""

    def __init__(
        self, words: list[str], environment: dict[str, str], patience_s: float = 60,
        program: Sequence[str] = ("-m", "sidereal", "launch"),
    ) -> None:  # fmt: skip
        self.patience_s = patience_s  #: What a loaded machine may take for what usually takes one.
        self.process = subprocess.Popen(
            [sys.executable, *program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.lines: list[str] = []
        self.facts: dict[str, dict[str, Any]] = {}
        self.errors = ""
        assert self.process.stderr is not None
        stderr = self.process.stderr

        def read_errors() -> None:
            self.errors = stderr.read()

        self._thread = threading.Thread(target=read_errors)
        self._thread.start()

    def wait_for(self, count: int) -> None:
        """Until so many tasks have said who they are."""
        while len(self.facts) < count:
            assert self.next_line(), self.end()

    def next_life(self, name: str) -> dict[str, Any]:
        """What a task says of itself when it was started again."""
        before = self.facts[name]["pid"]
        while self.facts[name]["pid"] == before:
            assert self.next_line(), self.end()
        return self.facts[name]

    def end_when_told(self, count: int) -> int:
        """Until all tasks, `count`, have said who they are, and then those have ended well whose
        plan is "told": the exit code."""
        self.wait_for(count)
        for name, fact in self.facts.items():
            if not name.startswith("ps "):
                os.kill(fact["pid"], signal.SIGUSR1)
        return self.end()

    def end(self) -> int:
        """Until it has ended: its exit code."""
        assert self.process.stdout is not None
        if not self.process.stdout.closed:
            while self.next_line():
                pass
        code = self.process.wait(self.patience_s)
        self._thread.join(self.patience_s)
        return code

    def next_line(self) -> str:
        """The next line of its output, with its end; "" where that has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            return line
        self.lines.append(line.rstrip("\n"))
        match = re.fullmatch(r"\[(\w+ \d+)\] facts (.*)\n", line)
        if match:
            self.facts[match[1]] = json.loads(match[2])
        return line

    def pids(self) -> list[int]:
        """Of all tasks, and what they started."""
        facts = self.facts.values()
        return [fact[key] for fact in facts for key in ("pid", "child") if key in fact]
