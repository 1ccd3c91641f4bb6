#include "sidereal/store/initializer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sidereal/kernels/random.h"

namespace sidereal::store {
namespace {

using Kind = Initializer::Kind;

constexpr uint8_t kEncodingVersion = 1;

constexpr std::array<std::pair<Kind, std::string_view>, 6> kNames = {{
    {Kind::kZeros, "zeros"},
    {Kind::kConstant, "constant"},
    {Kind::kUniform, "uniform"},
    {Kind::kNormal, "normal"},
    {Kind::kTruncatedNormal, "truncated_normal"},
    {Kind::kGlorotUniform, "glorot_uniform"},
}};

// Inputs and outputs of a weight of `shape`: the last two dimensions, times the receptive field in
// front of them; a vector has its length as both.
double glorot_limit(const tensor::Shape& shape) {
  double fan_in = 1;
  double fan_out = 1;
  if (shape.rank() == 1) {
    fan_in = fan_out = static_cast<double>(shape.dim(0));
  } else if (shape.rank() >= 2) {
    double field = 1;
    for (int i = 0; i < shape.rank() - 2; ++i) field *= static_cast<double>(shape.dim(i));
    fan_in = field * static_cast<double>(shape.dim(-2));
    fan_out = field * static_cast<double>(shape.dim(-1));
  }
  return std::sqrt(6.0 / std::max(1.0, fan_in + fan_out));
}

}  // namespace

Status Initializer::validate() const {
  if (name_of(kind).empty()) {
    return base::invalid_argument("initializer number {} is not known", static_cast<int>(kind));
  }
  if (!std::isfinite(a) || !std::isfinite(b)) {
    return base::invalid_argument("{} initializer: a is {} and b is {}; both must be finite",
                                  name_of(kind), a, b);
  }
  if (kind == Kind::kUniform && (a > b || !std::isfinite(b - a))) {
    return base::invalid_argument("uniform initializer: [{}, {}) is not an interval", a, b);
  }
  if ((kind == Kind::kNormal || kind == Kind::kTruncatedNormal) && b < 0) {
    return base::invalid_argument("{} initializer: the standard deviation is {}; it must be >= 0",
                                  name_of(kind), b);
  }
  return {};
}

void Initializer::fill(const tensor::Shape& shape, int64_t first, float* out, int64_t n) const {
  const kernels::RandomKey key{seed, stream, static_cast<uint64_t>(first)};
  switch (kind) {
    case Kind::kZeros:
      std::fill_n(out, n, 0.0F);
      return;
    case Kind::kConstant:
      std::fill_n(out, n, a);
      return;
    case Kind::kUniform:
      return kernels::fill_uniform(key, a, b, out, n);
    case Kind::kNormal:
      return kernels::fill_normal(key, a, b, out, n);
    case Kind::kTruncatedNormal:
      return kernels::fill_truncated_normal(key, a, b, out, n);
    case Kind::kGlorotUniform: {
      const auto limit = static_cast<float>(glorot_limit(shape));
      return kernels::fill_uniform(key, -limit, limit, out, n);
    }
  }
}

bool Initializer::is_zero() const {
  return kind == Kind::kZeros || (kind == Kind::kConstant && a == 0.0F && !std::signbit(a));
}

std::string_view name_of(Initializer::Kind kind) {
  for (const auto& [known, name] : kNames) {
    if (known == kind) return name;
  }
  return "";
}

Result<Initializer::Kind> initializer_kind_from_name(std::string_view name) {
  for (const auto& [kind, known] : kNames) {
    if (known == name) return kind;
  }
  return base::invalid_argument(
      "initializer '{}' is not known; the initializers are zeros, constant, uniform, normal, "
      "truncated_normal and glorot_uniform",
      name);
}

void encode(const Initializer& initializer, base::ByteWriter* out) {
  out->put(kEncodingVersion);
  out->put(initializer.kind);
  out->put(initializer.a);
  out->put(initializer.b);
  out->put(initializer.seed);
  out->put(initializer.stream);
}

Status decode(base::ByteReader* in, Initializer* initializer) {
  uint8_t version = 0;
  SR_RETURN_IF_ERROR(in->get(&version));
  if (version != kEncodingVersion) {
    return base::data_loss("initializer of encoding version {}; this program reads version {}",
                           version, kEncodingVersion);
  }
  Initializer read;
  SR_RETURN_IF_ERROR(in->get(&read.kind));
  SR_RETURN_IF_ERROR(in->get(&read.a));
  SR_RETURN_IF_ERROR(in->get(&read.b));
  SR_RETURN_IF_ERROR(in->get(&read.seed));
  SR_RETURN_IF_ERROR(in->get(&read.stream));
  SR_RETURN_IF_ERROR(read.validate());
  *initializer = read;
  return {};
}

}  // namespace sidereal::store
