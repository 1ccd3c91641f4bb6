#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sidereal/base/bytes.h"
#include "sidereal/dataset/element.h"

namespace sidereal::dataset {

/// Writes how far an iterator has come. Value type.
/// Thread: core-local.
class PositionWriter {
 public:
  template <base::FixedSize T>
  void put(T value) {
    out_.put(value);
  }
  void put(const Element& element);
  void put(const Status& status);
  /// How many elements there are, and each.
  template <class Elements>
  void put_all(const Elements& elements) {
    put(static_cast<uint32_t>(elements.size()));
    for (const Element& element : elements) put(element);
  }
  [[nodiscard]] std::string take() { return out_.take(); }

 private:
  void put(const Tensor& tensor);
  base::ByteWriter out_;
};

/// Reads what a PositionWriter wrote. Bytes from anyone: kDataLoss for what cannot be; sizes are
/// bounded by the bytes there are. Borrows the bytes.
/// Thread: core-local.
class PositionReader {
 public:
  explicit PositionReader(std::string_view bytes) : in_(bytes) {}

  template <base::FixedSize T>
  Status get(T* out) {
    return in_.get(out);
  }
  /// Whether a byte is not 0.
  Status get(bool* out);
  /// A number from 0 to `max`.
  Status get_number(int64_t* out, int64_t max = INT64_MAX);
  /// How many things of at least `bytes` bytes follow.
  Status get_count(uint32_t* out, size_t bytes = 1);
  /// An element of `specs`.
  Status get(Element* out, const std::vector<ComponentSpec>& specs);
  /// Appends what put_all() wrote: elements of `specs`.
  template <class Elements>
  Status get_all(Elements* out, const std::vector<ComponentSpec>& specs) {
    uint32_t count = 0;
    SR_RETURN_IF_ERROR(get_count(&count, sizeof(uint32_t)));
    for (uint32_t i = 0; i < count; ++i) SR_RETURN_IF_ERROR(get(&out->emplace_back(), specs));
    return {};
  }
  /// An error.
  Status get(Status* out);
  [[nodiscard]] size_t remaining() const { return in_.remaining(); }

 private:
  Status get(Tensor* out);
  base::ByteReader in_;
};

}  // namespace sidereal::dataset
