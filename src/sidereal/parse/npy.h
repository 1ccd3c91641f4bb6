#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"

/// NumPy's files of one array (numpy.lib.format), versions 1 and 2.
namespace sidereal::parse {

/// What stands in front of the elements. Value type.
struct NpyHeader {
  std::string descr = {};  ///< "<f4"; "": the elements are records.
  bool fortran_order = false;
  std::vector<int64_t> shape = {};
  size_t data_offset = 0;  ///< Where the elements begin.
};

/// Reads the header at the beginning of `bytes`, which may be less than the file.
/// kInvalidArgument saying what is wrong, kDataLoss when it is cut off. Thread: any.
Result<NpyHeader> parse_npy_header(std::string_view bytes);

/// How the strings of an array are written. Each has the same room, and NULs after its end.
enum class NpyText : uint8_t {
  kNone,   ///< It has none: numbers.
  kBytes,  ///< NumPy's "S": bytes.
  kUtf32,  ///< NumPy's "U": code points of 32 bits.
};

/// What "|S12" and "<U12" say, and other names of dtypes, which have no text.
struct NpyTextType {
  NpyText text = NpyText::kNone;
  int64_t room = 0;  ///< Bytes of a string.
};
/// kInvalidArgument for strings of a length that cannot be.
Result<NpyTextType> parse_npy_text_type(std::string_view descr);

/// Appends the string that is written in `room`, as UTF-8 when it is kUtf32. kInvalidArgument for
/// what is no code point. Thread: any.
Status append_text(NpyText text, std::span<const std::byte> room, std::string* out);

}  // namespace sidereal::parse
