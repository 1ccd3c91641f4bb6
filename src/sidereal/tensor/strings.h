#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"

/// Tensors of strings. An element is a std::string_view: it shows bytes that the tensor's buffer
/// keeps alive (Buffer::keep), often those of another tensor. So elements move and repeat like
/// numbers, and no bytes are copied where strings are gathered, joined to longer arrays or sliced.
namespace sidereal::tensor {

/// Collects the strings of a tensor in one block of memory.
/// Value type.
class StringsBuilder {
 public:
  /// Adds a string that is a copy of `value`.
  void add(std::string_view value) {
    bytes_.append(value);
    end();
  }
  /// To write a string in pieces: append() as often as needed, then end().
  void append(std::string_view piece) { bytes_.append(piece); }
  void end() { ends_.push_back(bytes_.size()); }

  /// Strings so far.
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  /// Bytes of all of them.
  [[nodiscard]] size_t bytes() const { return bytes_.size(); }
  void reserve(size_t strings, size_t bytes) {
    ends_.reserve(strings);
    bytes_.reserve(bytes);
  }

  /// The tensor of `shape`, which has as many elements as strings were added.
  Tensor finish(const Shape& shape) &&;

 private:
  std::string bytes_;
  std::vector<size_t> ends_;
};

/// Bytes of all strings of `t` together, without their views.
size_t string_bytes(const Tensor& t);

/// The strings of `t` as bytes for files and messages: of each its length as 8 bytes,
/// little-endian, then all their bytes.
std::string strings_to_bytes(const Tensor& t);
/// The reverse. Bytes from anyone: kDataLoss when they are not `shape.num_elements()` strings.
Result<Tensor> strings_from_bytes(std::string_view bytes, const Shape& shape);

}  // namespace sidereal::tensor
