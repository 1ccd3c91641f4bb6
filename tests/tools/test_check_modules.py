"""tools/check_modules.py finds every kind of difference, and nothing in a tree without one."""

import pathlib
import shutil
import subprocess
import sys

import pytest

import check_modules

TABLE = """
set(SIDEREAL_KNOWN_MODULES base sys ir lane app)
set(SIDEREAL_PLAN_MODULES ir)
set(SIDEREAL_RUN_MODULES lane)
set(SIDEREAL_MAY_USE_base "")
set(SIDEREAL_MAY_USE_sys base)
set(SIDEREAL_MAY_USE_ir base)
set(SIDEREAL_MAY_USE_lane sys)
set(SIDEREAL_MAY_USE_app ir lane)
"""


@pytest.fixture
def tree(write, tmp_path):
    """A tree of three modules without any problem."""
    write("cmake/modules.cmake", TABLE)
    write("src/sidereal/base/CMakeLists.txt",
          'engine_module(NAME base DOC "bits; bytes" SOURCES a.cc)')
    write("src/sidereal/base/a.h", "#pragma once\n")
    write("src/sidereal/ir/CMakeLists.txt",
          '# a graph\nengine_module(NAME ir DOC "graphs"\n  DEPS base # why\n  TESTS g_test.cc)')
    write("src/sidereal/ir/g.cc", '#include <vector>\n#include "sidereal/base/a.h"\n')
    write("src/sidereal/lane/CMakeLists.txt",
          'engine_module(NAME lane DOC "loops" SOURCES l.cc DEPS base)')
    write("src/sidereal/lane/l.cc", '#include "sidereal/base/a.h"\n')
    write("ARCHITECTURE.md", f"head\n{check_modules.BEGIN}\n{check_modules.END}\ntail\n")
    assert check_modules.check(tmp_path, write=True) == []
    return tmp_path


def test_a_consistent_tree_is_clean_and_its_table_is_written(tree):
    text = (tree / "ARCHITECTURE.md").read_text()
    assert "| `base` | bits; bytes | - |\n| `ir` | graphs | base |" in text
    assert text.startswith("head\n") and text.endswith("tail\n")
    assert check_modules.check(tree) == []


def test_an_include_without_deps_is_found_with_its_line(tree, write):
    write("src/sidereal/base/a.cc", '\n#include "sidereal/sys/x.h"\n')
    problems = check_modules.check(tree)
    assert len(problems) == 1 and "base/a.cc:2: includes sidereal/sys/x.h" in problems[0]


def test_deps_that_no_source_uses_are_found(tree, write):
    write("src/sidereal/ir/g.cc", "")
    write("src/sidereal/ir/g_test.cc", '#include "sidereal/base/a.h"\n')
    problems = check_modules.check(tree)
    assert len(problems) == 1 and "move it to TEST_DEPS" in problems[0]


def test_an_edge_outside_the_table_is_found(tree, write):
    write("src/sidereal/ir/CMakeLists.txt", 'engine_module(NAME ir DOC "graphs" DEPS base lane)')
    write("src/sidereal/ir/h.cc", '#include "sidereal/lane/l.h"\n')
    assert any("DEPS lane is not in cmake/modules.cmake" in p for p in check_modules.check(tree))


@pytest.mark.parametrize("header", ["thread", "chrono", "fstream", "sys/socket.h"])
def test_the_plan_side_sees_no_threads_clocks_sockets_or_files(tree, write, header):
    write("src/sidereal/ir/h.h", f"#include <{header}>\n")
    assert any("the plan side never sees" in p for p in check_modules.check(tree))


def test_the_run_side_sees_no_graph(tree, write):
    write("src/sidereal/lane/g.h", '#include "sidereal/ir/g.h"\n')
    assert any("the run side never sees a graph" in p for p in check_modules.check(tree))


def test_the_run_side_sees_of_the_plan_what_runs(tree, write):
    write("cmake/modules.cmake", TABLE + "set(SIDEREAL_MAY_USE_lane sys ir)\n"
          "set(SIDEREAL_RUNNABLE_HEADERS ir/runs.h)\n")
    write("src/sidereal/lane/CMakeLists.txt",
          'engine_module(NAME lane DOC "loops" SOURCES l.cc DEPS base ir)')
    write("src/sidereal/lane/g.h", '#include "sidereal/ir/runs.h"\n')
    check_modules.check(tree, write=True)
    assert check_modules.check(tree) == []
    write("src/sidereal/lane/g.h", '#include "sidereal/ir/g.h"\n')
    assert any("the run side never sees a graph" in p for p in check_modules.check(tree))


@pytest.mark.parametrize("name", ["test_lines.h", "lane_fixture.h", "lane_testing.cc"])
def test_a_helper_of_tests_outside_of_testing_is_found(tree, write, name):
    write(f"src/sidereal/ir/{name}", "")
    assert any(f"{name}: a helper of tests" in p for p in check_modules.check(tree))


def test_a_header_with_tests_in_it_outside_of_testing_is_found(tree, write):
    write("src/sidereal/ir/testing/h.h", "#include <gtest/gtest.h>\n")
    assert check_modules.check(tree) == []
    write("src/sidereal/ir/h.h", "#include <gtest/gtest.h>\n")
    assert any("ir/h.h: a helper of tests" in p for p in check_modules.check(tree))


def test_products_do_not_include_what_is_for_tests(tree, write):
    write("src/sidereal/ir/testing/h.h", "")
    write("src/sidereal/ir/g_test.cc", '#include "sidereal/ir/testing/h.h"\n')
    write("src/sidereal/ir/testing/i.cc", '#include "sidereal/ir/testing/h.h"\n')
    assert check_modules.check(tree) == []
    write("src/sidereal/ir/h.cc", '#include "sidereal/ir/testing/h.h"\n')
    assert any("ir/h.cc:1: sidereal/ir/testing/h.h is for tests" in p
               for p in check_modules.check(tree))


def test_helpers_of_another_module_need_its_testing_library(tree, write):
    write("src/sidereal/base/testing/h.h", "")
    write("src/sidereal/ir/g_test.cc", '#include "sidereal/base/testing/h.h"\n')
    assert any("base_testing is not in DEPS or TEST_DEPS" in p for p in check_modules.check(tree))
    write("src/sidereal/ir/CMakeLists.txt",
          'engine_module(NAME ir DOC "graphs" DEPS base TESTS g_test.cc TEST_DEPS base_testing)')
    assert check_modules.check(tree) == []


def test_grpc_is_included_by_some_modules_in_sources_and_internal_headers(tree, write):
    write("cmake/modules.cmake", TABLE.replace("app", "security"))
    write("src/sidereal/security/CMakeLists.txt",
          'engine_module(NAME security DOC "all" SOURCES x.cc)')
    write("src/sidereal/security/x.cc", "#include <grpcpp/grpcpp.h>\n")
    write("src/sidereal/security/internal/x.h", "#include <grpcpp/grpcpp.h>\n")
    check_modules.check(tree, write=True)
    assert check_modules.check(tree) == []
    write("src/sidereal/security/x.h", "#include <grpcpp/grpcpp.h>\n")
    assert any("security/x.h:1" in p and ".cc files" in p for p in check_modules.check(tree))
    write("src/sidereal/lane/l.cc", '#include "sidereal/base/a.h"\n#include <grpcpp/alarm.h>\n')
    assert any("lane/l.cc:2" in p and "gRPC is for" in p for p in check_modules.check(tree))


def test_only_sys_talks_to_the_operating_system(tree, write):
    write("src/sidereal/base/os.h", "#include <sys/types.h>\n")
    write("src/sidereal/app/CMakeLists.txt", 'engine_module(NAME app DOC "all" SOURCES x.cc)')
    write("src/sidereal/app/process.cc", "#include <unistd.h>\n")
    check_modules.check(tree, write=True)
    assert check_modules.check(tree) == []
    write("src/sidereal/app/x.cc", "#include <sys/epoll.h>\n")
    assert any("app/x.cc:1" in p for p in check_modules.check(tree))


def test_a_stale_document_and_an_unknown_module_are_found(tree, write):
    write("src/sidereal/ir/CMakeLists.txt", 'engine_module(NAME ir DOC "new words" DEPS base)')
    write("src/sidereal/extra/x.cc", "")
    problems = check_modules.check(tree)
    assert any("extra: not in cmake/modules.cmake" in p for p in problems)
    assert any("the module table differs" in p for p in problems)


def test_a_table_that_points_upwards_is_found(tree, write):
    write("cmake/modules.cmake", TABLE + "set(SIDEREAL_MAY_USE_sys app)\n")
    assert any("sys may use app, which is not below it" in p for p in check_modules.check(tree))


def test_modules_of_the_package_import_modules_and_not_the_package(tmp_path, write):
    write("sidereal/__init__.py", "from . import a\n")
    write("sidereal/a.py", "from . import _native, b\nfrom .b import x\nimport numpy\n")
    write("sidereal/sub/b.py", "from .. import a, _native\nfrom . import c\n")
    write("sidereal/v1/c.py", "import sidereal as sr\n")
    write("sidereal/b.py", "")
    assert check_modules.check_python_roots(tmp_path / "sidereal") == []


@pytest.mark.parametrize("line", [
    "import sidereal", "import sidereal as sr", "from sidereal import x", "from . import x",
    "def f():\n    from . import x"])
def test_a_module_that_imports_the_package_itself_is_found(tmp_path, write, line):
    write("sidereal/a.py", line + "\n")
    problems = check_modules.check_python_roots(tmp_path / "sidereal")
    assert len(problems) == 1 and "sidereal/a.py:" in problems[0]


ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def imports(tmp_path):
    """imports(): the exit status and output of lint-imports on a copy of the package."""
    shutil.copytree(ROOT / "python/sidereal", tmp_path / "sidereal",
                    ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    def run() -> tuple[int, str]:
        command = [str(pathlib.Path(sys.executable).with_name("lint-imports")), "--no-cache"]
        done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    return run


def test_an_import_upwards_is_found_in_functions_too(imports, tmp_path):
    assert imports()[0] == 0
    dtypes = tmp_path / "sidereal/dtypes.py"
    dtypes.write_text(dtypes.read_text() + "\n\ndef f():\n    from . import ops\n")
    code, output = imports()
    assert code == 1 and "sidereal.dtypes" in output and "sidereal.ops" in output


def test_a_module_without_a_row_in_the_table_is_found(imports, tmp_path):
    (tmp_path / "sidereal/unlisted.py").write_text("")
    code, output = imports()
    assert code == 1 and "unlisted" in output
