#include "sidereal/kernels/initializer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "fmt/ranges.h"
#include "sidereal/base/hash.h"
#include "sidereal/kernels/random.h"

namespace sidereal::kernels {
namespace {

using Kind = Initializer::Kind;

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

void fill_runs(const Initializer& how, const tensor::Shape& shape, int64_t first, const Runs& runs,
               float* out, int64_t n) {
  const RandomKey key{how.seed, how.stream, static_cast<uint64_t>(first)};
  switch (how.kind) {
    case Kind::kZeros:
      std::fill_n(out, n, 0.0F);
      return;
    case Kind::kConstant:
      std::fill_n(out, n, how.a);
      return;
    case Kind::kUniform:
      return fill_uniform(key, runs, how.a, how.b, out, n);
    case Kind::kNormal:
      return fill_normal(key, runs, how.a, how.b, out, n);
    case Kind::kTruncatedNormal:
      return fill_truncated_normal(key, runs, how.a, how.b, out, n);
    case Kind::kGlorotUniform: {
      const auto limit = static_cast<float>(glorot_limit(shape));
      return fill_uniform(key, runs, -limit, limit, out, n);
    }
  }
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

uint64_t Initializer::stream_of(std::string_view variable) { return base::hash64(variable); }

void Initializer::fill(const tensor::Shape& shape, int64_t first, float* out, int64_t n) const {
  fill_runs(*this, shape, first, {}, out, n);
}

void Initializer::fill_part(const tensor::Shape& shape, int64_t part, int64_t parts, int64_t first,
                            float* out, int64_t n) const {
  if (n == 0) return;
  if (parts == 1) return fill(shape, first, out, n);
  int64_t width = 1;  // Elements of a row.
  for (int i = 1; i < shape.rank(); ++i) width *= shape.dim(i);
  const auto index_of = [&](int64_t i) { return (part + i / width * parts) * width + i % width; };
  // What is left of the row that `first` lies in, then rows from their beginning.
  const int64_t rest = std::min(n, (width - first % width) % width);
  if (rest > 0) fill(shape, index_of(first), out, rest);
  if (rest == n) return;
  const Runs rows{.length = static_cast<uint64_t>(width),
                  .stride = static_cast<uint64_t>(width) * static_cast<uint64_t>(parts)};
  fill_runs(*this, shape, index_of(first + rest), rows, out + rest, n - rest);
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
  std::vector<std::string_view> names;
  for (const auto& [kind, known] : kNames) names.push_back(known);
  return base::invalid_argument("initializer '{}' is not known; the initializers are {}", name,
                                fmt::join(names, ", "));
}

}  // namespace sidereal::kernels
