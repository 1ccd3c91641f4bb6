#include <algorithm>
#include <cmath>

#include "sidereal/reference/value.h"

/// Matrices, reductions, reshaping, joining and cutting.
namespace sidereal::reference::internal {
namespace {

Result<int64_t> int_attr(const Call& c, std::string_view name) {
  return ir::get_attr<int64_t>(c.node.attrs, name);
}

Status identity(const Call& c) {
  c.outputs->push_back(c.in(0));
  return {};
}

Status mat_mul(const Call& c) {
  const bool ta = ir::attr_or<bool>(c.node.attrs, "transpose_a", false);
  const bool tb = ir::attr_or<bool>(c.node.attrs, "transpose_b", false);
  const Value& a = c.in(0);
  const Value& b = c.in(1);
  const int64_t m = a.shape.dim(ta ? 1 : 0);
  const int64_t k = a.shape.dim(ta ? 0 : 1);
  const int64_t n = b.shape.dim(tb ? 0 : 1);
  if (b.shape.dim(tb ? 1 : 0) != k) return base::invalid_argument("inner extents differ");
  Value& out = c.add_output(a.dtype, Shape{m, n});
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        sum += a.real[ta ? p * m + i : i * k + p] * b.real[tb ? j * k + p : p * n + j];
      }
      out.real[i * n + j] = sum;
    }
  }
  return {};
}

Status bias_add(const Call& c) {
  Value& out = c.add_output(c.in(0).dtype, c.in(0).shape);
  const int64_t n = c.in(1).size();
  for (int64_t i = 0; i < out.size(); ++i) out.real[i] = c.in(0).real[i] + c.in(1).real[i % n];
  return {};
}

Status bias_add_grad(const Call& c) {
  const int64_t n = c.in(0).shape.dim(-1);
  Value& out = c.add_output(c.in(0).dtype, Shape{n});
  for (int64_t i = 0; i < c.in(0).size(); ++i) out.real[i % n] += c.in(0).real[i];
  return {};
}

/// A reduction's view: `kept` has extent 1 along the reduced axes.
struct Reduction {
  Shape kept;
  Shape result;
  int64_t count = 1;  ///< Elements summed into one.
};

Result<Reduction> reduction(const Call& c, const Shape& shape) {
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> axes,
                      ir::get_attr<std::vector<int64_t>>(c.node.attrs, "axes"));
  const bool keep = ir::attr_or<bool>(c.node.attrs, "keep_dims", false);
  Reduction out;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool reduced = axes.empty() || std::count(axes.begin(), axes.end(), i) > 0 ||
                         std::count(axes.begin(), axes.end(), i - shape.rank()) > 0;
    out.kept.append(reduced ? 1 : shape.dim(i));
    if (reduced) out.count *= shape.dim(i);
    if (keep || !reduced) out.result.append(reduced ? 1 : shape.dim(i));
  }
  return out;
}

Status reduce(const Call& c, bool mean) {
  const Value& x = c.in(0);
  SR_ASSIGN_OR_RETURN(const Reduction r, reduction(c, x.shape));
  Value& out = c.add_output(x.dtype, r.result);
  for_each_element(x.shape, broadcast_strides(r.kept, x.shape),
                   [&](int64_t i, int64_t j) { out.real[j] += x.real[i]; });
  if (!mean) return {};
  for (double& value : out.real) value /= static_cast<double>(r.count);
  return {};
}

Status reduce_sum(const Call& c) { return reduce(c, false); }
Status reduce_mean(const Call& c) { return reduce(c, true); }

/// Softmax is known along the last axis, which is all that models here use.
Status check_last_axis(const Call& c) {
  if (ir::attr_or<int64_t>(c.node.attrs, "axis", -1) == -1) return {};
  return base::unimplemented("the reference knows {} along the last axis", c.node.op);
}

Status softmax(const Call& c) {
  const Value& x = c.in(0);
  SR_RETURN_IF_ERROR(check_last_axis(c));
  const int64_t n = x.shape.dim(-1);
  Value& out = c.add_output(x.dtype, x.shape);
  for (int64_t row = 0; row < x.size(); row += n) {
    const double most = *std::max_element(x.real.begin() + row, x.real.begin() + row + n);
    double sum = 0;
    for (int64_t i = row; i < row + n; ++i) sum += out.real[i] = std::exp(x.real[i] - most);
    for (int64_t i = row; i < row + n; ++i) out.real[i] /= sum;
  }
  return {};
}

/// (dy, y) -> y (dy - sum(dy y)).
Status softmax_grad(const Call& c) {
  const Value& dy = c.in(0);
  const Value& y = c.in(1);
  SR_RETURN_IF_ERROR(check_last_axis(c));
  const int64_t n = y.shape.dim(-1);
  Value& out = c.add_output(y.dtype, y.shape);
  for (int64_t row = 0; row < y.size(); row += n) {
    double sum = 0;
    for (int64_t i = row; i < row + n; ++i) sum += dy.real[i] * y.real[i];
    for (int64_t i = row; i < row + n; ++i) out.real[i] = y.real[i] * (dy.real[i] - sum);
  }
  return {};
}

Status broadcast_axes(const Call& c) {
  const Value& g = c.in(0);
  SR_ASSIGN_OR_RETURN(const Reduction r, reduction(c, c.in(1).shape));
  const bool mean = ir::attr_or<bool>(c.node.attrs, "mean", false);
  const double scale = mean ? 1.0 / static_cast<double>(r.count) : 1.0;
  Value& out = c.add_output(g.dtype, c.in(1).shape);
  for_each_element(out.shape, broadcast_strides(r.kept, out.shape),
                   [&](int64_t i, int64_t j) { out.real[i] = g.real[j] * scale; });
  return {};
}

Status reshape(const Call& c) {
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> wanted,
                      ir::get_attr<std::vector<int64_t>>(c.node.attrs, "shape"));
  // What is copied with 0 stands on both sides: an empty batch says nothing of the other extents.
  const Shape& from = c.in(0).shape;
  Shape shape;
  int64_t known = 1;
  int64_t had = 1;
  int free_at = -1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const int at = static_cast<int>(i);
    shape.append(wanted[i] == 0 ? from.dim(at) : wanted[i]);
    if (wanted[i] == -1) free_at = at;
    if (wanted[i] > 0) known *= wanted[i];
  }
  for (size_t i = 0; i < static_cast<size_t>(from.rank()); ++i) {
    if (i >= wanted.size() || wanted[i] != 0) had *= from.dim(static_cast<int>(i));
  }
  if (free_at >= 0) shape.set_dim(free_at, had / known);
  if (shape.num_elements() != c.in(0).size()) {
    return base::invalid_argument("{} cannot become {}", c.in(0).shape.to_string(),
                                  shape.to_string());
  }
  c.outputs->push_back(c.in(0));
  c.outputs->back().shape = shape;
  return {};
}

Status reshape_like(const Call& c) {
  if (c.in(0).size() != c.in(1).size()) return base::invalid_argument("element counts differ");
  c.outputs->push_back(c.in(0));
  c.outputs->back().shape = c.in(1).shape;
  return {};
}

/// Copies `count` positions along `axis` from one value to another.
void copy_along(const Value& from, int64_t from_at, Value* to, int64_t to_at, int64_t count,
                int axis) {
  int64_t outer = 1;
  int64_t inner = 1;
  for (int i = 0; i < axis; ++i) outer *= from.shape.dim(i);
  for (int i = axis + 1; i < from.shape.rank(); ++i) inner *= from.shape.dim(i);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < count * inner; ++i) {
      const int64_t source = (o * from.shape.dim(axis) + from_at) * inner + i;
      const int64_t target = (o * to->shape.dim(axis) + to_at) * inner + i;
      if (from.is_real()) {
        to->real[target] = from.real[source];
      } else {
        to->integer[target] = from.integer[source];
      }
    }
  }
}

Result<int> axis_of(const Call& c) {
  SR_ASSIGN_OR_RETURN(const int64_t axis, int_attr(c, "axis"));
  return static_cast<int>(axis < 0 ? axis + c.in(0).shape.rank() : axis);
}

Status concat(const Call& c) {
  SR_ASSIGN_OR_RETURN(const int axis, axis_of(c));
  Shape shape = c.in(0).shape;
  int64_t total = 0;
  for (const Value* x : c.inputs) total += x->shape.dim(axis);
  shape.set_dim(axis, total);
  Value& out = c.add_output(c.in(0).dtype, shape);
  int64_t at = 0;
  for (const Value* x : c.inputs) {
    copy_along(*x, 0, &out, at, x->shape.dim(axis), axis);
    at += x->shape.dim(axis);
  }
  return {};
}

Status slice_axis(const Call& c) {
  SR_ASSIGN_OR_RETURN(const int axis, axis_of(c));
  SR_ASSIGN_OR_RETURN(const int64_t begin, int_attr(c, "begin"));
  SR_ASSIGN_OR_RETURN(const int64_t size, int_attr(c, "size"));
  Shape shape = c.in(0).shape;
  if (begin + size > shape.dim(axis)) return base::invalid_argument("the slice is outside");
  shape.set_dim(axis, size);
  copy_along(c.in(0), begin, &c.add_output(c.in(0).dtype, shape), 0, size, axis);
  return {};
}

Status pad_axis(const Call& c) {
  SR_ASSIGN_OR_RETURN(const int axis, axis_of(c));
  SR_ASSIGN_OR_RETURN(const int64_t before, int_attr(c, "before"));
  SR_ASSIGN_OR_RETURN(const int64_t after, int_attr(c, "after"));
  Shape shape = c.in(0).shape;
  const int64_t extent = shape.dim(axis);
  shape.set_dim(axis, before + extent + after);
  copy_along(c.in(0), 0, &c.add_output(c.in(0).dtype, shape), before, extent, axis);
  return {};
}

/// Every pair of vectors of every row, as the definition says.
Status fm_interaction(const Call& c) {
  const Value& x = c.in(0);
  const int64_t fields = x.shape.dim(1);
  const int64_t dim = x.shape.dim(2);
  Value& out = c.add_output(x.dtype, Shape{x.shape.dim(0), 1});
  for (int64_t b = 0; b < x.shape.dim(0); ++b) {
    const double* row = x.real.data() + b * fields * dim;
    for (int64_t f = 0; f < fields; ++f) {
      for (int64_t g = f + 1; g < fields; ++g) {
        for (int64_t d = 0; d < dim; ++d) out.real[b] += row[f * dim + d] * row[g * dim + d];
      }
    }
  }
  return {};
}

Status fm_interaction_grad(const Call& c) {
  const Value& x = c.in(1);
  const int64_t fields = x.shape.dim(1);
  const int64_t dim = x.shape.dim(2);
  Value& out = c.add_output(x.dtype, x.shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t b = i / (fields * dim);
    double others = 0;
    for (int64_t f = 0; f < fields; ++f) others += x.real[(b * fields + f) * dim + i % dim];
    out.real[i] = c.in(0).real[b] * (others - x.real[i]);
  }
  return {};
}

}  // namespace

void add_structure(Functions* functions) {
  functions->insert({{"Identity", identity},
                     {"StopGradient", identity},
                     {"MatMul", mat_mul},
                     {"BiasAdd", bias_add},
                     {"BiasAddGrad", bias_add_grad},
                     {"ReduceSum", reduce_sum},
                     {"ReduceMean", reduce_mean},
                     {"Softmax", softmax},
                     {"SoftmaxGrad", softmax_grad},
                     {"BroadcastAxes", broadcast_axes},
                     {"Reshape", reshape},
                     {"ReshapeLike", reshape_like},
                     {"Concat", concat},
                     {"SliceAxis", slice_axis},
                     {"PadAxis", pad_axis},
                     {"FmInteraction", fm_interaction},
                     {"FmInteractionGrad", fm_interaction_grad}});
}

}  // namespace sidereal::reference::internal
