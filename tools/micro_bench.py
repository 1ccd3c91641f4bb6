"""Runs one Google Benchmark program and writes its figures in the form every bench writes."""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def rows(report: dict) -> list[dict]:
    """One row per case: time per iteration; there is no peer."""
    return [
        {"case": run["name"], "ours": run["real_time"], "peer": None, "unit": run["time_unit"],
         "ratio": None}
        for run in report.get("benchmarks", [])
        if run.get("run_type") != "aggregate" and "real_time" in run
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    options, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [options.binary, f"--benchmark_out={report}", "--benchmark_out_format=json"]
        code = subprocess.run(command + rest, check=False).returncode
        if options.json and report.exists():
            figures = {"rows": rows(json.loads(report.read_text()))}
            options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
