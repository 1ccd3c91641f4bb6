#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/exec/product.h"
#include "sidereal/ir/fused_code.h"
#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/matmul.h"
#include "sidereal/kernels/nn.h"
#include "sidereal/tensor/dispatch.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::BinaryOp;
using kernels::UnaryOp;
using tensor::BFloat16;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// Elements handled at a time: what a step makes is still in the first cache for the next one.
constexpr int64_t kBlock = 1024;

enum class GradOp : uint8_t { kRelu, kSigmoid, kTanh };

/// How a step is calculated.
struct StepKind {
  std::string_view op;
  enum : uint8_t { kUnary, kBinary, kGrad } kind;
  UnaryOp unary = UnaryOp::kNeg;
  BinaryOp binary = BinaryOp::kAdd;
  GradOp grad = GradOp::kRelu;
  bool alike = false;  ///< Both values have one shape.
};

StepKind unary_step(std::string_view op, UnaryOp kernel) {
  return {.op = op, .kind = StepKind::kUnary, .unary = kernel};
}
StepKind binary_step(std::string_view op, BinaryOp kernel) {
  return {.op = op, .kind = StepKind::kBinary, .binary = kernel};
}
StepKind grad_step(std::string_view op, GradOp kernel) {
  return {.op = op, .kind = StepKind::kGrad, .grad = kernel, .alike = true};
}
StepKind alike(StepKind kind) {
  kind.alike = true;
  return kind;
}

Result<StepKind> find_step(std::string_view op) {
  // Never destroyed: lanes may bind until the process is gone.
  static const auto& kKinds = *new const std::vector<StepKind>{
      unary_step("Abs", UnaryOp::kAbs),
      unary_step("Exp", UnaryOp::kExp),
      unary_step("Log", UnaryOp::kLog),
      unary_step("Log1p", UnaryOp::kLog1p),
      unary_step("Neg", UnaryOp::kNeg),
      unary_step("Relu", UnaryOp::kRelu),
      unary_step("Sigmoid", UnaryOp::kSigmoid),
      unary_step("Sign", UnaryOp::kSign),
      unary_step("Softplus", UnaryOp::kSoftplus),
      unary_step("Sqrt", UnaryOp::kSqrt),
      unary_step("Square", UnaryOp::kSquare),
      unary_step("Tanh", UnaryOp::kTanh),
      binary_step("Add", BinaryOp::kAdd),
      binary_step("Div", BinaryOp::kDiv),
      binary_step("Maximum", BinaryOp::kMaximum),
      binary_step("Minimum", BinaryOp::kMinimum),
      binary_step("Mul", BinaryOp::kMul),
      binary_step("Sub", BinaryOp::kSub),
      alike(binary_step("AddSame", BinaryOp::kAdd)),
      grad_step("ReluGrad", GradOp::kRelu),
      grad_step("SigmoidGrad", GradOp::kSigmoid),
      grad_step("TanhGrad", GradOp::kTanh),
  };
  for (const StepKind& kind : kKinds) {
    if (kind.op == op) return kind;
  }
  return base::unimplemented("'{}' has no fused form", op);
}

template <class T>
void run_step(const StepKind& kind, const T* a, const T* b, T* out, int64_t n) {
  switch (kind.kind) {
    case StepKind::kUnary:
      return kernels::unary<T>(kind.unary, a, out, n);
    case StepKind::kBinary:
      return kernels::binary<T>(kind.binary, a, b, out, n);
    case StepKind::kGrad:
      if (kind.grad == GradOp::kRelu) return kernels::relu_grad<T>(a, b, out, n);
      if (kind.grad == GradOp::kSigmoid) return kernels::sigmoid_grad<T>(a, b, out, n);
      return kernels::tanh_grad<T>(a, b, out, n);
  }
}

/// bfloat16 is widened where it is read and rounded where it is written.
DType computed_in(DType dtype) { return dtype == DType::kBFloat16 ? DType::kFloat32 : dtype; }

/// A factory that checks that everything is computed in one dtype, then goes on with `factory`.
KernelFactory mixed(KernelFactory factory) {
  return [factory =
              std::move(factory)](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
    const auto dtype = [&](int32_t slot) { return computed_in(bind.program.slots[slot].dtype); };
    const DType first = dtype(bind.instruction.inputs[0]);
    if (dtype(bind.instruction.outputs[0]) != first) {
      return invalid_argument("the output cannot be {} where input 0 is {}",
                              tensor::name_of(dtype(bind.instruction.outputs[0])),
                              tensor::name_of(first));
    }
    return factory(bind);
  };
}

/// Puts elements of a tensor that is broadcast to another shape where they are read, run by run.
class Repeater {
 public:
  /// Runs shorter than this are not worth it.
  static constexpr int64_t kRunMin = 16;

  Repeater(const Shape& from, const Shape& to)
      : copies_(from.dim(-1) == to.dim(-1)), at_(whole_dims(from, to)), rows_(cut(from), cut(to)) {
    for (int i = 1; i <= at_; ++i) run_ *= to.dim(-i);
  }

  [[nodiscard]] int64_t run() const { return run_; }

  /// Elements [at, at + count) of the broadcast array.
  template <class T>
  void read(const T* in, int64_t at, int64_t count, T* out) const {
    const int64_t end = at + count;
    while (at < end) {
      const int64_t row = at / run_;
      const int64_t first = at - row * run_;
      const int64_t size = std::min(run_ - first, end - at);
      const T* from = in + rows_(row) * (copies_ ? run_ : 1);
      if (copies_) {
        std::copy_n(from + first, size, out);
      } else {
        std::fill_n(out, size, *from);
      }
      out += size;
      at += size;
    }
  }

 private:
  /// How many dimensions at the end are read as they are, or are one element again and again.
  [[nodiscard]] int whole_dims(const Shape& from, const Shape& to) const {
    int count = 0;
    for (int i = 1; i <= to.rank(); ++i, ++count) {
      const int64_t mine = i <= from.rank() ? from.dim(-i) : 1;
      if (mine != (copies_ ? to.dim(-i) : 1)) break;
    }
    return count;
  }
  [[nodiscard]] Shape cut(const Shape& shape) const {
    return Shape(shape.dims().first(std::max(shape.rank() - at_, 0)));
  }

  bool copies_;
  int at_;
  int64_t run_ = 1;
  kernels::RowOffsets rows_;
};

/// A list of element-wise ops, block by block. Where no input has the shape of the result, or one
/// is broadcast to it in short runs, the ops run one after the other instead, each over all of its
/// elements.
class FusedElementwise final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const BindContext& bind) {
    const size_t inputs = bind.instruction.inputs.size();
    SR_ASSIGN_OR_RETURN(const auto code,
                        ir::get_attr<std::vector<std::string>>(bind.instruction.attrs, "code"));
    SR_ASSIGN_OR_RETURN(const auto steps, ir::parse_fused_code(code, inputs));
    std::unique_ptr<FusedElementwise> kernel(new FusedElementwise(inputs));
    for (const ir::FusedStep& step : steps) {
      SR_ASSIGN_OR_RETURN(const StepKind kind, find_step(step.op));
      kernel->steps_.push_back({kind, step.args[0], step.args[1], -1});
    }
    kernel->choose_places();
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status run(KernelContext& c) override {
    if (is_bfloat_relu_grad(c)) {
      const Tensor x = c.input(steps_[0].b);
      const Tensor out = c.output(0, x.shape());
      kernels::relu_grad(c.in<BFloat16>(steps_[0].a).data(), x.data<const BFloat16>().data(),
                         out.data<BFloat16>().data(), x.num_elements());
      return {};
    }
    tensors_.clear();
    for (size_t i = 0; i < num_inputs_; ++i) {
      tensors_.push_back(c.input(static_cast<int>(i)));
      if (computed_in(tensors_[i].dtype()) != computed_in(c.output_dtype(0))) {
        return invalid_argument("the inputs have different dtypes");
      }
    }
    Status status = tensor::with_dtype<tensor::RealTypes>(
        computed_in(c.output_dtype(0)),
        [&]<class T>() -> Status { return is_even() ? run_blocks<T>(c) : run_whole<T>(c); });
    tensors_.clear();
    return status;
  }

 private:
  struct Step {
    StepKind kind;
    int32_t a;
    int32_t b;
    int32_t place;  // Block of scratch memory that takes the result; -1: the output.
  };

  explicit FusedElementwise(size_t inputs) : num_inputs_(inputs) {}

  /// The gradient of a layer's Relu between two products in bfloat16: worth a loop of its own.
  [[nodiscard]] bool is_bfloat_relu_grad(const KernelContext& c) const {
    const StepKind& kind = steps_[0].kind;
    if (steps_.size() != 1 || kind.kind != StepKind::kGrad || kind.grad != GradOp::kRelu) {
      return false;
    }
    const Tensor& grad = c.input(steps_[0].a);
    const Tensor& x = c.input(steps_[0].b);
    const auto is_narrow = [](DType dtype) { return dtype == DType::kBFloat16; };
    return is_narrow(grad.dtype()) && is_narrow(x.dtype()) && is_narrow(c.output_dtype(0)) &&
           grad.shape() == x.shape();
  }

  /// Scratch blocks: one per input, then as many as there are results alive at a time.
  void choose_places() {
    std::vector<int32_t> last(num_inputs_ + steps_.size(), -1);
    for (size_t i = 0; i < steps_.size(); ++i) {
      for (const int32_t arg : {steps_[i].a, steps_[i].b}) {
        if (arg >= 0) last[arg] = static_cast<int32_t>(i);
      }
    }
    std::vector<int32_t> free;
    auto places = static_cast<int32_t>(num_inputs_);
    for (size_t i = 0; i + 1 < steps_.size(); ++i) {
      if (free.empty()) free.push_back(places++);
      steps_[i].place = free.back();
      free.pop_back();
      const int32_t a = steps_[i].a;
      const int32_t b = steps_[i].b != a ? steps_[i].b : -1;
      for (const int32_t arg : {a, b}) {
        const auto step = arg - static_cast<int32_t>(num_inputs_);
        if (step < 0 || last[arg] != static_cast<int32_t>(i)) continue;
        free.push_back(steps_[step].place);
      }
      // Nobody reads it: its place is free at once.
      if (last[num_inputs_ + i] < 0) free.push_back(steps_[i].place);
    }
    num_places_ = static_cast<size_t>(places);
  }

  /// True when an input has the shape of the result, and every other one has it too, is a scalar,
  /// or is repeated in long runs, and steps whose values must be alike read such as have the shape
  /// of the result; sets shape_ and repeaters_.
  bool is_even() {
    repeaters_.clear();
    const Tensor* full = &tensors_[0];
    for (const Tensor& t : tensors_) {
      if (t.shape().rank() > full->shape().rank() || t.num_elements() > full->num_elements()) {
        full = &t;
      }
    }
    shape_ = full->shape();
    for (const Tensor& t : tensors_) {
      repeaters_.emplace_back();
      if (t.shape().rank() == 0 || t.shape() == shape_) continue;
      Shape both;
      if (!kernels::broadcast_shape(t.shape(), shape_, &both) || both != shape_) return false;
      if (t.dtype() == DType::kBFloat16 || shape_.num_elements() == 0) return false;
      repeaters_.back().emplace(t.shape(), shape_);
      if (repeaters_.back()->run() < Repeater::kRunMin) return false;
    }
    return are_alike();
  }

  /// See is_even(). A value is full when one that it was made of is.
  bool are_alike() {
    full_.clear();
    for (size_t i = 0; i < num_inputs_; ++i) full_.push_back(is_full(i));
    for (const Step& step : steps_) {
      const bool a = full_[step.a];
      const bool b = step.b < 0 ? a : full_[step.b];
      if (step.kind.alike && !(a && b)) return false;
      full_.push_back(a || b);
    }
    return true;
  }

  template <class T>
  Status run_blocks(KernelContext& c) {
    // An input is read before the output is written, block by block: it may be the same memory.
    const Tensor out = c.output(0, shape_);
    const bool rounds = out.dtype() == DType::kBFloat16;
    const int64_t n = shape_.num_elements();
    const int64_t block = std::min(n, kBlock);
    const size_t places = (num_places_ + (rounds ? 1 : 0)) * static_cast<size_t>(block);
    constexpr int64_t kPartsPerThread = 2;
    const int64_t parts =
        c.threads() == 1 ? 1 : std::clamp<int64_t>(n / kGrain, 1, kPartsPerThread * c.threads());
    const size_t bytes = places * sizeof(T) * static_cast<size_t>(parts);
    if (scratch_ == nullptr || scratch_->bytes() < bytes) {
      scratch_ = tensor::Buffer::allocate(bytes);
    }
    const size_t values = num_inputs_ + steps_.size();
    values_.resize(values * static_cast<size_t>(parts));
    const int64_t blocks = block == 0 ? 0 : (n + block - 1) / block;
    c.run_parts(parts, [&](int64_t part) {
      const auto which = static_cast<size_t>(part);
      T* scratch = reinterpret_cast<T*>(scratch_->data()) + which * places;
      const int64_t from = blocks * part / parts * block;
      const int64_t to = std::min(n, blocks * (part + 1) / parts * block);
      run_range<T>(out, scratch, values_.data() + which * values, block, {from, to});
    });
    return {};
  }

  /// Elements [range.first, range.second), with scratch memory and a list of values of its own.
  template <class T>
  void run_range(const Tensor& out, T* scratch, const void** values, int64_t block,
                 std::pair<int64_t, int64_t> range) {
    const bool rounds = out.dtype() == DType::kBFloat16;
    for (size_t i = 0; i < num_inputs_; ++i) {
      values[i] = tensors_[i].raw();
      if (is_full(i)) continue;
      T* filled = scratch + i * block;
      values[i] = filled;
      // A scalar stands in its block as often as a block has elements.
      if (!repeaters_[i]) kernels::fill<T>(filled, block, scalar<T>(tensors_[i]));
    }
    for (int64_t at = range.first; at < range.second; at += block) {
      const int64_t count = std::min(block, range.second - at);
      widen_inputs(scratch, values, block, at, count);
      for (size_t i = 0; i < num_inputs_; ++i) {
        if (!repeaters_[i]) continue;
        repeaters_[i]->read(tensors_[i].template data<const T>().data(), at, count,
                            scratch + i * block);
      }
      for (size_t i = 0; i < steps_.size(); ++i) {
        const Step& step = steps_[i];
        T* to = scratch + (step.place < 0 ? num_places_ : step.place) * block;
        if (step.place < 0 && !rounds) to = out.template data<T>().data() + at;
        run_step<T>(step.kind, value<T>(values, step.a, at),
                    step.b < 0 ? nullptr : value<T>(values, step.b, at), to, count);
        values[num_inputs_ + i] = to;
      }
      if (rounds) round_block(values[num_inputs_ + steps_.size() - 1], out, at, count);
    }
  }

  /// True for an input that has an element for each of the output.
  [[nodiscard]] bool is_full(size_t i) const {
    return !repeaters_[i] && (tensors_[i].shape().rank() != 0 || shape_.rank() == 0);
  }

  template <class T>
  static T scalar(const Tensor& x) {
    if (x.dtype() == DType::kBFloat16) return static_cast<T>(x.data<const BFloat16>()[0]);
    return x.data<const T>()[0];
  }

  /// Puts `count` elements from `at` of every bfloat16 input into its block of scratch memory.
  template <class T>
  void widen_inputs(T* scratch, const void** values, int64_t block, int64_t at, int64_t count) {
    if constexpr (std::is_same_v<T, float>) {
      for (size_t i = 0; i < num_inputs_; ++i) {
        if (tensors_[i].dtype() != DType::kBFloat16 || !is_full(i)) continue;
        kernels::widen(tensors_[i].data<const BFloat16>().data() + at, scratch + i * block, count);
        values[i] = scratch + i * block;
      }
    }
  }

  static void round_block(const void* from, const Tensor& out, int64_t at, int64_t count) {
    kernels::narrow(static_cast<const float*>(from), out.data<BFloat16>().data() + at, count);
  }

  template <class T>
  const T* value(const void* const* values, int32_t i, int64_t at) const {
    const T* base = static_cast<const T*>(values[i]);
    const bool in_place = static_cast<size_t>(i) < num_inputs_ && is_full(i) &&
                          tensors_[i].dtype() == tensor::kDTypeOf<T>;
    return in_place ? base + at : base;
  }

  template <class T>
  Status run_whole(KernelContext& c) {
    const bool rounds = c.output_dtype(0) == DType::kBFloat16;
    for (Tensor& input : tensors_) input = widened(c, input);
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      const Tensor a = tensors_[step.a];
      const Tensor b = step.b < 0 ? a : tensors_[step.b];
      Shape shape;
      if (!kernels::broadcast_shape(a.shape(), b.shape(), &shape)) {
        return invalid_argument("shapes {} and {} do not broadcast in {}", a.shape().to_string(),
                                b.shape().to_string(), step.kind.op);
      }
      const bool is_last = i + 1 == steps_.size();
      Tensor out = is_last && !rounds ? c.output(0, shape) : c.temporary(a.dtype(), shape);
      const T* x = a.data<const T>().data();
      const T* y = b.data<const T>().data();
      T* z = out.data<T>().data();
      if (step.kind.alike && a.shape() != b.shape()) {
        return invalid_argument("the values of {} have shapes {} and {}; they must be the same",
                                step.kind.op, a.shape().to_string(), b.shape().to_string());
      }
      if (step.kind.kind == StepKind::kBinary) {
        kernels::binary_broadcast<T>(step.kind.binary, x, a.shape(), y, b.shape(), z);
      } else {
        run_step<T>(step.kind, x, y, z, shape.num_elements());
      }
      tensors_.push_back(std::move(out));
    }
    if (rounds) {
      const Tensor& last = tensors_.back();
      round_block(last.raw(), c.output(0, last.shape()), 0, last.num_elements());
    }
    return {};
  }

  size_t num_inputs_;
  size_t num_places_ = 0;
  std::vector<Step> steps_;
  std::vector<Tensor> tensors_;                     // Inputs; in run_whole() results as well.
  std::vector<const void*> values_;                 // Where each value's block is, for each part.
  std::vector<std::optional<Repeater>> repeaters_;  // By input: how it is broadcast.
  std::vector<bool> full_;                          // By value: as is_full() of inputs.
  Shape shape_;
  tensor::Buffer::Ptr scratch_;
};

Status run_fused_mat_mul(KernelContext& c, bool ta, bool tb, bool relu, Product* product) {
  SR_RETURN_IF_ERROR(check_rank(c, 0, 2));
  SR_RETURN_IF_ERROR(check_rank(c, 1, 2));
  const Tensor& a = c.input(0);
  const Tensor& b = c.input(1);
  const bool is_bfloat = a.dtype() == DType::kBFloat16;
  // A bias of bfloat16 products may be float32.
  const Tensor bias = is_bfloat ? widened(c, c.input(2)) : c.input(2);
  if (a.dtype() != b.dtype() || bias.dtype() != (is_bfloat ? DType::kFloat32 : a.dtype())) {
    return invalid_argument("the inputs {}, {} and {} have different dtypes", a.to_string(),
                            b.to_string(), c.input(2).to_string());
  }
  SR_ASSIGN_OR_RETURN(const ProductPlan plan, plan_product(a, b, ta, tb));
  if (!(bias.shape() == Shape{plan.dims.n})) {
    return invalid_argument("a bias of {} does not fit {} columns", bias.to_string(), plan.dims.n);
  }
  if (bias.dtype() == DType::kFloat32) {
    return product->run(c, plan, a, b, {.bias = bias.data<const float>().data(), .relu = relu});
  }
  if (a.dtype() != DType::kFloat64) return invalid_argument("a product of {}", a.to_string());
  auto* out = c.output(0, plan.out_shape()).data<double>().data();
  run_product<double>(c, plan, a.data<const double>().data(), b.data<const double>().data(), out);
  const auto add = relu ? kernels::bias_add_relu<double> : kernels::bias_add<double>;
  add(out, bias.data<const double>().data(), out, plan.dims.m, plan.dims.n);
  return {};
}

Result<std::unique_ptr<Kernel>> fused_mat_mul(const BindContext& bind) {
  const bool ta = ir::attr_or(bind.instruction.attrs, "transpose_a", false);
  const bool tb = ir::attr_or(bind.instruction.attrs, "transpose_b", false);
  const bool relu = ir::attr_or(bind.instruction.attrs, "relu", false);
  const auto product = std::make_shared<Product>();
  return make_kernel([ta, tb, relu, product](KernelContext& c) {
    return run_fused_mat_mul(c, ta, tb, relu, product.get());
  });
}

}  // namespace

void register_fused_kernels(KernelTable* table) {
  table->add("FusedElementwise",
             with_arity(1, -1, 1, mixed(KernelFactory(FusedElementwise::make))));
  table->add("FusedMatMul", with_arity(3, 3, 1, like_input_or_wide(fused_mat_mul)));
}

}  // namespace sidereal::exec
