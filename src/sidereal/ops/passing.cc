#include "sidereal/ops/internal.h"

/// Ops that pass tensors between the parts of a graph that run on different devices. Graphs are cut
/// with them; people do not write them.
namespace sidereal::ops::internal {
namespace {

Status infer_recv(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const auto dtype, ir::get_attr<DType>(c.attrs, "dtype"));
  SR_ASSIGN_OR_RETURN(const auto shape, ir::get_attr<Shape>(c.attrs, "shape"));
  return put(c, dtype, shape);
}

std::vector<ir::AttrSpec> edge_attrs() {
  return {{"edge", "int", true, "Number of the edge, the same at both ends."},
          {"tensor_name", "string", true, "What is passed, for messages."},
          {"send_device", "string", true, "Full name of the device it comes from."},
          {"send_device_incarnation", "int", false,
           "Of the start of that device's task; 0, any, if absent."},
          {"recv_device", "string", true, "Full name of the device it goes to."}};
}

}  // namespace

void register_passing(OpRegistry* registry) {
  registry->add({.name = "Send",
                 .doc = "Leaves its input for the `Recv` of this edge, on another device.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = edge_attrs(),
                 .infer = [](const InferContext&) -> Status { return {}; },
                 .differentiable = false,
                 .stateful = true,
                 .effect = true});
  std::vector<ir::AttrSpec> attrs = edge_attrs();
  attrs.push_back({"dtype", "dtype", true, "Of what comes."});
  attrs.push_back({"shape", "shape", true, "Of what comes, as far as it is known."});
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
