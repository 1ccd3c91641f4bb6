#include <algorithm>

#include "sidereal/exec/array_util.h"
#include "sidereal/exec/kernel_util.h"
#include "sidereal/ir/schema.h"
#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/random.h"
#include "sidereal/ops/initial_value.h"

/// Random tensors and first values, made anew from counters: no state, and the same values for any
/// number of threads.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// The seeds of an op and the shape of what it makes.
struct RandomAttrs {
  uint64_t seed = 0;
  uint64_t seed2 = 0;
  bool has_shape = false;
  Shape shape;
  int64_t low = 0;
  int64_t high = 0;
};

Result<RandomAttrs> random_attrs(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  RandomAttrs out;
  SR_ASSIGN_OR_RETURN(const int64_t seed, ir::get_attr<int64_t>(attrs, "seed"));
  SR_ASSIGN_OR_RETURN(const int64_t seed2, ir::get_attr<int64_t>(attrs, "seed2"));
  out.seed = static_cast<uint64_t>(seed);
  out.seed2 = static_cast<uint64_t>(seed2);
  out.low = ir::attr_or<int64_t>(attrs, "minval", 0);
  out.high = ir::attr_or<int64_t>(attrs, "maxval", 1);
  if (out.low >= out.high) {
    return invalid_argument("minval {} must be less than maxval {}", out.low, out.high);
  }
  if (const auto* extents = ir::find_attr<std::vector<int64_t>>(attrs, "shape")) {
    out.has_shape = true;
    out.shape = Shape(*extents);
  }
  return out;
}

Status check_made_shape(const Shape& shape) {
  for (const int64_t extent : shape.dims()) {
    if (extent < 0) return invalid_argument("extent {} of the shape is negative", extent);
  }
  return ir::check_shape(shape);
}

Result<Shape> shape_of(KernelContext& c, const RandomAttrs& attrs) {
  Shape shape = attrs.shape;
  if (!attrs.has_shape) {
    if (c.num_inputs() < 1) return invalid_argument("neither a shape attribute nor a shape input");
    SR_RETURN_IF_ERROR(check_rank(c, 0, 1));
    SR_RETURN_IF_ERROR(
        tensor::with_dtype<tensor::IndexTypes>(c.input(0).dtype(), [&]<class T>() -> Status {
          for (const T extent : c.in<T>(0)) shape.append(extent);
          return {};
        }));
  }
  SR_RETURN_IF_ERROR(check_made_shape(shape));
  return shape;
}

enum class Distribution : uint8_t { kUniform, kNormal, kTruncatedNormal };

template <class T>
void fill(Distribution distribution, const kernels::RandomKey& key, T* out, int64_t n) {
  switch (distribution) {
    case Distribution::kUniform:
      return kernels::fill_uniform(key, T(0), T(1), out, n);
    case Distribution::kNormal:
      return kernels::fill_normal(key, T(0), T(1), out, n);
    case Distribution::kTruncatedNormal:
      return kernels::fill_truncated_normal(key, T(0), T(1), out, n);
  }
}

/// Cuts numbers in [0, 1) to what a 16-bit float holds, so that rounding cannot give 1.
void cut(DType dtype, float* values, int64_t n) {
  const float steps = dtype == DType::kFloat16 ? 2048.0F : 256.0F;
  for (int64_t i = 0; i < n; ++i) {
    values[i] = static_cast<float>(static_cast<int32_t>(values[i] * steps)) / steps;
  }
}

/// The op's key for this run. The stream is mixed with the op's seed: both tell runs apart.
Result<kernels::RandomKey> key_of(KernelContext& c, const RandomAttrs& attrs) {
  SR_ASSIGN_OR_RETURN(const uint64_t stream, stream_of(c, attrs.has_shape ? 0 : 1));
  return kernels::RandomKey{.seed = attrs.seed,
                            .stream = kernels::random_bits(attrs.seed2, stream, 0)};
}

KernelFactory random(Distribution distribution) {
  return with_arity(0, 2, 1, [=](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
    SR_ASSIGN_OR_RETURN(const RandomAttrs attrs, random_attrs(bind));
    return make_kernel([=](KernelContext& c) -> Status {
      SR_ASSIGN_OR_RETURN(const Shape shape, shape_of(c, attrs));
      SR_RETURN_IF_ERROR(large_output(c, 0, shape).status());
      SR_ASSIGN_OR_RETURN(const kernels::RandomKey key, key_of(c, attrs));
      WideOutput out(c, 0, shape);
      const DType dtype = c.output_dtype(0);
      const int64_t n = shape.num_elements();
      return with_compute(dtype, [&]<class T>() -> Status {
        fill<T>(distribution, key, out.data<T>(), n);
        if constexpr (std::is_same_v<T, float>) {
          const bool rounded = dtype != DType::kFloat32;
          if (rounded && distribution == Distribution::kUniform) cut(dtype, out.data<T>(), n);
        }
        return out.store();
      });
    });
  });
}

Result<std::unique_ptr<Kernel>> random_integers(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const RandomAttrs attrs, random_attrs(bind));
  return make_kernel([attrs](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const Shape shape, shape_of(c, attrs));
    SR_RETURN_IF_ERROR(large_output(c, 0, shape).status());
    SR_ASSIGN_OR_RETURN(const kernels::RandomKey key, key_of(c, attrs));
    Tensor& out = c.output(0, shape);
    const int64_t n = out.num_elements();
    if (out.dtype() == DType::kInt64) {
      kernels::fill_uniform_integers(key, attrs.low, attrs.high, out.data<int64_t>().data(), n);
      return {};
    }
    if (out.dtype() != DType::kInt32) return invalid_argument("the output must be int32 or int64");
    const Tensor wide = c.temporary(DType::kInt64, shape);
    kernels::fill_uniform_integers(key, attrs.low, attrs.high, wide.data<int64_t>().data(), n);
    kernels::cast(DType::kInt64, wide.raw(), DType::kInt32, out.raw(), n);
    return {};
  });
}

Result<std::unique_ptr<Kernel>> initial_value(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const ops::InitialValue value, ops::initial_value_of(bind.instruction.attrs));
  return make_kernel([value](KernelContext& c) -> Status {
    constexpr int64_t kBetweenChecks = int64_t{1} << 24;
    SR_ASSIGN_OR_RETURN(Tensor* const out, large_output(c, 0, value.shape()));
    float* const elements = out->data<float>().data();
    const int64_t n = out->num_elements();
    for (int64_t first = 0; first < n; first += kBetweenChecks) {
      c.check_stop();
      c.parallel(std::min(n - first, kBetweenChecks), kGrain, [&](int64_t from, int64_t to) {
        value.initializer.fill_part(value.whole, value.part, value.parts, first + from,
                                    elements + first + from, to - from);
      });
    }
    return {};
  });
}

}  // namespace

void register_random_kernels(KernelTable* table) {
  table->add("RandomUniform", random(Distribution::kUniform));
  table->add("RandomNormal", random(Distribution::kNormal));
  table->add("TruncatedNormal", random(Distribution::kTruncatedNormal));
  table->add("RandomUniformInt", with_arity(0, 2, 1, random_integers));
  table->add("InitialValue", with_arity(0, 0, 1, with_outputs({DType::kFloat32}, initial_value)));
}

}  // namespace sidereal::exec
