"""Makes the pictures of the guide that show the program at work, anew, from runs of it.

    tools/screenshots.py [training] [top] [plot] [tensorboard] [--to docs/guide]

Text screens become SVG; the page of TensorBoard is a picture by Chromium, whose program --browser
names. Figures differ from machine to machine, and so do pictures.
"""

from __future__ import annotations

import argparse
import fcntl
import html
import http.client
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import urllib.parse
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: A picture that is larger than this is refused: pages are read over slow lines, too.
BYTES_MAX = 200 * 1024
#: Seconds that any one program of a picture may take.
PATIENCE_S = 300.0

#: Of the page of TensorBoard: the tags that it shows, as a pattern.
FIGURES = urllib.parse.quote("^(train/(loss|auc)|rates/samples|waiting/)")
TRAIN_ROWS, VALID_ROWS = 400_000, 40_000
CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


def shown(output: str) -> list[str]:
    """The lines that a terminal shows after `output`, which rewrites lines and clears them."""
    lines: list[str] = [""]
    row = column = 0
    at = 0
    while at < len(output):
        if control := CONTROL.match(output, at):
            at = control.end()
            if control[2] == "K":
                lines[row] = lines[row][:column]
            elif control[2] == "J":
                lines = [*lines[:row], lines[row][:column]]
            elif control[2] == "H":
                row = column = 0
            continue
        mark = output[at]
        at += 1
        if mark == "\r":
            column = 0
        elif mark == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        else:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + mark + line[column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def terminal(command: list[str | pathlib.Path], columns: int) -> str:
    """What a command writes on a terminal that is so wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        [str(word) for word in command], stdin=theirs, stdout=theirs, stderr=theirs, cwd="/tmp"
    )
    os.close(theirs)
    output = b""
    try:
        while chunk := read_or_end(ours):
            output += chunk
        if process.wait(PATIENCE_S) != 0:
            raise RuntimeError(f"{command}: exit code {process.returncode}\n{output.decode()}")
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return output.decode()


def read_or_end(terminal_fd: int) -> bytes:
    """Bytes that have come; none when the other side is closed."""
    try:
        return os.read(terminal_fd, 1 << 16)
    except OSError:  # So a terminal says that nobody is left at its other side.
        return b""


def svg(lines: list[str], size: int = 13) -> str:
    """A picture of a terminal with these lines."""
    advance, leading, margin, bar = 0.602 * size, 1.4 * size, 14, 26
    width = round(max(map(len, lines)) * advance + 2 * margin)
    height = round(len(lines) * leading + bar + 1.5 * margin)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="DejaVu Sans Mono, Menlo, Consolas, '
        f'monospace" font-size="{size}">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#1e2530"/>',
    ]
    for i, color in enumerate(("#e0625a", "#e0b04c", "#63b35f")):
        out.append(f'<circle cx="{margin + 6 + 18 * i}" cy="{bar / 2 + 2}" r="5" fill="{color}"/>')
    for row, line in enumerate(lines):
        if not line:
            continue
        y = bar + (row + 1) * leading
        color = "#9ecbff" if line.startswith("$ ") else "#dce3ec"
        length = round(len(line) * advance, 1)
        out.append(
            f'<text x="{margin}" y="{y:.1f}" fill="{color}" textLength="{length}" '
            f'xml:space="preserve">{html.escape(line, quote=False)}</text>'
        )
    return "\n".join([*out, "</svg>", ""])


def without_end(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines


def clicks(path: pathlib.Path, rows: int, seed: int) -> pathlib.Path:
    """A file of clicks that depend on user, item and hour."""
    import numpy as np

    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 2000, rows), rng.integers(0, 500, rows)
    hour = rng.integers(0, 24, rows)
    score = 1.6 * np.sin(user * 1.3) + 1.2 * np.sin(item * 2.1) + np.cos(hour / 4) - 1
    click = rng.random(rows) < 1 / (1 + np.exp(-score))
    with open(path, "w") as file:
        file.write("label,user,item,hour\n")
        for row in zip(click.astype(int), user, item, hour):
            file.write("{},u{},i{},{}\n".format(*row))
    return path


class Maker:
    """Makes pictures in a folder, with the files they need in another one."""

    def __init__(self, program: str, browser: str, to: pathlib.Path, scratch: pathlib.Path) -> None:
        self._program, self._browser, self._to, self._scratch = program, browser, to, scratch

    def _save(self, name: str, content: bytes) -> None:
        if len(content) > BYTES_MAX:
            raise RuntimeError(f"{name} has {len(content)} bytes; {BYTES_MAX} are allowed")
        (self._to / name).write_bytes(content)
        print(f"{self._to / name}: {len(content) / 1024:.0f} KiB")

    def training(self) -> None:
        """A training with validation, from its command to its last line."""
        train = clicks(self._scratch / "train.csv", TRAIN_ROWS, 1)
        valid = clicks(self._scratch / "valid.csv", VALID_ROWS, 2)
        words = "--model deepfm --embedding-dim 8 --hidden 32,16 --epochs 3 --ps 2 --workers 2"
        told = terminal(
            [self._program, "train", "--data", train, "--valid", valid, *words.split()], 110
        )
        command = f"$ sidereal train --data train.csv --valid valid.csv {words}"
        self._save("training.svg", svg([command, *without_end(shown(told))]).encode())

    def top(self) -> None:
        """What `sidereal top` shows of a training that runs."""
        command = [self._program, "demo", "--rows", "1000000000", "--ps", "2", "--workers", "2"]
        with subprocess.Popen(
            [*command, "--model", "fm"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as run:
            try:
                assert run.stderr is not None
                for line in run.stderr:  # The first figures: all tasks are there, and train.
                    if b"samples/s" in line:
                        break
                told = terminal(
                    [self._program, "top", "--once", "--interval", "2", "--pid", str(run.pid)], 200
                )
            finally:
                run.send_signal(signal.SIGTERM)
                run.communicate(timeout=PATIENCE_S)
        self._save("top.svg", svg(["$ sidereal top", *without_end(shown(told))], 12).encode())

    def plot(self) -> None:
        """The curves of three models, by the commands that the page has."""
        for model in ("lr", "deepfm", "dcn"):
            words = f"--model {model} --hidden 32,16 --embedding-dim 4 --rows 3000000 -q"
            folder = self._scratch / "plot" / model
            terminal([self._program, "demo", *words.split(), "--tensorboard", folder], 100)
        tags = ["train/loss", "train/auc", "rates/samples_per_s", "waiting/worker_0"]
        runs = [f"{name}={self._scratch / 'plot' / name}" for name in ("lr", "deepfm", "dcn")]
        picture = self._scratch / "learning_curves.svg"
        command = [sys.executable, "-m", "sidereal", "plot", *runs, "--smooth", "0.8", "--out"]
        terminal([*command, picture, *(word for tag in tags for word in ("--tag", tag))], 100)
        self._save(picture.name, picture.read_bytes())

    def tensorboard(self) -> None:
        """The page of scalars of two runs."""
        for model in ("lr", "deepfm"):
            words = f"--model {model} --hidden 32,16 --embedding-dim 4 --rows 3000000 -q"
            folder = self._scratch / "logs" / model
            terminal([self._program, "demo", *words.split(), "--tensorboard", folder], 100)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        board = [sys.executable, "-m", "tensorboard.main", "--logdir", str(self._scratch / "logs")]
        server = subprocess.Popen(
            [*board, "--host", "127.0.0.1", "--port", str(port), "--load_fast", "false"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_for_runs(port, server)
            picture = self._scratch / "tensorboard.png"
            subprocess.run(
                # Without 3D, curves are drawn by the page itself, and not by a worker that is late.
                [self._browser, "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu",
                 "--disable-3d-apis",
                 f"--user-data-dir={self._scratch / 'browser'}", "--window-size=1280,860",
                 "--virtual-time-budget=30000", f"--screenshot={picture}",
                 f"http://127.0.0.1:{port}/?darkMode=false&tagFilter={FIGURES}#timeseries"],
                check=True, timeout=PATIENCE_S, capture_output=True,
            )  # fmt: skip
        finally:
            server.terminate()
            server.wait(PATIENCE_S)
        self._save(picture.name, picture.read_bytes())


def wait_for_runs(port: int, server: subprocess.Popen[bytes]) -> None:
    """Until TensorBoard knows the runs."""
    until = time.monotonic() + PATIENCE_S
    while server.poll() is None and time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", "/data/runs")
            if b"deepfm" in connection.getresponse().read():
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.2)
    raise RuntimeError("TensorBoard does not show the runs; is it installed?")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [name for name in vars(Maker) if not name.startswith("_")]
    parser.add_argument("picture", nargs="*", help=f"which: {', '.join(names)} (all)")
    parser.add_argument("--to", type=pathlib.Path, default=ROOT / "docs" / "guide", metavar="DIR")
    parser.add_argument("--browser", default="chromium", metavar="PROGRAM", help="(chromium)")
    parser.add_argument(
        "--program", default=shutil.which("sidereal") or ROOT / "build/release/bin/sidereal",
        metavar="PROGRAM", help="the program that is shown",
    )  # fmt: skip
    options = parser.parse_args()
    if wrong := set(options.picture) - set(names):
        parser.error(f"no picture {', '.join(sorted(wrong))}; there are: {', '.join(names)}")
    with tempfile.TemporaryDirectory(prefix="sidereal-pictures-") as scratch:
        maker = Maker(str(options.program), options.browser, options.to, pathlib.Path(scratch))
        for name in options.picture or names:
            make: Callable[[], None] = getattr(maker, name)
            make()
    return 0


if __name__ == "__main__":
    sys.exit(main())
