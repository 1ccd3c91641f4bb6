#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "sidereal/exec/array_util.h"
#include "sidereal/kernels/sort.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

Status check_has_last(const KernelContext& c, int i) {
  if (c.input(i).shape().rank() >= 1) return {};
  return invalid_argument("input {} is a scalar; it needs a last dimension", i);
}

/// Rows of the last dimension: how many, and how long.
struct Rows {
  int64_t count;
  int64_t length;
};

Result<Rows> rows_of(const Tensor& x) {
  const int64_t n = x.shape().dim(-1);
  if (n > std::numeric_limits<int32_t>::max()) {
    return invalid_argument("{} elements cannot be numbered by an int32", n);
  }
  return Rows{product_of(x.shape(), 0, x.shape().rank() - 1), n};
}

Result<std::unique_ptr<Kernel>> top_k(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const IntArg k_arg, IntArg::bind(bind, "k", 1));
  return make_kernel([k_arg, scratch = std::vector<int32_t>()](KernelContext& c) mutable -> Status {
    SR_RETURN_IF_ERROR(check_has_last(c, 0));
    const Tensor x = c.input(0);
    SR_ASSIGN_OR_RETURN(const int64_t k, k_arg.get(c));
    SR_ASSIGN_OR_RETURN(const Rows rows, rows_of(x));
    if (k < 0 || k > rows.length) {
      return invalid_argument("k is {}, but the last dimension has {} elements", k, rows.length);
    }
    Shape shape = x.shape();
    shape.set_dim(-1, k);
    return tensor::with_dtype<tensor::NumericTypes>(x.dtype(), [&]<class T>() -> Status {
      T* values = c.output(0, shape).template data<T>().data();
      int32_t* indices = c.output(1, shape).template data<int32_t>().data();
      kernels::top_k<T>(x.data<const T>().data(), rows.count, rows.length, k, values, indices,
                        &scratch);
      return {};
    });
  });
}

Result<std::unique_ptr<Kernel>> sort(const BindContext& bind) {
  const bool descending = ir::attr_or(bind.instruction.attrs, "descending", false);
  return make_kernel(
      [descending, scratch = std::vector<uint64_t>()](KernelContext& c) mutable -> Status {
        SR_RETURN_IF_ERROR(check_has_last(c, 0));
        const Tensor x = c.input(0);
        SR_ASSIGN_OR_RETURN(const Rows rows, rows_of(x));
        return tensor::with_dtype<tensor::NumericTypes>(x.dtype(), [&]<class T>() -> Status {
          T* values = c.output(0, x.shape()).template data<T>().data();
          int32_t* indices = c.output(1, x.shape()).template data<int32_t>().data();
          kernels::sort_rows<T>(x.data<const T>().data(), rows.count, rows.length, descending,
                                values, indices, &scratch);
          return {};
        });
      });
}

/// Whether fewer than k predictions of the row are greater than the target's. A row that has a
/// number that is not finite cannot say, and so does not.
template <class T>
bool is_in_top(const T* row, int64_t classes, int64_t target, int64_t k) {
  using C = tensor::ComputeType<T>;
  if (target < 0 || target >= classes || !std::isfinite(static_cast<C>(row[target]))) return false;
  const C wanted = row[target];
  int64_t greater = 0;
  for (int64_t j = 0; j < classes; ++j) {
    const C other = row[j];
    if (!std::isfinite(other)) return false;
    if (other > wanted && ++greater >= k) return false;
  }
  return greater < k;
}

Result<std::unique_ptr<Kernel>> in_top_k(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t k, ir::get_attr<int64_t>(bind.instruction.attrs, "k"));
  return make_kernel([k](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_rank(c, 0, 2));
    SR_RETURN_IF_ERROR(check_rank(c, 1, 1));
    const Tensor predictions = c.input(0);
    const int64_t rows = predictions.shape().dim(0);
    const int64_t classes = predictions.shape().dim(1);
    if (c.input(1).num_elements() != rows) {
      return invalid_argument("{} targets for {} rows", c.input(1).num_elements(), rows);
    }
    SR_ASSIGN_OR_RETURN(const Ints targets, ints_of(c.input(1)));
    return tensor::with_dtype<tensor::FloatTypes>(predictions.dtype(), [&]<class T>() -> Status {
      bool* out = c.output(0, Shape{rows}).data<bool>().data();
      const T* row = predictions.data<const T>().data();
      for (int64_t i = 0; i < rows; ++i, row += classes) {
        out[i] = is_in_top<T>(row, classes, targets[i], k);
      }
      return {};
    });
  });
}

Result<std::unique_ptr<Kernel>> search_sorted(const BindContext& bind) {
  const bool right = ir::attr_or<std::string>(bind.instruction.attrs, "side", "left") == "right";
  return make_kernel([right](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_has_last(c, 0));
    SR_RETURN_IF_ERROR(check_has_last(c, 1));
    SR_RETURN_IF_ERROR(check_same_dtype(c, 0, 1));
    const Tensor sorted = c.input(0);
    const Tensor values = c.input(1);
    SR_ASSIGN_OR_RETURN(const Rows in, rows_of(sorted));
    SR_ASSIGN_OR_RETURN(const Rows of, rows_of(values));
    Shape expected = values.shape();
    expected.set_dim(-1, in.length);
    if (!(sorted.shape() == expected)) {
      return invalid_argument("sorted sequences of shape {} do not fit values of shape {}",
                              sorted.shape().to_string(), values.shape().to_string());
    }
    return tensor::with_dtype<tensor::NumericTypes>(sorted.dtype(), [&]<class T>() -> Status {
      return with_index(c.output_dtype(0), [&]<class I>() -> Status {
        kernels::search_sorted<T, I>(sorted.data<const T>().data(), in.length,
                                     values.data<const T>().data(), of.length, of.count, right,
                                     c.output(0, values.shape()).template data<I>().data());
        return {};
      });
    });
  });
}

// --- Running sums.

KernelFactory cumulative(bool product) {
  return with_arity(
      1, 1, 1, like_input([product](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
        const ir::AttrMap& attrs = bind.instruction.attrs;
        SR_ASSIGN_OR_RETURN(const int64_t wanted, ir::get_attr<int64_t>(attrs, "axis"));
        const kernels::CumulativeOrder order{.product = product,
                                             .exclusive = ir::attr_or(attrs, "exclusive", false),
                                             .reverse = ir::attr_or(attrs, "reverse", false)};
        return make_kernel([wanted, order](KernelContext& c) -> Status {
          const Tensor x = c.input(0);
          SR_ASSIGN_OR_RETURN(const int axis, axis_in(wanted, x.shape().rank()));
          return tensor::with_dtype<tensor::NumericTypes>(x.dtype(), [&]<class T>() -> Status {
            kernels::cumulative<T>(x.data<const T>().data(), product_of(x.shape(), 0, axis),
                                   x.shape().dim(axis),
                                   product_of(x.shape(), axis + 1, x.shape().rank()), order,
                                   c.output(0, x.shape()).template data<T>().data());
            return {};
          });
        });
      }));
}

// --- Matrices.

/// A value as `count` matrices of `rows` x `columns` elements of `bytes` bytes.
struct Matrices {
  int64_t count;
  int64_t rows;
  int64_t columns;
  int64_t bytes;
  [[nodiscard]] int64_t diagonal() const { return std::min(rows, columns); }
};

Result<Matrices> matrices_of(const Shape& shape, int64_t bytes) {
  if (shape.rank() < 2) return invalid_argument("{} is no matrix", shape.to_string());
  return Matrices{product_of(shape, 0, shape.rank() - 2), shape.dim(-2), shape.dim(-1), bytes};
}

/// Copies between dense diagonals and those of matrices.
template <bool kIntoMatrix>
void move_diagonals(const Matrices& m, const std::byte* from, std::byte* to) {
  const int64_t n = m.diagonal();
  for (int64_t b = 0; b < m.count; ++b) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t in_matrix = (b * m.rows * m.columns + i * (m.columns + 1)) * m.bytes;
      const int64_t dense = (b * n + i) * m.bytes;
      std::memcpy(to + (kIntoMatrix ? in_matrix : dense), from + (kIntoMatrix ? dense : in_matrix),
                  m.bytes);
    }
  }
}

Status put_on_diagonal(KernelContext& c, const Tensor& diagonals, const Shape& shape) {
  SR_ASSIGN_OR_RETURN(const Matrices m, matrices_of(shape, bytes_of(diagonals)));
  if (diagonals.num_elements() != m.count * m.diagonal()) {
    return invalid_argument("diagonals of shape {} do not fit matrices of shape {}",
                            diagonals.shape().to_string(), shape.to_string());
  }
  SR_ASSIGN_OR_RETURN(Tensor* const out, large_output(c, 0, shape));
  if (out->nbytes() > 0) std::memset(out->raw(), 0, out->nbytes());
  move_diagonals<true>(m, diagonals.raw(), out->raw());
  return {};
}

Status matrix_diag(KernelContext& c) {
  SR_RETURN_IF_ERROR(check_has_last(c, 0));
  const Tensor x = c.input(0);
  Shape shape = x.shape();
  shape.append(shape.dim(-1));
  return put_on_diagonal(c, x, shape);
}

Status matrix_diag_part_grad(KernelContext& c) {
  const Tensor dy = c.input(0);
  const Shape to = c.input(1).shape();
  return put_on_diagonal(c, dy, to);
}

Status matrix_diag_part(KernelContext& c) {
  const Tensor x = c.input(0);
  SR_ASSIGN_OR_RETURN(const Matrices m, matrices_of(x.shape(), bytes_of(x)));
  Shape shape;
  for (int i = 0; i < x.shape().rank() - 2; ++i) shape.append(x.shape().dim(i));
  shape.append(m.diagonal());
  move_diagonals<false>(m, x.raw(), c.output(0, shape).raw());
  return {};
}

Result<std::unique_ptr<Kernel>> matrix_band_part(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t lower, ir::get_attr<int64_t>(bind.instruction.attrs, "lower"));
  SR_ASSIGN_OR_RETURN(const int64_t upper, ir::get_attr<int64_t>(bind.instruction.attrs, "upper"));
  return make_kernel([lower, upper](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    SR_ASSIGN_OR_RETURN(const Matrices m, matrices_of(x.shape(), bytes_of(x)));
    Tensor& out = c.output(0, x.shape());
    if (out.nbytes() == 0) return {};
    std::memset(out.raw(), 0, out.nbytes());
    for (int64_t r = 0; r < m.count * m.rows; ++r) {
      const int64_t i = r % m.rows;
      const int64_t first = lower < 0 ? 0 : std::clamp<int64_t>(i - lower, 0, m.columns);
      const int64_t last = upper < 0 || upper > m.columns
                               ? m.columns
                               : std::clamp<int64_t>(i + upper + 1, 0, m.columns);
      if (first >= last) continue;
      const int64_t at = (r * m.columns + first) * m.bytes;
      std::memcpy(out.raw() + at, x.raw() + at, (last - first) * m.bytes);
    }
    return {};
  });
}

/// A factory that checks the dtypes of a pair of outputs: like input 0, and int32.
KernelFactory sorted_outputs(KernelFactory factory) {
  return output_like(
      0, 0,
      [factory = std::move(factory)](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
        SR_RETURN_IF_ERROR(
            check_slot(bind, bind.instruction.outputs[1], DType::kInt32, "output 1"));
        return factory(bind);
      });
}

}  // namespace

void register_array_sort_kernels(KernelTable* table) {
  table->add("TopK", with_arity(1, 2, 2, sorted_outputs(top_k)));
  table->add("Sort", with_arity(1, 1, 2, sorted_outputs(sort)));
  table->add("InTopK", with_arity(2, 2, 1, with_outputs({DType::kBool}, in_top_k)));
  table->add("SearchSorted", with_arity(2, 2, 1, search_sorted));
  table->add("Cumsum", cumulative(false));
  table->add("Cumprod", cumulative(true));
  table->add("MatrixDiag", with_arity(1, 1, 1, like_input(stateless(matrix_diag))));
  table->add("MatrixDiagPart", with_arity(1, 1, 1, like_input(stateless(matrix_diag_part))));
  table->add("MatrixDiagPartGrad",
             with_arity(2, 2, 1, like_input(stateless(matrix_diag_part_grad))));
  table->add("MatrixBandPart", with_arity(1, 1, 1, like_input(matrix_band_part)));
}

}  // namespace sidereal::exec
