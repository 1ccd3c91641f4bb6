"""PyTorch models with tables on parameter servers.

    import torch
    import sidereal.torch as st

    tables = st.EmbeddingBagCollection(
        [st.EmbeddingBagConfig(10_000_000, 16, "user", ["user"])],
        cluster={"ps": ["host:2222"]}, optimizer=st.optim.Adagrad(0.02),
    )
    ids = st.KeyedJaggedTensor(["user"], torch.tensor([3, 1, 4]), lengths=torch.tensor([2, 1]))
    tables(ids).values().sum().backward()    # the parameter server updates three rows

Importing sidereal does not import PyTorch; importing this does.
"""

from . import optim
from ._checkpoint import load, save
from ._configs import EmbeddingBagConfig, EmbeddingConfig, PoolingType
from ._keyed import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from ._modules import EmbeddingBagCollection, EmbeddingCollection
from ._offload import Embedding, EmbeddingBag, offload
from ._prefetch import prefetch

__all__ = [
    "Embedding",
    "EmbeddingBag",
    "EmbeddingBagCollection",
    "EmbeddingBagConfig",
    "EmbeddingCollection",
    "EmbeddingConfig",
    "JaggedTensor",
    "KeyedJaggedTensor",
    "KeyedTensor",
    "PoolingType",
    "load",
    "offload",
    "optim",
    "prefetch",
    "save",
]
