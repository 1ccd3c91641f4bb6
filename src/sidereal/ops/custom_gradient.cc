#include "sidereal/ops/control.h"
#include "sidereal/ops/internal.h"

/// Values whose gradient is a function of the user's.
namespace sidereal::ops::internal {
namespace {

/// How the inputs of a WithGradient node are divided: values, arguments, captured.
struct Division {
  size_t values = 0;
  size_t arguments = 0;
};

Result<Division> division_of(const ir::AttrMap& attrs, size_t inputs) {
  SR_ASSIGN_OR_RETURN(const int64_t values, ir::get_attr<int64_t>(attrs, "values"));
  SR_ASSIGN_OR_RETURN(const int64_t arguments, ir::get_attr<int64_t>(attrs, "arguments"));
  const auto count = static_cast<int64_t>(inputs);
  if (values < 1 || arguments < 0 || values > count || arguments > count - values) {
    return base::invalid_argument("{} values and {} arguments among {} inputs", values, arguments,
                                  inputs);
  }
  return Division{static_cast<size_t>(values), static_cast<size_t>(arguments)};
}

/// The arguments that the outputs of the gradient function are gradients of.
Result<std::vector<size_t>> wrt_of(const ir::AttrMap& attrs, const Division& division) {
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> wrt,
                      ir::get_attr<std::vector<int64_t>>(attrs, "wrt"));
  std::vector<size_t> out;
  for (const int64_t argument : wrt) {
    if (argument < 0 || argument >= static_cast<int64_t>(division.arguments)) {
      return base::invalid_argument("there is no argument {}", argument);
    }
    out.push_back(static_cast<size_t>(argument));
  }
  return out;
}

Status infer_with_gradient(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const Division division, division_of(c.attrs, c.inputs.size()));
  SR_ASSIGN_OR_RETURN(const std::vector<size_t> wrt, wrt_of(c.attrs, division));
  SR_ASSIGN_OR_RETURN(const std::string name, ir::get_attr<std::string>(c.attrs, "gradient"));
  const ir::FunctionPtr gradient = c.graph.find_function(name);
  if (gradient == nullptr) return base::not_found("the graph holds no function '{}'", name);
  const size_t captured = c.inputs.size() - division.values - division.arguments;
  if (gradient->num_inputs() != division.values + captured ||
      gradient->num_outputs() != wrt.size()) {
    return base::invalid_argument(
        "the gradient takes {} inputs and gives {} outputs; it must take {} and give {}",
        gradient->num_inputs(), gradient->num_outputs(), division.values + captured, wrt.size());
  }
  for (size_t i = 0; i < wrt.size(); ++i) {
    const TensorSpec& of = c.inputs[division.values + wrt[i]];
    const TensorSpec& made = gradient->output(i);
    if (made.dtype == of.dtype && merge_shapes(made.shape, of.shape).ok()) continue;
    return base::invalid_argument("the gradient of argument {}, which is {}, is {}", wrt[i],
                                  ir::to_string(of), ir::to_string(made));
  }
  for (size_t i = 0; i < division.values; ++i) {
    SR_RETURN_IF_ERROR(put(c, c.inputs[i].dtype, c.inputs[i].shape));
  }
  return {};
}

Status grad_with_gradient(GradContext& c) {
  SR_ASSIGN_OR_RETURN(const Division division, division_of(c.node.attrs, c.node.inputs.size()));
  SR_ASSIGN_OR_RETURN(const std::vector<size_t> wrt, wrt_of(c.node.attrs, division));
  SR_ASSIGN_OR_RETURN(const std::string name, ir::get_attr<std::string>(c.node.attrs, "gradient"));
  ir::Builder& b = c.builder;
  std::vector<Output> args;
  for (size_t i = 0; i < division.values; ++i) {
    const Output grad = c.output_grads[i];
    args.push_back(grad.valid() ? grad : b.add("ZerosLike", {c.node.inputs[i]}));
  }
  args.insert(
      args.end(),
      c.node.inputs.begin() + static_cast<std::ptrdiff_t>(division.values + division.arguments),
      c.node.inputs.end());
  const ir::NodeId call = function_call(b, b.graph().find_function(name), args, "custom_gradient");
  for (size_t i = 0; i < wrt.size() && call.valid(); ++i) {
    (*c.input_grads)[division.values + wrt[i]] = {call, static_cast<int32_t>(i)};
  }
  return {};
}

}  // namespace

void register_custom_gradient(OpRegistry* registry) {
  registry->add(
      {.name = "WithGradient",
       .doc = "(values, arguments, captured) -> the values. Their gradient flows to the arguments, "
              "by a function (gradients of the values, captured) -> gradients of arguments "
              "(tf.custom_gradient).",
       .min_inputs = 1,
       .max_inputs = -1,
       .attrs = {{"gradient", "function", true, "What makes the gradients."},
                 {"values", "int", true, "How many inputs are values."},
                 {"arguments", "int", true, "How many inputs are arguments."},
                 {"wrt", "ints", true, "Arguments whose gradients the function gives."}},
       .infer = infer_with_gradient,
       .gradient = grad_with_gradient});
}

}  // namespace sidereal::ops::internal
