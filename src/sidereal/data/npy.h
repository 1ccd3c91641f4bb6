#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::data {

/// How the strings of an array are written. Each has the same room, and NULs after its end.
enum class Text : uint8_t {
  kNone,   ///< It has none: numbers.
  kBytes,  ///< NumPy's "S": bytes.
  kUtf32,  ///< NumPy's "U": code points of 32 bits.
};

/// The array of a file. Value type.
struct NpyArray {
  /// Of strings: uint8, with the bytes of one string as one more extent, the last.
  tensor::Tensor data;
  Text text = Text::kNone;
};

/// Maps a NumPy file (format versions 1 and 2: numpy.lib.format) into memory, read only: nothing
/// is read before it is used, and the file must not be cut while the tensor lives.
/// Takes little-endian float32, float64, int32, int64, uint8, bool and strings in C order, rank 1
/// and up. kNotFound, or kInvalidArgument saying what the file holds instead and how to convert it.
Result<NpyArray> map_npy(const std::string& path);

/// Appends the string that is written in `room`, as UTF-8 when it is kUtf32. kInvalidArgument for
/// what is no code point.
Status append_text(Text text, std::span<const std::byte> room, std::string* out);

}  // namespace sidereal::data
