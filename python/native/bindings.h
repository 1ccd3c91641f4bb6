#pragma once

#include <nanobind/nanobind.h>

/// What each file of the extension adds to the module. Arguments and results are converted here and
/// nowhere else; there is no logic in this layer.
namespace sidereal::python {

/// ClusterSpec, DeviceSpec, Announcement.
void bind_cluster(nanobind::module_& m);

/// What is told in the event log.
void bind_events(nanobind::module_& m);
void bind_checkpoint(nanobind::module_& m);
/// report_crashes.
void bind_crash_report(nanobind::module_& m);
/// Tensor, Engine, DLPack.
void bind_eager(nanobind::module_& m);
/// Output, Graph, Function.
void bind_trace(nanobind::module_& m);
/// Body, nodes that run functions.
void bind_control(nanobind::module_& m);
/// DatasetDefinition, DatasetReading.
void bind_dataset(nanobind::module_& m);
/// What graphs and bodies are made of.
void bind_inspect(nanobind::module_& m);
/// Follower.
void bind_follower(nanobind::module_& m);
/// SavedModel.
void bind_saved_model(nanobind::module_& m);
/// Model, ops, layers, optimizers, CompiledModel.
void bind_graph(nanobind::module_& m);
/// run_loop, Batches.
void bind_loops(nanobind::module_& m);
/// ClusterCoordinator, RemoteValue.
void bind_coordinator(nanobind::module_& m);
/// JobLease, VariableMoves, spread.
void bind_moves(nanobind::module_& m);
/// Models that are served, over gRPC too.
void bind_serving(nanobind::module_& m);
/// Server, RemoteSession.
void bind_sessions(nanobind::module_& m);
/// Tape.
void bind_tape(nanobind::module_& m);
/// Cell, UpdateRule.
void bind_variable(nanobind::module_& m);
/// Schema, clusters, Trainer and its results.
void bind_training(nanobind::module_& m);

}  // namespace sidereal::python
