"""Models (keras.Model, keras.Sequential): layers that are trained together."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .. import dtypes, nest
from .._structures import read, write
from ..function import TensorSpec
from ..variable import creating
from ._configs import CustomObjectScope, Registry, deserialize, hooks, serialize
from ._export import export_model
from ._functional import Functional
from ._graph_config import config_of, tensors_of
from ._layer import Layer, shape_of, specs_of
from ._model_files import load_model, load_weights, save_model, save_weights
from ._recording import is_symbolic, origin_of, trial
from ._summary import print_summary
from ._training import Trainer
from .layers.core import Input, InputLayer


class Model(Trainer):
    """Layers that are trained together: those between symbolic tensors,

        inputs = keras.Input((8,))
        hidden = keras.layers.Dense(16, "relu")(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1)(hidden))

    or those of a class of one's own, whose call() says what they do:

        class Tower(keras.Model):
            def __init__(self):
                super().__init__()
                self.hidden = keras.layers.Dense(16, "relu")
                self.head = keras.layers.Dense(1)

            def call(self, inputs, training=None):
                return self.head(self.hidden(inputs))

    `inputs` and `outputs`: a symbolic tensor, or lists or dicts of them.
    """

    def __init__(self, inputs: Any = None, outputs: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._strategy = creating.strategy
        self._functional: Functional | None = None
        #: The arguments that it was first called with, tensors as TensorSpecs.
        self._built_for: Any = None
        if (inputs is None) != (outputs is None):
            raise ValueError(f"model '{self.name}': give inputs and outputs, or neither")
        if inputs is not None:
            self._connect(inputs, outputs)

    def _connect(self, inputs: Any, outputs: Any) -> None:
        self._functional = Functional(self.name, inputs, outputs)
        #: Where members are looked for, in the order of the graph.
        self._connected_layers = self._functional.layers
        self._read_by_ops = self._functional.variables
        # Each input is brought to the dtype of its Input.
        self.autocast = False
        self.built = True

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """The outputs for inputs."""
        if self._functional is None:
            raise NotImplementedError(
                f"model '{self.name}': {type(self).__name__} has no call()"
            )
        return self._functional.run(inputs)

    def build(self, input_shape: Any) -> None:
        """Makes the weights for inputs of that shape, float32."""
        if not self.built:
            trial(self, (specs_of(input_shape, self._dtype),), {})

    # --- Configs.

    @classmethod
    def _is_graph(cls) -> bool:
        """Whether the class is made of inputs and outputs, as Model is."""
        return cls.__init__ is Model.__init__ or (
            list(inspect.signature(cls.__init__).parameters)[1:3] == ["inputs", "outputs"]
        )

    def get_config(self) -> dict[str, Any]:
        """What it can be made again of: the layers and their calls of one that is made of symbolic
        tensors; the arguments of a class of one's own.

        Errors: NotImplementedError when these are nothing that can be written.
        """
        if self._functional is not None and self._is_graph():
            with hooks.sharing():
                found = config_of(self._functional)
            return {"name": self.name, "trainable": self.trainable, **found}
        config = super().get_config()
        for name in ("inputs", "outputs"):
            if type(self)._is_graph():
                config.pop(name, None)
        try:
            serialize(config)
        except (TypeError, ValueError) as error:
            raise NotImplementedError(
                f"model '{self.name}': {type(self).__name__} is made of arguments that cannot be "
                f"written ({error}); give the class a get_config(), and a from_config() that makes "
                "the model of it"
            ) from None
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """A model like the one that gave this config, with weights of its own."""
        with CustomObjectScope(custom_objects), hooks.sharing():
            if not {"layers", "input_layers", "output_layers"} <= set(config):
                return super().from_config(config)
            inputs, outputs = tensors_of(str(config.get("name")), config)
            made = cls(inputs, outputs, name=config.get("name"))
            made._trainable = bool(config.get("trainable", True))
            return made

    def get_build_config(self) -> dict[str, Any] | None:
        """What build_from_config() builds the weights by: the shapes of what it was called with."""
        if self._functional is not None or self._built_for is None:
            return None
        return {"inputs": write(self._built_for, _write_spec)}

    def build_from_config(self, config: Mapping[str, Any]) -> None:
        """Makes the weights as get_build_config() says."""
        specs = read(config["inputs"], _read_spec)
        trial(self, (), specs)

    def _note_built(self, bound: Mapping[str, Any]) -> None:
        def spec(leaf: Any) -> Any:
            is_tensor = hasattr(leaf, "dtype") and hasattr(leaf, "shape")
            return TensorSpec(leaf.shape, leaf.dtype) if is_tensor else leaf

        given = {name: each for name, each in bound.items() if name not in ("training", "mask")}
        self._built_for = nest.map_structure(spec, given)

    # --- Files.

    def save(self, filepath: Any, overwrite: bool = True, zipped: Any = None) -> None:
        """Writes the model with its weights, what its optimizer keeps, and how it is compiled, to
        a file NAME.keras, whole or not at all; keras.models.load_model() reads it.

        Errors: ValueError and TypeError for what cannot be written, such as functions without a
        name; NotImplementedError as get_config().
        """
        save_model(self, filepath, overwrite, zipped)

    def save_weights(
        self, filepath: Any, overwrite: bool = True, max_shard_size: Any = None
    ) -> None:
        """Writes the weights, and what the optimizer keeps, to a file NAME.weights.npz, which is
        one however large: max_shard_size is refused. A name of another ending is the prefix of a
        checkpoint (sidereal.train.Checkpoint), which parameter servers write themselves.
        """
        if max_shard_size is not None:
            raise ValueError("save_weights(): max_shard_size is not there; weights are one file")
        save_weights(self, filepath, overwrite)

    def load_weights(self, filepath: Any, skip_mismatch: bool = False) -> Any:
        """Reads what save_weights() or save() wrote into the weights that it has. Of a checkpoint,
        weights that are made later are read as well, and it gives what Checkpoint.restore() gives.

        skip_mismatch: weights that the file does not have, or of another shape, are left with a
            warning.
        Errors: ValueError for weights that do not fit, of which none is changed then; NotFoundError
        without the file; DataLossError when it was damaged.
        """
        return load_weights(self, filepath, skip_mismatch)

    def export(
        self, filepath: Any, format: str = "tf_saved_model", verbose: Any = None,
        input_signature: Any = None, *, signatures: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """Writes what the model computes to one file, which sidereal.saved_model.load() reads
        without the classes it was made of: its `serve(inputs)` gives the outputs.

        format: "tf_saved_model"; "onnx", of which `kwargs` are options of sidereal.onnx.export();
            "tables": the tables of Embedding layers alone, for sidereal.TableFile.
        input_signature: TensorSpecs of what `serve` takes, if not what the model is made for.
        signatures: a sidereal.function with an input_signature, or a dict of such by name, that
            servers ask for; `serve` as "serving_default" if absent. They may have vocabularies and
            tables, which go with them. `verbose` changes nothing.
        """
        del verbose
        export_model(self, filepath, format, input_signature, signatures, kwargs)

    def to_json(self, **kwargs: Any) -> str:
        """The model without its weights as text; `kwargs` go to json.dumps()."""
        return json.dumps(serialize(self), **kwargs)

    def _build_for(self, first: Any, bound: Any) -> None:
        self._note_built(bound)
        if type(self).build in (Model.build, Sequential.build):
            self.built = True  # Layers build themselves when call() comes to them.
        else:
            super()._build_for(first, bound)

    def _symbols(self, what: str) -> Any:
        if self._functional is None:
            raise AttributeError(
                f"model '{self.name}' has no {what}: it was not made of symbolic tensors"
            )
        return getattr(self._functional, what)

    @property
    def inputs(self) -> list[Any]:
        """The symbolic tensors that it begins with."""
        return nest.flatten(self._symbols("inputs"))

    @property
    def outputs(self) -> list[Any]:
        """The symbolic tensors that it ends with."""
        return nest.flatten(self._symbols("outputs"))

    @property
    def input(self) -> Any:
        return self._symbols("inputs") if self._functional else super().input

    @property
    def output(self) -> Any:
        return self._symbols("outputs") if self._functional else super().output

    @property
    def input_names(self) -> list[str]:
        names: list[str] = self._symbols("input_names")
        return names

    @property
    def output_names(self) -> list[str] | None:
        """The names of the outputs; None where call() says what they are."""
        return None if self._functional is None else self._functional.output_names

    @property
    def input_shape(self) -> Any:
        return shape_of(self._symbols("inputs"))

    @property
    def output_shape(self) -> Any:
        return shape_of(self._symbols("outputs"))

    @property
    def layers(self) -> list[Layer]:
        """The layers that it is made of, without those inside of them."""
        return self._children()

    def _trackable_children(self) -> dict[str, Any]:
        """Its members, and before them the layers of one that is no class of its own: by their
        places, those with weights counted alone too."""
        found: dict[str, Any] = {}
        weighted = 0
        is_listed = self._functional is not None or isinstance(self, Sequential)
        for number, layer in enumerate(self.layers if is_listed else ()):
            if layer.weights:
                found[f"layer_with_weights-{weighted}"] = layer
                weighted += 1
            found[f"layer-{number}"] = layer
        return found | super()._trackable_children()

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """A layer by its name or its place."""
        if (name is None) == (index is None):
            raise ValueError("get_layer() takes a name or an index")
        layers = self.layers
        if index is not None:
            if not -len(layers) <= index < len(layers):
                raise ValueError(
                    f"model '{self.name}' has {len(layers)} layers; there is no number {index}"
                )
            return layers[index]
        for layer in layers:
            if layer.name == name:
                return layer
        names = [layer.name for layer in layers]
        raise ValueError(
            f"model '{self.name}' has no layer '{name}'; its layers are: {', '.join(names)}"
        )

    def summary(
        self, line_length: int | None = None, positions: Any = None,
        print_fn: Callable[[str], Any] | None = None, expand_nested: bool = False,
        show_trainable: bool = False, layer_range: Any = None,
    ) -> None:  # fmt: skip
        """Prints the layers with their output shapes and numbers of parameters. `expand_nested`:
        those inside of layers too. The other arguments of Keras change nothing."""
        del positions, layer_range
        if not self.built:
            raise ValueError(
                f"model '{self.name}' has no weights yet; build() it, or call it on a batch"
            )
        print_summary(self, line_length, print_fn, expand_nested, show_trainable)


class Sequential(Model):
    """Layers one behind another, each with one input and one output."""

    def __init__(
        self, layers: Iterable[Any] | None = None, trainable: bool = True,
        name: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(trainable=trainable, name=name, **kwargs)
        self._stack: list[Layer] = []
        self._symbol: Any = None
        if not isinstance(layers, (Iterable, type(None))):
            raise ValueError(f"model '{self.name}': {layers!r} is no list of layers")
        for layer in layers or ():
            self.add(layer)

    def add(self, layer: Any, rebuild: bool = True) -> None:
        """Puts a layer, or an Input, behind the others."""
        del rebuild
        if is_symbolic(layer):
            self._begin(layer)
            return
        if not isinstance(layer, Layer):
            raise ValueError(
                f"model '{self.name}': {layer!r} is no layer; add() takes instances of keras.Layer"
            )
        if isinstance(layer, InputLayer):
            self._begin(layer.output)
            return
        if any(each.name == layer.name for each in self._stack):
            raise ValueError(
                f"model '{self.name}' has a layer called '{layer.name}' already; give each a name "
                "of its own"
            )
        if not self._stack and self._symbol is None and layer._first_shape is not None:
            self._begin(Input(layer._first_shape))
        self._stack.append(layer)
        self._reconnect()

    def _begin(self, symbol: Any) -> None:
        if self._symbol is not None or self._stack:
            raise ValueError(
                f"model '{self.name}' has begun already; an Input can only be its first part"
            )
        self._symbol = symbol

    def get_config(self) -> dict[str, Any]:
        """Its layers, behind an InputLayer if it has one."""
        if type(self).__init__ is not Sequential.__init__:
            return super().get_config()
        begin = [] if self._symbol is None else [origin_of(self._symbol)[0].operation]
        entries = [serialize(layer) for layer in [*begin, *self._stack]]
        return {"name": self.name, "trainable": self.trainable, "layers": entries}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """A model like the one that gave this config, with weights of its own."""
        if cls.__init__ is not Sequential.__init__:
            return super().from_config(config, custom_objects)
        with CustomObjectScope(custom_objects), hooks.sharing():
            made = cls(name=config.get("name"))
            for entry in config["layers"]:
                made.add(deserialize(entry))
            made._trainable = bool(config.get("trainable", True))
            return made

    def pop(self, rebuild: bool = True) -> Layer:
        """Takes the last layer away and gives it back."""
        del rebuild
        if not self._stack:
            raise ValueError(f"model '{self.name}' has no layers to take away")
        layer = self._stack.pop()
        self._reconnect()
        return layer

    def _reconnect(self) -> None:
        self._functional = None
        self.built = False
        if self._symbol is None or not self._stack:
            return
        outputs = self._symbol
        for layer in self._stack:
            outputs = layer(outputs)
        self._functional = Functional(self.name, self._symbol, outputs)
        self.built = True

    @property
    def layers(self) -> list[Layer]:
        return list(self._stack)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if self._functional is not None:
            return self._functional.run(inputs)
        if not self._stack:
            raise ValueError(f"model '{self.name}' has no layers; add() some")
        for layer in self._stack:
            inputs = layer(inputs)
        return inputs


def _write_spec(leaf: Any) -> Any:
    if isinstance(leaf, TensorSpec):
        shape = None if leaf.shape is None else list(leaf.shape)
        return {"tensor": [shape, dtypes.name_of(leaf.dtype)]}
    return {"value": serialize(leaf)}


def _read_spec(written: Any) -> Any:
    if "tensor" in written:
        shape, dtype = written["tensor"]
        return TensorSpec(shape, dtypes.as_dtype(dtype))
    return deserialize(written["value"])


def model_from_json(json_string: str, custom_objects: Any = None) -> Any:
    """The model that to_json() gave this for, with weights of its own."""
    made = deserialize(json.loads(json_string), custom_objects)
    if not isinstance(made, Model):
        raise ValueError(f"model_from_json(): the text is of {made!r}, which is no model")
    return made


def clone_model(
    model: Any, input_tensors: Any = None, clone_function: Callable[[Layer], Layer] | None = None,
    call_function: Callable[..., Any] | None = None, recursive: bool = False,
) -> Any:  # fmt: skip
    """A model of the same layers with weights of its own.

    clone_function: gives for each layer the one that takes its place; with `recursive` not for
        models among them, but for their layers.
    call_function: call_function(layer, *args, **kwargs) calls each layer.

    Errors: ValueError for input_tensors, which are not there.
    """
    if not isinstance(model, Model):
        raise ValueError(f"clone_model() takes a model, not {model!r}")
    if input_tensors is not None:
        raise ValueError("clone_model(): input_tensors is not there; call the model on tensors")

    return _Cloner(clone_function, call_function, recursive).model(model)


class _Cloner:
    """Makes models of layers like those of others, each layer once."""

    def __init__(self, clone_function: Any, call_function: Any, recursive: bool) -> None:
        self._clone, self._call, self._recursive = clone_function, call_function, recursive
        self._made: dict[int, Any] = {}

    def layer(self, layer: Any) -> Any:
        """The one in the place of a layer."""
        if id(layer) not in self._made:
            self._made[id(layer)] = self._new(layer)
        return self._made[id(layer)]

    def _new(self, layer: Any) -> Any:
        if isinstance(layer, Model) and (self._recursive or self._clone is None):
            return self.model(layer)
        if self._clone is None or isinstance(layer, InputLayer):
            return type(layer).from_config(layer.get_config())
        return self._clone(layer)

    def model(self, model: Any) -> Any:
        """One like a model."""
        if isinstance(model, Sequential) and type(model).__init__ is Sequential.__init__:
            begin = [] if model._symbol is None else [origin_of(model._symbol)[0].operation]
            made = type(model)(name=model.name)
            for layer in [*begin, *model.layers]:
                made.add(self.layer(layer))
            return made
        if model._functional is not None and model._is_graph():
            config = config_of(model._functional, _of_layer)
            inputs, outputs = tensors_of(
                model.name, config, lambda entry: self.layer(entry["layer"]), self._call
            )
            return type(model)(inputs, outputs, name=model.name)
        if self._clone is not None:
            raise ValueError(
                f"clone_model(): the layers of {type(model).__name__} are made by its class, and "
                "clone_function cannot take their place"
            )
        return type(model).from_config(model.get_config())


def _of_layer(layer: Any) -> dict[str, Any]:
    return {"class_name": type(layer).__name__, "layer": layer}


__all__ = [
    "Model", "Sequential", "clone_model", "load_model", "model_from_json", "save_model",
]  # fmt: skip

Registry("keras", (Model, Sequential), {"Functional": Model})
