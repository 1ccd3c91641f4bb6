#include "sidereal/tensor/strings.h"

#include <memory>
#include <utility>

namespace sidereal::tensor {

Tensor StringsBuilder::finish(const Shape& shape) && {
  SR_CHECK(shape.num_elements() == size(), "{} strings for {}", size(), shape.to_string());
  auto bytes = std::make_shared<const std::string>(std::move(bytes_));
  Tensor out = Tensor::empty(DType::kString, shape);
  std::string_view* views = out.data<std::string_view>().data();
  size_t from = 0;
  for (const size_t end : ends_) {
    *views++ = std::string_view(*bytes).substr(from, end - from);
    from = end;
  }
  if (!bytes->empty()) out.buffer()->keep(std::move(bytes));
  return out;
}

size_t string_bytes(const Tensor& t) {
  size_t total = 0;
  for (const std::string_view value : t.data<const std::string_view>()) total += value.size();
  return total;
}

}  // namespace sidereal::tensor
