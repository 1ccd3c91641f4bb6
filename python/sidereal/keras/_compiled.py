"""What Model.compile() is told of losses and metrics, applied to the outputs of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import nest
from .._conversion import inside
from .._dispatch import convert
from ..ops import array, math
from . import losses, metrics
from ._configs import own_name
from ._inputs import same_rank
from ._metric import Mean, Metric

Names = Sequence[str] | None


def names_of(y_pred: Any, names: Names) -> Names:
    """The names of the outputs: keys of a dict, or those of the model."""
    return sorted(map(str, y_pred)) if isinstance(y_pred, Mapping) else names


def _by_output(what: str, given: Any, names: Names, count: int) -> list[Any]:
    """What a list or dict has for each output, None where it has nothing."""
    if isinstance(given, Mapping):
        unknown = [key for key in given if key not in (names or ())]
        if unknown:
            raise ValueError(
                f"{what} is given for {', '.join(map(str, unknown))}; the outputs of the model are "
                f"{', '.join(names or ()) or 'without names'}"
            )
        return [given.get(name) for name in names or ()]
    if len(given) != count:
        raise ValueError(f"{what} has {len(given)} entries; the model has {count} outputs")
    return list(given)


def split(what: str, given: Any, names: Names, count: int, shared: bool = False) -> list[Any]:
    """Targets or weights for each output. `shared`: one value stands for all outputs."""
    if given is None:
        return [None] * count
    if isinstance(given, (list, tuple, Mapping)):
        if count == 1 and not isinstance(given, Mapping):
            leaves = nest.flatten(given)
            if len(leaves) == 1:
                return leaves
        if count == 1 and isinstance(given, Mapping) and len(given) == 1:
            return list(given.values())
        return _by_output(what, given, names, count)
    if count > 1 and not shared:
        raise ValueError(f"{what} is one value; the model has {count} outputs")
    return [given] * count


def _rows(y_pred: Any) -> Any:
    return math.cast(array.shape(y_pred)[0], "float32")


def _masked(weights: Any, mask: Any, reduction: str | None) -> Any:
    """Weights of losses that are 0 where a mask is false; a mean is that of the others."""
    if mask is None:
        return weights
    factors = math.cast(mask, "float32")
    if reduction in ("sum_over_batch_size", "mean", "auto"):
        total = math.reduce_sum(array.ones_like(factors))
        factors = math.multiply(factors, math.divide_no_nan(total, math.reduce_sum(factors)))
    if weights is None:
        return factors
    return math.multiply(*same_rank(factors, math.cast(convert(weights), "float32")))


class _Function(losses.Loss):
    """A function of (y_true, y_pred) as a loss."""

    def __init__(self, fn: Callable[..., Any], name: str) -> None:
        super().__init__(name=name)
        self._fn = fn
        # Numbers of classes stay integers.
        self._of_classes = fn is losses.sparse_categorical_crossentropy

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return inside(self._fn)(y_true, y_pred)


def _kind_of_labels(y_true: Any, y_pred: Any) -> str:
    """Whether targets are binary, numbers of classes, or one-hot."""
    if y_pred.shape[-1] == 1:
        return "binary"
    is_sparse = len(y_true.shape) < len(y_pred.shape) or y_true.shape[-1] == 1
    return "sparse_categorical" if is_sparse else "categorical"


def _loss_of(identifier: Any, y_true: Any, y_pred: Any) -> Any:
    found = identifier
    if isinstance(identifier, str) and identifier.lower() in ("crossentropy", "ce"):
        found = f"{_kind_of_labels(y_true, y_pred)}_crossentropy"
    found = losses.get(found)
    if isinstance(found, losses.Loss):
        return found
    name = getattr(found, "__name__", "") or own_name(found)
    return _Function(found, identifier if isinstance(identifier, str) else name)


class _Term(NamedTuple):
    """A loss of an output: its place, its weight, and what it is called."""

    output: int
    loss: Any
    weight: float | None
    name: str


class CompiledLoss:
    """The sum of the losses of the outputs, times their weights; `metrics` has the mean of each
    where there are several."""

    def __init__(self, loss: Any, loss_weights: Any, output_names: Names) -> None:
        self._given, self._weights, self._names = loss, loss_weights, output_names
        self._terms: list[_Term] | None = None
        self.metrics: list[Metric] = []

    def _build(self, y_true: list[Any], y_pred: list[Any], names: Names) -> list[_Term]:
        count = len(y_pred)
        given, weights = self._given, self._weights
        if not isinstance(given, (list, tuple, Mapping)):
            by_output = [given] * count
        elif count == 1 and not isinstance(given, Mapping):
            by_output = [list(given)]
            weights = None if weights is None else [weights]
        else:
            by_output = _by_output("loss", given, names, count)
        if weights is None or isinstance(weights, (int, float)):
            weights = [weights] * count
        else:
            weights = _by_output("loss_weights", weights, names, count)
        terms = []
        for place, (loss, weight) in enumerate(zip(by_output, weights)):
            several = list(loss) if isinstance(loss, (list, tuple)) else [loss]
            factors = list(weight) if isinstance(weight, (list, tuple)) else [weight] * len(several)
            if len(factors) != len(several):
                raise ValueError(
                    f"loss_weights has {len(factors)} entries where loss has {len(several)}"
                )
            for one, factor in zip(several, factors):
                if one is not None:
                    made = _loss_of(one, y_true[place], y_pred[place])
                    terms.append(_Term(place, made, factor, names[place] if names else made.name))
        if len(terms) > 1:
            self.metrics = [Mean(name=f"{term.name}_loss") for term in terms]
        return terms

    def __call__(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None, masks: Any = None
    ) -> Any:
        """The sum. `masks`: those of the outputs, nested like them: what they hide does not
        count."""
        names = names_of(y_pred, self._names)
        outputs = nest.flatten(y_pred)
        targets = split("y", y_true, names, len(outputs))
        weights = split("sample_weight", sample_weight, names, len(outputs), shared=True)
        hidden = [None] * len(outputs) if masks is None else nest.flatten(masks)
        if self._terms is None:
            self._terms = self._build(targets, outputs, names)
        parts = []
        for index, term in enumerate(self._terms):
            target = targets[term.output]
            if target is None:
                raise ValueError(
                    f"the loss '{term.loss.name}' of output {term.output} needs targets; y has none"
                )
            weight = _masked(weights[term.output], hidden[term.output], term.loss.reduction)
            value = term.loss(target, outputs[term.output], weight)
            if value.shape != ():
                value = math.reduce_mean(value)
            if self.metrics:
                mean: Any = self.metrics[index]
                mean.update_state(value, sample_weight=_rows(outputs[0]))
            parts.append(value if term.weight is None else math.multiply(value, term.weight))
        return math.add_n(parts) if parts else None


def _metric_of(identifier: Any, y_true: Any, y_pred: Any) -> Metric:
    if isinstance(identifier, str) and identifier.lower() in ("accuracy", "acc"):
        found = metrics.get(f"{_kind_of_labels(y_true, y_pred)}_accuracy")
    else:
        found = metrics.get(identifier)
    if not isinstance(found, Metric):
        name = getattr(found, "__name__", None) or own_name(found)
        found = metrics.MeanMetricWrapper(found, name=name)
    if isinstance(identifier, str):
        found.name = identifier
    return found


class _Group(NamedTuple):
    """The metrics of an output, and how what they say is called."""

    output: int
    prefix: str
    members: list[Metric]
    weighted: bool


class CompiledMetrics:
    """The metrics of the outputs; those of `weighted` know the weights of examples."""

    def __init__(self, plain: Any, weighted: Any, output_names: Names) -> None:
        self._given, self._names = (plain, weighted), output_names
        self._groups: list[_Group] | None = None

    @property
    def metrics(self) -> list[Metric]:
        """All of them; none before the first update."""
        return [metric for group in self._groups or () for metric in group.members]

    def _build(self, y_true: list[Any], y_pred: list[Any], names: Names) -> list[_Group]:
        groups = []
        for given, weighted in zip(self._given, (False, True)):
            if not given:
                continue
            if len(y_pred) == 1:
                leaves = nest.flatten(given)
                by_output = [leaves]
            else:
                what = "weighted_metrics" if weighted else "metrics"
                by_output = _by_output(what, given, names, len(y_pred))
            for place, some in enumerate(by_output):
                listed = some if isinstance(some, (list, tuple)) else [some]
                members = [
                    _metric_of(each, y_true[place], y_pred[place])
                    for each in listed
                    if each is not None
                ]
                prefix = f"{names[place]}_" if names and len(y_pred) > 1 else ""
                groups.append(_Group(place, prefix, members, weighted))
        return groups

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch."""
        names = names_of(y_pred, self._names)
        outputs = nest.flatten(y_pred)
        targets = split("y", y_true, names, len(outputs))
        weights = split("sample_weight", sample_weight, names, len(outputs), shared=True)
        if self._groups is None:
            self._groups = self._build(targets, outputs, names)
        for group in self._groups:
            weight = weights[group.output] if group.weighted else None
            for metric in group.members:
                metric.update_state(targets[group.output], outputs[group.output], weight)

    def named(self) -> dict[str, Metric]:
        """The metrics by what they are called in logs."""
        found: dict[str, Metric] = {}
        for group in self._groups or ():
            for metric in group.members:
                name = f"{group.prefix}{metric.name}"
                if group.weighted and name in found:
                    name = f"{group.prefix}weighted_{metric.name}"
                base, number = name, 0
                while name in found:
                    number += 1
                    name = f"{base}_{number}"
                found[name] = metric
        return found
