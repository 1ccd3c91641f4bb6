#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace sidereal::tensor {

/// Extents of a tensor, outermost first. A dimension of -1 is unknown (graphs only: a Tensor's
/// shape is always fully defined). Value type.
class Shape {
 public:
  using Dims = absl::InlinedVector<int64_t, 4>;

  /// The shape of a scalar.
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::span<const int64_t> dims) : dims_(dims.begin(), dims.end()) {}

  /// A shape about which nothing is known, not even its rank.
  static Shape unknown_rank();

  [[nodiscard]] bool has_rank() const { return has_rank_; }
  /// Number of dimensions. Only with has_rank().
  [[nodiscard]] int rank() const { return static_cast<int>(dims_.size()); }
  /// Extent of dimension `i`; negative `i` counts from the end. -1 when unknown.
  [[nodiscard]] int64_t dim(int i) const { return dims_[i < 0 ? dims_.size() + i : i]; }
  void set_dim(int i, int64_t extent) { dims_[i < 0 ? dims_.size() + i : i] = extent; }
  void append(int64_t extent) { dims_.push_back(extent); }
  [[nodiscard]] std::span<const int64_t> dims() const { return {dims_.data(), dims_.size()}; }

  /// True when rank and every extent are known.
  [[nodiscard]] bool is_fully_defined() const;
  /// Product of the extents (1 for a scalar); -1 unless fully defined.
  [[nodiscard]] int64_t num_elements() const;
  /// True when a tensor of shape `concrete` may stand where this (partly unknown) shape is said.
  [[nodiscard]] bool accepts(const Shape& concrete) const;
  /// "[2,?,3]"; "?" for unknown rank.
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Shape& a, const Shape& b) {
    return a.has_rank_ == b.has_rank_ && a.dims_ == b.dims_;
  }

 private:
  Dims dims_;
  bool has_rank_ = true;
};

}  // namespace sidereal::tensor
