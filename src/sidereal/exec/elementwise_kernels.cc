#include "sidereal/exec/kernel_util.h"
#include "sidereal/exec/string_util.h"
#include "sidereal/kernels/elementwise.h"

/// Ops that work element by element, broadcasting where they have more than one input.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::BinaryOp;
using kernels::BitOp;
using kernels::CompareOp;
using kernels::TestOp;
using kernels::UnaryOp;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using tensor::with_dtype;

/// Types an op without a function for integers, or with one, takes.
using Floats = tensor::FloatTypes;
using Numbers = tensor::NumericTypes;
using Integers = tensor::IntegerTypes;
using Bools = tensor::TypeList<bool>;

template <class Types>
KernelFactory unary(UnaryOp op) {
  return with_arity(1, 1, 1, like_input(stateless([op](KernelContext& c) {
                      const Tensor& x = c.input(0);
                      return with_dtype<Types>(x.dtype(), [&]<class T>() -> Status {
                        const T* from = x.data<const T>().data();
                        T* to = c.output(0, x.shape()).data<T>().data();
                        c.parallel(x.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
                          kernels::unary(op, from + begin, to + begin, end - begin);
                        });
                        return {};
                      });
                    })));
}

Result<Shape> broadcast(const Shape& a, const Shape& b) {
  Shape shape;
  if (kernels::broadcast_shape(a, b, &shape)) return shape;
  return invalid_argument("shapes {} and {} do not broadcast", a.to_string(), b.to_string());
}

/// What integers cannot do: divide by zero, and take a negative power.
template <class T>
Status check_integers(BinaryOp op, const Tensor& divisor, int64_t elements) {
  if constexpr (std::is_integral_v<T>) {
    const T* data = divisor.data<const T>().data();
    const bool divides =
        op == BinaryOp::kDiv || op == BinaryOp::kFloorDiv || op == BinaryOp::kFloorMod;
    if (divides && elements > 0 && kernels::any_zero(data, divisor.num_elements())) {
      return invalid_argument("integer division by zero");
    }
    if (op == BinaryOp::kPow && elements > 0 &&
        kernels::any_negative(data, divisor.num_elements())) {
      return invalid_argument(
          "an integer cannot be raised to a negative power; cast to a float dtype");
    }
  }
  return {};
}

/// Runs an op of two inputs of one dtype that broadcast: run.operator()<T>(c, a, b, shape).
template <class Types, class Run>
KernelFactory broadcasting(Run run) {
  return stateless([run](KernelContext& c) -> Status {
    // The output may take over an input's memory, never its Tensor.
    const Tensor& a = c.input(0);
    const Tensor& b = c.input(1);
    SR_RETURN_IF_ERROR(check_one_dtype(c));
    if (a.shape() == b.shape()) {
      return with_dtype<Types>(a.dtype(), [&]<class T>() -> Status {
        return run.template operator()<T>(c, a, b, a.shape());
      });
    }
    SR_ASSIGN_OR_RETURN(const Shape shape, broadcast(a.shape(), b.shape()));
    return with_dtype<Types>(
        a.dtype(), [&]<class T>() -> Status { return run.template operator()<T>(c, a, b, shape); });
  });
}

template <class Types>
KernelFactory binary(BinaryOp op) {
  const auto run = [op]<class T>(KernelContext& c, const Tensor& a, const Tensor& b,
                                 const Shape& shape) -> Status {
    SR_RETURN_IF_ERROR(check_integers<T>(op, b, shape.num_elements()));
    const T* x = a.data<const T>().data();
    const T* y = b.data<const T>().data();
    T* out = c.output(0, shape).template data<T>().data();
    if (&shape == &a.shape()) {
      c.parallel(a.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
        kernels::binary<T>(op, x + begin, y + begin, out + begin, end - begin);
      });
    } else {
      kernels::binary_broadcast<T>(op, x, a.shape(), y, b.shape(), out);
    }
    return {};
  };
  return with_arity(2, 2, 1, like_input(broadcasting<Types>(run)));
}

/// Numbers are added, strings are joined.
KernelFactory add() {
  const KernelFactory strings = with_arity(
      2, 2, 1, like_input(stateless([](KernelContext& c) { return join_inputs(c, ""); })));
  return [numbers = binary<Numbers>(BinaryOp::kAdd), strings](const BindContext& bind) {
    const std::vector<int32_t>& inputs = bind.instruction.inputs;
    const bool text = !inputs.empty() && bind.program.slots[inputs[0]].dtype == DType::kString;
    return text ? strings(bind) : numbers(bind);
  };
}

template <class Types>
KernelFactory compare(CompareOp op) {
  const auto run = [op]<class T>(KernelContext& c, const Tensor& a, const Tensor& b,
                                 const Shape& shape) -> Status {
    kernels::compare_broadcast<T>(op, a.data<const T>().data(), a.shape(), b.data<const T>().data(),
                                  b.shape(), c.output(0, shape).template data<bool>().data());
    return {};
  };
  return with_arity(2, 2, 1, with_outputs({DType::kBool}, broadcasting<Types>(run)));
}

template <class Types>
KernelFactory bitwise(BitOp op) {
  const auto run = [op]<class T>(KernelContext& c, const Tensor& a, const Tensor& b,
                                 const Shape& shape) -> Status {
    kernels::bit_broadcast<T>(op, a.data<const T>().data(), a.shape(), b.data<const T>().data(),
                              b.shape(), c.output(0, shape).template data<T>().data());
    return {};
  };
  return with_arity(2, 2, 1, like_input(broadcasting<Types>(run)));
}

template <class Types>
KernelFactory invert() {
  return with_arity(1, 1, 1, like_input(stateless([](KernelContext& c) {
                      const Tensor x = c.input(0);
                      return with_dtype<Types>(x.dtype(), [&]<class T>() -> Status {
                        kernels::invert(x.data<const T>().data(),
                                        c.output(0, x.shape()).data<T>().data(), x.num_elements());
                        return {};
                      });
                    })));
}

KernelFactory classify(TestOp op) {
  const auto run = [op](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    return with_dtype<Floats>(x.dtype(), [&]<class T>() -> Status {
      kernels::classify(op, x.data<const T>().data(), c.output(0, x.shape()).data<bool>().data(),
                        x.num_elements());
      return {};
    });
  };
  return with_arity(1, 1, 1, with_outputs({DType::kBool}, stateless(run)));
}

Status run_select(KernelContext& c) {
  SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kBool));
  SR_RETURN_IF_ERROR(check_one_dtype(c, 1));
  const Tensor condition = c.input(0);
  const Tensor a = c.input(1);
  const Tensor b = c.input(2);
  SR_ASSIGN_OR_RETURN(Shape shape, broadcast(a.shape(), b.shape()));
  SR_ASSIGN_OR_RETURN(shape, broadcast(condition.shape(), shape));
  return with_width(a.dtype(), [&]<class T>() -> Status {
    kernels::select_broadcast<T>(condition.data<const bool>().data(), condition.shape(),
                                 reinterpret_cast<const T*>(a.raw()), a.shape(),
                                 reinterpret_cast<const T*>(b.raw()), b.shape(), shape,
                                 reinterpret_cast<T*>(c.output(0, shape).raw()));
    return {};
  });
}

Result<std::unique_ptr<Kernel>> select(const BindContext& bind) {
  const program::Program& program = bind.program;
  SR_RETURN_IF_ERROR(check_slot(bind, bind.instruction.outputs[0],
                                program.slots[bind.instruction.inputs[1]].dtype, "the output"));
  return make_kernel(run_select);
}

using GradFunction = void (*)(const float*, const float*, float*, int64_t);
using GradFunction64 = void (*)(const double*, const double*, double*, int64_t);

/// Kernels f(dy, y) -> dx, element by element.
KernelFactory activation_grad(GradFunction f32, GradFunction64 f64) {
  const auto run = [f32, f64](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_same(c, 0, 1));
    const DType dtype = c.input(0).dtype();
    const Tensor dy = widened(c, c.input(0));
    const Tensor y = widened(c, c.input(1));
    WideOutput out(c, 0, dy.shape());
    return with_compute(dtype, [&]<class T>() -> Status {
      const T* g = dy.data<const T>().data();
      const T* at = y.data<const T>().data();
      T* to = out.data<T>();
      c.parallel(dy.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
        if constexpr (std::is_same_v<T, float>) {
          f32(g + begin, at + begin, to + begin, end - begin);
        } else {
          f64(g + begin, at + begin, to + begin, end - begin);
        }
      });
      return out.store();
    });
  };
  return with_arity(2, 2, 1, like_input(stateless(run)));
}

/// An array like the input, all `value`.
KernelFactory like(double value) {
  return with_arity(1, 1, 1, like_input(stateless([value](KernelContext& c) {
                      const Tensor x = c.input(0);
                      return with_dtype<tensor::PlainTypes>(x.dtype(), [&]<class T>() -> Status {
                        const std::span<T> out = c.output(0, x.shape()).data<T>();
                        std::fill(out.begin(), out.end(), static_cast<T>(value));
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

void register_unary(KernelTable* table) {
  table->add("Neg", unary<Numbers>(UnaryOp::kNeg));
  table->add("Square", unary<Numbers>(UnaryOp::kSquare));
  table->add("Abs", unary<Numbers>(UnaryOp::kAbs));
  table->add("Sign", unary<Numbers>(UnaryOp::kSign));
  table->add("Relu", unary<Numbers>(UnaryOp::kRelu));
  table->add("Relu6", unary<Numbers>(UnaryOp::kRelu6));
  constexpr std::pair<const char*, UnaryOp> kOfFloats[] = {
      {"Exp", UnaryOp::kExp},           {"Log", UnaryOp::kLog},
      {"Log1p", UnaryOp::kLog1p},       {"Sqrt", UnaryOp::kSqrt},
      {"Rsqrt", UnaryOp::kRsqrt},       {"Reciprocal", UnaryOp::kReciprocal},
      {"Sigmoid", UnaryOp::kSigmoid},   {"Tanh", UnaryOp::kTanh},
      {"Softplus", UnaryOp::kSoftplus}, {"Floor", UnaryOp::kFloor},
      {"Ceil", UnaryOp::kCeil},         {"Round", UnaryOp::kRound},
      {"Trunc", UnaryOp::kTrunc},       {"Expm1", UnaryOp::kExpm1},
      {"Sin", UnaryOp::kSin},           {"Cos", UnaryOp::kCos},
      {"Tan", UnaryOp::kTan},           {"Asin", UnaryOp::kAsin},
      {"Acos", UnaryOp::kAcos},         {"Atan", UnaryOp::kAtan},
      {"Sinh", UnaryOp::kSinh},         {"Cosh", UnaryOp::kCosh},
      {"Asinh", UnaryOp::kAsinh},       {"Acosh", UnaryOp::kAcosh},
      {"Atanh", UnaryOp::kAtanh},       {"Erf", UnaryOp::kErf},
      {"Erfc", UnaryOp::kErfc},         {"Lgamma", UnaryOp::kLgamma},
      {"Digamma", UnaryOp::kDigamma},   {"Trigamma", UnaryOp::kTrigamma},
      {"Elu", UnaryOp::kElu},           {"Selu", UnaryOp::kSelu},
      {"Silu", UnaryOp::kSilu},         {"Gelu", UnaryOp::kGelu},
  };
  for (const auto& [name, op] : kOfFloats) table->add(name, unary<Floats>(op));
  table->add("IsNan", classify(TestOp::kIsNan));
  table->add("IsInf", classify(TestOp::kIsInf));
  table->add("IsFinite", classify(TestOp::kIsFinite));
  table->add("Invert", invert<Integers>());
  table->add("LogicalNot", invert<Bools>());
}

void register_binary(KernelTable* table) {
  table->add("Add", add());
  table->add("Sub", binary<Numbers>(BinaryOp::kSub));
  table->add("Mul", binary<Numbers>(BinaryOp::kMul));
  table->add("Div", binary<Numbers>(BinaryOp::kDiv));
  table->add("Maximum", binary<Numbers>(BinaryOp::kMaximum));
  table->add("Minimum", binary<Numbers>(BinaryOp::kMinimum));
  table->add("FloorDiv", binary<Numbers>(BinaryOp::kFloorDiv));
  table->add("FloorMod", binary<Numbers>(BinaryOp::kFloorMod));
  table->add("Pow", binary<Numbers>(BinaryOp::kPow));
  table->add("SquaredDifference", binary<Numbers>(BinaryOp::kSquaredDifference));
  table->add("Atan2", binary<Floats>(BinaryOp::kAtan2));
  table->add("DivNoNan", binary<Floats>(BinaryOp::kDivNoNan));
  table->add("Xlogy", binary<Floats>(BinaryOp::kXlogy));
  table->add("Xlog1py", binary<Floats>(BinaryOp::kXlog1py));
  table->add("Equal", compare<tensor::AllTypes>(CompareOp::kEqual));
  table->add("NotEqual", compare<tensor::AllTypes>(CompareOp::kNotEqual));
  table->add("Less", compare<Numbers>(CompareOp::kLess));
  table->add("LessEqual", compare<Numbers>(CompareOp::kLessEqual));
  table->add("Greater", compare<Numbers>(CompareOp::kGreater));
  table->add("GreaterEqual", compare<Numbers>(CompareOp::kGreaterEqual));
  table->add("LogicalAnd", bitwise<Bools>(BitOp::kAnd));
  table->add("LogicalOr", bitwise<Bools>(BitOp::kOr));
  table->add("LogicalXor", bitwise<Bools>(BitOp::kXor));
  table->add("BitwiseAnd", bitwise<Integers>(BitOp::kAnd));
  table->add("BitwiseOr", bitwise<Integers>(BitOp::kOr));
  table->add("BitwiseXor", bitwise<Integers>(BitOp::kXor));
  table->add("LeftShift", bitwise<Integers>(BitOp::kLeftShift));
  table->add("RightShift", bitwise<Integers>(BitOp::kRightShift));
}

}  // namespace

void register_elementwise_kernels(KernelTable* table) {
  register_unary(table);
  register_binary(table);
  table->add("Select", with_arity(3, 3, 1, select));
  table->add("Cast", with_arity(1, 1, 1, cast));
  table->add("OnesLike", like(1));
  table->add("ZerosLike", like(0));
  table->add("ReluGrad", activation_grad(kernels::relu_grad<float>, kernels::relu_grad<double>));
  table->add("SigmoidGrad",
             activation_grad(kernels::sigmoid_grad<float>, kernels::sigmoid_grad<double>));
  table->add("TanhGrad", activation_grad(kernels::tanh_grad<float>, kernels::tanh_grad<double>));
}

}  // namespace sidereal::exec
