#include "sidereal/exec/product.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/nn.h"
#include "sidereal/kernels/reduce.h"

namespace sidereal::exec {

using base::invalid_argument;
using tensor::BFloat16;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {
Shape front_of(const Shape& shape) { return Shape(shape.dims().first(shape.rank() - 2)); }
}  // namespace

Shape ProductPlan::out_shape() const {
  Shape shape = batch;
  shape.append(dims.m);
  shape.append(dims.n);
  return shape;
}

Result<ProductPlan> plan_product(const Tensor& a, const Tensor& b, bool trans_a, bool trans_b) {
  if (a.shape().rank() < 2 || b.shape().rank() < 2) {
    return invalid_argument("{} and {} must have at least 2 dimensions", a.to_string(),
                            b.to_string());
  }
  ProductPlan plan;
  plan.dims = {.m = a.shape().dim(trans_a ? -1 : -2),
               .k = a.shape().dim(trans_a ? -2 : -1),
               .n = b.shape().dim(trans_b ? -2 : -1),
               .trans_a = trans_a,
               .trans_b = trans_b};
  if (b.shape().dim(trans_b ? -1 : -2) != plan.dims.k) {
    return invalid_argument("inner extents {} and {} differ", plan.dims.k,
                            b.shape().dim(trans_b ? -1 : -2));
  }
  plan.a_batch = front_of(a.shape());
  plan.b_batch = front_of(b.shape());
  if (!kernels::broadcast_shape(plan.a_batch, plan.b_batch, &plan.batch)) {
    return invalid_argument("the stacks {} and {} of matrices do not broadcast",
                            plan.a_batch.to_string(), plan.b_batch.to_string());
  }
  return plan;
}

KernelFactory like_input_or_wide(KernelFactory factory) {
  return
      [factory = std::move(factory)](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
        const auto dtype = [&](int32_t slot) { return bind.program.slots[slot].dtype; };
        const DType in = dtype(bind.instruction.inputs[0]);
        for (const int32_t slot : bind.instruction.outputs) {
          if (in == DType::kBFloat16 && dtype(slot) == DType::kFloat32) continue;
          SR_RETURN_IF_ERROR(check_slot(bind, slot, in, "the output"));
        }
        return factory(bind);
      };
}

namespace {

using Form = kernels::PreparedMatMul::Form;

double flops(const kernels::MatMulDims& d) {
  return 2.0 * static_cast<double>(d.m) * static_cast<double>(d.n) * static_cast<double>(d.k);
}

/// What a stack is to oneDNN: one matrix on the right makes the left one tall matrix.
Form form_of(const ProductPlan& plan, const Epilogue& then) {
  Form form{.dims = plan.dims, .has_bias = then.bias != nullptr};
  const int64_t count = plan.batch.num_elements();
  form.one_a = plan.a_batch.num_elements() == 1;
  form.one_b = plan.b_batch.num_elements() == 1;
  if (form.one_b && !form.dims.trans_a) {
    form.dims.m *= count;
    form.one_a = false;
  } else {
    form.batch = count;
  }
  if (form.batch == 1) form.one_a = form.one_b = false;
  return form;
}

/// Whether a stack lies as a form says: each matrix after the one before it, or one for all.
bool is_even(const ProductPlan& plan, const Form& form) {
  return form.batch == 1 ||
         ((form.one_a || plan.a_batch == plan.batch) && (form.one_b || plan.b_batch == plan.batch));
}

/// Whether oneDNN's primitive is the faster of its two products of float32 (`./dev bench graph`
/// compares them): for stacks, narrow results, and a b that is read across rows which do not begin
/// on a cache line. The other one copies both matrices first.
bool is_primitive_faster(const Form& form) {
  const kernels::MatMulDims& d = form.dims;
  if (form.batch > 1) return true;
  if (d.trans_a || d.m < 16 || d.n < 16 || d.k < 128) return false;
  constexpr int64_t kLine = 16;
  return d.trans_b ? d.n % kLine != 0 : d.n <= 128;
}

bool is_empty(const ProductPlan& plan) {
  const kernels::MatMulDims& d = plan.dims;
  return d.m == 0 || d.k == 0 || d.n == 0 || plan.batch.num_elements() == 0;
}

/// Adds bias and activation to rows [first, last).
void finish_rows(const Epilogue& then, float* out, int64_t first, int64_t last, int64_t n) {
  if (then.bias == nullptr) return;
  float* rows = out + first * n;
  if (then.relu) {
    kernels::bias_add_relu<float>(rows, then.bias, rows, last - first, n);
  } else {
    kernels::bias_add<float>(rows, then.bias, rows, last - first, n);
  }
}

/// The activation of values that have their bias.
void apply_relu(DType dtype, void* values, int64_t n) {
  if (dtype == DType::kBFloat16) {
    auto* x = static_cast<BFloat16*>(values);
    kernels::relu(x, x, n);
  } else {
    auto* x = static_cast<float*>(values);
    kernels::unary<float>(kernels::UnaryOp::kRelu, x, x, n);
  }
}

void run_inner_parts(KernelContext& c, int64_t parts, const kernels::MatMulDims& d, const float* a,
                     const float* b, float* out) {
  const int64_t size = d.m * d.n;
  const Tensor sums = c.temporary(DType::kFloat32, Shape{parts - 1, d.m, d.n});
  auto* rest = sums.data<float>().data();
  c.run_parts(parts, [&](int64_t i) {
    kernels::mat_mul_part(
        a, b, i == 0 ? out : rest + (i - 1) * size, d,
        {.is_inner = true, .first = d.k * i / parts, .last = d.k * (i + 1) / parts});
  });
  c.parallel(size, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i + 1 < parts; ++i) {
      kernels::binary<float>(kernels::BinaryOp::kAdd, out + begin, rest + i * size + begin,
                             out + begin, end - begin);
    }
  });
}

/// Calls body(a, b, out) for every product, with the elements in front of its matrices.
template <class Body>
void for_each_product(const ProductPlan& plan, const Body& body) {
  const kernels::RowOffsets a_at(plan.a_batch, plan.batch);
  const kernels::RowOffsets b_at(plan.b_batch, plan.batch);
  const kernels::MatMulDims& d = plan.dims;
  for (int64_t i = 0; i < plan.batch.num_elements(); ++i) {
    body(a_at(i) * d.m * d.k, b_at(i) * d.k * d.n, i * d.m * d.n);
  }
}

}  // namespace

Product::Cut Product::cut_of(const Form& form) {
  constexpr int64_t kLong = 512;
  constexpr double kFlopsMin = 3e7;
  const kernels::MatMulDims& d = form.dims;
  const double work = flops(d) * static_cast<double>(form.batch);
  if (work < 2 * kFlopsMin) return {};
  const auto parts_of = [&](int64_t extent, int64_t least, Cut::Along along) {
    return Cut{std::min(kPartsMax, extent / least), along};
  };
  if (form.batch > 1) {
    const auto least = static_cast<int64_t>(kFlopsMin / flops(d)) + 1;
    return form.batch < 2 * least ? Cut{} : parts_of(form.batch, least, Cut::Along::kStack);
  }
  if (d.m >= 2 * kLong) return parts_of(d.m, kLong, Cut::Along::kRows);
  if (d.k >= 2 * kLong) return parts_of(d.k, kLong, Cut::Along::kInner);
  return {};
}

void Product::run_prepared(KernelContext& c, const Form& form, const void* a, const void* b,
                           const Epilogue& then, void* out) {
  Cut cut = cut_of(form);
  const kernels::MatMulDims& d = form.dims;
  const bool is_stack = cut.along == Cut::Along::kStack;
  const int64_t whole = is_stack ? form.batch : d.m;
  // One matrix is cut along its rows, whichever of its extents is long: nothing is added up.
  constexpr int64_t kRowsMin = 16;
  if (!is_stack) cut.parts = std::clamp<int64_t>(d.m / kRowsMin, 1, cut.parts);
  const auto first_of = [&](int64_t i) { return whole * i / cut.parts; };
  std::array<size_t, kPartsMax> ends = {};
  size_t bytes = 0;
  for (int64_t i = 0; i < cut.parts; ++i) {
    Form part = form;
    (is_stack ? part.batch : part.dims.m) = first_of(i + 1) - first_of(i);
    if (!is_stack && d.trans_a) part.a_row = d.m;
    constexpr size_t kLine = 64;
    bytes += (parts_[i].prepare(part) + kLine - 1) / kLine * kLine;
    ends[i] = bytes;
  }
  const Tensor scratch = c.temporary(DType::kUInt8, Shape{static_cast<int64_t>(bytes)});
  const auto in_bytes = static_cast<int64_t>(tensor::size_of(form.in));
  const auto out_bytes = static_cast<int64_t>(tensor::size_of(form.out));
  const int64_t a_row = d.trans_a ? 1 : d.k;
  const int64_t a_step = (is_stack ? (form.one_a ? 0 : d.m * d.k) : a_row) * in_bytes;
  const int64_t b_step = is_stack && !form.one_b ? d.k * d.n * in_bytes : 0;
  const int64_t out_step = (is_stack ? d.m * d.n : d.n) * out_bytes;
  c.run_parts(cut.parts, [&](int64_t i) {
    const int64_t first = first_of(i);
    std::byte* const to = static_cast<std::byte*>(out) + first * out_step;
    parts_[i].run(static_cast<const std::byte*>(a) + first * a_step,
                  static_cast<const std::byte*>(b) + first * b_step, then.bias, to,
                  static_cast<std::byte*>(scratch.raw()) + (i == 0 ? 0 : ends[i - 1]));
    if (then.relu) apply_relu(form.out, to, (first_of(i + 1) - first) * out_step / out_bytes);
  });
}

void Product::run_layer(KernelContext& c, const Form& form, const float* a, const float* b,
                        const Epilogue& then, float* out) {
  if (is_primitive_faster(form)) return run_prepared(c, form, a, b, then, out);
  const kernels::MatMulDims& d = form.dims;
  const Cut cut = cut_of(form);
  if (cut.parts > 1 && cut.along == Cut::Along::kRows) {
    c.run_parts(cut.parts, [&](int64_t i) {
      const int64_t first = d.m * i / cut.parts;
      const int64_t last = d.m * (i + 1) / cut.parts;
      kernels::mat_mul_part(a, b, out, d, {.is_inner = false, .first = first, .last = last});
      finish_rows(then, out, first, last, d.n);
    });
    return;
  }
  if (cut.parts > 1) {
    run_inner_parts(c, cut.parts, d, a, b, out);
  } else {
    kernels::mat_mul<float>(a, b, out, d);
  }
  finish_rows(then, out, 0, d.m, d.n);
}

void Product::run(KernelContext& c, const ProductPlan& plan, const float* a, const float* b,
                  const Epilogue& then, float* out) {
  const Form form = form_of(plan, then);
  if (!is_empty(plan) && is_even(plan, form)) return run_layer(c, form, a, b, then, out);
  for_each_product(plan, [&](int64_t a_at, int64_t b_at, int64_t at) {
    kernels::mat_mul<float>(a + a_at, b + b_at, out + at, plan.dims);
    finish_rows(then, out + at, 0, plan.dims.m, plan.dims.n);
  });
}

Status Product::run(KernelContext& c, const ProductPlan& plan, const Tensor& a, const Tensor& b,
                    const Epilogue& then) {
  if (a.dtype() == DType::kBFloat16) {
    return is_empty(plan) || !has_units_ ? run_widened(c, plan, a, b, then)
                                         : run_bfloat(c, plan, a, b, then);
  }
  const Tensor out = c.output(0, plan.out_shape());
  run(c, plan, a.data<const float>().data(), b.data<const float>().data(), then,
      out.data<float>().data());
  return {};
}

Status Product::run_bfloat(KernelContext& c, const ProductPlan& plan, const Tensor& a,
                           const Tensor& b, const Epilogue& then) {
  const Tensor out = c.output(0, plan.out_shape());
  Form form = form_of(plan, then);
  form.in = DType::kBFloat16;
  form.out = out.dtype();
  const auto* x = a.data<const BFloat16>().data();
  const auto* y = b.data<const BFloat16>().data();
  if (is_even(plan, form)) {
    run_prepared(c, form, x, y, then, out.raw());
    return {};
  }
  form.dims = plan.dims;
  form.batch = 1;
  form.one_a = form.one_b = false;
  const auto size = static_cast<int64_t>(tensor::size_of(out.dtype()));
  for_each_product(plan, [&](int64_t a_at, int64_t b_at, int64_t at) {
    run_prepared(c, form, x + a_at, y + b_at, then, static_cast<std::byte*>(out.raw()) + at * size);
  });
  return {};
}

Status Product::run_widened(KernelContext& c, const ProductPlan& plan, const Tensor& a,
                            const Tensor& b, const Epilogue& then) {
  const Tensor x = widened(c, a);
  const Tensor y = widened(c, b);
  WideOutput out(c, 0, plan.out_shape());
  run(c, plan, x.data<const float>().data(), y.data<const float>().data(), then, out.data<float>());
  return out.store();
}

template <class T>
void run_product(KernelContext& c, const ProductPlan& plan, const T* a, const T* b, T* out) {
  const Form form = form_of(plan, {});
  if (form.batch == 1) return kernels::mat_mul<T>(a, b, out, form.dims);
  const kernels::MatMulDims& d = plan.dims;
  const int64_t grain = kGrain / (d.m * d.n * d.k / 64 + 1) + 1;
  const kernels::RowOffsets a_at(plan.a_batch, plan.batch);
  const kernels::RowOffsets b_at(plan.b_batch, plan.batch);
  c.parallel(plan.batch.num_elements(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      kernels::mat_mul<T>(a + a_at(i) * d.m * d.k, b + b_at(i) * d.k * d.n, out + i * d.m * d.n, d);
    }
  });
}

template void run_product(KernelContext&, const ProductPlan&, const double*, const double*,
                          double*);
template void run_product(KernelContext&, const ProductPlan&, const int32_t*, const int32_t*,
                          int32_t*);
template void run_product(KernelContext&, const ProductPlan&, const int64_t*, const int64_t*,
                          int64_t*);

}  // namespace sidereal::exec
