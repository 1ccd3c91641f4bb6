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


#: The BARS benchmark of click models (Zhu et al., 2022), table Frappe_x1: the same split.
ON_FRAPPE = {
    "lr": Published(0.9356, 0.3076),
    "fm": Published(0.9671, 0.2065),
    "ffm": Published(0.9786, 0.1860),
    "wide_deep": Published(0.9841, 0.1490),
    "deepfm": Published(0.9842, 0.1482),
    "dcn": Published(0.9839, 0.1527),
    "dcn_v2": Published(0.9845, 0.1491),
    "xdeepfm": Published(0.9845, 0.1466),
    "autoint": Published(0.9831, 0.1637),
    "autoint_plus": Published(0.9848, 0.1490),
}
#: RecBole (Zhao et al., 2021), benchmark/hyper/context: what its settings of the best validation
#: have on the test split of MovieLens-1M without ratings of 3. The same 739,012 ratings, labels and
#: columns as here, and as large parts, but drawn anew.
ON_OPINIONS = {
    "lr": Published(0.8699, 0.3488),
    "fm": Published(0.8935, 0.3262),
    "ffm": Published(0.9007, 0.3103),
    "wide_deep": Published(0.8987, 0.3155),
    "deepfm": Published(0.8997, 0.3150),
    "dcn": Published(0.8994, 0.3164),
    "dcn_v2": Published(0.8998, 0.3119),
    "xdeepfm": Published(0.8986, 0.3157),
    "autoint_plus": Published(0.8987, 0.3174),
}
#: AutoInt's paper (Song et al., 2019), tables 2 and 5: the same ratings and labels, but 7 columns
#: of 3,529 values: when it was rated is one, which our copy does not have, user and movie are none.
IN_PAPER_OF_AUTOINT = {
    "lr": Published(0.7716, 0.4424),
    "fm": Published(0.8252, 0.3998),
    "wide_deep": Published(0.8300, 0.3976),
    "deepfm": Published(0.8437, 0.3846),
    "dcn": Published(0.8446, 0.3809),
    "xdeepfm": Published(0.8463, 0.3808),
    "autoint": Published(0.8456, 0.3797),
    "autoint_plus": Published(0.8488, 0.3753),
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
