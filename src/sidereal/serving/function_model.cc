#include "sidereal/serving/function_model.h"

#include <utility>

#include "sidereal/ir/function.h"

namespace sidereal::serving {

using eager::Value;

FunctionModel::FunctionModel(const eager::FunctionDef& def, std::vector<Tensor> captures,
                             int threads)
    : function_(std::make_shared<eager::LocalFunction>(def)) {
  engine_.context().set_intra_op_threads(threads);
  captures_.reserve(captures.size());
  for (Tensor& one : captures) captures_.push_back(engine_.wrap(std::move(one)));
}

Result<std::unique_ptr<FunctionModel>> FunctionModel::create(const eager::FunctionDef& def,
                                                             std::vector<Tensor> captures,
                                                             int intra_op_threads) {
  if (captures.size() > def.inputs.size()) {
    return base::invalid_argument("function '{}' takes {} inputs, and {} values are for them",
                                  def.name, def.inputs.size(), captures.size());
  }
  std::unique_ptr<FunctionModel> made(
      new FunctionModel(def, std::move(captures), intra_op_threads));
  for (const ir::Node& node : def.graph.nodes()) {
    if (!ir::is_stateful(def.graph, node, made->engine_.context().registry())) continue;
    return base::failed_precondition("function '{}': {} '{}' works on what lives elsewhere",
                                     def.name, node.op, node.name);
  }
  // Compiled now: the first request need not wait for it.
  SR_RETURN_IF_ERROR(made->function_->program_text(made->engine_).status());
  return made;
}

Result<Columns> FunctionModel::call(const Columns& columns) {
  std::vector<Value> given;
  given.reserve(columns.size());
  for (const Tensor& column : columns) given.push_back(engine_.wrap(column));
  std::vector<const Value*> inputs;
  inputs.reserve(given.size() + captures_.size());
  for (const Value& value : given) inputs.push_back(&value);
  for (const Value& value : captures_) inputs.push_back(&value);
  SR_ASSIGN_OR_RETURN(std::vector<Value> outputs, function_->call_within(engine_, inputs, {}));
  Columns out;
  out.reserve(outputs.size());
  for (Value& value : outputs) out.push_back(std::move(value.tensor));
  return out;
}

}  // namespace sidereal::serving
