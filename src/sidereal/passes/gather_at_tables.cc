#include "sidereal/passes/gather_at_tables.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "sidereal/tensor/dtype.h"

namespace sidereal::passes {

using ir::Node;
using ir::NodeId;
using ir::Output;

namespace {

constexpr int64_t kSmallBytes = 4096;

bool takes_rows(std::string_view op) {
  return op == "Gather" || op == "SparseSegmentSum" || op == "SparseSegmentMean" ||
         op == "SparseSegmentSqrtN";
}

bool is_small(const ir::TensorSpec& spec) {
  if (spec.dtype == ir::DType::kString || !spec.shape.is_fully_defined()) return false;
  return spec.shape.num_elements() * static_cast<int64_t>(tensor::size_of(spec.dtype)) <=
         kSmallBytes;
}

}  // namespace

Result<StepGraph> gather_at_tables(const StepGraph& step) {
  StepGraph out = step;
  std::vector<std::vector<NodeId>> readers(step.graph.size());
  for (const Node& node : step.graph.nodes()) {
    for (const Output& input : node.inputs) readers[input.node.value].push_back(node.id);
  }
  for (const Node& read : step.graph.nodes()) {
    if (read.op != "VariableRead" || read.device.empty() || is_small(read.outputs[0])) continue;
    if (std::find(step.fetches.begin(), step.fetches.end(), Output{read.id, 0}) !=
        step.fetches.end()) {
      continue;
    }
    const auto wants_rows = [&](NodeId id) {
      const Node& node = step.graph.node(id);
      if (node.device == read.device) return true;
      // As the table, not as the indices too.
      return takes_rows(node.op) && !node.device.empty() && node.inputs[0].node == read.id &&
             std::count(node.inputs.begin(), node.inputs.end(), Output{read.id, 0}) == 1;
    };
    const std::vector<NodeId>& all = readers[read.id.value];
    if (!std::all_of(all.begin(), all.end(), wants_rows)) continue;
    for (const NodeId id : all) out.graph.mutable_node(id).device = read.device;
  }
  return out;
}

}  // namespace sidereal::passes
