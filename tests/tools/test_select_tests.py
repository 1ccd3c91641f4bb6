"""tools/select_tests.py takes what a change reaches, nearest first, while there is time."""

import pytest

import select_tests

TABLE = "engine_module(NAME {} DOC \"x\" SOURCES a.cc DEPS {} TESTS a_test.cc)\n"


@pytest.fixture
def plan(write, tmp_path, monkeypatch):
    """plan(files, times, seconds): the plan in a tree of base <- ir <- exec, and lane alone."""
    for module, deps in {"base": "", "ir": "base", "exec": "ir", "lane": ""}.items():
        write(f"src/sidereal/{module}/CMakeLists.txt", TABLE.format(module, deps))
    write("python/tests/test_queue.py", "import sidereal\n")
    write("python/tests/test_other.py", "sr.queue.FIFOQueue\n")
    write("python/tests/test_third.py", "\n")
    write("tests/tools/test_tidy.py", "\n")
    write("build/dev/x", "")
    built = []
    monkeypatch.setattr(select_tests, "steps_to_build", lambda build, targets: len(targets))

    def run(files, times=None, seconds=50):
        return select_tests.choose(tmp_path, tmp_path / "build/dev", files, times or {}, seconds, 2)

    run.built = built
    return run


def test_a_module_that_changed_comes_first_then_what_uses_it(plan):
    made = plan(["src/sidereal/ir/text.cc"])
    assert made.labels == ["ir", "exec"]
    assert made.targets == ["ir_test", "exec_test", "sidereal_programs"]


def test_when_time_is_short_the_nearest_are_taken_and_the_rest_is_named(plan):
    times = {"ctest": {"base": {"A.B": 1.0}, "ir": {f"C.{i}": 1.0 for i in range(90)}}}
    made = plan(["src/sidereal/base/status.cc"], times, 20)
    assert made.labels == ["base", "exec"]
    assert any("no C++ tests of ir" in reason for reason in made.reasons)


def test_the_tests_of_what_changed_run_whatever_they_take_but_for_slow_ones(plan):
    times = {"ctest": {"lane": {"A.Quick": 1.9, "A.Slow": 30.0}}}
    made = plan(["src/sidereal/lane/lane.h"], times, 5)
    assert made.labels == ["lane"] and made.slow == ["A.Slow"]


def test_tests_outside_of_modules_are_found_by_their_folder(plan):
    made = plan(["tests/fuzz/fuzz_csv.cc", "tests/sim/main.cc"])
    assert made.labels == ["fuzz", "sim"]


def test_of_python_the_files_that_name_what_changed_run_before_others(plan):
    times = {"pytest": {"python/tests/test_other.py": {"test_a": 0.1, "test_b[1]": 9.0}}}
    made = plan(["python/sidereal/queue.py"], times)
    assert made.targets == ["sidereal_programs"] and made.labels == []
    assert made.pytest[:3] == ["python/tests/test_queue.py", "python/tests/test_other.py",
                               "--deselect=python/tests/test_other.py::test_b[1]"]
    assert "python/tests/test_third.py" in made.pytest


def test_a_test_file_that_changed_runs_whole_and_alone(plan):
    times = {"pytest": {"tests/tools/test_tidy.py": {"test_a": 9.0}}}
    made = plan(["tests/tools/test_tidy.py"], times)
    assert made.pytest == ["tests/tools/test_tidy.py"] and made.targets == []


def test_documents_reach_no_test(plan):
    made = plan(["README.md"])
    assert not made.pytest and not made.labels
    assert made.reasons == ["no test is reached by what changed"]
