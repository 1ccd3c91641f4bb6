"""What benchmarks of quality share: where public data is, and what others reached on it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import ROOT

DATA = ROOT.parent / "shared" / "data"
FRAPPE = DATA / "frappe_x1"
#: Ids of all ten columns of Frappe together.
FRAPPE_IDS = 5382
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Published:
    """What others report on a test split."""

    auc: float
    log_loss: float


#: The BARS benchmark of click models (Zhu et al., 2022), table Frappe_x1.
ON_FRAPPE = {
    "lr": Published(0.9356, 0.3076),
    "fm": Published(0.9671, 0.2065),
    "deepfm": Published(0.9842, 0.1482),
    "dcn": Published(0.9839, 0.1527),
}


def exit_without_data(*folders: Path) -> None:
    """Ends the program when one of them is missing, as these sets are no part of the repository:
    a failure for machines that are to have them."""
    if not all(folder.is_dir() for folder in folders):
        print("skipped: no data")
        raise SystemExit(1 if os.environ.get("CI") == "true" else 0)


def auc_row(
    name: str, seed: int, auc: float, log_loss: float, published: Published | None, target: float
) -> dict[str, Any]:
    """A run as --json has it."""
    return {
        "case": f"{name} seed {seed}",
        "ours": auc,
        "peer": published.auc if published else 0.0,
        "unit": "AUC",
        "ratio": auc / published.auc if published else 0.0,
        "target": target,
        "log_loss": log_loss,
        "peer_log_loss": published.log_loss if published else 0.0,
    }
