#include "sidereal/passes/cse.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/ir/function.h"
#include "sidereal/passes/internal/rewrite.h"

namespace sidereal::passes {
namespace {

/// Everything that must be equal but the attributes, in terms of the new graph.
std::string key_of(const ir::Node& node, const Rewriter& rewriter) {
  std::string key = node.op;
  for (const ir::Output& input : rewriter.map(node.inputs)) {
    key += fmt::format(" {}:{}", input.node.value, input.index);
  }
  std::vector<ir::NodeId> controls = rewriter.map(node.control_inputs);
  std::sort(controls.begin(), controls.end());
  for (const ir::NodeId control : controls) key += fmt::format(" ^{}", control.value);
  return key + "@" + node.device;
}

/// Whatever notes say: devices have been chosen, and a constant that was asked for beside each of
/// many variables is one.
bool attrs_equal(const ir::AttrMap& a, const ir::AttrMap& b) {
  const auto next = [](auto at, const ir::AttrMap& of) {
    return std::find_if(at, of.end(), [](const auto& attr) { return !ir::is_note(attr.first); });
  };
  auto x = next(a.begin(), a);
  auto y = next(b.begin(), b);
  while (x != a.end() && y != b.end()) {
    if (x->first != y->first || !ir::attr_equal(x->second, y->second)) return false;
    x = next(std::next(x), a);
    y = next(std::next(y), b);
  }
  return x == a.end() && y == b.end();
}

}  // namespace

Result<StepGraph> merge_common_subexpressions(const StepGraph& step,
                                              const ir::OpRegistry& registry) {
  Rewriter rewriter(step.graph);
  absl::flat_hash_map<std::string, std::vector<ir::NodeId>> seen;
  for (const ir::Node& node : step.graph.nodes()) {
    if (registry.find(node.op) == nullptr) {
      return base::not_found("node '{}': there is no op named '{}'", node.name, node.op);
    }
    if (node.op == "Placeholder" || ir::is_stateful(step.graph, node, registry)) {
      rewriter.copy(node);
      continue;
    }
    std::vector<ir::NodeId>& alike = seen[key_of(node, rewriter)];
    const auto same = std::find_if(alike.begin(), alike.end(), [&](ir::NodeId id) {
      return attrs_equal(rewriter.graph().node(id).attrs, node.attrs);
    });
    if (same == alike.end()) {
      alike.push_back(rewriter.copy(node));
    } else {
      rewriter.replace(node.id, *same);
    }
  }
  return rewriter.finish(step);
}

}  // namespace sidereal::passes
