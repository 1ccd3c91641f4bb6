#include "sidereal/passes/prune.h"

#include <vector>

#include "sidereal/ir/function.h"
#include "sidereal/ir/needed.h"
#include "sidereal/passes/internal/rewrite.h"

namespace sidereal::passes {
namespace {

Status check_roots(const StepGraph& step) {
  const auto size = static_cast<int32_t>(step.graph.size());
  for (size_t i = 0; i < step.fetches.size(); ++i) {
    const ir::Output fetch = step.fetches[i];
    if (fetch.node.value < 0 || fetch.node.value >= size) {
      return base::invalid_argument("fetch {} is not a node of the graph", i);
    }
    const ir::Node& node = step.graph.node(fetch.node);
    if (fetch.index < 0 || static_cast<size_t>(fetch.index) >= node.outputs.size()) {
      return base::invalid_argument("fetch {} is output {} of '{}' ({}), which has {} outputs{}", i,
                                    fetch.index, node.name, node.op, node.outputs.size(),
                                    node.outputs.empty() ? "; make it a target instead" : "");
    }
  }
  for (size_t i = 0; i < step.targets.size(); ++i) {
    if (step.targets[i].value < 0 || step.targets[i].value >= size) {
      return base::invalid_argument("target {} is not a node of the graph", i);
    }
  }
  return {};
}

}  // namespace

Result<StepGraph> prune(const StepGraph& step) {
  SR_RETURN_IF_ERROR(check_roots(step));
  const std::vector<bool> needed = ir::needed_for(step.graph, step.fetches, step.targets);
  Rewriter rewriter(step.graph);
  for (const ir::Node& node : step.graph.nodes()) {
    // The inputs of a function stay, read or not: its callers give them.
    if (needed[node.id.value] || node.op == ir::kArgOp) rewriter.copy(node);
  }
  return rewriter.finish(step);
}

}  // namespace sidereal::passes
