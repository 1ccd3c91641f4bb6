#include "sidereal/ops/ops.h"

#include <string>
#include <utility>

#include "sidereal/ops/args.h"
#include "sidereal/ops/internal.h"

namespace sidereal::ops {

using ir::Builder;
using ir::Output;

void register_all(ir::OpRegistry* registry) {
  internal::register_state(registry);
  internal::register_updates(registry);
  internal::register_lookups(registry);
  internal::register_arithmetic(registry);
  internal::register_functions_of_one(registry);
  internal::register_logic(registry);
  internal::register_reductions(registry);
  internal::register_shape_ops(registry);
  internal::register_array(registry);
  internal::register_nn(registry);
  internal::register_softmax(registry);
  internal::register_random(registry);
  internal::register_checks(registry);
  internal::register_strings(registry);
  internal::register_parsing(registry);
  internal::register_sharding(registry);
  internal::register_control(registry);
  internal::register_passing(registry);
  internal::register_custom_gradient(registry);
  internal::register_fused(registry);
  internal::register_resources(registry);
  internal::register_checkpoints(registry);
  internal::register_variables(registry);
  internal::register_embeddings(registry);
  internal::register_initial_value(registry);
}

Output placeholder(Builder& b, std::string_view name, ir::DType dtype, const ir::Shape& shape) {
  return b.add("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}}, name);
}

Output constant(Builder& b, const ir::Tensor& value, std::string_view name) {
  return b.add("Const", {}, {{"value", value}}, name);
}

Output scalar(Builder& b, ir::DType dtype, double value, std::string_view name) {
  return constant(b, ir::Tensor::scalar_of(dtype, value), name);
}

Output initial_value(Builder& b, const Initializer& how, std::string_view variable,
                     const ir::Shape& shape, int64_t part, int64_t parts, std::string_view name) {
  return b.add("InitialValue", {},
               {{"shape", shape},
                {"kind", how.kind},
                {"a", how.a},
                {"b", how.b},
                {"seed", static_cast<int64_t>(how.seed)},
                {"name", std::string(variable)},
                {"part", part},
                {"parts", parts}},
               name);
}

ir::NodeId no_op(Builder& b, const std::vector<ir::NodeId>& after, std::string_view name) {
  return b.add_node("NoOp", {}, {}, after, name);
}

#define SR_UNARY_OP(function, op) \
  Output function(Builder& b, Output x, std::string_view name) { return b.add(op, {x}, {}, name); }
#define SR_BINARY_OP(function, op)                                         \
  Output function(Builder& b, Output x, Output y, std::string_view name) { \
    return b.add(op, {x, y}, {}, name);                                    \
  }

SR_UNARY_OP(identity, "Identity")
SR_UNARY_OP(stop_gradient, "StopGradient")
SR_BINARY_OP(add, "Add")
SR_BINARY_OP(sub, "Sub")
SR_BINARY_OP(mul, "Mul")
SR_BINARY_OP(div, "Div")
SR_BINARY_OP(maximum, "Maximum")
SR_BINARY_OP(minimum, "Minimum")
SR_UNARY_OP(neg, "Neg")
SR_UNARY_OP(exp, "Exp")
SR_UNARY_OP(log, "Log")
SR_UNARY_OP(log1p, "Log1p")
SR_UNARY_OP(sqrt, "Sqrt")
SR_UNARY_OP(square, "Square")
SR_UNARY_OP(abs, "Abs")
SR_UNARY_OP(sign, "Sign")
SR_UNARY_OP(sigmoid, "Sigmoid")
SR_UNARY_OP(tanh, "Tanh")
SR_UNARY_OP(relu, "Relu")
SR_UNARY_OP(softplus, "Softplus")
SR_UNARY_OP(ones_like, "OnesLike")
SR_UNARY_OP(zeros_like, "ZerosLike")
SR_BINARY_OP(bias_add, "BiasAdd")
SR_BINARY_OP(reshape_like, "ReshapeLike")
SR_BINARY_OP(sigmoid_cross_entropy_with_logits, "SigmoidCrossEntropyWithLogits")
SR_UNARY_OP(fm_interaction, "FmInteraction")
#undef SR_UNARY_OP
#undef SR_BINARY_OP

Output cast(Builder& b, Output x, ir::DType dtype, std::string_view name) {
  return b.add("Cast", {x}, {{"dtype", dtype}}, name);
}

Output add_n(Builder& b, const std::vector<Output>& xs, std::string_view name) {
  return b.add("AddN", xs, {}, name);
}

Output mat_mul(Builder& b, Output x, Output w, bool ta, bool tb, std::string_view name) {
  return b.add("MatMul", {x, w}, {{"transpose_a", ta}, {"transpose_b", tb}}, name);
}

namespace {

/// `axes` with every dimension named when none is and the rank is known.
Output reduce(Builder& b, std::string_view op, Output x, std::vector<int64_t> axes, bool keep_dims,
              std::string_view name) {
  const ir::Shape shape = b.spec(x).shape;
  if (axes.empty() && shape.has_rank()) {
    for (int i = 0; i < shape.rank(); ++i) axes.push_back(i);
  }
  return b.add(op, {x}, {{"axes", std::move(axes)}, {"keep_dims", keep_dims}}, name);
}

}  // namespace

Output reduce_sum(Builder& b, Output x, const std::vector<int64_t>& axes, bool keep_dims,
                  std::string_view name) {
  return reduce(b, "ReduceSum", x, axes, keep_dims, name);
}

Output reduce_mean(Builder& b, Output x, const std::vector<int64_t>& axes, bool keep_dims,
                   std::string_view name) {
  return reduce(b, "ReduceMean", x, axes, keep_dims, name);
}

Output reshape(Builder& b, Output x, const std::vector<int64_t>& shape, std::string_view name) {
  return b.add("Reshape", {x}, {{"shape", shape}}, name);
}

Output concat(Builder& b, const std::vector<Output>& xs, int64_t axis, std::string_view name) {
  return b.add("Concat", xs, {{"axis", axis}}, name);
}

Output slice_axis(Builder& b, Output x, int64_t axis, int64_t begin, int64_t size,
                  std::string_view name) {
  return b.add("SliceAxis", {x}, {{"axis", axis}, {"begin", begin}, {"size", size}}, name);
}

Output pad_axis(Builder& b, Output x, int64_t axis, int64_t before, int64_t after,
                std::string_view name) {
  return b.add("PadAxis", {x}, {{"axis", axis}, {"before", before}, {"after", after}}, name);
}

Output dropout(Builder& b, Output x, double rate, int64_t seed, bool training,
               std::string_view name) {
  return b.add("Dropout", {x}, {{"rate", rate}, {"seed", seed}, {"training", training}}, name);
}

}  // namespace sidereal::ops
