"""What all tests of the built program share: where it is."""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def find_program() -> pathlib.Path:
    """SIDEREAL_BIN, or `sidereal` in SIDEREAL_BIN_DIR, or the one of the preset that was built."""
    if "SIDEREAL_BIN" in os.environ:
        return pathlib.Path(os.environ["SIDEREAL_BIN"])
    if "SIDEREAL_BIN_DIR" in os.environ:
        return pathlib.Path(os.environ["SIDEREAL_BIN_DIR"]) / "sidereal"
    return ROOT / "build" / os.environ.get("SIDEREAL_PRESET", "dev") / "bin" / "sidereal"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def program() -> pathlib.Path:
    """The `sidereal` program under test."""
    path = find_program()
    if not os.access(path, os.X_OK):
        pytest.skip(f"{path} is not built (./dev build)")
    return path
