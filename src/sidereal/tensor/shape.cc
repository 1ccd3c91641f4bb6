#include "sidereal/tensor/shape.h"

#include <algorithm>
#include <limits>

namespace sidereal::tensor {

Shape Shape::unknown_rank() {
  Shape shape;
  shape.has_rank_ = false;
  return shape;
}

bool Shape::is_fully_defined() const {
  return has_rank_ && std::all_of(dims_.begin(), dims_.end(), [](int64_t d) { return d >= 0; });
}

int64_t Shape::num_elements() const {
  if (!is_fully_defined()) return -1;
  int64_t n = 1;
  bool is_huge = false;
  for (const int64_t d : dims_) {
    if (d == 0) return 0;
    is_huge = is_huge || __builtin_mul_overflow(n, d, &n);
  }
  return is_huge ? std::numeric_limits<int64_t>::max() : n;
}

bool Shape::accepts(const Shape& concrete) const {
  if (!has_rank_) return true;
  if (!concrete.has_rank_ || concrete.rank() != rank()) return false;
  for (int i = 0; i < rank(); ++i) {
    if (dims_[i] >= 0 && dims_[i] != concrete.dims_[i]) return false;
  }
  return true;
}

std::string Shape::to_string() const {
  if (!has_rank_) return "?";
  std::string out = "[";
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (i > 0) out += ',';
    out += dims_[i] < 0 ? "?" : std::to_string(dims_[i]);
  }
  return out + "]";
}

}  // namespace sidereal::tensor
