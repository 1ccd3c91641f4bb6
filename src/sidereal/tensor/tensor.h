#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/tensor/buffer.h"
#include "sidereal/tensor/dtype.h"
#include "sidereal/tensor/shape.h"

namespace sidereal::tensor {

/// A dense, contiguous, row-major array. Copying a Tensor shares its bytes.
/// Value type. The default Tensor holds nothing (`!defined()`).
class Tensor {
 public:
  Tensor() = default;
  /// A view of `buffer` from `offset` bytes on; the elements must fit.
  Tensor(DType dtype, Shape shape, Buffer::Ptr buffer, size_t offset = 0);

  /// Uninitialised elements; strings are empty ones.
  static Tensor empty(DType dtype, const Shape& shape);
  static Tensor zeros(DType dtype, const Shape& shape);
  /// A copy of `values` with `shape`; their counts must agree.
  template <class T>
  static Tensor of(const Shape& shape, std::span<const T> values) {
    static_assert(!std::is_same_v<T, std::string_view>, "strings() copies the bytes too");
    Tensor t = empty(kDTypeOf<T>, shape);
    SR_CHECK(static_cast<size_t>(t.num_elements()) == values.size());
    if (!values.empty()) __builtin_memcpy(t.raw(), values.data(), values.size_bytes());
    return t;
  }
  template <class T>
  static Tensor of(const Shape& shape, const std::vector<T>& values) {
    return of<T>(shape, std::span<const T>(values));
  }
  template <class T>
  static Tensor scalar(T value) {
    return of<T>(Shape(), std::span<const T>(&value, 1));
  }

  /// As of(), for strings: their bytes are copied.
  static Tensor strings(const Shape& shape, std::span<const std::string_view> values);
  static Tensor strings(const Shape& shape, const std::vector<std::string>& values);

  /// A scalar of `dtype` (a plain one) nearest to `value`: for constants of formulas.
  static Tensor scalar_of(DType dtype, double value);

  [[nodiscard]] bool defined() const { return buffer_ != nullptr; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] int64_t num_elements() const { return num_elements_; }
  /// Bytes of the elements; of strings, of their views without what these show.
  [[nodiscard]] size_t nbytes() const { return num_elements_ * size_of(dtype_); }
  [[nodiscard]] std::byte* raw() const { return buffer_->data() + offset_; }
  [[nodiscard]] const Buffer::Ptr& buffer() const { return buffer_; }

  /// The elements; T must be the C++ type of the dtype (checked).
  template <class T>
  [[nodiscard]] std::span<T> data() const {
    SR_CHECK(kDTypeOf<std::remove_const_t<T>> == dtype_, "tensor of {} read as another type",
             name_of(dtype_));
    return {reinterpret_cast<T*>(raw()), static_cast<size_t>(num_elements_)};
  }

  /// The same bytes under another shape with as many elements.
  [[nodiscard]] Tensor reshaped(const Shape& shape) const;
  /// Rows [from, from + count) along dimension 0, sharing bytes.
  [[nodiscard]] Tensor rows(int64_t from, int64_t count) const;
  /// A deep copy.
  [[nodiscard]] Tensor clone() const;
  /// "float32[2,3]".
  [[nodiscard]] std::string to_string() const;

 private:
  DType dtype_ = DType::kInvalid;
  Shape shape_;
  int64_t num_elements_ = 0;
  Buffer::Ptr buffer_;
  size_t offset_ = 0;
};

}  // namespace sidereal::tensor
