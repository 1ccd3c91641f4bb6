#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/program/program.h"

namespace sidereal::program {

/// The program of one remote call, in the form in which it is registered.
struct RemoteProgram {
  std::string device;
  Program program;
  std::string bytes;  ///< encode(program).
  uint64_t hash = 0;  ///< content_hash(bytes).
};

/// The programs of one step. CallSpec::program of `worker` are the hashes of `remotes`, which stand
/// in the order of all_calls().
struct CompiledStep {
  Program worker;
  std::vector<RemoteProgram> remotes;
};

/// Schedules every graph and plans its buffers.
///
/// Schedule: what leads to a call goes first, the earliest round first, then the graph's order. A
/// call starts as soon as its feeds are there, and is waited for when nothing else is left to do.
/// Buffers: reused when their last reader has run; element-wise ops write over an input that dies
/// there. Feeds, answers of calls, variables and constants are never written; what a call sends
/// stays untouched until its answer came. NoOp nodes leave no instruction, notes (ir::is_note) no
/// attribute. Functions become bodies,
/// each once, with schedules and buffers of their own; what they return is never written.
/// Waiting: a program with an instruction that may wait parks it (Program::parks); so does one that
/// computes long before a call which may begin meanwhile.
/// Deterministic: equal graphs give equal bytes.
Result<CompiledStep> compile(const partition::PartitionedGraph& partitioned);

/// The program of one device, whose feeds are its Placeholders and whose fetches are those of the
/// partition. It runs in the order of the graph, in bodies too, but for what waits, which is parked
/// (bodies: is waited for). What is sent lies where no later instruction writes.
Result<Program> compile(const partition::DevicePartition& partition);

}  // namespace sidereal::program
