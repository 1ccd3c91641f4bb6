#include "sidereal/ir/builder.h"

#include <utility>

#include "sidereal/ir/verify.h"

namespace sidereal::ir {

Builder::Scope::Scope(Builder* builder, std::string_view name)
    : builder_(builder), before_(builder->prefix_) {
  if (!is_legal_name(name)) {
    builder->fail(base::invalid_argument("scope '{}' is not a legal name: {}", name, kNameRule));
    return;
  }
  builder->prefix_ += std::string(name) + "/";
}

Builder::Scope::~Scope() { builder_->prefix_ = before_; }

void Builder::fail(const Status& status) {
  if (status_.ok()) status_ = status;
}

TensorSpec Builder::spec(Output o) const {
  if (!o.valid() || static_cast<size_t>(o.node.value) >= graph_->size()) return {};
  const Node& node = graph_->node(o.node);
  if (o.index < 0 || static_cast<size_t>(o.index) >= node.outputs.size()) return {};
  return node.outputs[o.index];
}

Output Builder::add(std::string_view op, const std::vector<Output>& inputs, AttrMap attrs,
                    std::string_view name) {
  const NodeId id = add_node(op, inputs, std::move(attrs), {}, name);
  if (!id.valid() || graph_->node(id).outputs.empty()) return {};
  return Output{id, 0};
}

NodeId Builder::add_node(std::string_view op, const std::vector<Output>& inputs, AttrMap attrs,
                         const std::vector<NodeId>& control_inputs, std::string_view name) {
  if (!status_.ok()) return {};
  const OpSchema* schema = registry_->find(op);
  if (schema == nullptr) {
    fail(base::not_found("there is no op named '{}'", op));
    return {};
  }
  const std::string wanted = prefix_ + std::string(name.empty() ? op : name);
  if (!is_legal_name(wanted)) {
    fail(base::invalid_argument("{}: '{}' is not a legal node name: {}", op, wanted, kNameRule));
    return {};
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (spec(inputs[i]).dtype == DType::kInvalid) {
      fail(base::invalid_argument("{} '{}': input {} is not an output of this graph", op, wanted,
                                  i));
      return {};
    }
  }
  for (const NodeId id : control_inputs) {
    if (id.value < 0 || static_cast<size_t>(id.value) >= graph_->size()) {
      fail(base::invalid_argument("{} '{}': a control input is not a node of this graph", op,
                                  wanted));
      return {};
    }
  }
  Node node;
  node.name = graph_->unique_name(wanted);
  node.op = std::string(op);
  node.inputs = inputs;
  node.control_inputs = control_inputs;
  node.attrs = std::move(attrs);
  if (const Status status = infer_node(*graph_, *schema, &node); !status.ok()) {
    fail(status);
    return {};
  }
  return graph_->append(std::move(node));
}

}  // namespace sidereal::ir
