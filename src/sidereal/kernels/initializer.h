#pragma once

#include <cstdint>
#include <string_view>

#include "sidereal/base/status.h"
#include "sidereal/tensor/shape.h"

namespace sidereal::kernels {

/// How a variable starts. The value of an element is a function of (seed, stream, its index in the
/// whole variable) only, so it does not depend on how the variable is sharded. Value type.
struct Initializer {
  enum class Kind : uint8_t {
    kZeros = 0,
    kConstant = 1,         ///< a everywhere.
    kUniform = 2,          ///< [a, b).
    kNormal = 3,           ///< mean a, standard deviation b.
    kTruncatedNormal = 4,  ///< kNormal redrawn outside two standard deviations.
    kGlorotUniform = 5,    ///< +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010).
  };
  Kind kind = Kind::kZeros;
  float a = 0.0F;
  float b = 1.0F;
  uint64_t seed = 0;
  /// Tells the variables of one seed apart: see stream_of().
  uint64_t stream = 0;

  /// The stream of the variable of that name.
  static uint64_t stream_of(std::string_view variable);

  /// kInvalidArgument naming the parameter that is wrong.
  [[nodiscard]] Status validate() const;
  /// Writes elements [first, first + n) of a variable of `shape` (row-major index).
  void fill(const tensor::Shape& shape, int64_t first, float* out, int64_t n) const;
  /// Writes elements [first, first + n) of the rows r of a variable of `shape` (rank 1 or more) for
  /// which r % parts == part, as if these rows were a tensor of their own.
  void fill_part(const tensor::Shape& shape, int64_t part, int64_t parts, int64_t first, float* out,
                 int64_t n) const;

  friend bool operator==(const Initializer&, const Initializer&) = default;
};

/// "zeros", "constant", "uniform", "normal", "truncated_normal", "glorot_uniform".
std::string_view name_of(Initializer::Kind kind);
/// The kind of that name, or kInvalidArgument listing the names.
Result<Initializer::Kind> initializer_kind_from_name(std::string_view name);

}  // namespace sidereal::kernels
