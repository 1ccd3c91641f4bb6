"""Variables of a strategy go to other parameter servers while its coordinator has workers train, as
`sidereal scale`, `drain` and `rebalance` say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .. import _native, errors, v1
from ..v1.moving import HOLD_S, Group, HeldVariable, Move, Mover, locked
from ._cluster_variable import ClusterVariable

if TYPE_CHECKING:
    from ._recovery import Recovery
    from .parameter_server_strategy import ParameterServerStrategy


class StrategyMover(Mover):
    """Moves the variables of a strategy while functions of its coordinator run."""

    def __init__(
        self, strategy: ParameterServerStrategy, native: _native.ClusterCoordinator,
        ended: threading.Event, recovery: Recovery | None,
    ) -> None:  # fmt: skip
        super().__init__(ended, strategy._autoscale)
        self._strategy = strategy
        self._native = native
        self._recovery = recovery

    # --- What it has.

    def _cluster(self) -> _native.ClusterSpec:
        return self._strategy._resolver.cluster_spec()._native

    def _state_group(self) -> str:
        return self._strategy._group

    def _config_at(self, task: int | None, timeout_ms: int) -> v1.ConfigProto:
        strategy = self._strategy
        if task is not None:
            return strategy._config_at(task, timeout_ms)
        config = strategy._session_config()
        config.connect_timeout_in_ms = timeout_ms
        return config

    def _used(self) -> list[int]:
        return self._strategy._used_ps

    def _groups(self) -> list[Group]:
        self._strategy._give_first_values()
        return list(self._by_name().values())

    def _by_name(self) -> dict[str, Group]:
        strategy = self._strategy
        with strategy._lock:
            variables = list(strategy._all.values())
        task_of = {strategy._ps_device(task): task for task in strategy._ps}
        groups: dict[str, Group] = {}
        for variable in variables:
            first = _first_of(variable)
            name = _name_of(first)
            group = groups.setdefault(name, Group(name, task_of[first.device]))
            shape = tuple(variable.shape)
            group.variables.append(HeldVariable(_name_of(variable), variable.dtype, shape))
        return groups

    # --- A move.

    @contextmanager
    def _prepared(self, used: Sequence[int]) -> Iterator[None]:
        strategy, recovery = self._strategy, self._recovery
        before = list(strategy._used_ps)
        strategy._placing_ps = [task for task in before if task in used]
        try:
            if recovery is not None:
                recovery.use([*before, *(task for task in used if task not in before)])
            yield
        finally:
            strategy._placing_ps = list(strategy._used_ps)
            if recovery is not None:
                recovery.use(strategy._used_ps)

    @contextmanager
    def _held(self, check: Callable[[], object]) -> Iterator[None]:
        why: list[BaseException] = []

        def goes_on() -> bool:
            try:
                check()
            except BaseException as error:  # noqa: BLE001 - raised below.
                why.append(error)
            return not why

        try:
            self._native.hold(int(HOLD_S * 1000), goes_on)
        except errors.CancelledError:
            if why:
                raise why[0] from None
            raise
        try:
            strategy = self._strategy
            with locked(strategy._lock, HOLD_S, "a function was being traced"):
                with strategy._gate.closed(HOLD_S, check):
                    yield
        finally:
            if not self._ended.is_set():
                self._native.go_on()

    def _check_groups(self, moves: Sequence[Move], used: Sequence[int]) -> None:
        moving = {move.group.name: move.group for move in moves}
        for name, group in self._by_name().items():
            if name in moving:
                is_known = len(group.variables) == len(moving[name].variables)
            else:
                is_known = group.task in used
            if not is_known:
                raise errors.AbortedError(
                    f"variables were made beside '{name}' meanwhile: give the command again"
                )

    def _place(self, moves: Sequence[Move], used: list[int]) -> None:
        self._place_at(self._moved_by(moves), used)

    def _place_back(self) -> None:
        self._place_at(self._strategy._moved, self._strategy._used_ps)

    def _place_at(self, moved: dict[str, str], used: list[int]) -> None:
        session = self._strategy._session
        getattr(session, "inner", session)._runner.place(self._strategy._overrides_of(moved, used))

    def _moved_by(self, moves: Sequence[Move]) -> dict[str, str]:
        """Where variables are after the moves that are not where their graph says."""
        moved = dict(self._strategy._moved)
        for move in moves:
            for variable in move.group.variables:
                moved[variable.name] = self._strategy._ps_device(move.to_task)
        return moved

    def _settle(self, moves: Sequence[Move], used: list[int]) -> None:
        strategy = self._strategy
        moved = self._moved_by(moves)
        strategy._take_places(moved, used)
        with strategy._lock:
            for variable in strategy._all.values():
                variable.device = moved.get(_name_of(variable), variable.device)
        self._native.place(strategy._overrides_of(moved, used))


def _first_of(variable: ClusterVariable) -> ClusterVariable:
    """What a variable was made beside."""
    while variable._made_beside is not None:
        variable = variable._made_beside
    return variable


def _name_of(variable: ClusterVariable) -> str:
    """As tasks know it."""
    return variable._handle.node_name
