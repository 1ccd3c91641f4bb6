"""What bench/keras_quality.py trains: models, data, settings, and what each is compared with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from _quality import ON_FRAPPE, ON_OPINIONS, SEEDS, Published
from _quality_models import Shape
from sidereal.launch import PROTOCOLS

PS, WORKERS = 2, 2

SHOWN = {
    "frappe": "Frappe", "movielens": "MovieLens-1M", "opinions": "MovieLens-1M without 3",
    "planted": "planted", "bias": "biases of users and movies alone", "lr": "LR", "fm": "FM",
    "ffm": "FFM", "wide_deep": "Wide&Deep", "deepfm": "DeepFM", "dcn": "DCN", "dcn_v2": "DCN-V2",
    "xdeepfm": "xDeepFM", "autoint": "AutoInt",
    "autoint_plus": "AutoInt+", "pooling": "DIN's layers, mean of the history",
    "din": "DIN", "dien": "DIEN", "mmoe": "MMoE, also for 5 stars", "ple": "PLE, also for 5 stars",
    "two_tower": "two towers", "ncf": "NCF", "matrix_factorization": "matrix factorization",
}  # fmt: skip
#: By data: what others reached, by model.
PUBLISHED: dict[str, dict[str, Published]] = {"frappe": ON_FRAPPE, "opinions": ON_OPINIONS}


@dataclass(frozen=True)
class Case:
    """A model, what it is trained on, and how. rate: of Adam; it falls to a tenth after an epoch
    that does not raise the AUC of the validation split, and a second such epoch in a row is the
    last one; epochs: at most so many. beta_1: of Adam, less than usual, as what other workers do in
    between is a momentum too.
    """

    data: str
    model: str
    shape: Shape
    rate: float = 1e-3
    batch: int = 2048
    epochs: int = 30
    beta_1: float = 0.5
    protocol: str = "star_server"
    workers: int = WORKERS
    seeds: tuple[int, ...] = SEEDS

    @property
    def name(self) -> str:
        words = [self.data, self.model]
        words += [self.protocol] if self.protocol != Case.protocol else []
        words += [f"{self.workers} workers"] if self.workers != Case.workers else []
        return " ".join(words)

    @property
    def published(self) -> Published | None:
        return PUBLISHED.get(self.data, {}).get(self.model)


_DEEP_ON_FRAPPE = Shape(dropout=0.2, l2=0.025, l2_linear=0.025)
_ON_MOVIELENS = Shape(16, (200, 80), 0.2, 1e-5)
_ON_OPINIONS = Shape(16, (256, 128), 0.2, 1e-5)
FIRST = (
    Case("frappe", "lr", Shape(l2_linear=5e-6), 1e-2, 4096),
    Case("frappe", "fm", Shape(l2=2.5e-6, l2_linear=2.5e-6), 3e-3, 1024),
    Case("frappe", "ffm", Shape(l2=1e-6, l2_linear=1e-6), 5e-3),
    *(
        Case("frappe", model, _DEEP_ON_FRAPPE)
        for model in ("wide_deep", "deepfm", "dcn", "dcn_v2")
    ),
    Case("frappe", "xdeepfm", replace(_DEEP_ON_FRAPPE, l2=0.05, l2_linear=0.05)),
    Case("frappe", "autoint", _DEEP_ON_FRAPPE),
    Case("frappe", "autoint_plus", _DEEP_ON_FRAPPE),
    Case("opinions", "lr", Shape(), 1e-2),
    Case("opinions", "fm", Shape(16, l2=2e-6, l2_linear=2e-6), 5e-3),
    Case("opinions", "ffm", Shape(16, l2=5e-6, l2_linear=5e-6), 2e-3),
    *(
        Case("opinions", model, _ON_OPINIONS)
        for model in (
            "wide_deep", "deepfm", "dcn", "dcn_v2", "autoint", "autoint_plus"
        )
    ),
    Case("opinions", "xdeepfm", replace(_ON_OPINIONS, l2=5e-5)),
    Case("movielens", "lr", Shape(), 1e-2),
    Case("movielens", "fm", Shape(16, l2=2e-6, l2_linear=2e-6), 5e-3),
    Case("movielens", "matrix_factorization", Shape(16, l2=2e-6, l2_linear=2e-6), 5e-3),
    Case("movielens", "two_tower", replace(_ON_MOVIELENS, hidden=(128, 64))),
    *(
        Case("movielens", model, _ON_MOVIELENS)
        for model in ("ncf", "deepfm", "dcn", "pooling", "din", "dien")
    ),
    *(
        Case("movielens", model, replace(_ON_MOVIELENS, hidden=(64,)))
        for model in ("mmoe", "ple")
    ),
)  # fmt: skip
#: Over the other protocols.
BEYOND = tuple(
    replace(case, protocol=protocol)
    for case in FIRST
    if case.data in ("frappe", "movielens") and case.model in ("lr", "fm", "deepfm", "dcn", "din")
    for protocol in PROTOCOLS
    if protocol != case.protocol
)
CURVE = tuple(
    replace(case, workers=workers, seeds=SEEDS[:1])
    for case in FIRST
    if (case.data, case.model) in (("frappe", "fm"), ("frappe", "deepfm"))
    for workers in (1, 4, 8)
)
CASES = (*FIRST, *BEYOND, *CURVE)
_PLANTED = Case("planted", "lr", Shape(4, (16,)), 0.02, 128, 4, seeds=SEEDS[:1])
#: Whether it works.
QUICK = (
    *(replace(_PLANTED, model=model) for model in ("lr", "din", "mmoe", "ncf")),
    replace(_PLANTED, protocol="grpc"),
    replace(_PLANTED, workers=1),
)
