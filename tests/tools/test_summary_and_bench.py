"""The closing line of ./dev test, the figures of micro-benchmarks, and clang-tidy's file choice."""

import json
import pathlib

import micro_bench
import run_clang_tidy
import test_summary as summary

CTEST = """<testsuite tests="3">
<testcase name="A.Works" classname="A.Works" status="run"/>
<testcase name="A.Breaks" classname="A.Breaks" status="fail"><failure message=""/>
<system-out>x_test.cc:9: Failure

two is not three
</system-out></testcase>
<testcase name="A.Waits" classname="A.Waits" status="notrun"><skipped message="SKIP_REGULAR"/>
<system-out>[ RUN ] A.Waits
x_test.cc:7: Skipped
needs the data folder

[  SKIPPED ] A.Waits</system-out></testcase></testsuite>"""
PYTEST = """<testsuites><testsuite><testcase classname="t" name="one"/>
<testcase classname="t" name="two"><skipped message="no peer"/></testcase>
<testcase classname="t" name="three"><error message="x">E  gone</error></testcase>
</testsuite></testsuites>"""


def test_the_summary_adds_up_both_runners(tmp_path):
    (tmp_path / "ctest.xml").write_text(CTEST)
    (tmp_path / "pytest.xml").write_text(PYTEST)
    passed, failed, skipped = summary.read(sorted(tmp_path.glob("*.xml")))
    assert passed == 2
    assert failed == {"A.Breaks": ["x_test.cc:9: Failure", "two is not three"],
                      "t.three": ["E  gone"]}
    assert skipped == [("A.Waits", "needs the data folder"), ("t.two", "no peer")]


TIMED = """<testsuite>
<testcase name="A.Fast" time="0.5" status="run"><properties>
<property name="cmake_labels" value="exec;x"/></properties></testcase>
<testcase name="A.Off" time="9" status="notrun"><skipped/></testcase></testsuite>"""
TIMED_PYTHON = """<testsuites><testsuite>
<testcase classname="tests.tools.test_tidy" name="test_a[x-1]" time="2.25"/>
<testcase classname="tests.tools.test_tidy.TestB" name="test_c" time="1"/>
</testsuite></testsuites>"""


def test_times_are_kept_by_module_and_file_and_the_slowest_are_named(tmp_path):
    (tmp_path / "ctest.xml").write_text(TIMED)
    (tmp_path / "pytest-tests.xml").write_text(TIMED_PYTHON)
    root = pathlib.Path(summary.__file__).resolve().parents[1]
    times = summary.durations(sorted(tmp_path.glob("*.xml")), root)
    assert times["ctest"] == {"exec": {"A.Fast": 0.5}}
    assert times["pytest"] == {
        "tests/tools/test_tidy.py": {"test_a[x-1]": 2.25, "TestB::test_c": 1.0}}
    assert summary.slowest(times)[0] == "slowest:    2.2 s  tests/tools/test_tidy.py::test_a[x-1]"
    kept = tmp_path / "times.json"
    kept.write_text('{"ctest": {"exec": {"A.Fast": 9, "A.Old": 1}}}')
    summary.keep(times, kept)
    assert json.loads(kept.read_text())["ctest"]["exec"] == {"A.Fast": 0.5, "A.Old": 1}


def test_at_most_ten_tests_are_called_slow():
    times = {"ctest": {"m": {f"A.{i}": float(i) for i in range(20)}}}
    lines = summary.slowest(times)
    assert len(lines) == 10 and lines[0].endswith("A.19") and lines[9].endswith("A.10")


def test_a_micro_benchmark_becomes_rows_without_a_peer():
    report = json.loads('{"benchmarks": [{"name": "gather/32", "real_time": 1.5, '
                        '"time_unit": "ns"}, {"name": "bad", "error_occurred": true}]}')
    assert micro_bench.rows(report) == [
        {"case": "gather/32", "ours": 1.5, "peer": None, "unit": "ns", "ratio": None}]


def test_a_changed_header_selects_the_source_beside_it():
    entries = {"src/a.cc": {}, "src/b.cc": {}}
    assert run_clang_tidy.select(entries, ["src/a.h", "src/gone.cc"], False) == ["src/a.cc"]
    assert run_clang_tidy.select(entries, [], True) == ["src/a.cc", "src/b.cc"]


def test_the_preprocessor_command_drops_launchers_and_outputs():
    entry = {"command": "cmake -E env A=1 ccache clang++ -DX -Iinc -o a.o -c a.cc"}
    command = run_clang_tidy.preprocess_command(entry)
    assert command == ["clang++", "-DX", "-Iinc", "a.cc", "-E", "-P"]


def test_what_is_clean_in_one_clone_is_known_in_another(tmp_path):
    keys = set()
    for clone in ("one", "two"):
        root = tmp_path / clone
        root.mkdir()
        (root / "a.cc").write_text("const char* file = __FILE__;\n")
        command = f"clang++ -c {root / 'a.cc'}"
        entry = {"command": command, "directory": str(tmp_path)}
        keys.add(run_clang_tidy.fingerprint(entry, b"salt", root))
    assert len(keys) == 1 and None not in keys


def test_test_programs_are_left_to_the_compiler(tmp_path):
    build = tmp_path / "build"
    build.mkdir()
    files = ["src/a.cc", "src/a_test.cc", "build/gen/x.pb.cc"]
    entries = [{"file": str(tmp_path / f), "directory": ".", "command": ""} for f in files]
    (build / "compile_commands.json").write_text(json.dumps(entries))
    assert list(run_clang_tidy.compile_commands(build, pathlib.Path(tmp_path))) == ["src/a.cc"]
