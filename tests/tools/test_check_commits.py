"""tools/check_commits.py looks at the subjects of commits that are not older than the rule."""

import os
import subprocess
import sys

import pytest

import check_commits

NEW = check_commits.SINCE + 100
OLD = check_commits.SINCE - 100


@pytest.fixture
def commit(tmp_path):
    """commit(message, date): adds an empty commit to the repository in tmp_path."""

    def run(*command: str, **more: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True, capture_output=True,
                       env={**os.environ, **more})

    run("init", "-q")
    run("config", "user.name", "a")
    run("config", "user.email", "a@example.org")

    def make(message: str, date: int = NEW) -> None:
        stamp = f"{date} +0000"
        run("commit", "-q", "--allow-empty", "-m", message, GIT_AUTHOR_DATE=stamp)

    return make


def check(root) -> tuple[int, str]:
    command = [sys.executable, check_commits.__file__, "--root", str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_subjects_of_72_columns_with_any_body_are_accepted(commit, tmp_path):
    commit("a: " + "x" * 69)
    commit("b: what\n\n" + "long " * 40)
    assert check(tmp_path) == (0, "check_commits: 0 problems in 2 commits\n")


def test_a_longer_subject_is_found_by_its_commit(commit, tmp_path):
    commit("a: what")
    commit("b: " + "x" * 70 + "\n\nwhy")
    code, output = check(tmp_path)
    assert code == 1 and "a subject of 73 columns, at most 72: b: xxx" in output
    assert "1 problems in 2 commits" in output


def test_a_body_needs_a_blank_line_before_it():
    assert check_commits.problems_of("a: what\nwhy") == ["no blank line after the subject: a: what"]
    assert check_commits.problems_of("a: what\n\nwhy") == []


def test_commits_from_before_the_rule_are_left_alone(commit, tmp_path):
    commit("c: " + "x" * 100, OLD)
    assert check(tmp_path) == (0, "check_commits: 0 problems in 0 commits\n")


def test_a_folder_without_commits_is_clean(tmp_path):
    assert check(tmp_path)[0] == 0
