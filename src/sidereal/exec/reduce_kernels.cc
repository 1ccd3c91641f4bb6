#include <absl/container/inlined_vector.h>

#include <algorithm>
#include <span>
#include <vector>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/reduce.h"

/// Reductions over axes, and what undoes broadcasting.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::ReduceOp;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using tensor::with_dtype;

/// Few enough that a step takes no memory for them.
using Axes = absl::InlinedVector<int, 6>;

/// Axes in [0, rank), sorted; none means all. kInvalidArgument for one that is not there or is
/// named twice.
Result<Axes> resolve_axes(std::span<const int64_t> axes, int rank) {
  Axes resolved;
  if (axes.empty()) {
    for (int i = 0; i < rank; ++i) resolved.push_back(i);
  }
  for (const int64_t axis : axes) {
    if (axis < -rank || axis >= rank) {
      return invalid_argument("axis {} of a value with {} dimensions", axis, rank);
    }
    resolved.push_back(static_cast<int>(axis < 0 ? axis + rank : axis));
  }
  std::sort(resolved.begin(), resolved.end());
  if (std::adjacent_find(resolved.begin(), resolved.end()) != resolved.end()) {
    return invalid_argument("an axis is named twice");
  }
  return resolved;
}

/// `shape` with the (sorted) axes left out, or kept with extent 1.
Shape reduced_shape(const Shape& shape, const Axes& axes, bool keep_dims) {
  Shape out;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!std::binary_search(axes.begin(), axes.end(), i)) {
      out.append(shape.dim(i));
    } else if (keep_dims) {
      out.append(1);
    }
  }
  return out;
}

struct AxesAttrs {
  std::vector<int64_t> axes;
  bool keep_dims = false;
  bool mean = false;
};

Result<AxesAttrs> axes_attrs(const BindContext& bind) {
  AxesAttrs attrs;
  SR_ASSIGN_OR_RETURN(attrs.axes,
                      ir::get_attr<std::vector<int64_t>>(bind.instruction.attrs, "axes"));
  attrs.keep_dims = ir::attr_or(bind.instruction.attrs, "keep_dims", false);
  attrs.mean = ir::attr_or(bind.instruction.attrs, "mean", false);
  return attrs;
}

/// Types in which reductions compute; the 16-bit floats are widened, bools are bytes.
using Computed = tensor::Join<tensor::RealTypes, tensor::IntegerTypes>;

Status run_reduce(KernelContext& c, ReduceOp op, const AxesAttrs& attrs) {
  const Tensor x = widened(c, c.input(0));
  SR_ASSIGN_OR_RETURN(const Axes axes, resolve_axes(attrs.axes, x.shape().rank()));
  WideOutput out(c, 0, reduced_shape(x.shape(), axes, attrs.keep_dims));
  return with_dtype<Computed>(x.dtype(), [&]<class T>() -> Status {
    kernels::reduce_axes<T>(op, x.data<const T>().data(), x.shape(), axes, out.data<T>());
    return out.store();
  });
}

/// Any and all: the greatest and the smallest of bytes 0 and 1.
Status run_bool_reduce(KernelContext& c, ReduceOp op, const AxesAttrs& attrs) {
  SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kBool));
  const Tensor x = c.input(0);
  SR_ASSIGN_OR_RETURN(const Axes axes, resolve_axes(attrs.axes, x.shape().rank()));
  const Tensor& out = c.output(0, reduced_shape(x.shape(), axes, attrs.keep_dims));
  auto* to = reinterpret_cast<uint8_t*>(out.raw());
  kernels::reduce_axes<uint8_t>(op, reinterpret_cast<const uint8_t*>(x.raw()), x.shape(), axes, to);
  // The least byte there is stands for "nothing"; the greatest, 255, must become true.
  for (int64_t i = 0; i < out.num_elements(); ++i) to[i] = to[i] != 0 ? 1 : 0;
  return {};
}

using RunReduce = Status (*)(KernelContext&, ReduceOp, const AxesAttrs&);

KernelFactory reduce(ReduceOp op, RunReduce run = run_reduce) {
  return with_arity(
      1, 1, 1, like_input([op, run](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
        SR_ASSIGN_OR_RETURN(const AxesAttrs attrs, axes_attrs(bind));
        return make_kernel([op, run, attrs](KernelContext& c) { return run(c, op, attrs); });
      }));
}

/// (dy, x) -> the gradient of a product of x over the axes.
Result<std::unique_ptr<Kernel>> prod_grad(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const AxesAttrs attrs, axes_attrs(bind));
  return make_kernel([attrs](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_one_dtype(c));
    const DType dtype = c.input(0).dtype();
    const Tensor dy = widened(c, c.input(0));
    const Tensor x = widened(c, c.input(1));
    SR_ASSIGN_OR_RETURN(const Axes axes, resolve_axes(attrs.axes, x.shape().rank()));
    const Shape kept = reduced_shape(x.shape(), axes, true);
    if (dy.num_elements() != kept.num_elements()) {
      return invalid_argument("{} is no gradient of a product of {}", dy.to_string(),
                              x.to_string());
    }
    WideOutput out(c, 0, x.shape());
    const Tensor running = c.temporary(x.dtype(), kept);
    return with_compute(dtype, [&]<class T>() -> Status {
      kernels::prod_grad<T>(dy.data<const T>().data(), x.data<const T>().data(), x.shape(), kept,
                            running.data<T>().data(), out.data<T>());
      return out.store();
    });
  });
}

Result<std::unique_ptr<Kernel>> prod_grad_grad(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const AxesAttrs attrs, axes_attrs(bind));
  return make_kernel([attrs](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_one_dtype(c));
    const DType dtype = c.input(0).dtype();
    const Tensor dy = widened(c, c.input(0));
    const Tensor x = widened(c, c.input(1));
    const Tensor u = widened(c, c.input(2));
    SR_ASSIGN_OR_RETURN(const Axes axes, resolve_axes(attrs.axes, x.shape().rank()));
    const Shape kept = reduced_shape(x.shape(), axes, true);
    if (dy.num_elements() != kept.num_elements() || u.shape() != x.shape()) {
      return invalid_argument("{} and {} are no gradients of and for a product of {}",
                              dy.to_string(), u.to_string(), x.to_string());
    }
    WideOutput out(c, 0, x.shape());
    const Tensor running = c.temporary(x.dtype(), Shape{2, kept.num_elements()});
    const Tensor before = c.temporary(x.dtype(), x.shape());
    return with_compute(dtype, [&]<class T>() -> Status {
      kernels::prod_grad_grad<T>(dy.data<const T>().data(), x.data<const T>().data(),
                                 u.data<const T>().data(), x.shape(), kept,
                                 running.data<T>().data(), before.data<T>().data(), out.data<T>());
      return out.store();
    });
  });
}

Status run_arg_reduce(KernelContext& c, bool greatest, int64_t axis_attr) {
  const Tensor x = widened(c, c.input(0));
  SR_ASSIGN_OR_RETURN(const Axes axes, resolve_axes({&axis_attr, 1}, x.shape().rank()));
  const int axis = axes[0];
  kernels::ReduceDims dims;
  for (int i = 0; i < axis; ++i) dims.outer *= x.shape().dim(i);
  dims.reduce = x.shape().dim(axis);
  for (int i = axis + 1; i < x.shape().rank(); ++i) dims.inner *= x.shape().dim(i);
  const Shape shape = reduced_shape(x.shape(), axes, false);
  if (dims.reduce == 0 && shape.num_elements() > 0) {
    return invalid_argument("axis {} of {} is empty: it has no greatest or smallest element", axis,
                            x.to_string());
  }
  Tensor& out = c.output(0, shape);
  return with_dtype<Computed>(x.dtype(), [&]<class T>() -> Status {
    return with_dtype<tensor::IndexTypes>(out.dtype(), [&]<class Index>() -> Status {
      kernels::arg_reduce(greatest, x.data<const T>().data(), dims, out.data<Index>().data());
      return {};
    });
  });
}

KernelFactory arg_reduce(bool greatest) {
  return with_arity(
      1, 1, 1, [greatest](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
        SR_ASSIGN_OR_RETURN(const int64_t axis,
                            ir::get_attr<int64_t>(bind.instruction.attrs, "axis"));
        const DType dtype = ir::attr_or(bind.instruction.attrs, "output_dtype", DType::kInt64);
        SR_RETURN_IF_ERROR(check_slot(bind, bind.instruction.outputs[0], dtype, "the output"));
        return make_kernel(
            [greatest, axis](KernelContext& c) { return run_arg_reduce(c, greatest, axis); });
      });
}

/// (g, like) -> g repeated along the axes that were reduced; divided by their extent for a mean.
Result<std::unique_ptr<Kernel>> broadcast_axes(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const AxesAttrs attrs, axes_attrs(bind));
  return make_kernel([attrs](KernelContext& c) -> Status {
    const Tensor g = c.input(0);
    const Shape to = c.input(1).shape();
    SR_ASSIGN_OR_RETURN(const Axes axes, resolve_axes(attrs.axes, to.rank()));
    const Shape kept = reduced_shape(to, axes, true);
    if (g.num_elements() != kept.num_elements()) {
      return invalid_argument("{} does not broadcast to {}", g.to_string(), to.to_string());
    }
    if (!attrs.mean) {
      return with_width(g.dtype(), [&]<class T>() -> Status {
        kernels::broadcast_to<T>(reinterpret_cast<const T*>(g.raw()), kept, to,
                                 reinterpret_cast<T*>(c.output(0, to).raw()));
        return {};
      });
    }
    const Tensor wide = widened(c, g);
    WideOutput out(c, 0, to);
    return with_compute(g.dtype(), [&]<class T>() -> Status {
      kernels::broadcast_to<T>(wide.data<const T>().data(), kept, to, out.data<T>());
      if (g.num_elements() > 0) {
        const T count = static_cast<T>(to.num_elements()) / static_cast<T>(g.num_elements());
        kernels::scale<T>(1 / count, out.data<T>(), out.data<T>(), to.num_elements());
      }
      return out.store();
    });
  });
}

Status sum_to_shape_of(KernelContext& c) {
  const Tensor g = widened(c, c.input(0));
  const Shape to = c.input(1).shape();
  Shape both;
  if (!kernels::broadcast_shape(g.shape(), to, &both) || !(both == g.shape())) {
    return invalid_argument("{} was not broadcast from {}", g.to_string(), to.to_string());
  }
  WideOutput out(c, 0, to);
  return with_dtype<Computed>(g.dtype(), [&]<class T>() -> Status {
    kernels::reduce_to_shape<T>(g.data<const T>().data(), g.shape(), to, out.data<T>());
    return out.store();
  });
}

Status broadcast_like(KernelContext& c) {
  const Tensor x = c.input(0);
  const Shape to = c.input(1).shape();
  Shape both;
  if (!kernels::broadcast_shape(x.shape(), to, &both) || !(both == to)) {
    return invalid_argument("{} does not broadcast to {}", x.to_string(), to.to_string());
  }
  return with_width(x.dtype(), [&]<class T>() -> Status {
    kernels::broadcast_to<T>(reinterpret_cast<const T*>(x.raw()), x.shape(), to,
                             reinterpret_cast<T*>(c.output(0, to).raw()));
    return {};
  });
}

}  // namespace

void register_reduce_kernels(KernelTable* table) {
  table->add("ReduceSum", reduce(ReduceOp::kSum));
  table->add("ReduceMean", reduce(ReduceOp::kMean));
  table->add("ReduceProd", reduce(ReduceOp::kProd));
  table->add("ReduceMax", reduce(ReduceOp::kMax));
  table->add("ReduceMin", reduce(ReduceOp::kMin));
  table->add("ReduceAny", reduce(ReduceOp::kMax, run_bool_reduce));
  table->add("ReduceAll", reduce(ReduceOp::kMin, run_bool_reduce));
  table->add("ProdGrad", with_arity(2, 2, 1, like_input(prod_grad)));
  table->add("ProdGradGrad", with_arity(3, 3, 1, like_input(prod_grad_grad)));
  table->add("ArgMax", arg_reduce(true));
  table->add("ArgMin", arg_reduce(false));
  table->add("BroadcastAxes", with_arity(2, 2, 1, like_input(broadcast_axes)));
  table->add("SumToShapeOf", with_arity(2, 2, 1, like_input(stateless(sum_to_shape_of))));
  table->add("BroadcastLike", with_arity(2, 2, 1, like_input(stateless(broadcast_like))));
}

}  // namespace sidereal::exec
