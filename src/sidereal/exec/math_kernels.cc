#include <algorithm>
#include <cstring>
#include <memory>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/exec/product.h"
#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/reduce.h"

namespace sidereal::exec {
namespace {

using kernels::BinaryOp;
using tensor::DType;
using tensor::Tensor;

/// What other products than those of float32 and bfloat16 are computed in.
using Multiplied = tensor::Join<tensor::TypeList<double>, tensor::IndexTypes>;

Result<std::unique_ptr<Kernel>> mat_mul(const BindContext& bind) {
  const bool ta = ir::attr_or(bind.instruction.attrs, "transpose_a", false);
  const bool tb = ir::attr_or(bind.instruction.attrs, "transpose_b", false);
  const auto product = std::make_shared<Product>();
  return make_kernel([ta, tb, product](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_one_dtype(c));
    SR_ASSIGN_OR_RETURN(const ProductPlan plan, plan_product(c.input(0), c.input(1), ta, tb));
    const DType dtype = c.input(0).dtype();
    if (dtype == DType::kFloat32 || dtype == DType::kBFloat16) {
      return product->run(c, plan, c.input(0), c.input(1), {});
    }
    const Tensor a = widened(c, c.input(0));
    const Tensor b = widened(c, c.input(1));
    WideOutput out(c, 0, plan.out_shape());
    if (a.dtype() == DType::kFloat32) {  // From float16.
      product->run(c, plan, a.data<const float>().data(), b.data<const float>().data(), {},
                   out.data<float>());
      return out.store();
    }
    return tensor::with_dtype<Multiplied>(a.dtype(), [&]<class T>() -> Status {
      run_product<T>(c, plan, a.data<const T>().data(), b.data<const T>().data(), out.data<T>());
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
    T* to = out.data<T>().data();
    c.parallel(n, kGrain, [&](int64_t begin, int64_t end) {
      // Block by block, so that the sum stays near.
      constexpr int64_t kBlock = 4096;
      for (int64_t at = begin; at < end; at += kBlock) {
        const int64_t count = std::min(kBlock, end - at);
        const T* sum = first.data<const T>().data() + at;
        for (int i = 1; i < c.num_inputs(); ++i) {
          kernels::binary<T>(BinaryOp::kAdd, sum, c.input(i).data<const T>().data() + at, to + at,
                             count);
          sum = to + at;
        }
      }
    });
    return {};
  });
}

}  // namespace

void register_math_kernels(KernelTable* table) {
  table->add("MatMul", with_arity(2, 2, 1, like_input_or_wide(mat_mul)));
  table->add("AddN", with_arity(1, -1, 1, like_input(stateless(run_add_n))));
}

}  // namespace sidereal::exec
