#include "sidereal/exec/kernel_util.h"
#include "sidereal/kernels/norm.h"
#include "sidereal/kernels/softmax.h"

/// Softmax, the losses on it, and normalisation.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::ReduceDims;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// `x` seen as [outer, n, inner] around axis `axis`.
Result<ReduceDims> dims_around(const Tensor& x, int64_t axis) {
  const int rank = x.shape().rank();
  if (axis < -rank || axis >= rank) {
    return invalid_argument("axis {} of a value with {} dimensions", axis, rank);
  }
  const int at = static_cast<int>(axis < 0 ? axis + rank : axis);
  ReduceDims dims;
  for (int i = 0; i < at; ++i) dims.outer *= x.shape().dim(i);
  dims.reduce = x.shape().dim(at);
  for (int i = at + 1; i < rank; ++i) dims.inner *= x.shape().dim(i);
  return dims;
}

KernelFactory softmax(bool logarithm) {
  return with_arity(
      1, 1, 1, like_input([logarithm](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
        const int64_t axis = ir::attr_or<int64_t>(bind.instruction.attrs, "axis", -1);
        return make_kernel([logarithm, axis](KernelContext& c) -> Status {
          const DType dtype = c.input(0).dtype();
          const Tensor x = widened(c, c.input(0));
          SR_ASSIGN_OR_RETURN(const ReduceDims dims, dims_around(x, axis));
          WideOutput out(c, 0, x.shape());
          return with_compute(dtype, [&]<class T>() -> Status {
            const T* from = x.data<const T>().data();
            if (logarithm) {
              kernels::log_softmax(from, dims, out.data<T>());
            } else {
              kernels::softmax(from, dims, out.data<T>());
            }
            return out.store();
          });
        });
      }));
}

Result<std::unique_ptr<Kernel>> softmax_grad(const BindContext& bind) {
  const int64_t axis = ir::attr_or<int64_t>(bind.instruction.attrs, "axis", -1);
  return make_kernel([axis](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_same(c, 0, 1));
    const DType dtype = c.input(0).dtype();
    const Tensor dy = widened(c, c.input(0));
    const Tensor y = widened(c, c.input(1));
    SR_ASSIGN_OR_RETURN(const ReduceDims dims, dims_around(dy, axis));
    WideOutput out(c, 0, dy.shape());
    return with_compute(dtype, [&]<class T>() -> Status {
      kernels::softmax_grad(dy.data<const T>().data(), y.data<const T>().data(), dims,
                            out.data<T>());
      return out.store();
    });
  });
}

/// Shape of the losses: that of the logits without the last dimension.
Result<Shape> shape_of_losses(const Tensor& logits) {
  if (logits.shape().rank() < 1) return invalid_argument("logits without a dimension of classes");
  return Shape(logits.shape().dims().first(logits.shape().rank() - 1));
}

Status sparse_cross_entropy(KernelContext& c) {
  const DType dtype = c.input(0).dtype();
  const Tensor logits = widened(c, c.input(0));
  const Tensor labels = c.input(1);
  SR_ASSIGN_OR_RETURN(const Shape shape, shape_of_losses(logits));
  if (!(labels.shape() == shape)) {
    return invalid_argument("{} labels do not fit logits {}", labels.to_string(),
                            logits.to_string());
  }
  const int64_t n = logits.shape().dim(-1);
  WideOutput loss(c, 0, shape);
  WideOutput backprop(c, 1, logits.shape());
  return with_compute(dtype, [&]<class T>() -> Status {
    return tensor::with_dtype<tensor::IndexTypes>(labels.dtype(), [&]<class Index>() -> Status {
      const Index* ids = labels.data<const Index>().data();
      const int64_t bad = kernels::sparse_softmax_cross_entropy(logits.data<const T>().data(), ids,
                                                                shape.num_elements(), n,
                                                                loss.data<T>(), backprop.data<T>());
      if (bad >= 0) {
        return invalid_argument("label {} at position {} is not in [0, {}), the classes of {}",
                                ids[bad], bad, n, logits.to_string());
      }
      SR_RETURN_IF_ERROR(loss.store());
      return backprop.store();
    });
  });
}

Status dense_cross_entropy(KernelContext& c) {
  SR_RETURN_IF_ERROR(check_same(c, 0, 1));
  const DType dtype = c.input(0).dtype();
  const Tensor logits = widened(c, c.input(0));
  const Tensor labels = widened(c, c.input(1));
  SR_ASSIGN_OR_RETURN(const Shape shape, shape_of_losses(logits));
  WideOutput loss(c, 0, shape);
  WideOutput backprop(c, 1, logits.shape());
  return with_compute(dtype, [&]<class T>() -> Status {
    kernels::softmax_cross_entropy(logits.data<const T>().data(), labels.data<const T>().data(),
                                   shape.num_elements(), logits.shape().dim(-1), loss.data<T>(),
                                   backprop.data<T>());
    SR_RETURN_IF_ERROR(loss.store());
    return backprop.store();
  });
}

/// Rows and columns of `x` seen as a matrix of its last extent, with vectors that fit the columns.
struct Columns {
  int64_t m = 0;
  int64_t n = 0;
  Shape rows;     ///< The shape of x without the last dimension.
  Shape columns;  ///< [n].
};

Result<Columns> columns_of(KernelContext& c, int x_at, std::initializer_list<int> vectors) {
  const Tensor& x = c.input(x_at);
  if (x.shape().rank() < 1) return invalid_argument("a scalar has no last dimension");
  Columns out;
  out.n = x.shape().dim(-1);
  out.m = out.n == 0 ? 0 : x.num_elements() / out.n;
  out.rows = Shape(x.shape().dims().first(x.shape().rank() - 1));
  out.columns = Shape{out.n};
  for (const int i : vectors) {
    if (!(c.input(i).shape() == out.columns)) {
      return invalid_argument("input {}, {}, does not fit the last dimension of {}", i,
                              c.input(i).to_string(), x.to_string());
    }
  }
  return out;
}

/// A kernel of a normalisation, made with its epsilon.
template <class F>
KernelFactory normalising(int inputs, F run) {
  return with_arity(inputs, inputs, 3, [run](const BindContext& bind) {
    const double epsilon = ir::attr_or(bind.instruction.attrs, "epsilon", 1e-3);
    return make_kernel([run, epsilon](KernelContext& c) { return run(c, epsilon); });
  });
}

/// Statistics are float32 for the 16-bit floats.
Status check_statistics(KernelContext& c, DType computed, std::initializer_list<int> outputs,
                        std::initializer_list<int> inputs = {}) {
  for (const int i : outputs) {
    if (c.output_dtype(i) != computed) return invalid_argument("output {} has a wrong dtype", i);
  }
  for (const int i : inputs) SR_RETURN_IF_ERROR(check_dtype(c, i, computed));
  return {};
}

Status check_outputs_like(KernelContext& c, DType dtype, std::initializer_list<int> outputs) {
  for (const int i : outputs) {
    if (c.output_dtype(i) != dtype) return invalid_argument("output {} has a wrong dtype", i);
  }
  return {};
}

/// Layer and batch norm: (x, scale, offset) -> (y, and two statistics).
Status run_norm(KernelContext& c, double epsilon, bool layer) {
  SR_RETURN_IF_ERROR(check_one_dtype(c));
  const DType dtype = c.input(0).dtype();
  SR_ASSIGN_OR_RETURN(const Columns at, columns_of(c, 0, {1, 2}));
  const Tensor x = widened(c, c.input(0));
  const Tensor scale = widened(c, c.input(1));
  const Tensor offset = widened(c, c.input(2));
  SR_RETURN_IF_ERROR(check_outputs_like(c, dtype, {0}));
  SR_RETURN_IF_ERROR(check_statistics(c, x.dtype(), {1, 2}));
  WideOutput y(c, 0, x.shape());
  const Shape& shape = layer ? at.rows : at.columns;
  Tensor& first = c.output(1, shape);
  Tensor& second = c.output(2, shape);
  return with_compute(dtype, [&]<class T>() -> Status {
    const auto run = layer ? kernels::layer_norm<T> : kernels::batch_norm<T>;
    run(x.data<const T>().data(), scale.data<const T>().data(), offset.data<const T>().data(), at.m,
        at.n, epsilon, y.data<T>(), first.data<T>().data(), second.data<T>().data());
    return y.store();
  });
}

Status layer_norm(KernelContext& c, double epsilon) { return run_norm(c, epsilon, true); }
Status batch_norm(KernelContext& c, double epsilon) { return run_norm(c, epsilon, false); }

/// (dy, x, scale, and two statistics) -> (dx, dscale, doffset).
Status run_norm_grad(KernelContext& c, double epsilon, bool layer) {
  SR_RETURN_IF_ERROR(check_one_dtype(c, 0, 2));
  SR_RETURN_IF_ERROR(check_same(c, 0, 1));
  const DType dtype = c.input(0).dtype();
  SR_ASSIGN_OR_RETURN(const Columns at, columns_of(c, 1, {2}));
  const Tensor dy = widened(c, c.input(0));
  const Tensor x = widened(c, c.input(1));
  const Tensor scale = widened(c, c.input(2));
  const Tensor first = c.input(3);
  const Tensor second = c.input(4);
  SR_RETURN_IF_ERROR(check_statistics(c, x.dtype(), {}, {3, 4}));
  SR_RETURN_IF_ERROR(check_outputs_like(c, dtype, {0, 1, 2}));
  const int64_t statistics = layer ? at.m : at.n;
  if (first.num_elements() != statistics || second.num_elements() != statistics) {
    return invalid_argument("statistics {} and {} do not fit {}", first.to_string(),
                            second.to_string(), x.to_string());
  }
  WideOutput dx(c, 0, x.shape());
  WideOutput dscale(c, 1, at.columns);
  WideOutput doffset(c, 2, at.columns);
  SR_RETURN_IF_ERROR(with_compute(dtype, [&]<class T>() -> Status {
    const T* g = dy.data<const T>().data();
    const T* from = x.data<const T>().data();
    const T* s = scale.data<const T>().data();
    const T* a = first.data<const T>().data();
    const T* b = second.data<const T>().data();
    if (layer) {
      kernels::layer_norm_grad(g, from, s, a, b, at.m, at.n, dx.data<T>(), dscale.data<T>(),
                               doffset.data<T>());
    } else {
      kernels::batch_norm_grad(g, from, s, a, b, at.m, at.n, epsilon, dx.data<T>(),
                               dscale.data<T>(), doffset.data<T>());
    }
    return {};
  }));
  SR_RETURN_IF_ERROR(dx.store());
  SR_RETURN_IF_ERROR(dscale.store());
  return doffset.store();
}

Status layer_norm_grad(KernelContext& c, double epsilon) { return run_norm_grad(c, epsilon, true); }
Status batch_norm_grad(KernelContext& c, double epsilon) {
  return run_norm_grad(c, epsilon, false);
}

}  // namespace

void register_softmax_kernels(KernelTable* table) {
  table->add("Softmax", softmax(false));
  table->add("LogSoftmax", softmax(true));
  table->add("SoftmaxGrad", with_arity(2, 2, 1, like_input(softmax_grad)));
  table->add("SparseSoftmaxCrossEntropyWithLogits",
             with_arity(2, 2, 2, like_input(stateless(sparse_cross_entropy))));
  table->add("SoftmaxCrossEntropyWithLogits",
             with_arity(2, 2, 2, like_input(stateless(dense_cross_entropy))));
  table->add("LayerNorm", normalising(3, layer_norm));
  table->add("LayerNormGrad", normalising(5, layer_norm_grad));
  table->add("BatchNorm", normalising(3, batch_norm));
  table->add("BatchNormGrad", normalising(5, batch_norm_grad));
}

}  // namespace sidereal::exec
