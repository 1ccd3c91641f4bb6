#pragma once

#include <string>

#include "sidereal/base/status.h"
#include "sidereal/parse/npy.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::data {

/// How the strings of an array are written.
using Text = parse::NpyText;
using parse::append_text;

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

}  // namespace sidereal::data
