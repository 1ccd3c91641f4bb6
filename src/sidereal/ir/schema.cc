#include "sidereal/ir/schema.h"

#include <algorithm>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/base/strings.h"

namespace sidereal::ir {
namespace {

const AttrSpec* find_spec(const OpSchema& schema, std::string_view name) {
  for (const AttrSpec& spec : schema.attrs) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

std::string known_attrs(const OpSchema& schema) {
  std::vector<std::string> names;
  for (const AttrSpec& spec : schema.attrs) names.push_back(spec.name);
  return names.empty() ? "none" : base::join(names, ", ");
}

/// `name` must be that of a function of `graph`.
Status check_function(const Graph& graph, const std::string& attr, const AttrValue& value) {
  const auto* name = std::get_if<std::string>(&value);
  if (name != nullptr && graph.find_function(*name) != nullptr) return {};
  if (name != nullptr) {
    return base::not_found("attribute '{}' names function '{}', which the graph does not hold",
                           attr, *name);
  }
  return base::invalid_argument("attribute '{}' is of type {}; it must be a function's name", attr,
                                attr_type_name(value));
}

/// What holds for an attribute of every op.
Status check_content(const std::string& name, const AttrValue& value) {
  if (const auto* t = std::get_if<Tensor>(&value); t != nullptr && !t->defined()) {
    return base::invalid_argument("attribute '{}' is an undefined tensor", name);
  }
  if (const Shape* shape = std::get_if<Shape>(&value)) {
    return base::with_context(check_shape(*shape), "attribute '" + name + "'");
  }
  return {};
}

/// Checks presence and types; an int stands for a float and becomes one.
Status check_attrs(const Graph& graph, const OpSchema& schema, AttrMap* attrs) {
  for (auto& [name, value] : *attrs) {
    if (is_note(name)) {
      SR_RETURN_IF_ERROR(check_content(name, value));
      continue;
    }
    const AttrSpec* spec = find_spec(schema, name);
    if (spec == nullptr) {
      return base::invalid_argument("no attribute '{}' is known; the op takes: {}", name,
                                    known_attrs(schema));
    }
    if (spec->type == "float" && std::holds_alternative<int64_t>(value)) {
      value = static_cast<double>(std::get<int64_t>(value));
    }
    if (spec->type == "function") {
      SR_RETURN_IF_ERROR(check_function(graph, name, value));
      continue;
    }
    if (spec->type != attr_type_name(value)) {
      return base::invalid_argument("attribute '{}' is of type {}; it must be of type {}", name,
                                    attr_type_name(value), spec->type);
    }
    SR_RETURN_IF_ERROR(check_content(name, value));
  }
  for (const AttrSpec& spec : schema.attrs) {
    if (spec.required && !attrs->contains(spec.name)) {
      return base::invalid_argument("attribute '{}' ({}) is missing", spec.name, spec.type);
    }
  }
  return {};
}

Status check_arity(const OpSchema& schema, size_t count) {
  const auto min = static_cast<size_t>(schema.min_inputs);
  if (schema.max_inputs < 0) {
    if (count >= min) return {};
    return base::invalid_argument("{} inputs given; at least {} needed", count, min);
  }
  const auto max = static_cast<size_t>(schema.max_inputs);
  if (count >= min && count <= max) return {};
  if (min == max) return base::invalid_argument("{} inputs given; exactly {} needed", count, min);
  return base::invalid_argument("{} inputs given; {} to {} needed", count, min, max);
}

}  // namespace

Status check_shape(const Shape& shape) {
  if (!shape.has_rank()) return {};
  if (shape.rank() > kMaxRank) {
    return base::invalid_argument("a shape of rank {} is more than the {} dimensions allowed",
                                  shape.rank(), kMaxRank);
  }
  int64_t product = 1;
  for (const int64_t extent : shape.dims()) {
    if (extent < -1) {
      return base::invalid_argument("shape {} has a negative extent", shape.to_string());
    }
    if (extent > kMaxElements || std::max<int64_t>(extent, 1) > kMaxElements / product) {
      return base::invalid_argument("shape {} has more than 2^48 elements", shape.to_string());
    }
    product *= std::max<int64_t>(extent, 1);
  }
  return {};
}

const Tensor* InferContext::constant(size_t i) const {
  if (edges == nullptr || i >= edges->size()) return nullptr;
  const Node& from = graph.node((*edges)[i].node);
  return from.op == "Const" ? find_attr<Tensor>(from.attrs, "value") : nullptr;
}

std::string InferContext::describe() const {
  constexpr size_t kInputsMax = 16;
  return fmt::format(
      "{} '{}' ({})", schema.name, node_name,
      base::some_of(inputs, kInputsMax, [](const auto& input) { return to_string(input); }));
}

void OpRegistry::add(OpSchema schema) {
  SR_CHECK(schema.infer != nullptr, "op '{}' has no inference", schema.name);
  const std::string name = schema.name;
  const bool added = schemas_.try_emplace(name, std::move(schema)).second;
  SR_CHECK(added, "op '{}' is registered twice", name);
}

const OpSchema* OpRegistry::find(std::string_view name) const {
  const auto it = schemas_.find(std::string(name));
  return it == schemas_.end() ? nullptr : &it->second;
}

std::vector<std::string> OpRegistry::names() const {
  std::vector<std::string> out;
  for (const auto& [name, schema] : schemas_) out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

Status infer_node(const Graph& graph, const OpSchema& schema, Node* node) {
  std::vector<TensorSpec> inputs;
  inputs.reserve(node->inputs.size());
  for (const Output& input : node->inputs) inputs.push_back(graph.spec(input));
  std::vector<TensorSpec> outputs;
  const InferContext context{graph,       schema,   node->name,   inputs,
                             node->attrs, &outputs, &node->inputs};
  Status status = check_arity(schema, inputs.size());
  if (status.ok()) status = check_attrs(graph, schema, &node->attrs);
  if (status.ok()) status = schema.infer(context);
  for (size_t i = 0; status.ok() && i < outputs.size(); ++i) {
    status = check_shape(outputs[i].shape);
  }
  if (!status.ok()) return base::with_context(status, context.describe());
  node->outputs = std::move(outputs);
  return {};
}

}  // namespace sidereal::ir
