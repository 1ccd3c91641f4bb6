"""The base of layers (keras.layers.Layer): weights, sublayers, losses, and what a call does."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import _native, dtypes, errors, nest
from .._conversion import inside
from .._dispatch import convert
from .._native import Output, Tensor
from .._tensor import Reference
from .._trackable import Restored, is_trackable
from ..function import TensorSpec
from ..ops import array, math
from ..ops.embedding import SparseTensor
from ..ops.ragged import RaggedTensor
from ..variable import CutVariable, Variable, together
from . import constraints, initializers, regularizers
from ._configs import Configured, deserialize, hooks, own_name, snake_case
from ._metric import Metric
from ._model_graph import WHILE_TRAINING, add_variable, check_home, model_of, parts_of
from ._recording import Node, has_symbolic, is_symbolic, recording_of, trial


class _Calls(threading.local):
    """The calls of layers that a thread is in. `training`: what the innermost one was told;
    `depth`: how many; `model`: the sidereal.Model whose values it was given."""

    training: Any = None
    depth: int = 0
    model: _native.Model | None = None
    #: The masks of tensors that layers of the outermost call gave, by Reference.
    masks: dict[Reference, Any] | None = None

    @contextmanager
    def entered(self, training: Any, model: _native.Model | None) -> Iterator[None]:
        before = self.training, self.masks, self.model
        self.training, self.depth, self.model = training, self.depth + 1, model
        if self.masks is None:
            self.masks = {}
        try:
            yield
        finally:
            (self.training, self.masks, self.model), self.depth = before, self.depth - 1

    def _mask_of(self, leaf: Any) -> Any:
        if type(leaf) is Output and isinstance(leaf.graph, _native.Model):
            return parts_of(leaf.graph).masks.get((leaf.node, leaf.index))
        if self.masks is None or not isinstance(leaf, (Tensor, Output)):
            return None
        return self.masks.get(Reference(leaf))

    def mask_of(self, structure: Any) -> Any:
        """The masks of nested tensors, nested like them; None if there is none."""
        found = [self._mask_of(leaf) for leaf in nest.flatten(structure)]
        if all(mask is None for mask in found):
            return None
        return nest.pack(structure, found)

    def keep_mask(self, structure: Any, mask: Any) -> None:
        """Notes the mask of a tensor, or those of several."""
        leaves = nest.flatten(structure)
        masks = nest.flatten(mask) if isinstance(mask, (list, tuple)) else [mask] * len(leaves)
        for leaf, one in zip(leaves, masks):
            if one is None:
                continue
            if type(leaf) is Output and isinstance(leaf.graph, _native.Model):
                parts_of(leaf.graph).masks[leaf.node, leaf.index] = one
            elif self.masks is not None:
                self.masks[Reference(leaf)] = one


_calls = _Calls()


def current_model() -> _native.Model | None:
    """The sidereal.Model whose values the innermost layer was called with."""
    return _calls.model


#: Members of a layer that are no sublayers or variables of it, whatever they hold.
_UNTRACKED = {"_arguments", "_compile_arguments", "_losses", "_nodes"}
#: Members that are not saved in checkpoints, or are as something else.
_UNSAVED = _UNTRACKED | {
    "_built_for", "_compiled_loss", "_compiled_metrics", "_connected_layers", "_kept_cluster",
    "_loss_tracker", "_others", "_stack", "_step_functions", "_strategy", "_trained", "history",
    "_training_data", "loss",
}  # fmt: skip


def shape_of(value: Any) -> Any:
    """The shape of a tensor as Keras says it, None for an unknown extent; for nested tensors nested
    shapes; None for what is no tensor."""
    if isinstance(value, RaggedTensor):
        return (None, None, *(shape_of(value.flat_values) or ())[1:])
    if isinstance(value, SparseTensor):
        return (None, None)
    if isinstance(value, Mapping):
        return {key: shape_of(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        shapes = [shape_of(each) for each in value]
        return shapes if isinstance(value, list) else tuple(shapes)
    shape = getattr(value, "shape", None)
    return None if shape is None else tuple(None if n is None or n < 0 else n for n in shape)


def members_of(value: Any, kind: Any) -> Iterator[Any]:
    """What is of `kind` among a value and what lists, tuples and dicts there hold."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from members_of(each, kind)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from members_of(each, kind)


def unique(things: Iterable[Any]) -> list[Any]:
    """Each object once, in order."""
    return list({id(each): each for each in things}.values())


def _noting(build: Callable[..., None]) -> Callable[..., None]:
    """A build() that notes that it was called."""

    @functools.wraps(build)
    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        if _calls.model is not None and self._home is None and not self.built:
            self._move_to(_calls.model)
        build(self, *args, **kwargs)
        self.built = True
        self._has_grown()

    return noting


def shards_of(variable: Any) -> list[Any]:
    """The shards of a variable that is cut; else the variable."""
    return variable.variables if isinstance(variable, CutVariable) else [variable]


class Layer(Configured, Restored):
    """Base of the layers. One of one's own has call(inputs), and build(input_shape) if it has
    weights:

        class Scale(keras.layers.Layer):
            def build(self, input_shape):
                self.w = self.add_weight((input_shape[-1],), "ones", name="w")

            def call(self, inputs):
                return inputs * self.w

    A layer is built when it is first called. It is called with tensors, at once and inside of a
    sidereal.function, or with symbolic tensors, that a Model is made of; its weights are the same
    in all calls. What lists, tuples and dicts among its members hold are its sublayers as well.
    Called with values of a sidereal.Model, it becomes a part of that: its weights are variables of
    the model, on parameter servers.

    activity_regularizer: a penalty on what call() gives, divided by the number of examples.
    trainable: whether its weights are.
    dtype: of weights, and in which is computed: floating inputs are cast to it.
    """

    #: Whether outputs have the mask of the inputs.
    supports_masking = False
    #: The masks of what the last call gave that was not part of another one.
    _output_masks: Any = None
    _initialized = False
    #: Whether its weights are tables of which rows are read.
    _has_table = False
    #: The model whose variables its weights are; None: they are of this process.
    _home: _native.Model | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        build = cls.__dict__.get("build")
        if build is not None:
            setattr(cls, "build", _noting(build))

    def __init__(
        self, *, activity_regularizer: Any = None, trainable: bool = True, dtype: Any = None,
        autocast: bool = True, name: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        shape = kwargs.pop("input_shape", None)
        width = kwargs.pop("input_dim", None)
        if kwargs:
            raise ValueError(
                f"{type(self).__name__}() has no argument {', '.join(kwargs)}; see its signature"
            )
        #: What Keras' old argument says of the inputs; Sequential looks at it.
        self._first_shape = (width,) if shape is None and width is not None else shape
        self._is_named = bool(name)
        self.name = str(name) if name else own_name(self)
        self.activity_regularizer = regularizers.get(activity_regularizer)
        self.autocast = autocast
        self.built = False
        self._trainable = bool(trainable)
        self._dtype = dtypes.as_dtype("float32" if dtype is None else dtype)
        self._trained: list[Any] = []
        self._others: list[Any] = []
        self._losses: list[Any] = []
        self._nodes: list[Node] = []
        self._initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not self._restorations or name == "_restorations":
            return
        # Weights are restored together, when build() has made all.
        if self.built or not isinstance(value, (Variable, CutVariable)):
            self._has_grown()

    def _check_initialized(self) -> None:
        if not self._initialized:
            raise RuntimeError(
                f"{type(self).__name__}.__init__() has not called super().__init__(), which a "
                "layer needs; call it first"
            )

    def get_config(self) -> dict[str, Any]:
        """The arguments it was made with."""
        return {**super().get_config(), "name": self.name, "trainable": self.trainable}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """A layer like the one that gave this config."""
        given = {name: deserialize(value) for name, value in config.items()}
        taken = inspect.signature(cls.__init__).parameters
        left: dict[str, Any] = {}
        if all(each.kind != inspect.Parameter.VAR_KEYWORD for each in taken.values()):
            # What every config has and this class does not take.
            for name in ("name", "trainable"):
                if name not in taken and name in given:
                    left[name] = given.pop(name)
        made = cls(**given)
        if "name" in left:
            made.name = str(left["name"])
        if not left.get("trainable", True):
            made.trainable = False
        return made

    # --- What a layer of one's own has.

    def build(self, input_shape: Any) -> None:
        """Makes the weights for inputs of that shape; for several inputs, shapes nested like them,
        or an argument NAME_shape for each argument NAME of call()."""

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Outputs for inputs. With an argument `training` it is told whether it is in training."""
        raise NotImplementedError(f"layer '{self.name}': {type(self).__name__} has no call()")

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """The mask of what call() gives: that of the inputs in a layer with `supports_masking`."""
        return previous_mask if self.supports_masking else None

    # --- Weights.

    @property
    def dtype(self) -> str:
        """The name of the dtype of its weights."""
        return dtypes.name_of(self._dtype)

    variable_dtype = compute_dtype = dtype

    def add_weight(
        self, shape: Sequence[int] | int | None = None, initializer: Any = None, dtype: Any = None,
        trainable: bool = True, autocast: bool = True, regularizer: Any = None,
        constraint: Any = None, aggregation: Any = None, name: str | None = None,
    ) -> Any:  # fmt: skip
        """A variable of the layer, which starts as the initializer says (Glorot's where it is of
        floats, else zeros): a Variable, or one of the sidereal.Model whose values it was called
        with. `autocast` and `aggregation` change nothing."""
        del autocast, aggregation
        self._check_initialized()
        kind = self._dtype if dtype is None else dtypes.as_dtype(dtype)
        extents = (shape,) if isinstance(shape, int) else tuple(shape or ())
        if any(not isinstance(n, (int, np.integer)) or n < 0 for n in extents):
            raise ValueError(
                f"layer '{self.name}': a weight of shape {extents} cannot be made; all extents "
                "must be known, so say the shape of the inputs"
            )
        hooks.take(f"{self.name}/{name}", extents)
        start = "glorot_uniform" if dtypes.is_floating(kind) else "zeros"
        make = initializers.get(start if initializer is None else initializer)
        own = self._trained if trainable else self._others
        number = len(self._trained) + len(self._others)
        full = f"{self.name}/{name or f'variable_{number}'}"
        trained = trainable and self.trainable
        if self._home is not None:
            placed = add_variable(
                self._home, full, extents, kind, make, trained and dtypes.is_floating(kind),
                regularizers.get(regularizer), constraints.get(constraint), self._has_table,
            )  # fmt: skip
            own.append(placed)
            return placed
        made = Variable(functools.partial(make, extents, kind), trainable=trained, name=full)
        made.regularizer = regularizers.get(regularizer)
        self._constrain(made, constraints.get(constraint))
        own.append(made)
        return made

    def _constrain(self, made: Any, constraint: Any) -> None:
        is_cut = isinstance(made, CutVariable)
        if is_cut and constraint is not None and not isinstance(constraint, constraints.NonNeg):
            raise errors.UnimplementedError(
                f"layer '{self.name}': the constraint of weight '{made.name}' looks at all of it, "
                "and the variable_partitioner of the strategy cuts it into shards; leave out one "
                "of the two"
            )
        for each in made.variables if is_cut else [made]:
            each.constraint = constraint

    def _children(self) -> list[Layer]:
        """The sublayers, in the order of members."""
        members = [value for name, value in vars(self).items() if name not in _UNTRACKED]
        return unique(each for each in members_of(members, Layer) if each is not self)

    def _own_variables(self) -> list[Any]:
        members = [value for name, value in vars(self).items() if name not in _UNTRACKED]
        found = unique([*self._trained, *members_of(members, (Variable, CutVariable))])
        others = {id(each) for each in self._others}
        return [each for each in found if id(each) not in others] + self._others

    def _family(self) -> list[Layer]:
        """The layer and all below it, each once."""
        found: dict[int, Layer] = {}
        waiting: list[Layer] = [self]
        while waiting:
            layer = waiting.pop()
            if id(layer) not in found:
                found[id(layer)] = layer
                waiting += reversed(layer._children())
        return list(found.values())

    def _wholes(self) -> list[Any]:
        """All variables as they were made, those in shards too."""
        return unique(each for layer in self._family() for each in layer._own_variables())

    @property
    def variables(self) -> list[Variable]:
        """All variables, its own and then those of sublayers; of one in shards these."""
        return unique(shard for each in self._wholes() for shard in shards_of(each))

    weights = variables

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables that training changes."""
        if not self.trainable:
            return []
        return [each for each in self.variables if each.trainable]

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """The variables that training does not change by gradients."""
        trained = {id(each) for each in self.trainable_variables}
        return [each for each in self.variables if id(each) not in trained]

    @property
    def trainable_weights(self) -> list[Variable]:
        return self.trainable_variables

    @property
    def non_trainable_weights(self) -> list[Variable]:
        return self.non_trainable_variables

    @property
    def trainable(self) -> bool:
        """Whether training changes its weights; a model must be compiled again after a change."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)
        for variable in self._trained:
            variable.trainable = self._trainable
        for child in self._children():
            child.trainable = value

    def get_weights(self) -> list[np.ndarray]:
        """The values of the weights; of one in shards these joined."""
        wholes = self._wholes()
        with together(wholes, "VariableRead"):
            return [np.array(each.numpy()) for each in wholes]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Gives the weights other values, in the order of get_weights()."""
        own = self._wholes()
        if len(own) != len(weights):
            raise ValueError(
                f"layer '{self.name}' has {len(own)} weights; set_weights() is given {len(weights)}"
            )
        with together(own, "VariableAssign"):
            for variable, value in zip(own, weights):
                shape = tuple(np.shape(value))
                if shape != variable.shape:
                    raise ValueError(
                        f"weight '{variable.name}' of layer '{self.name}' has shape "
                        f"{variable.shape}; the value given has {shape}"
                    )
                variable.assign(math.cast(convert(value), variable.dtype))

    def count_params(self) -> int:
        """The number of elements of all weights."""
        if not self.built:
            raise ValueError(
                f"layer '{self.name}' has no weights yet, which count_params() counts; call it, or "
                "build() it"
            )
        return sum(int(np.prod(each.shape)) for each in self.weights)

    # --- In checkpoints.

    def _trackable_children(self) -> dict[str, Any]:
        """What is saved of it: members, and weights that are no member by the last part of their
        names."""
        found = {
            name: value
            for name, value in vars(self).items()
            if name not in _UNSAVED and is_trackable(value)
        }
        members = list(found.values())
        named = {id(each) for each in members_of(members, (Variable, CutVariable))}
        for weight in [*self._trained, *self._others]:
            if id(weight) not in named and is_trackable(weight):
                base = name = weight.name.rsplit("/", 1)[-1]
                number = 0
                while name in found:
                    number += 1
                    name = f"{base}_{number}"
                found[name] = weight
        return found

    # --- Losses and metrics.

    def add_loss(self, loss: Any) -> None:
        """Adds to what training minimizes; in call()."""
        if _calls.model is not None:
            raise errors.UnimplementedError(
                f"layer '{self.name}': losses of layers do not reach the loss of a sidereal.Model; "
                "add them to the loss that its compile() is given"
            )
        self._losses += [each for each in nest.flatten(loss) if each is not None]

    @property
    def losses(self) -> list[Any]:
        """What the last call added, and the penalties of regularizers, sublayers included."""
        found = [each for layer in self._family() for each in layer._losses]
        for variable in self._wholes() if self.trainable else ():
            if variable.trainable and getattr(variable, "regularizer", None) is not None:
                found.append(variable.regularizer(variable))
        return found

    def _clear_losses(self) -> None:
        for layer in self._family():
            layer._losses.clear()
        self._output_masks = None

    @property
    def metrics(self) -> list[Metric]:
        """The metrics that are members, sublayers included."""
        return unique(
            metric
            for layer in self._family()
            for name, value in vars(layer).items()
            if name not in _UNTRACKED
            for metric in members_of(value, Metric)
        )

    # --- Calls.

    @functools.cached_property
    def _signature_of_call(self) -> inspect.Signature:
        return inspect.signature(self.call)

    def _takes(self, name: str) -> bool:
        return name in self._signature_of_call.parameters

    def _bound(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """The arguments of a call by their names."""
        try:
            return self._signature_of_call.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"layer '{self.name}': {error}") from None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """call(), of a layer that is built; with symbolic tensors, a note of it for a Model."""
        self._check_initialized()
        if has_symbolic((args, kwargs)):
            return self._record(args, kwargs)
        leaves = [self._as_input(leaf) for leaf in nest.flatten((args, kwargs))]
        args, kwargs = nest.pack((args, kwargs), leaves)
        told = None
        if not self._takes("training"):
            # For the layers inside.
            told = kwargs.pop("training", None)
        bound = self._bound(args, kwargs)
        training = bound.get("training", told)
        model = model_of(leaves)
        model = _calls.model if model is None else model
        if training is None:
            training = _calls.training
            if training is None and model is not None:
                training = WHILE_TRAINING
            if training is not None and self._takes("training"):
                bound["training"] = training
                kwargs = {**kwargs, "training": training}
        if _calls.depth == 0:
            self._clear_losses()
        first = args[0] if args else next(iter(bound.values()), None)
        kwargs = self._with_masks(bound, kwargs)
        mask = kwargs.get("mask", bound.get("mask"))
        if mask is None:
            mask = _calls.mask_of(first)
        with _calls.entered(training, model):
            if not self.built:
                if self._home is not model:
                    self._move_to(model)
                self._build_for(first, bound)
            elif self._home is not model:
                check_home(self.name, self._trained + self._others, model)
            outputs = inside(self.call)(*args, **kwargs)
            _calls.keep_mask(outputs, self.compute_mask(first, mask))
            if _calls.depth == 1:
                self._output_masks = _calls.mask_of(outputs)
            if self.activity_regularizer is not None:
                self._add_activity(outputs)
        return outputs

    def _move_to(self, model: _native.Model | None) -> None:
        """Before it is built: its weights become variables of a model; None: of this process."""
        self._home = model
        if model is not None:
            parts = parts_of(model)
            if not self._is_named:
                self.name = parts.name(snake_case(type(self).__name__))
            parts.layers.add(self.name)

    def _with_masks(self, bound: Mapping[str, Any], kwargs: Any) -> Any:
        """Keyword arguments with the masks of inputs: `mask` has that of the first, NAME_mask that
        of the argument NAME."""
        found = dict(kwargs)
        for place, (name, value) in enumerate(bound.items()):
            wanted = "mask" if place == 0 and self._takes("mask") else f"{name}_mask"
            if not self._takes(wanted) or bound.get(wanted) is not None:
                continue
            mask = _calls.mask_of(value)
            if mask is not None:
                found[wanted] = mask
        return found

    def _record(self, args: Any, kwargs: Any) -> Any:
        specs = trial(self, args, kwargs)
        self._clear_losses()
        first = next(leaf for leaf in nest.flatten((args, kwargs)) if is_symbolic(leaf))
        node = recording_of(first).record(self, (args, kwargs), specs)
        self._nodes.append(node)
        return node.structure

    def _as_input(self, leaf: Any) -> Any:
        is_array = isinstance(leaf, (np.ndarray, np.generic)) or (
            hasattr(leaf, "__dlpack__") and not isinstance(leaf, (Tensor, Variable))
        )
        if not is_array and not isinstance(leaf, (Tensor, Output, Variable)):
            return leaf
        value = convert(leaf)
        if self.autocast and value.dtype != self._dtype and dtypes.is_floating(value.dtype):
            return math.cast(value, self._dtype)
        return value

    def _build_for(self, first: Any, bound: Mapping[str, Any]) -> None:
        """build(), with the shapes of the arguments of a call."""
        names = list(inspect.signature(self.build).parameters)
        if names and names[0] != "input_shape" and all(each.endswith("_shape") for each in names):
            shapes = {each: shape_of(bound.get(each.removesuffix("_shape"))) for each in names}
            self.build(**shapes)
        else:
            self.build(shape_of(first))
        self.built = True
        self._has_grown()

    def _add_activity(self, outputs: Any) -> None:
        for output in nest.flatten(outputs):
            examples = math.cast(array.shape(output)[0], output.dtype)
            self.add_loss(math.divide(self.activity_regularizer(output), examples))

    # --- As a part of models.

    def _connected(self, what: str) -> Node:
        if not self._nodes:
            raise AttributeError(
                f"layer '{self.name}' has no {what}: it was never called on symbolic tensors"
            )
        return self._nodes[0]

    @property
    def input(self) -> Any:
        """The symbolic tensors of its first call."""
        args, kwargs = self._connected("input").arguments
        return args[0] if args else next(iter(kwargs.values()))

    @property
    def output(self) -> Any:
        """The symbolic tensors that its first call gave."""
        return self._connected("output").structure

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the outputs for inputs of that shape; None is an unknown extent."""
        specs = specs_of(input_shape, self._dtype)
        return shape_of(trial(self, (specs,), {}))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"


def check_features(layer: Layer, shape: Sequence[int | None] | None, axis: int = -1) -> int:
    """The extent of inputs that weights are made for; InvalidArgumentError when it is not known."""
    extent = None if not shape else shape[axis]
    if extent is None:
        raise errors.InvalidArgumentError(
            f"layer '{layer.name}': the extent of dimension {axis} of the inputs must be known; "
            f"they have shape {shape}"
        )
    return extent


def specs_of(shape: Any, dtype: Any) -> Any:
    """A TensorSpec for a shape, nested ones for nested shapes."""
    if isinstance(shape, Mapping):
        return {key: specs_of(each, dtype) for key, each in shape.items()}
    if any(isinstance(each, (list, tuple, Mapping)) for each in shape):
        return [specs_of(each, dtype) for each in shape]
    return TensorSpec(shape, dtype)
