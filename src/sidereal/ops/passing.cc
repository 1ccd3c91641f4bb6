#include "sidereal/ir/component_specs.h"
#include "sidereal/ops/internal.h"

/// Ops that pass tensors between the parts of a graph that run on different devices. Graphs are cut
/// with them; people do not write them.
namespace sidereal::ops::internal {
namespace {

Status infer_recv(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(*c.outputs, ir::component_specs(c.attrs));
  if (c.outputs->empty()) return base::invalid_argument("nothing comes: 'dtypes' is empty");
  return {};
}

std::vector<ir::AttrSpec> edge_attrs() {
  return {{"edge", "int", true, "Number of the edge, the same at both ends."},
          {"peer", "int", true,
           "Number of the device at the other end; who runs the graph says which device that is."},
          {"tensor_name", "string", true, "What is passed first, for messages."}};
}

}  // namespace

void register_passing(OpRegistry* registry) {
  registry->add(
      {.name = "Send",
       .doc = "Leaves its inputs for the `Recv` of this edge, on another device: one message.",
       .min_inputs = 1,
       .max_inputs = -1,
       .attrs = edge_attrs(),
       .infer = [](const InferContext&) -> Status { return {}; },
       .differentiable = false,
       .stateful = true,
       .effect = true});
  std::vector<ir::AttrSpec> attrs = edge_attrs();
  attrs.push_back({"dtypes", "strings", true, "Names of the dtypes of what comes."});
  attrs.push_back({"shapes", "ints", true,
                   "Of each of what comes, as far as they are known: its rank (-1: unknown), then "
                   "its extents (-1: unknown)."});
  registry->add({.name = "Recv",
                 .doc = "Waits for what the `Send` of this edge leaves, on another device.",
                 .min_inputs = 0,
                 .max_inputs = 0,
                 .attrs = std::move(attrs),
                 .infer = infer_recv,
                 .differentiable = false,
                 .stateful = true,
                 .effect = true});
}

}  // namespace sidereal::ops::internal
