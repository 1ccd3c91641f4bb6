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

/// How a product is cut: into parts of rows, or of the inner extent where that is long. Cutting
/// costs: every part of rows packs b again, and parts of the inner extent have to be added up.
struct Cut {
  int64_t parts = 1;
  bool is_inner = false;
};

Cut cut_of(const kernels::MatMulDims& d) {
  constexpr int64_t kLong = 512;
  constexpr int64_t kPartsMax = 8;
  constexpr double kFlopsMin = 3e7;
  if (2.0 * static_cast<double>(d.m) * static_cast<double>(d.n) * static_cast<double>(d.k) <
      2 * kFlopsMin) {
    return {};
  }
  if (d.m >= 2 * kLong) return {std::min(kPartsMax, d.m / kLong), false};
  if (d.k >= 2 * kLong) return {std::min(kPartsMax, d.k / kLong), true};
  return {};
}

/// Adds what bias and activation make of rows [first, last).
void finish_rows(const Epilogue& then, float* out, int64_t first, int64_t last, int64_t n) {
  if (then.bias == nullptr) return;
  float* rows = out + first * n;
  if (then.relu) {
    kernels::bias_add_relu<float>(rows, then.bias, rows, last - first, n);
  } else {
    kernels::bias_add<float>(rows, then.bias, rows, last - first, n);
  }
}

void run_inner_parts(KernelContext& c, const Cut& cut, const kernels::MatMulDims& d, const float* a,
                     const float* b, float* out) {
  const int64_t size = d.m * d.n;
  const Tensor sums = c.temporary(DType::kFloat32, Shape{cut.parts - 1, d.m, d.n});
  auto* rest = sums.data<float>().data();
  c.run_parts(cut.parts, [&](int64_t i) {
    kernels::mat_mul_part(
        a, b, i == 0 ? out : rest + (i - 1) * size, d,
        {.is_inner = true, .first = d.k * i / cut.parts, .last = d.k * (i + 1) / cut.parts});
  });
  c.parallel(size, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i + 1 < cut.parts; ++i) {
      kernels::binary<float>(kernels::BinaryOp::kAdd, out + begin, rest + i * size + begin,
                             out + begin, end - begin);
    }
  });
}

}  // namespace

void run_layer(KernelContext& c, const kernels::MatMulDims& d, const float* a, const float* b,
               const Epilogue& then, float* out) {
  const Cut cut = cut_of(d);
  if (cut.parts > 1 && !cut.is_inner) {
    c.run_parts(cut.parts, [&](int64_t i) {
      const int64_t first = d.m * i / cut.parts;
      const int64_t last = d.m * (i + 1) / cut.parts;
      kernels::mat_mul_part(a, b, out, d, {.is_inner = false, .first = first, .last = last});
      finish_rows(then, out, first, last, d.n);
    });
    return;
  }
  if (cut.parts > 1) {
    run_inner_parts(c, cut, d, a, b, out);
  } else {
    kernels::mat_mul<float>(a, b, out, d);
  }
  finish_rows(then, out, 0, d.m, d.n);
}

template <class T>
void run_product(KernelContext& c, const ProductPlan& plan, const T* a, const T* b, T* out) {
  kernels::MatMulDims dims = plan.dims;
  const int64_t count = plan.batch.num_elements();
  const bool is_tall = plan.b_batch.num_elements() == 1 && !dims.trans_a;
  // One matrix on the right: the stack on the left is one tall matrix.
  if (is_tall) dims.m *= count;
  if (is_tall || count == 1) {
    if constexpr (std::is_same_v<T, float>) return run_layer(c, dims, a, b, {}, out);
    return kernels::mat_mul<T>(a, b, out, dims);
  }
  const kernels::RowOffsets a_at(plan.a_batch, plan.batch);
  const kernels::RowOffsets b_at(plan.b_batch, plan.batch);
  const int64_t grain = kGrain / (dims.m * dims.n * dims.k / 64 + 1) + 1;
  c.parallel(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      kernels::mat_mul<T>(a + a_at(i) * dims.m * dims.k, b + b_at(i) * dims.k * dims.n,
                          out + i * dims.m * dims.n, dims);
    }
  });
}

template void run_product(KernelContext&, const ProductPlan&, const float*, const float*, float*);
template void run_product(KernelContext&, const ProductPlan&, const double*, const double*,
                          double*);
template void run_product(KernelContext&, const ProductPlan&, const int32_t*, const int32_t*,
                          int32_t*);
template void run_product(KernelContext&, const ProductPlan&, const int64_t*, const int64_t*,
                          int64_t*);

Status BfloatProduct::run(KernelContext& c, const ProductPlan& plan, const Tensor& a,
                          const Tensor& b, const Epilogue& then) {
  const kernels::MatMulDims& d = plan.dims;
  const bool is_empty = d.m == 0 || d.k == 0 || d.n == 0 || plan.batch.num_elements() == 0;
  if (is_empty || !has_units_) return run_widened(c, plan, a, b, then);
  run_in_units(c, plan, a, b, then);
  return {};
}

void BfloatProduct::run_in_units(KernelContext& c, const ProductPlan& plan, const Tensor& a,
                                 const Tensor& b, const Epilogue& then) {
  const bool wide = c.output_dtype(0) == DType::kFloat32;
  const Tensor out = c.output(0, plan.out_shape());
  kernels::BfloatMatMul::Form form{
      .dims = plan.dims, .wide_out = wide, .has_bias = then.bias != nullptr, .relu = then.relu};
  const int64_t count = plan.batch.num_elements();
  const bool one_a = plan.a_batch.num_elements() == 1;
  const bool one_b = plan.b_batch.num_elements() == 1;
  const bool is_even =
      (one_a || plan.a_batch == plan.batch) && (one_b || plan.b_batch == plan.batch);
  if (one_b && !form.dims.trans_a) {
    form.dims.m *= count;
  } else if (is_even) {
    form.batch = count;
    form.one_a = one_a;
    form.one_b = one_b;
  }
  const auto bytes = static_cast<int64_t>(units_.prepare(form));
  const Tensor scratch = c.temporary(DType::kUInt8, Shape{bytes});
  const auto* x = a.data<const BFloat16>().data();
  const auto* y = b.data<const BFloat16>().data();
  if (is_even || (one_b && !plan.dims.trans_a)) {
    return units_.run(x, y, then.bias, out.raw(), scratch.raw());
  }
  const kernels::RowOffsets a_at(plan.a_batch, plan.batch);
  const kernels::RowOffsets b_at(plan.b_batch, plan.batch);
  const kernels::MatMulDims& d = plan.dims;
  const int64_t out_bytes = d.m * d.n * static_cast<int64_t>(tensor::size_of(out.dtype()));
  for (int64_t i = 0; i < count; ++i) {
    units_.run(x + a_at(i) * d.m * d.k, y + b_at(i) * d.k * d.n, then.bias,
               static_cast<std::byte*>(out.raw()) + i * out_bytes, scratch.raw());
  }
}

Status BfloatProduct::run_widened(KernelContext& c, const ProductPlan& plan, const Tensor& a,
                                  const Tensor& b, const Epilogue& then) {
  const Tensor x = widened(c, a);
  const Tensor y = widened(c, b);
  WideOutput out(c, 0, plan.out_shape());
  auto* to = out.data<float>();
  run_product<float>(c, plan, x.data<const float>().data(), y.data<const float>().data(), to);
  const int64_t rows = plan.batch.num_elements() * plan.dims.m;
  if (then.bias != nullptr && then.relu) {
    kernels::bias_add_relu<float>(to, then.bias, to, rows, plan.dims.n);
  } else if (then.bias != nullptr) {
    kernels::bias_add<float>(to, then.bias, to, rows, plan.dims.n);
  }
  return out.store();
}

}  // namespace sidereal::exec
