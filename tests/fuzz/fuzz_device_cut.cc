#include "sidereal/base/check.h"
#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/passes/place_devices.h"
#include "sidereal/program/compile.h"
#include "tests/fuzz/fuzz.h"

namespace {

const sidereal::ir::OpRegistry& registry() {
  static const auto* const all = [] {
    auto* made = new sidereal::ir::OpRegistry;
    sidereal::ops::register_all(made);
    return made;
  }();
  return *all;
}

sidereal::passes::Devices devices() {
  sidereal::passes::Devices out;
  for (const char* name :
       {"/job:a/replica:0/task:0/device:CPU:0", "/job:a/replica:0/task:1/device:CPU:0",
        "/job:b/replica:0/task:0/device:CPU:0"}) {
    out.all.push_back(*sidereal::ir::DeviceSpec::parse(name));
  }
  out.local = out.all[0];
  return out;
}

}  // namespace

/// The graph cut into a driver and calls.
void cut_into_calls(const sidereal::ir::Graph& graph,
                    const std::vector<sidereal::ir::Output>& fetches) {
  namespace partition = sidereal::partition;
  using Mode = partition::PullPushOptions::Mode;
  const std::string driver = devices().local.to_string();
  size_t calls = 0;
  for (const Mode mode : {Mode::kLayers, Mode::kLite}) {
    const auto parts = partition::pull_push_by_device(graph, driver, fetches, {}, registry(),
                                                      {.mode = mode, .function_nodes_max = 10000});
    SR_CHECK(parts.ok() || parts.status().code() != sidereal::StatusCode::kInternal, "{}",
             sidereal::base::message_of(parts.status()));
    if (!parts.ok()) return;
    sidereal::Status status = sidereal::ir::verify(parts->worker, registry());
    for (const auto& remote : parts->remotes) {
      if (status.ok()) status = sidereal::ir::verify(remote.graph, registry());
    }
    SR_CHECK(status.ok(), "{}", sidereal::base::message_of(status));
    SR_CHECK(mode == Mode::kLayers || parts->remotes.size() <= calls, "lite makes more calls");
    calls = parts->remotes.size();
    (void)sidereal::program::compile(*parts).ok();
  }
}

/// A graph that a client sent can be placed, cut and compiled, or there is an error; its parts are
/// whole graphs.
SR_FUZZ_TARGET(device_cut) {
  namespace ir = sidereal::ir;
  auto graph = ir::from_text(input, registry());
  if (!graph.ok()) return;
  std::vector<ir::Output> fetches;
  for (const ir::Node& node : graph->nodes()) {
    if (!node.outputs.empty()) fetches.push_back({node.id, 0});
  }
  if (!sidereal::passes::place_devices(&*graph, devices(), registry()).ok()) return;
  for (const bool fuse : {false, true}) {
    const auto parts = sidereal::partition::by_device(
        *graph, fetches, {}, registry(), {.tensor_fuse = fuse, .function_nodes_max = 10000});
    if (!parts.ok()) return;
    for (const auto& part : *parts) {
      const sidereal::Status status = ir::verify(part.graph, registry());
      SR_CHECK(status.ok(), "{}", sidereal::base::message_of(status));
      // Odd graphs have no program.
      (void)sidereal::program::compile(part).ok();
    }
  }
  cut_into_calls(*graph, fetches);
}
