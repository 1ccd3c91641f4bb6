"""Names of devices (tf.DeviceSpec)."""

from __future__ import annotations

from typing import Any

from . import _native

#: The device of this process, where nothing else is said.
HERE = "/job:localhost/replica:0/task:0/device:CPU:0"

_FIELDS = ("job", "replica", "task", "device_type", "device_index")


class DeviceSpec:
    """A name of a device, or a part of one that leaves the rest open; immutable (tf.DeviceSpec).

    str() and to_string() write what is set: "/job:ps/replica:0/task:1/device:CPU:0". A field that
    no name can have (a job of "a b", a negative number) is an InvalidArgumentError.
    """

    __slots__ = ("_native",)

    def __init__(
        self,
        job: str | None = None,
        replica: int | None = None,
        task: int | None = None,
        device_type: str | None = None,
        device_index: int | None = None,
    ) -> None:
        self._native = _native.DeviceSpec(job, replica, task, device_type, device_index)

    @classmethod
    def from_string(cls, spec: str) -> DeviceSpec:
        """Reads "/job:NAME/replica:N/task:N/device:TYPE:N": parts in any order, each optional, "*"
        for what stays open; also "/cpu:N" and "/gpu:N". InvalidArgumentError (a ValueError) names
        the part that is wrong."""
        out = cls.__new__(cls)
        out._native = _native.DeviceSpec.from_string(spec)
        return out

    @property
    def job(self) -> str | None:
        """Name of the job."""
        return self._native.job

    @property
    def replica(self) -> int | None:
        """Index of the replica."""
        return self._native.replica

    @property
    def task(self) -> int | None:
        """Index of the task in its job."""
        return self._native.task

    @property
    def device_type(self) -> str | None:
        """ "CPU" or "GPU"."""
        return self._native.device_type

    @property
    def device_index(self) -> int | None:
        """Index of the device among those of its type."""
        return self._native.device_index

    def to_string(self) -> str:
        """The fields that are set, in one order, as TensorFlow writes them: without the index of a
        device whose type is open. from_string() gives an equal spec of all others."""
        if self.device_type is None and self.device_index is not None:
            return self.replace(device_index=None).to_string()
        return self._native.to_string()

    def replace(self, **fields: Any) -> DeviceSpec:
        """This one with other `fields`; None leaves one open."""
        unknown = set(fields) - set(_FIELDS)
        if unknown:
            raise TypeError(f"a DeviceSpec has no {sorted(unknown)}; it has {', '.join(_FIELDS)}")
        return DeviceSpec(**{name: getattr(self, name) for name in _FIELDS} | fields)

    def make_merged_spec(self, dev: DeviceSpec) -> DeviceSpec:
        """These fields, and those that `dev` sets over them."""
        out = DeviceSpec.__new__(DeviceSpec)
        out._native = self._native.merged(dev._native)
        return out

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceSpec):
            return NotImplemented
        return bool(self._native == other._native)

    def __hash__(self) -> int:
        return hash(self.to_string())

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        fields = [(name, getattr(self, name)) for name in _FIELDS]
        return f"DeviceSpec({', '.join(f'{n}={v!r}' for n, v in fields if v is not None)})"


def ps_name(task: int) -> str:
    """The full name of a parameter server, as tasks say it."""
    return f"/job:ps/replica:0/task:{task}"


def ps_device(task: int) -> str:
    """The full name of its device."""
    return f"{ps_name(task)}/device:CPU:0"
