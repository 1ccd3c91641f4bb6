#include <vector>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/matmul.h"
#include "sidereal/kernels/reduce.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::BinaryOp;
using kernels::UnaryOp;
using tensor::Shape;
using tensor::Tensor;

KernelFactory unary(UnaryOp op) {
  return with_arity(1, 1, 1, like_input(stateless([op](KernelContext& c) {
                      const Tensor& x = c.input(0);
                      return with_real(x.dtype(), [&]<class T>() -> Status {
                        const std::span<const T> in = x.data<const T>();
                        kernels::unary(op, in.data(), c.output(0, x.shape()).data<T>().data(),
                                       x.num_elements());
                        return {};
                      });
                    })));
}

Status run_binary(BinaryOp op, KernelContext& c) {
  // Copies: the output may take over an input's slot memory, never its Tensor.
  const Tensor a = c.input(0);
  const Tensor b = c.input(1);
  if (a.dtype() != b.dtype()) return invalid_argument("the inputs have different dtypes");
  Shape shape;
  if (!kernels::broadcast_shape(a.shape(), b.shape(), &shape)) {
    return invalid_argument("shapes {} and {} do not broadcast", a.shape().to_string(),
                            b.shape().to_string());
  }
  const auto run = [&]<class T>() -> Status {
    kernels::binary_broadcast<T>(op, a.data<const T>().data(), a.shape(), b.data<const T>().data(),
                                 b.shape(), c.output(0, shape).data<T>().data());
    return {};
  };
  if (a.dtype() == tensor::DType::kInt64) return run.template operator()<int64_t>();
  if (a.dtype() == tensor::DType::kInt32) return run.template operator()<int32_t>();
  return with_real(a.dtype(), run);
}

KernelFactory binary(BinaryOp op) {
  return with_arity(2, 2, 1,
                    like_input(stateless([op](KernelContext& c) { return run_binary(op, c); })));
}

using GradFunction = void (*)(const float*, const float*, float*, int64_t);
using GradFunction64 = void (*)(const double*, const double*, double*, int64_t);

/// Kernels f(dy, y) -> dx, element by element.
KernelFactory activation_grad(GradFunction f32, GradFunction64 f64) {
  return with_arity(
      2, 2, 1, like_input(stateless([f32, f64](KernelContext& c) -> Status {
        SR_RETURN_IF_ERROR(check_same(c, 0, 1));
        const Tensor dy = c.input(0);
        const Tensor y = c.input(1);
        return with_real(dy.dtype(), [&]<class T>() -> Status {
          T* out = c.output(0, dy.shape()).template data<T>().data();
          if constexpr (std::is_same_v<T, float>) {
            f32(dy.data<const T>().data(), y.data<const T>().data(), out, dy.num_elements());
          } else {
            f64(dy.data<const T>().data(), y.data<const T>().data(), out, dy.num_elements());
          }
          return {};
        });
      })));
}

Result<std::unique_ptr<Kernel>> mat_mul(const BindContext& bind) {
  const bool ta = ir::attr_or(bind.instruction.attrs, "transpose_a", false);
  const bool tb = ir::attr_or(bind.instruction.attrs, "transpose_b", false);
  return make_kernel([ta, tb](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_rank(c, 0, 2));
    SR_RETURN_IF_ERROR(check_rank(c, 1, 2));
    const Tensor& a = c.input(0);
    const Tensor& b = c.input(1);
    if (a.dtype() != b.dtype()) return invalid_argument("the inputs have different dtypes");
    const kernels::MatMulDims dims{.m = a.shape().dim(ta ? 1 : 0),
                                   .k = a.shape().dim(ta ? 0 : 1),
                                   .n = b.shape().dim(tb ? 0 : 1),
                                   .trans_a = ta,
                                   .trans_b = tb};
    if (b.shape().dim(tb ? 1 : 0) != dims.k) {
      return invalid_argument("inner extents {} and {} differ", dims.k, b.shape().dim(tb ? 1 : 0));
    }
    return with_real(a.dtype(), [&]<class T>() -> Status {
      T* out = c.output(0, Shape{dims.m, dims.n}).template data<T>().data();
      kernels::mat_mul<T>(a.data<const T>().data(), b.data<const T>().data(), out, dims);
      return {};
    });
  });
}

Status run_add_n(KernelContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) SR_RETURN_IF_ERROR(check_same(c, 0, i));
  const Tensor first = c.input(0);
  return with_real(first.dtype(), [&]<class T>() -> Status {
    const int64_t n = first.num_elements();
    T* out = c.output(0, first.shape()).template data<T>().data();
    if (c.num_inputs() == 1) {
      kernels::scale<T>(1, first.data<const T>().data(), out, n);
      return {};
    }
    const T* sum = first.data<const T>().data();
    for (int i = 1; i < c.num_inputs(); ++i) {
      kernels::binary<T>(BinaryOp::kAdd, sum, c.input(i).data<const T>().data(), out, n);
      sum = out;
    }
    return {};
  });
}

KernelFactory like(double value) {
  return with_arity(1, 1, 1, like_input(stateless([value](KernelContext& c) {
                      const Tensor& x = c.input(0);
                      return with_real(x.dtype(), [&]<class T>() -> Status {
                        Tensor& out = c.output(0, x.shape());
                        kernels::fill<T>(out.data<T>().data(), out.num_elements(),
                                         static_cast<T>(value));
                        return {};
                      });
                    })));
}

Result<std::unique_ptr<Kernel>> cast(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const ir::DType to, ir::get_attr<ir::DType>(bind.instruction.attrs, "dtype"));
  SR_RETURN_IF_ERROR(check_slot(bind, bind.instruction.outputs[0], to, "the output"));
  return make_kernel([to](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    Tensor& out = c.output(0, x.shape());
    if (!kernels::cast(x.dtype(), x.raw(), to, out.raw(), x.num_elements())) {
      return base::unimplemented("no cast from {} to {}", tensor::name_of(x.dtype()),
                                 tensor::name_of(to));
    }
    return {};
  });
}

}  // namespace

void register_math_kernels(KernelTable* table) {
  table->add("Add", binary(BinaryOp::kAdd));
  table->add("Sub", binary(BinaryOp::kSub));
  table->add("Mul", binary(BinaryOp::kMul));
  table->add("Div", binary(BinaryOp::kDiv));
  table->add("Maximum", binary(BinaryOp::kMaximum));
  table->add("Minimum", binary(BinaryOp::kMinimum));
  table->add("Neg", unary(UnaryOp::kNeg));
  table->add("Exp", unary(UnaryOp::kExp));
  table->add("Log", unary(UnaryOp::kLog));
  table->add("Log1p", unary(UnaryOp::kLog1p));
  table->add("Sqrt", unary(UnaryOp::kSqrt));
  table->add("Square", unary(UnaryOp::kSquare));
  table->add("Abs", unary(UnaryOp::kAbs));
  table->add("Sign", unary(UnaryOp::kSign));
  table->add("Sigmoid", unary(UnaryOp::kSigmoid));
  table->add("Tanh", unary(UnaryOp::kTanh));
  table->add("Relu", unary(UnaryOp::kRelu));
  table->add("Softplus", unary(UnaryOp::kSoftplus));
  table->add("ReluGrad", activation_grad(kernels::relu_grad<float>, kernels::relu_grad<double>));
  table->add("SigmoidGrad",
             activation_grad(kernels::sigmoid_grad<float>, kernels::sigmoid_grad<double>));
  table->add("TanhGrad", activation_grad(kernels::tanh_grad<float>, kernels::tanh_grad<double>));
  table->add("MatMul", with_arity(2, 2, 1, like_input(mat_mul)));
  table->add("AddN", with_arity(1, -1, 1, like_input(stateless(run_add_n))));
  table->add("OnesLike", like(1));
  table->add("ZerosLike", like(0));
  table->add("Cast", with_arity(1, 1, 1, cast));
}

}  // namespace sidereal::exec
