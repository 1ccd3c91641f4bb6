"""Models (keras.Model, keras.Sequential): layers that are trained together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .. import nest
from ..variable import creating
from ._functional import Functional
from ._layer import Layer, shape_of, specs_of
from ._recording import is_symbolic, trial
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

    def _build_for(self, first: Any, bound: Any) -> None:
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
