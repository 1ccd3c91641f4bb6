"""Programs of the guide run: those of each page one after another, in a process of its own.

What a page takes for granted stands in guide_setups.py. A block that cannot run has the line
`<!-- not run: why -->` above it, which readers of the page do not see.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from guide_setups import CHECKS, SETUPS
from session_servers import PATIENCE_S, PROGRAM, free_ports
from strategies import Servers

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
#: Pages of pieces that cannot run one after another, and the tests of such programs.
SKETCHES = {
    "features": "test_features.py", "objectives": "test_objectives.py",
    "torch": "test_torch_training.py",
}  # fmt: skip
#: Pages with programs on servers: what the address of a worker is called there.
ADDRESSES = {
    "python": (),
    "sessions": ("localhost:2224", "worker-0:2222"),
    "strategy": (),
}
#: What programs listen at themselves.
OWN_PORTS = ("localhost:2222", "localhost:2223")
BLOCK = re.compile(r"^(?:<!-- not run: (.*?) -->\n+)?```python\n(.*?)^```", re.M | re.S)


def programs_of(page: str) -> list[tuple[str, str]]:
    """Each block of Python with why it is not run, or ""."""
    return BLOCK.findall((GUIDE / f"{page}.md").read_text())


def own_tests(page: str) -> list[str]:
    """The other tests that read a page: they run its programs."""
    folder = Path(__file__).parent
    return [path.name for path in folder.rglob("test_*.py")
            if not path.name.startswith("test_guide_")
            and re.search(rf'[/"]{page}\.md"', path.read_text())]  # fmt: skip


PAGES = sorted(path.stem for path in GUIDE.glob("*.md") if programs_of(path.stem))
ELSEWHERE = {page for page in PAGES if own_tests(page) or page in SKETCHES}


def test_each_setup_is_of_a_page_that_runs_here() -> None:
    assert set(SETUPS) | set(CHECKS) | set(ADDRESSES) <= set(PAGES) - ELSEWHERE
    for page in SKETCHES.keys() & set(PAGES):
        assert (Path(__file__).parent / SKETCHES[page]).exists()
    assert {"keras", "parameter_server_training", "saving", "tensorboard"} <= ELSEWHERE


def test_why_a_program_does_not_run_is_said() -> None:
    for page in PAGES:
        blocks = programs_of(page)
        text = (GUIDE / f"{page}.md").read_text()
        assert text.count("<!-- not run") == sum(1 for why, _ in blocks if len(why) > 10), page


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
def test_the_programs_of_the_page_run(page: str, tmp_path: Path) -> None:
    parts = []
    for number, (why, program) in enumerate(programs_of(page)):
        if not why:
            setup, check = (have.get(page, {}).get(number, "") for have in (SETUPS, CHECKS))
            parts += [setup, f"# {page}.md, block {number}\n{program}", check]
    script = "\n".join(parts)
    servers = None
    if page in ADDRESSES:
        servers = Servers(2, 1)
        ps, worker = (servers.cluster[job][0] for job in ("ps", "worker"))
        script = f"PS, WORKER = {ps!r}, {worker!r}\n{script}"
        # Servers of this process look for files where this process is.
        script = script.replace('"day_0.csv"', f'"{tmp_path}/day_0.csv"')
        addresses = dict.fromkeys(ADDRESSES[page], worker)
        addresses |= {name: f"localhost:{free_ports(1)[0]}" for name in OWN_PORTS}
        for name, address in addresses.items():
            script = script.replace(name, address)
    (tmp_path / "page.py").write_text(script)
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    environment["PATH"] = f"{PROGRAM.parent}:{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, check=False, text=True,
        capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip
    if servers is not None:
        servers.stop()
    assert done.returncode == 0, done.stderr[-3000:]
