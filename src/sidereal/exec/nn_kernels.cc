#include "sidereal/exec/kernel_util.h"
#include "sidereal/exec/product.h"
#include "sidereal/kernels/nn.h"
#include "sidereal/kernels/reduce.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// Rows and columns of `x` seen as a matrix whose last extent is n.
Result<std::pair<int64_t, int64_t>> as_matrix(const Tensor& x) {
  if (x.shape().rank() < 1) return invalid_argument("a scalar has no last dimension");
  const int64_t n = x.shape().dim(-1);
  return std::pair<int64_t, int64_t>(n == 0 ? 0 : x.num_elements() / n, n);
}

Status bias_add(KernelContext& c) {
  SR_ASSIGN_OR_RETURN(const auto extents, as_matrix(c.input(0)));
  if (c.input(1).dtype() != c.input(0).dtype() || !(c.input(1).shape() == Shape{extents.second})) {
    return invalid_argument("a bias of {} does not fit {}", c.input(1).to_string(),
                            c.input(0).to_string());
  }
  const DType dtype = c.input(0).dtype();
  const Tensor x = widened(c, c.input(0));
  const Tensor b = widened(c, c.input(1));
  WideOutput out(c, 0, x.shape());
  return with_compute(dtype, [&]<class T>() -> Status {
    kernels::bias_add<T>(x.data<const T>().data(), b.data<const T>().data(), out.data<T>(),
                         extents.first, extents.second);
    return out.store();
  });
}

Status bias_add_grad(KernelContext& c) {
  const DType dtype = c.input(0).dtype();
  if (dtype == DType::kBFloat16) {
    SR_ASSIGN_OR_RETURN(const auto extents, as_matrix(c.input(0)));
    WideOutput out(c, 0, Shape{extents.second});
    kernels::bias_grad(c.in<tensor::BFloat16>(0).data(), extents.first, extents.second,
                       out.data<float>());
    return out.store();
  }
  const Tensor dy = widened(c, c.input(0));
  SR_ASSIGN_OR_RETURN(const auto extents, as_matrix(dy));
  WideOutput out(c, 0, Shape{extents.second});
  return with_compute(dtype, [&]<class T>() -> Status {
    kernels::bias_grad<T>(dy.data<const T>().data(), extents.first, extents.second, out.data<T>());
    return out.store();
  });
}

Status cross_entropy(KernelContext& c) {
  SR_RETURN_IF_ERROR(check_same(c, 0, 1));
  const DType dtype = c.input(0).dtype();
  const Tensor x = widened(c, c.input(0));
  const Tensor z = widened(c, c.input(1));
  WideOutput out(c, 0, x.shape());
  return with_compute(dtype, [&]<class T>() -> Status {
    kernels::sigmoid_cross_entropy<T>(x.data<const T>().data(), z.data<const T>().data(),
                                      out.data<T>(), x.num_elements());
    return out.store();
  });
}

Status cross_entropy_grad(KernelContext& c) {
  SR_RETURN_IF_ERROR(check_same(c, 0, 1));
  SR_RETURN_IF_ERROR(check_same(c, 0, 2));
  const DType dtype = c.input(0).dtype();
  const Tensor dy = widened(c, c.input(0));
  const Tensor x = widened(c, c.input(1));
  const Tensor z = widened(c, c.input(2));
  WideOutput out(c, 0, x.shape());
  return with_compute(dtype, [&]<class T>() -> Status {
    kernels::sigmoid_cross_entropy_grad<T>(dy.data<const T>().data(), x.data<const T>().data(),
                                           z.data<const T>().data(), out.data<T>(),
                                           x.num_elements());
    return out.store();
  });
}

kernels::FmDims fm_dims(const Tensor& x) {
  return {.batch = x.shape().dim(0), .fields = x.shape().dim(1), .dim = x.shape().dim(2)};
}

Status fm_interaction(KernelContext& c) {
  SR_RETURN_IF_ERROR(check_rank(c, 0, 3));
  const DType dtype = c.input(0).dtype();
  const Tensor x = widened(c, c.input(0));
  WideOutput out(c, 0, Shape{x.shape().dim(0), 1});
  return with_compute(dtype, [&]<class T>() -> Status {
    kernels::fm_interaction<T>(x.data<const T>().data(), fm_dims(x), out.data<T>());
    return out.store();
  });
}

Status fm_interaction_grad(KernelContext& c) {
  SR_RETURN_IF_ERROR(check_rank(c, 1, 3));
  SR_RETURN_IF_ERROR(check_one_dtype(c));
  const DType dtype = c.input(0).dtype();
  const Tensor dy = widened(c, c.input(0));
  const Tensor x = widened(c, c.input(1));
  if (dy.num_elements() != x.shape().dim(0)) {
    return invalid_argument("one gradient per row of the batch is needed");
  }
  WideOutput out(c, 0, x.shape());
  return with_compute(dtype, [&]<class T>() -> Status {
    kernels::fm_interaction_grad<T>(dy.data<const T>().data(), x.data<const T>().data(), fm_dims(x),
                                    out.data<T>());
    return out.store();
  });
}

Result<std::unique_ptr<Kernel>> dropout(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(const double rate, ir::get_attr<double>(attrs, "rate"));
  const auto seed = static_cast<uint64_t>(ir::attr_or<int64_t>(attrs, "seed", 0));
  const bool training = ir::attr_or(attrs, "training", false);
  if (!(rate >= 0 && rate < 1)) {
    return invalid_argument("rate {} must be at least 0 and below 1", rate);
  }
  return make_kernel([=](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const uint64_t stream, stream_of(c, 1));
    const DType dtype = c.input(0).dtype();
    const Tensor x = widened(c, c.input(0));
    const double drop = training ? rate : 0;
    WideOutput out(c, 0, x.shape());
    return with_compute(dtype, [&]<class T>() -> Status {
      kernels::dropout<T>(x.data<const T>().data(), drop, {.seed = seed, .step = stream},
                          out.data<T>(), x.num_elements());
      return out.store();
    });
  });
}

}  // namespace

void register_nn_kernels(KernelTable* table) {
  table->add("BiasAdd", with_arity(2, 2, 1, like_input(stateless(bias_add))));
  table->add("BiasAddGrad", with_arity(1, 1, 1, like_input_or_wide(stateless(bias_add_grad))));
  table->add("SigmoidCrossEntropyWithLogits",
             with_arity(2, 2, 1, like_input(stateless(cross_entropy))));
  table->add("SigmoidCrossEntropyGrad",
             with_arity(3, 3, 1, like_input(stateless(cross_entropy_grad))));
  table->add("FmInteraction", with_arity(1, 1, 1, like_input(stateless(fm_interaction))));
  table->add("FmInteractionGrad", with_arity(2, 2, 1, like_input(stateless(fm_interaction_grad))));
  table->add("Dropout", with_arity(1, 2, 1, like_input(dropout)));
}

}  // namespace sidereal::exec
