"""What all callbacks are: keras.callbacks has them."""

from __future__ import annotations

from typing import Any

Logs = dict[str, Any]


class Callback:
    """Base of the callbacks: has a method for each event. `model` is the model, `params` have
    verbose, epochs and steps. Logs have the loss and the metrics by name."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self._model: Any = None

    def set_params(self, params: dict[str, Any]) -> None:
        self.params = params

    def set_model(self, model: Any) -> None:
        self._model = model

    @property
    def model(self) -> Any:
        return self._model

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Before an epoch of training."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """After an epoch of training and its validation, whose names begin with val_."""

    def on_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """on_train_batch_begin() by another name."""

    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """on_train_batch_end() by another name."""

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        self.on_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self.on_batch_end(batch, logs)

    def on_test_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Before a batch of evaluate() or of validation."""

    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """After a batch of evaluate() or of validation."""

    def on_predict_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Before a batch of predict()."""

    def on_predict_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """After a batch of predict(); logs have its "outputs"."""

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """At the beginning of fit()."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """At the end of fit()."""

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """At the beginning of evaluate() or of validation."""

    def on_test_end(self, logs: Logs | None = None) -> None:
        """At the end of evaluate() or of validation."""

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        """At the beginning of predict()."""

    def on_predict_end(self, logs: Logs | None = None) -> None:
        """At the end of predict()."""
