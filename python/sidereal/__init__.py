"""Training of large sparse models on parameter servers and workers.

    import sidereal as sr

    model = sr.Model(seed=7)
    rows = sr.layers.Embedding(10_000, 16)(model.input("ids", sr.int64, (8,)))
    model.compile(sr.layers.FactorizationMachine()(rows), optimizer=sr.optimizers.Adagrad(0.05))
    with sr.LocalCluster(ps=2, workers=2) as cluster:
        model.fit({"ids": ids, "label": label}, cluster=cluster, epochs=3)
        print(model.evaluate({"ids": ids, "label": label}))
"""

from . import data, errors, layers, models, ops, optimizers
from ._native import EvalResult, FitResult, Output, Progress, TaskStats, __version__
from .cluster import Cluster, LocalCluster, RemoteCluster
from .dtypes import bool_, float32, float64, int32, int64, uint8
from .model import Model, Variable

__all__ = [
    "Cluster",
    "EvalResult",
    "FitResult",
    "LocalCluster",
    "Model",
    "Output",
    "Progress",
    "RemoteCluster",
    "TaskStats",
    "Variable",
    "__version__",
    "bool_",
    "data",
    "errors",
    "float32",
    "float64",
    "int32",
    "int64",
    "layers",
    "models",
    "ops",
    "optimizers",
    "uint8",
]
