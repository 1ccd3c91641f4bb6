#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sidereal/base/bytes.h"
#include "sidereal/base/status.h"
#include "sidereal/tensor/shape.h"

namespace sidereal::store {

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
  /// Tells the variables of one seed apart.
  uint64_t stream = 0;

  /// kInvalidArgument naming the parameter that is wrong.
  [[nodiscard]] Status validate() const;
  /// Writes elements [first, first + n) of a variable of `shape` (row-major index).
  void fill(const tensor::Shape& shape, int64_t first, float* out, int64_t n) const;
  /// True when fill() would write only zeros.
  [[nodiscard]] bool is_zero() const;

  friend bool operator==(const Initializer&, const Initializer&) = default;
};

/// "zeros", "constant", "uniform", "normal", "truncated_normal", "glorot_uniform".
std::string_view name_of(Initializer::Kind kind);
/// The kind of that name, or kInvalidArgument listing the names.
Result<Initializer::Kind> initializer_kind_from_name(std::string_view name);

/// Appends the fields, with a version byte.
void encode(const Initializer& initializer, base::ByteWriter* out);
/// Reads what encode() wrote and validates it. kDataLoss or kInvalidArgument otherwise.
Status decode(base::ByteReader* in, Initializer* initializer);

}  // namespace sidereal::store
