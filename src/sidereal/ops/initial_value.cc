#include "sidereal/ops/initial_value.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "sidereal/ops/internal.h"

/// First values of variables: made where the variable is, the same for any number of parts.
namespace sidereal::ops {
namespace {

/// The optional attribute `name`.
template <class T>
Result<T> optional_attr(const ir::AttrMap& attrs, std::string_view name, T fallback) {
  if (!attrs.contains(name)) return fallback;
  return ir::get_attr<T>(attrs, name);
}

Result<float> parameter(const ir::AttrMap& attrs, std::string_view name) {
  SR_ASSIGN_OR_RETURN(const double value, optional_attr<double>(attrs, name, 0.0));
  // Also false for what is not a number.
  if (!(std::fabs(value) <= std::numeric_limits<float>::max())) {
    return base::invalid_argument("{} is {}; it must be a finite float32", name, value);
  }
  return static_cast<float>(value);
}

Status infer_initial_value(const ir::InferContext& c) {
  SR_ASSIGN_OR_RETURN(const InitialValue value, initial_value_of(c.attrs));
  return internal::put(c, ir::DType::kFloat32, value.shape());
}

}  // namespace

tensor::Shape InitialValue::shape() const {
  tensor::Shape shape = whole;
  if (parts == 1) return shape;
  const int64_t rows = whole.dim(0);
  shape.set_dim(0, part < rows ? (rows - part - 1) / parts + 1 : 0);
  return shape;
}

Result<InitialValue> initial_value_of(const ir::AttrMap& attrs) {
  InitialValue out;
  SR_ASSIGN_OR_RETURN(out.whole, ir::get_attr<tensor::Shape>(attrs, "shape"));
  SR_RETURN_IF_ERROR(ir::check_shape(out.whole));
  if (!out.whole.is_fully_defined()) {
    return base::invalid_argument("shape {} must be that of the whole variable, fully defined",
                                  out.whole.to_string());
  }
  SR_ASSIGN_OR_RETURN(const auto kind, ir::get_attr<std::string>(attrs, "kind"));
  SR_ASSIGN_OR_RETURN(out.initializer.kind, kernels::initializer_kind_from_name(kind));
  SR_ASSIGN_OR_RETURN(out.initializer.a, parameter(attrs, "a"));
  SR_ASSIGN_OR_RETURN(out.initializer.b, parameter(attrs, "b"));
  SR_ASSIGN_OR_RETURN(const auto seed, ir::get_attr<int64_t>(attrs, "seed"));
  out.initializer.seed = static_cast<uint64_t>(seed);
  SR_ASSIGN_OR_RETURN(const auto name, ir::get_attr<std::string>(attrs, "name"));
  out.initializer.stream = kernels::Initializer::stream_of(name);
  SR_RETURN_IF_ERROR(out.initializer.validate());
  SR_ASSIGN_OR_RETURN(out.part, optional_attr<int64_t>(attrs, "part", 0));
  SR_ASSIGN_OR_RETURN(out.parts, optional_attr<int64_t>(attrs, "parts", 1));
  if (out.parts < 1) return base::invalid_argument("parts is {}; it must be positive", out.parts);
  if (out.part < 0 || out.part >= out.parts) {
    return base::invalid_argument("part {} is not one of {} parts", out.part, out.parts);
  }
  if (out.parts > 1 && out.whole.rank() == 0) {
    return base::invalid_argument("a scalar has no rows to be cut into {} parts", out.parts);
  }
  return out;
}

namespace internal {

void register_initial_value(OpRegistry* registry) {
  registry->add(
      {.name = "InitialValue",
       .doc = "The first value of a variable, or of a part of its rows: constant, or drawn by a "
              "counter-based generator of seed, name and the element's index in the whole, so "
              "that it is the same however the variable is cut.",
       .attrs = {{"shape", "shape", true, "Of the whole variable, fully defined."},
                 {"kind", "string", true,
                  "'zeros', 'constant', 'uniform', 'normal', 'truncated_normal' (drawn again "
                  "outside two "
                  "standard deviations) or 'glorot_uniform'."},
                 {"a", "float", false,
                  "constant: the value; uniform: low; normal: mean. 0 if absent."},
                 {"b", "float", false, "uniform: high; normal: standard deviation. 0 if absent."},
                 {"seed", "int", true, "Of all variables of a model."},
                 {"name", "string", true, "Tells the variables of one seed apart."},
                 {"part", "int", false,
                  "Which part is made: rows r with r % parts == part; 0 if absent."},
                 {"parts", "int", false, "How many there are; 1, the whole, if absent."}},
       .infer = infer_initial_value,
       .gradient = no_flow});
}

}  // namespace internal
}  // namespace sidereal::ops
