#include "sidereal/ops/args.h"

#include <utility>

namespace sidereal::ops::internal {
namespace {

constexpr size_t kConstantMax = 4096;  // Values of longer constants are not looked at.

bool is_index(DType dtype) { return dtype == DType::kInt32 || dtype == DType::kInt64; }

std::vector<int64_t> values_of(const Tensor& t) {
  std::vector<int64_t> out;
  if (t.dtype() == DType::kInt64) {
    const auto data = t.data<const int64_t>();
    out.assign(data.begin(), data.end());
  } else {
    const auto data = t.data<const int32_t>();
    out.assign(data.begin(), data.end());
  }
  return out;
}

/// The argument as tensor input `input`.
Result<IntsArg> from_input(const InferContext& c, std::string_view name, size_t input) {
  SR_RETURN_IF_ERROR(require_index(c, input));
  const Shape& shape = c.inputs[input].shape;
  if (shape.has_rank() && shape.rank() > 2) {
    return base::invalid_argument("input {} ({}) has shape {}; it must be a list of integers",
                                  input, name, shape.to_string());
  }
  IntsArg out;
  if (shape.is_fully_defined()) out.count = shape.num_elements();
  const Tensor* value = c.constant(input);
  if (value != nullptr && is_index(value->dtype()) &&
      value->num_elements() <= static_cast<int64_t>(kConstantMax)) {
    out.known = true;
    out.values = values_of(*value);
    out.count = value->num_elements();
  }
  return out;
}

Status check_given_once(const InferContext& c, std::string_view name, size_t input, bool attr) {
  if (attr && c.inputs.size() > input) {
    return base::invalid_argument("'{}' is given both as attribute and as input {}", name, input);
  }
  if (!attr && c.inputs.size() <= input) {
    return base::invalid_argument("'{}' is given neither as attribute nor as input {}", name,
                                  input);
  }
  return {};
}

}  // namespace

Result<IntsArg> ints_arg(const InferContext& c, std::string_view name, size_t input) {
  const auto* attr = ir::find_attr<std::vector<int64_t>>(c.attrs, name);
  SR_RETURN_IF_ERROR(check_given_once(c, name, input, attr != nullptr));
  if (attr == nullptr) return from_input(c, name, input);
  return IntsArg{true, *attr, static_cast<int64_t>(attr->size())};
}

Result<IntArg> int_arg(const InferContext& c, std::string_view name, size_t input) {
  const auto* attr = ir::find_attr<int64_t>(c.attrs, name);
  SR_RETURN_IF_ERROR(check_given_once(c, name, input, attr != nullptr));
  if (attr != nullptr) return IntArg{true, *attr};
  SR_ASSIGN_OR_RETURN(const IntsArg ints, from_input(c, name, input));
  if (ints.count >= 0 && ints.count != 1) {
    return base::invalid_argument("input {} ({}) has {} elements; it must be one integer", input,
                                  name, ints.count);
  }
  return ints.known ? IntArg{true, ints.values[0]} : IntArg{};
}

Result<Shape> shape_of_arg(const IntsArg& arg) {
  if (arg.count > ir::kMaxRank) return base::invalid_argument("{} dimensions", arg.count);
  if (!arg.known) {
    return arg.count < 0 ? Shape::unknown_rank()
                         : Shape(std::vector<int64_t>(static_cast<size_t>(arg.count), -1));
  }
  for (size_t i = 0; i < arg.values.size(); ++i) {
    if (arg.values[i] < 0) {
      return base::invalid_argument("extent {} of the shape is {}", i, arg.values[i]);
    }
  }
  Shape shape{std::span<const int64_t>(arg.values)};
  SR_RETURN_IF_ERROR(ir::check_shape(shape));
  return shape;
}

Status require_index(const InferContext& c, size_t i) {
  if (is_index(c.inputs[i].dtype)) return {};
  return base::invalid_argument("input {} is {}; it must be int32 or int64", i,
                                tensor::name_of(c.inputs[i].dtype));
}

Status require_same_dtype(const InferContext& c, size_t first, size_t last) {
  for (size_t i = first + 1; i <= last; ++i) {
    SR_RETURN_IF_ERROR(require_dtype(c, i, c.inputs[first].dtype));
  }
  return {};
}

Status require_numeric(const InferContext& c, size_t i) {
  if (c.inputs[i].dtype != DType::kBool) return {};
  return base::invalid_argument("input {} is bool; it must be a dtype of numbers", i);
}

Result<DType> index_dtype(const InferContext& c, std::string_view attr, DType fallback) {
  const DType dtype = ir::attr_or<DType>(c.attrs, attr, fallback);
  if (is_index(dtype)) return dtype;
  return base::invalid_argument("'{}' is {}; it must be int32 or int64", attr,
                                tensor::name_of(dtype));
}

Result<int> axis_attr(const AttrMap& attrs, std::string_view name, int rank) {
  SR_ASSIGN_OR_RETURN(const int64_t axis, ir::get_attr<int64_t>(attrs, name));
  return normalize_axis(axis, rank);
}

void append_inputs(const GradContext& c, size_t first, std::vector<Output>* to) {
  for (size_t i = first; i < c.node.inputs.size(); ++i) to->push_back(c.node.inputs[i]);
}

Output grad_or_zeros(GradContext& c, size_t i) {
  if (c.output_grads[i].valid()) return c.output_grads[i];
  return c.builder.add("ZerosLike", {Output{c.node.id, static_cast<int32_t>(i)}});
}

Output ints_constant(ir::Builder& b, const std::vector<int64_t>& values) {
  const Tensor value = Tensor::of(Shape{static_cast<int64_t>(values.size())}, values);
  return b.add("Const", {}, {{"value", value}});
}

void register_array(OpRegistry* registry) {
  register_array_shape(registry);
  register_array_slice(registry);
  register_array_join(registry);
  register_array_gather(registry);
  register_array_segment(registry);
  register_array_sort(registry);
  register_spatial(registry);
}

}  // namespace sidereal::ops::internal
