"""Model.summary(): the layers of a model as a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._layer import Layer, shape_of


def _count(variables: list[Any]) -> int:
    return sum(int(np.prod(each.shape)) for each in variables)


def _shape(layer: Layer) -> str:
    return str(shape_of(layer._nodes[0].structure)) if layer._nodes else "?"


def _rows(model: Layer, layers: list[Layer], nested: bool, depth: int) -> list[list[str]]:
    rows = []
    for layer in layers:
        name = f"{'  ' * depth}{layer.name} ({type(layer).__name__})"
        params = f"{_count(layer.weights):,}" if layer.built else "0 (unbuilt)"
        rows.append([name, _shape(layer), params, "Y" if layer.trainable else "N"])
        children = layer._children()
        if nested and children:
            rows += _rows(layer, children, nested, depth + 1)
    return rows


def print_summary(
    model: Any, line_length: int | None, print_fn: Callable[[str], Any] | None, nested: bool,
    show_trainable: bool,
) -> None:  # fmt: skip
    """Prints the table, or gives it to `print_fn` line by line."""
    header = ["Layer (type)", "Output Shape", "Param #", "Trainable"]
    rows = [header, *_rows(model, model.layers, nested, 0)]
    columns = len(header) if show_trainable else len(header) - 1
    widths = [max(len(row[i]) for row in rows) + 2 for i in range(columns)]
    if line_length is not None:
        widths[0] += max(line_length - sum(widths), 0)
    rule = "=" * sum(widths)
    lines = [f'Model: "{model.name}"', rule]
    for row in rows:
        lines.append("".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())
        if row is header:
            lines.append("-" * sum(widths))
    trained = _count(model.trainable_variables)
    total = _count(model.weights)
    lines += [
        rule,
        f"Total params: {total:,}",
        f"Trainable params: {trained:,}",
        f"Non-trainable params: {total - trained:,}",
    ]
    for line in lines:
        (print_fn or print)(line)
