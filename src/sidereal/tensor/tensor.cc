#include "sidereal/tensor/tensor.h"

#include "sidereal/tensor/dispatch.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::tensor {

Tensor::Tensor(DType dtype, Shape shape, Buffer::Ptr buffer, size_t offset)
    : dtype_(dtype),
      shape_(std::move(shape)),
      num_elements_(shape_.num_elements()),
      buffer_(std::move(buffer)),
      offset_(offset) {
  SR_CHECK(num_elements_ >= 0, "tensor of unknown shape {}", shape_.to_string());
  SR_CHECK(offset_ + nbytes() <= buffer_->bytes(), "{} does not fit its buffer", to_string());
}

Tensor Tensor::empty(DType dtype, const Shape& shape) {
  if (dtype == DType::kString) return zeros(dtype, shape);
  return {dtype, shape, Buffer::allocate(shape.num_elements() * size_of(dtype))};
}

Tensor Tensor::zeros(DType dtype, const Shape& shape) {
  return {dtype, shape, Buffer::allocate_zeroed(shape.num_elements() * size_of(dtype))};
}

Tensor Tensor::scalar_of(DType dtype, double value) {
  Tensor out;
  const bool known =
      visit_dtype<PlainTypes>(dtype, [&]<class T>() { out = scalar(static_cast<T>(value)); });
  SR_CHECK(known, "no scalar of {}", name_of(dtype));
  return out;
}

Tensor Tensor::reshaped(const Shape& shape) const {
  SR_CHECK(shape.num_elements() == num_elements_, "{} as {}", to_string(), shape.to_string());
  Tensor out = *this;
  out.shape_ = shape;
  return out;
}

Tensor Tensor::rows(int64_t from, int64_t count) const {
  SR_CHECK(shape_.rank() >= 1 && from >= 0 && count >= 0 && from + count <= shape_.dim(0),
           "rows {}+{} of {}", from, count, to_string());
  Tensor out = *this;
  out.shape_.set_dim(0, count);
  out.num_elements_ = out.shape_.num_elements();
  const int64_t row_elements = shape_.dim(0) == 0 ? 0 : num_elements_ / shape_.dim(0);
  out.offset_ += static_cast<size_t>(from * row_elements) * size_of(dtype_);
  return out;
}

Tensor Tensor::clone() const {
  if (dtype_ == DType::kString) return strings(shape_, data<const std::string_view>());
  Tensor out = empty(dtype_, shape_);
  if (nbytes() > 0) __builtin_memcpy(out.raw(), raw(), nbytes());
  return out;
}

Tensor Tensor::strings(const Shape& shape, std::span<const std::string_view> values) {
  StringsBuilder builder;
  for (const std::string_view value : values) builder.add(value);
  return std::move(builder).finish(shape);
}

Tensor Tensor::strings(const Shape& shape, const std::vector<std::string>& values) {
  const std::vector<std::string_view> views(values.begin(), values.end());
  return strings(shape, views);
}

std::string Tensor::to_string() const { return std::string(name_of(dtype_)) + shape_.to_string(); }

}  // namespace sidereal::tensor
