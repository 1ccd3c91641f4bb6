"""Ranking models (keras.applications), each by one call: what people train on clicks.

    features = keras.applications.Features(fields=10, rows=5382)
    model = keras.applications.DeepFM(features)
    model.compile("adam", "binary_crossentropy", metrics=["AUC"])
    model.fit({"ids": ids}, clicks)

Models take "ids" int64 [batch, fields], numbers of rows of one table; with `dense_width` numbers
"dense" float32 [batch, dense_width]; those of a history "history" int64 [batch, time], -1 where
there is none. They give a probability [batch, 1] or, with classifier_activation=None, what the
sigmoid would be of; models of several tasks a list of them. All take dropout, batch_normalization
and l2, of their dense layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ops import array, math
from . import activations, initializers, layers, regularizers
from .models import Model


class Features:
    """What a model knows of a sample: its inputs, their embeddings and the linear part.

    fields, rows: columns of ids, and the rows of the table that these are numbers of. dense_width:
    numbers beside them. time: ids of a history. padded: ids may be -1, which stands for none, as
    those of cells with several values have it: zeros. l2_embedding: times the sum of squares of
    embeddings; l2_linear: of the weights of the linear part.

    Other inputs are a class of one's own, whose looked_up() gives the rows of each field.
    """

    def __init__(
        self, fields: int, rows: int, *, dense_width: int = 0, time: int = 0,
        padded: bool = False, embedding_dim: int = 16, embeddings_initializer: Any = None,
        l2_embedding: float = 0.0, l2_linear: float = 0.0,
    ) -> None:  # fmt: skip
        for name, value in (("fields", fields), ("rows", rows), ("embedding_dim", embedding_dim)):
            if not isinstance(value, int) or value <= 0:
                raise ValueError(f"{name} is {value!r}; it must be a positive integer")
        self.fields, self.rows, self.dim, self.time = fields, rows, embedding_dim, time
        self._padded = padded
        if embeddings_initializer is None:
            embeddings_initializer = initializers.RandomNormal(stddev=0.01)
        self._initializer = embeddings_initializer
        self._l2_embedding, self._l2_linear = l2_embedding, l2_linear
        self.ids = layers.Input((fields,), dtype="int64", name="ids")
        self.dense = layers.Input((dense_width,), name="dense") if dense_width else None
        self._history = layers.Input((time,), dtype="int64", name="history") if time else None
        self._tables: dict[tuple[int, bool], Any] = {}

    @property
    def inputs(self) -> list[Any]:
        return [each for each in (self.ids, self.dense, self._history) if each is not None]

    def table(self, dim: int | None = None, is_linear: bool = False) -> Any:
        """The embeddings of all ids, of `dim` elements."""
        dim = dim or self.dim
        if (dim, is_linear) not in self._tables:
            l2 = self._l2_linear if is_linear else self._l2_embedding
            self._tables[dim, is_linear] = layers.Embedding(
                self.rows, dim, self._initializer,
                embeddings_regularizer=regularizers.L2(l2) if l2 else None,
                name="linear" if is_linear else "embedding" if dim == self.dim else None,
            )  # fmt: skip
        return self._tables[dim, is_linear]

    def looked_up(self, table: Any) -> Any:
        """The rows of a sample in a table: [batch, fields, its width]."""
        if not self._padded:
            return table(self.ids)
        rows = table(math.maximum(self.ids, array.zeros_like(self.ids)))
        is_there = math.cast(self.ids >= 0, rows.dtype)
        return rows * array.expand_dims(is_there, -1)

    def embeddings(self, dim: int | None = None) -> Any:
        """[batch, fields, dim]"""
        return self.looked_up(self.table(dim))

    def linear(self) -> Any:
        """The sum of a weight for each id, and of the numbers weighted: [batch, 1]."""
        total = math.reduce_sum(self.looked_up(self.table(1, is_linear=True)), axis=1)
        if self.dense is not None:
            return total + layers.Dense(1, name="linear_dense")(self.dense)
        return layers.Bias()(total)

    def flat(self) -> Any:
        """All that is known of a sample in a row: [batch, d]."""
        rows = layers.Flatten()(self.embeddings())
        return rows if self.dense is None else layers.Concatenate()([rows, self.dense])

    def history(self, candidate: int) -> tuple[Any, Any, Any]:
        """(the candidate [batch, d], what is in the history [batch, time, d], where there is
        something [batch, time]). candidate: the column of ids that the history is of."""
        if self._history is None:
            raise ValueError("the features have no history: make them with time=, its length")
        if not isinstance(candidate, int) or not 0 <= candidate < self.fields:
            raise ValueError(
                f"candidate is {candidate!r}; it names one of the {self.fields} columns of ids"
            )
        table, there = self.table(), self._history >= 0
        before = table(math.maximum(self._history, array.zeros_like(self._history)))
        return table(self.ids[:, candidate]), before, there

    def sides(self, user_fields: int) -> tuple[Any, Any]:
        """The embeddings of the first fields, the user's, and of the others, the item's."""
        if not isinstance(user_fields, int) or not 0 < user_fields < self.fields:
            raise ValueError(
                f"user_fields is {user_fields!r}; of {self.fields} fields some are the user's, the "
                "others the item's"
            )
        rows = self.embeddings()
        return rows[:, :user_fields], rows[:, user_fields:]


class _Head:
    """What is made of features: towers and logits, with options that all models take.

    dropout, batch_normalization: of each layer of a tower; the latter may be what makes that layer.
    l2: times the sum of squares of kernels. classifier_activation: of logits.
    """

    def __init__(
        self, features: Features, *, dropout: float = 0.0,
        batch_normalization: bool | Callable[[], layers.Layer] = False, l2: float = 0.0,
        classifier_activation: Any = "sigmoid", name: str,
    ) -> None:  # fmt: skip
        if not isinstance(features, Features):
            raise TypeError(
                f"the features are {features!r}; give a keras.applications.Features(fields, rows)"
            )
        self._features, self._name = features, name
        self._layers = 0
        self._dropout, self._l2 = dropout, l2
        self._normalization = (
            layers.BatchNormalization if batch_normalization is True else batch_normalization
        )
        self._activation = activations.get(classifier_activation)

    def l2(self) -> Any:
        return regularizers.L2(self._l2) if self._l2 else None

    def tower(self, x: Any, units: Sequence[int]) -> Any:
        """Dense layers with ReLU."""
        for each in units:
            x = self._dense(each, "hidden")(x)
            x = self._normalization()(x) if self._normalization else x
            x = layers.ReLU()(x)
            x = layers.Dropout(self._dropout)(x) if self._dropout else x
        return x

    def logit(self, x: Any) -> Any:
        return self._dense(1, "logit")(x)

    def _dense(self, units: int, name: str) -> Any:
        """With a name of its own: "dense" is that of an input."""
        self._layers += 1
        return layers.Dense(units, kernel_regularizer=self.l2(), name=f"{name}_{self._layers}")

    def logit_of_tower(self, x: Any, units: Sequence[int]) -> Any:
        return self.logit(self.tower(x, units))

    def model(self, logits: Any) -> Model:
        several = isinstance(logits, list)
        made = [layers.Activation(self._activation)(x) for x in (logits if several else [logits])]
        return Model(self._features.inputs, made if several else made[0], name=self._name)


#: Units of towers.
HIDDEN = (400, 400, 400)


def LR(features: Features, *, name: str = "lr", **options: Any) -> Model:
    """Logistic regression."""
    return _Head(features, name=name, **options).model(features.linear())


def FM(features: Features, *, name: str = "fm", **options: Any) -> Model:
    """LR and a factorization machine (Rendle, 2010)."""
    pairs = layers.FM()(features.embeddings())
    return _Head(features, name=name, **options).model(features.linear() + pairs)


def FFM(features: Features, *, name: str = "ffm", **options: Any) -> Model:
    """LR and a field-aware factorization machine (Juan et al., 2016): for each other field an
    embedding of embedding_dim, which is small mostly."""
    pairs = layers.FieldAwareFM()(features.embeddings(features.dim * features.fields))
    return _Head(features, name=name, **options).model(features.linear() + pairs)


def WideDeep(
    features: Features, hidden_units: Sequence[int] = HIDDEN, *, name: str = "wide_deep",
    **options: Any,
) -> Model:  # fmt: skip
    """LR and a tower over embeddings (Cheng et al., 2016)."""
    head = _Head(features, name=name, **options)
    return head.model(features.linear() + head.logit_of_tower(features.flat(), hidden_units))


def DeepFM(
    features: Features, hidden_units: Sequence[int] = HIDDEN, *, name: str = "deepfm",
    **options: Any,
) -> Model:  # fmt: skip
    """FM and a tower that share embeddings (Guo et al., 2017)."""
    head = _Head(features, name=name, **options)
    pairs = layers.FM()(features.embeddings())
    deep = head.logit_of_tower(features.flat(), hidden_units)
    return head.model(features.linear() + pairs + deep)


def _crossed(
    features: Features, head: _Head, cross: Callable[[], Any], count: int, units: Sequence[int]
) -> Model:
    """Crosses beside a tower, if it has layers."""
    x0 = x = features.flat()
    for _ in range(count):
        x = cross()(x0, x)
    x = layers.Concatenate()([x, head.tower(x0, units)]) if units else x
    return head.model(head.logit(x))


def DCN(
    features: Features, hidden_units: Sequence[int] = HIDDEN, *, cross_layers: int = 3,
    name: str = "dcn", **options: Any,
) -> Model:  # fmt: skip
    """A cross network beside a tower (Wang et al., 2017)."""
    head = _Head(features, name=name, **options)
    return _crossed(
        features, head, lambda: layers.VectorCross(kernel_regularizer=head.l2()), cross_layers,
        hidden_units,
    )  # fmt: skip


def DCNV2(
    features: Features, hidden_units: Sequence[int] = HIDDEN, *, cross_layers: int = 3,
    projection_dim: int | None = None, name: str = "dcn_v2", **options: Any,
) -> Model:  # fmt: skip
    """A cross network of matrices beside a tower (DCN-V2, Wang et al., 2021). projection_dim: the
    rank of these."""
    head = _Head(features, name=name, **options)
    return _crossed(
        features, head, lambda: layers.Cross(projection_dim, kernel_regularizer=head.l2()),
        cross_layers, hidden_units,
    )  # fmt: skip


def XDeepFM(
    features: Features, hidden_units: Sequence[int] = HIDDEN, *,
    cin_layer_size: Sequence[int] = (128, 128), split_half: bool = True, name: str = "xdeepfm",
    **options: Any,
) -> Model:  # fmt: skip
    """LR, a compressed interaction network and a tower (Lian et al., 2018)."""
    head = _Head(features, name=name, **options)
    cin = layers.CIN(cin_layer_size, split_half=split_half, kernel_regularizer=head.l2())
    pairs = head.logit(cin(features.embeddings()))
    deep = head.logit_of_tower(features.flat(), hidden_units)
    return head.model(features.linear() + pairs + deep)


def AutoInt(
    features: Features, hidden_units: Sequence[int] = (), *, attention_layers: int = 3,
    att_embedding_size: int = 32, num_heads: int = 2, name: str = "autoint", **options: Any,
) -> Model:  # fmt: skip
    """Fields that attend to each other (Song et al., 2019); with hidden_units a tower beside it
    (AutoInt+)."""
    head = _Head(features, name=name, **options)
    x = features.embeddings()
    for _ in range(attention_layers):
        x = layers.Interacting(att_embedding_size, num_heads, kernel_regularizer=head.l2())(x)
    logit = head.logit(layers.Flatten()(x))
    if hidden_units:
        logit = logit + head.logit_of_tower(features.flat(), hidden_units)
    return head.model(logit)


def DIN(
    features: Features, hidden_units: Sequence[int] = (200, 80), *, candidate: int,
    attention_units: Sequence[int] = (80, 40), attention_softmax: bool = False,
    name: str = "din", **options: Any,
) -> Model:  # fmt: skip
    """A history as the candidate has it matter (Deep Interest Network, Zhou et al., 2018).
    candidate: the column of ids that the history is of. attention_softmax: a mean of the history,
    each of it with a weight, in the place of the paper's sum."""
    head = _Head(features, name=name, **options)
    query, before, there = features.history(candidate)
    pooling = layers.AttentionPooling(attention_units, softmax=attention_softmax)
    interest = pooling([query, before], mask=there)
    x = layers.Concatenate()([features.flat(), interest])
    return head.model(head.logit_of_tower(x, hidden_units))


def DIEN(
    features: Features, hidden_units: Sequence[int] = (200, 80), *, candidate: int,
    name: str = "dien", **options: Any,
) -> Model:  # fmt: skip
    """Interests that evolve (Zhou et al., 2019): a GRU over the history, then one whose update gate
    is what the candidate makes of each step. Without the paper's auxiliary loss."""
    head = _Head(features, name=name, **options)
    query, before, there = features.history(candidate)
    states = layers.GRU(features.dim, return_sequences=True)(before, mask=there)
    asked = layers.Dense(features.dim, use_bias=False, name="candidate")(query)
    scores = math.reduce_sum(states * array.expand_dims(asked, 1), axis=2)
    is_there = math.cast(there, scores.dtype)
    weights = math.softmax(scores + (is_there - 1.0) * 1e9, 1) * is_there
    interest = layers.AUGRU(features.dim)([states, weights], mask=there)
    x = layers.Concatenate()([features.flat(), interest])
    return head.model(head.logit_of_tower(x, hidden_units))


def MMoE(
    features: Features, task_units: Sequence[int] = (32,), *, num_tasks: int, num_experts: int = 4,
    expert_units: int = 64, name: str = "mmoe", **options: Any,
) -> Model:  # fmt: skip
    """Several tasks that share experts, mixed for each (Ma et al., 2018)."""
    head = _Head(features, name=name, **options)
    made = layers.MMoE(expert_units, num_experts, num_tasks)(features.flat())
    return head.model([head.logit_of_tower(x, task_units) for x in made])


def PLE(
    features: Features, task_units: Sequence[int] = (32,), *, num_tasks: int, num_levels: int = 2,
    shared_expert_num: int = 1, specific_expert_num: int = 1, expert_units: int = 64,
    name: str = "ple", **options: Any,
) -> Model:  # fmt: skip
    """Several tasks with experts of their own beside those they share (Tang et al., 2020)."""
    head = _Head(features, name=name, **options)
    experts = layers.PLE(
        expert_units, num_tasks, num_levels, shared_expert_num, specific_expert_num
    )
    made = experts(features.flat())
    return head.model([head.logit_of_tower(x, task_units) for x in made])


def TwoTower(
    features: Features, hidden_units: Sequence[int] = (128, 64), *, user_fields: int,
    temperature: float = 0.05, name: str = "two_tower", **options: Any,
) -> Model:  # fmt: skip
    """The cosine of what a tower makes of the user's fields, which are the first ones, and another
    one of the item's, by the temperature (Yi et al., 2019)."""
    head = _Head(features, name=name, **options)
    ends = [
        math.l2_normalize(head.tower(layers.Flatten()(side), hidden_units), axis=1)
        for side in features.sides(user_fields)
    ]
    return head.model(math.reduce_sum(ends[0] * ends[1], axis=1, keepdims=True) / temperature)


def NCF(
    features: Features, hidden_units: Sequence[int] = (64, 32, 16), *, name: str = "ncf",
    **options: Any,
) -> Model:  # fmt: skip
    """Neural collaborative filtering (NeuMF, He et al., 2017) of fields [user, item]: the product
    of embeddings beside a tower over others."""
    head = _Head(features, name=name, **options)
    user, item = features.sides(1)
    own = layers.Embedding(
        features.rows, features.dim, initializers.RandomNormal(stddev=0.01),
        name="embedding_of_tower",
    )  # fmt: skip
    deep = head.tower(layers.Flatten()(features.looked_up(own)), hidden_units)
    both = layers.Concatenate()([layers.Flatten()(user * item), deep])
    return head.model(head.logit(both))


def MatrixFactorization(
    features: Features, *, name: str = "matrix_factorization", **options: Any
) -> Model:
    """The product of the embeddings of fields [user, item], and a bias of each (Koren et al.,
    2009). For ratings: classifier_activation=None and the loss "mse"."""
    user, item = features.sides(1)
    product = math.reduce_sum(user * item, axis=[1, 2])[:, None]
    return _Head(features, name=name, **options).model(features.linear() + product)


__all__ = [
    "DCN", "DCNV2", "DIEN", "DIN", "FFM", "FM", "LR", "NCF", "PLE", "AutoInt", "DeepFM", "Features",
    "MMoE", "MatrixFactorization", "TwoTower", "WideDeep", "XDeepFM",
]  # fmt: skip
