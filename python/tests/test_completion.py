"""`sidereal completion`, by the shells it is for; and the version, which every command says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sidereal as sr

PATIENCE_S = 60

BASH = """
source {script}
COMP_WORDS=({words}) COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_sidereal
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
#: What completes is called by the editor of lines alone: what it calls says what it was given.
ZSH = """
compdef() {{ }}
_files() {{ print -l -- *(N) }}
_describe() {{ print -l -- ${{${{(P)2}}%%:*}} }}
compadd() {{ shift; print -l -- "$@" }}
source {script}
words=({words}) CURRENT=${{#words}}
_sidereal
"""
FISH = """
source {script}
complete -C {line}
"""


def sidereal(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "sidereal", *words], capture_output=True, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("scripts")
    out = {}
    for shell in ("bash", "zsh", "fish"):
        out[shell] = folder / shell
        out[shell].write_text(sidereal("completion", shell))
    return out


def completed(scripts: dict[str, Path], shell: str, line: str, folder: Path) -> set[str]:
    """What a shell offers for the last word of a line, in a folder."""
    words = " ".join(f"'{word}'" for word in line.split(" "))
    program = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell].format(
        script=scripts[shell], words=words, line=f"'{line}'"
    )
    options = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *options, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S,
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    # fish says what each is, after a tab. zsh leaves choosing by what is there to its editor.
    offered = {row.partition("\t")[0].strip() for row in done.stdout.splitlines()}
    return {one for one in offered if one.startswith(line.split(" ")[-1])} - {""}


SHELLS = pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])


@SHELLS
@pytest.mark.parametrize(
    "line, expected, unexpected",
    [
        ("sidereal ", {"train", "serve", "launch", "serve-model", "completion"}, {"options", "ls"}),
        ("sidereal se", {"serve", "serve-model"}, {"train"}),
        ("sidereal train --opt", {"--optimizer", "--optimizer-param"}, {"--ps"}),
        ("sidereal train --protocol star", {"star_server", "star_server_lite"}, {"grpc"}),
        ("sidereal ckpt ", {"ls", "verify"}, {"train"}),
        ("sidereal launch --on ", {"ray", "slurm", "kubernetes", "ssh", "local"}, {"grpc"}),
        ("sidereal serve-model --rest", {"--rest-port"}, set()),
        ("sidereal serve --job ps --task 0 --log-f", {"--log-format"}, set()),
    ],
)
def test_a_shell_offers_what_there_is(
    scripts: dict[str, Path], shell: str, line: str, expected: set[str], unexpected: set[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    offered = completed(scripts, shell, line, tmp_path)
    assert expected <= offered
    assert not unexpected & offered


@SHELLS
def test_files_are_offered_where_a_file_is_asked_for(
    scripts: dict[str, Path], shell: str, tmp_path: Path
) -> None:
    (tmp_path / "clicks.csv").touch()
    assert completed(scripts, shell, "sidereal train --data cl", tmp_path) == {"clicks.csv"}
    assert completed(scripts, shell, "sidereal train --epochs cl", tmp_path) == set()


@SHELLS
def test_the_scripts_have_the_syntax_of_their_shells(
    scripts: dict[str, Path], shell: str
) -> None:
    subprocess.run([shell, "-n", scripts[shell]], check=True, timeout=PATIENCE_S)


def test_bash_takes_a_value_behind_an_equals_sign(
    scripts: dict[str, Path], tmp_path: Path
) -> None:
    offered = completed(scripts, "bash", "sidereal train --protocol = gr", tmp_path)
    assert offered == {"grpc", "grpc++"}


def test_a_shell_that_nobody_has_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sidereal", "completion", "tcsh"], capture_output=True, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 2 and "bash" in done.stderr


@pytest.mark.parametrize(
    "words",
    ["", "train", "serve", "ckpt ls", "launch", "serve-model", "export", "plot", "completion"],
)
def test_every_command_says_its_version(words: str) -> None:
    assert sidereal(*words.split(), "--version").startswith(f"sidereal {sr.__version__} (")
