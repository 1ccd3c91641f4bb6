"""What sessions of a training need beside the model: how it is initialised, when it is ready, how
it is saved (tf.compat.v1.train.Scaffold)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from . import summary as _summary
from .graph import GraphKeys, add_to_collection, building, get_collection, get_default_graph, group
from .saver import Saver
from .variables import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
    tables_initializer,
)

_log = logging.getLogger("sidereal")


class Scaffold:
    """The parts of a training that sessions need (tf.compat.v1.train.Scaffold); finalize() makes
    those that are not given, or takes them from the graph's collections.

    init_op, init_feed_dict: what gives variables initial values, and what it is fed.
    init_fn: a function (scaffold, session) that is called after it.
    ready_op: the names of what is not ready; empty when all variables have values.
    ready_for_local_init_op: the same of what local_init_op needs.
    local_init_op, local_init_feed_dict: what each session runs for what belongs to its task.
    summary_op: the summaries that SummarySaverHook writes.
    saver: a Saver; of all variables, if absent.
    copy_from_scaffold: another one whose parts are taken where none are given.
    incremental_save_restore: of the Saver that is made, if none is given.
    """

    def __init__(
        self,
        init_op: Any = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Scaffold, Any], object] | None = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        local_init_op: Any = None,
        summary_op: Any = None,
        saver: Any = None,
        copy_from_scaffold: Scaffold | None = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
        incremental_save_restore: bool = False,
    ) -> None:
        if copy_from_scaffold is not None and not isinstance(copy_from_scaffold, Scaffold):
            raise TypeError("copy_from_scaffold is not a Scaffold instance.")
        other = copy_from_scaffold

        def either(given: Any, name: str) -> Any:
            return getattr(other, name) if given is None and other is not None else given

        self.init_op = either(init_op, "init_op")
        self.init_feed_dict = either(init_feed_dict, "init_feed_dict")
        self.init_fn = either(init_fn, "init_fn")
        self.ready_op = either(ready_op, "ready_op")
        self.ready_for_local_init_op = either(ready_for_local_init_op, "ready_for_local_init_op")
        self.local_init_op = either(local_init_op, "local_init_op")
        self.local_init_feed_dict = either(local_init_feed_dict, "local_init_feed_dict")
        self.summary_op = either(summary_op, "summary_op")
        self.saver = either(saver, "saver")
        self.incremental_save_restore: bool = incremental_save_restore or (
            other is not None and other.incremental_save_restore
        )

    def finalize(self) -> Scaffold:
        """Makes what is missing. The graph is final then."""
        with building():
            if self.init_op is None:
                self.init_op = self.get_or_default(
                    "init_op", GraphKeys.INIT_OP, global_variables_initializer
                )
            if self.ready_op is None:
                self.ready_op = self.get_or_default(
                    "ready_op", GraphKeys.READY_OP, report_uninitialized_variables
                )
            if self.ready_for_local_init_op is None:
                self.ready_for_local_init_op = self.get_or_default(
                    "ready_for_local_init_op", GraphKeys.READY_FOR_LOCAL_INIT_OP,
                    lambda: report_uninitialized_variables(
                        global_variables(), name="report_uninitialized_global_variables"
                    ),
                )  # fmt: skip
            if self.local_init_op is None:
                self.local_init_op = self.get_or_default(
                    "local_init_op", GraphKeys.LOCAL_INIT_OP, Scaffold.default_local_init_op
                )
            if self.summary_op is None:
                self.summary_op = self.get_or_default(
                    "summary_op", GraphKeys.SUMMARY_OP, _summary.merge_all
                )
            if self.saver is None:
                self.saver = self.get_or_default(
                    "saver", GraphKeys.SAVERS,
                    lambda: Saver(
                        sharded=True, allow_empty=True,
                        incremental_save_restore=self.incremental_save_restore,
                    ),
                )  # fmt: skip
        self.saver.build()
        get_default_graph().finalize()
        _log.info("the graph is final")
        return self

    @staticmethod
    def get_or_default(
        arg_name: str, collection_key: str, default_constructor: Callable[[], Any]
    ) -> Any:
        """What a collection of the default graph has, which must not be several things; else what
        is made, which is in the collection then."""
        found = get_collection(collection_key)
        if len(found) > 1:
            raise RuntimeError(
                f'More than one item in the collection "{collection_key}". Please indicate which '
                "one to use by passing it to the tf.Scaffold constructor as: "
                f"tf.Scaffold({arg_name}=item to use)"
            )
        if found:
            return found[0]
        made = default_constructor()
        if made is not None:
            add_to_collection(collection_key, made)
        return made

    @staticmethod
    def default_local_init_op() -> Any:
        """Initialises local variables and tables."""
        return group(local_variables_initializer(), tables_initializer())
