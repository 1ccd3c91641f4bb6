#include <cstring>
#include <vector>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/matmul.h"
#include "sidereal/kernels/reduce.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::BinaryOp;
using tensor::Shape;
using tensor::Tensor;

/// How a product of stacks of matrices is laid out.
struct BatchPlan {
  kernels::MatMulDims dims;
  Shape batch;    ///< Of the output, in front of [m, n].
  Shape a_batch;  ///< Broadcast to `batch`, as b_batch.
  Shape b_batch;
};

Shape front_of(const Shape& shape) { return Shape(shape.dims().first(shape.rank() - 2)); }

Result<BatchPlan> plan_mat_mul(const Tensor& a, const Tensor& b, bool ta, bool tb) {
  if (a.shape().rank() < 2 || b.shape().rank() < 2) {
    return invalid_argument("{} and {} must have at least 2 dimensions", a.to_string(),
                            b.to_string());
  }
  BatchPlan plan;
  plan.dims = {.m = a.shape().dim(ta ? -1 : -2),
               .k = a.shape().dim(ta ? -2 : -1),
               .n = b.shape().dim(tb ? -2 : -1),
               .trans_a = ta,
               .trans_b = tb};
  if (b.shape().dim(tb ? -1 : -2) != plan.dims.k) {
    return invalid_argument("inner extents {} and {} differ", plan.dims.k,
                            b.shape().dim(tb ? -1 : -2));
  }
  plan.a_batch = front_of(a.shape());
  plan.b_batch = front_of(b.shape());
  if (!kernels::broadcast_shape(plan.a_batch, plan.b_batch, &plan.batch)) {
    return invalid_argument("the stacks {} and {} of matrices do not broadcast",
                            plan.a_batch.to_string(), plan.b_batch.to_string());
  }
  return plan;
}

template <class T>
void run_batch(const BatchPlan& plan, const T* a, const T* b, T* out) {
  kernels::MatMulDims dims = plan.dims;
  // One matrix on the right: the stack on the left is one tall matrix.
  if (plan.b_batch.num_elements() == 1 && !dims.trans_a) {
    dims.m *= plan.batch.num_elements();
    return kernels::mat_mul<T>(a, b, out, dims);
  }
  const kernels::RowOffsets a_at(plan.a_batch, plan.batch);
  const kernels::RowOffsets b_at(plan.b_batch, plan.batch);
  for (int64_t i = 0; i < plan.batch.num_elements(); ++i) {
    kernels::mat_mul<T>(a + a_at(i) * dims.m * dims.k, b + b_at(i) * dims.k * dims.n,
                        out + i * dims.m * dims.n, dims);
  }
}

/// What products are computed in; the 16-bit floats are widened.
using Multiplied = tensor::Join<tensor::RealTypes, tensor::IndexTypes>;

Result<std::unique_ptr<Kernel>> mat_mul(const BindContext& bind) {
  const bool ta = ir::attr_or(bind.instruction.attrs, "transpose_a", false);
  const bool tb = ir::attr_or(bind.instruction.attrs, "transpose_b", false);
  return make_kernel([ta, tb](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_one_dtype(c));
    const Tensor a = widened(c, c.input(0));
    const Tensor b = widened(c, c.input(1));
    SR_ASSIGN_OR_RETURN(const BatchPlan plan, plan_mat_mul(a, b, ta, tb));
    Shape shape = plan.batch;
    shape.append(plan.dims.m);
    shape.append(plan.dims.n);
    WideOutput out(c, 0, shape);
    return tensor::with_dtype<Multiplied>(a.dtype(), [&]<class T>() -> Status {
      run_batch<T>(plan, a.data<const T>().data(), b.data<const T>().data(), out.data<T>());
      return out.store();
    });
  });
}

Status run_add_n(KernelContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) SR_RETURN_IF_ERROR(check_same(c, 0, i));
  const Tensor first = c.input(0);
  const int64_t n = first.num_elements();
  Tensor& out = c.output(0, first.shape());
  if (c.num_inputs() == 1) {
    if (n > 0 && out.raw() != first.raw()) std::memcpy(out.raw(), first.raw(), first.nbytes());
    return {};
  }
  return tensor::with_dtype<tensor::NumericTypes>(first.dtype(), [&]<class T>() -> Status {
    const T* sum = first.data<const T>().data();
    for (int i = 1; i < c.num_inputs(); ++i) {
      T* to = out.data<T>().data();
      kernels::binary<T>(BinaryOp::kAdd, sum, c.input(i).data<const T>().data(), to, n);
      sum = to;
    }
    return {};
  });
}

}  // namespace

void register_math_kernels(KernelTable* table) {
  table->add("MatMul", with_arity(2, 2, 1, like_input(mat_mul)));
  table->add("AddN", with_arity(1, -1, 1, like_input(stateless(run_add_n))));
}

}  // namespace sidereal::exec
