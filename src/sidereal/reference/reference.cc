#include "sidereal/reference/reference.h"

#include "sidereal/ir/needed.h"
#include "sidereal/reference/value.h"

namespace sidereal::reference {
namespace {

using internal::Value;
using ir::Node;

/// The result must be what the schema's inference promised.
Status check_outputs(const Node& node, const std::vector<Value>& outputs) {
  if (outputs.size() != node.outputs.size()) return base::internal("wrong number of outputs");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ir::TensorSpec& spec = node.outputs[i];
    if (outputs[i].dtype == spec.dtype && spec.shape.accepts(outputs[i].shape)) continue;
    return base::internal("output {} is {}; inference said {}", i,
                          ir::to_string({outputs[i].dtype, outputs[i].shape}), ir::to_string(spec));
  }
  return {};
}

internal::Functions all_functions() {
  internal::Functions functions;
  internal::add_elementwise(&functions);
  internal::add_structure(&functions);
  internal::add_tables(&functions);
  return functions;
}

}  // namespace

bool knows(std::string_view op) {
  static const internal::Functions kFunctions = all_functions();
  return kFunctions.find(op) != kFunctions.end();
}

Result<std::vector<ir::Tensor>> evaluate(const ir::Graph& graph, const Request& request) {
  const internal::Functions functions = all_functions();
  const std::vector<bool> needed = ir::needed_for(graph, request.fetches, request.targets);
  std::vector<std::vector<Value>> values(graph.size());
  for (const Node& node : graph.nodes()) {
    if (!needed[node.id.value]) continue;
    const auto function = functions.find(node.op);
    if (function == functions.end()) {
      return base::unimplemented("the reference does not know {} ('{}')", node.op, node.name);
    }
    internal::Call call{graph, node, request, {}, &values[node.id.value]};
    for (const ir::Output& input : node.inputs) {
      call.inputs.push_back(&values[input.node.value][input.index]);
    }
    // References into outputs are taken one after another; reserve keeps them valid.
    call.outputs->reserve(node.outputs.size());
    Status status = function->second(call);
    if (status.ok()) status = check_outputs(node, *call.outputs);
    SR_RETURN_IF_ERROR(base::with_context(status, node.op + " '" + node.name + "'"));
  }
  std::vector<ir::Tensor> out;
  for (const ir::Output& o : request.fetches) {
    out.push_back(internal::to_tensor(values[o.node.value][o.index]));
  }
  return out;
}

}  // namespace sidereal::reference
