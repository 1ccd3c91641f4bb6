#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/ir/builder.h"
#include "sidereal/ir/schema.h"

/// The ops of this release. Each has one schema with its inputs, attributes, shape inference and
/// gradient; the functions here add nodes of them. A node's name is the op's name when `name` is
/// empty. After an error (see Builder::status()) they return an invalid Output.
namespace sidereal::ops {

/// How a variable's first value is made: what the op InitialValue takes. Value type.
struct Initializer {
  std::string kind = "zeros";  ///< zeros constant uniform normal truncated_normal glorot_uniform
  double a = 0;                ///< constant: value; uniform: low; normal: mean.
  double b = 0;                ///< uniform: high; normal: standard deviation.
  uint64_t seed = 0;           ///< The value depends on (seed, variable name, element index) only.
  friend bool operator==(const Initializer&, const Initializer&) = default;
};

/// Adds every schema.
void register_all(ir::OpRegistry* registry);

/// A value to be fed under the node's name; unknown extents of `shape` are -1.
ir::Output placeholder(ir::Builder& b, std::string_view name, ir::DType dtype,
                       const ir::Shape& shape);
/// A constant tensor.
ir::Output constant(ir::Builder& b, const ir::Tensor& value, std::string_view name = {});
/// A scalar constant of `dtype`, a number or bool.
ir::Output scalar(ir::Builder& b, ir::DType dtype, double value, std::string_view name = {});
/// The first value of a variable of `shape` (fully defined), float32. Of `parts` parts it is the
/// rows r with r % parts == part. `variable` is the name that tells variables of one seed apart.
ir::Output initial_value(ir::Builder& b, const Initializer& how, std::string_view variable,
                         const ir::Shape& shape, int64_t part = 0, int64_t parts = 1,
                         std::string_view name = {});
/// The handle of a variable, known to all steps as `name`, which the node gets too.
ir::Output variable(ir::Builder& b, std::string_view name, ir::DType dtype, const ir::Shape& shape);
/// The value of the variable of a handle made by variable() of this graph.
ir::Output variable_read(ir::Builder& b, ir::Output handle, std::string_view name = {});
/// Rows of a float32 table [rows, dim] in parts: ids int64 of any shape -> ids.shape + [dim].
ir::Output embedding_lookup(ir::Builder& b, ir::Output ids, const std::vector<ir::Output>& handles,
                            int64_t rows, int64_t dim, std::string_view name = {});
/// A node that has run when all of `after` have.
ir::NodeId no_op(ir::Builder& b, const std::vector<ir::NodeId>& after, std::string_view name = {});

ir::Output identity(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output stop_gradient(ir::Builder& b, ir::Output x, std::string_view name = {});

// Element by element, broadcasting as NumPy does.
ir::Output add(ir::Builder& b, ir::Output x, ir::Output y, std::string_view name = {});
ir::Output sub(ir::Builder& b, ir::Output x, ir::Output y, std::string_view name = {});
ir::Output mul(ir::Builder& b, ir::Output x, ir::Output y, std::string_view name = {});
ir::Output div(ir::Builder& b, ir::Output x, ir::Output y, std::string_view name = {});
ir::Output maximum(ir::Builder& b, ir::Output x, ir::Output y, std::string_view name = {});
ir::Output minimum(ir::Builder& b, ir::Output x, ir::Output y, std::string_view name = {});

// Element by element.
ir::Output neg(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output exp(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output log(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output log1p(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output sqrt(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output square(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output abs(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output sign(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output sigmoid(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output tanh(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output relu(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output softplus(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output ones_like(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output zeros_like(ir::Builder& b, ir::Output x, std::string_view name = {});
ir::Output cast(ir::Builder& b, ir::Output x, ir::DType dtype, std::string_view name = {});
/// The sum of tensors of one shape, from the first to the last.
ir::Output add_n(ir::Builder& b, const std::vector<ir::Output>& xs, std::string_view name = {});

/// Product of two matrices; `ta`, `tb` transpose them first.
ir::Output mat_mul(ir::Builder& b, ir::Output x, ir::Output w, bool ta = false, bool tb = false,
                   std::string_view name = {});
/// x[..., n] + bias[n].
ir::Output bias_add(ir::Builder& b, ir::Output x, ir::Output bias, std::string_view name = {});

/// Sum over `axes` (negative count from the end; none given: all).
ir::Output reduce_sum(ir::Builder& b, ir::Output x, const std::vector<int64_t>& axes = {},
                      bool keep_dims = false, std::string_view name = {});
/// Mean over `axes` (negative count from the end; none given: all).
ir::Output reduce_mean(ir::Builder& b, ir::Output x, const std::vector<int64_t>& axes = {},
                       bool keep_dims = false, std::string_view name = {});
/// One extent may be -1 (what is left); 0 copies the input's extent of that index.
ir::Output reshape(ir::Builder& b, ir::Output x, const std::vector<int64_t>& shape,
                   std::string_view name = {});
/// `x` under the shape of `like`.
ir::Output reshape_like(ir::Builder& b, ir::Output x, ir::Output like, std::string_view name = {});
ir::Output concat(ir::Builder& b, const std::vector<ir::Output>& xs, int64_t axis,
                  std::string_view name = {});
/// Elements [begin, begin + size) along `axis`.
ir::Output slice_axis(ir::Builder& b, ir::Output x, int64_t axis, int64_t begin, int64_t size,
                      std::string_view name = {});
/// Zeros before and after along `axis`.
ir::Output pad_axis(ir::Builder& b, ir::Output x, int64_t axis, int64_t before, int64_t after,
                    std::string_view name = {});

/// tf.nn.sigmoid_cross_entropy_with_logits: one loss per element.
ir::Output sigmoid_cross_entropy_with_logits(ir::Builder& b, ir::Output logits, ir::Output labels,
                                             std::string_view name = {});
/// x[b, f, d] -> [b, 1]: the inner products of all pairs of vectors, summed.
ir::Output fm_interaction(ir::Builder& b, ir::Output x, std::string_view name = {});
/// Drops elements with probability `rate` while `training`.
ir::Output dropout(ir::Builder& b, ir::Output x, double rate, int64_t seed, bool training,
                   std::string_view name = {});

}  // namespace sidereal::ops
