#include "sidereal/ckpt/stored_tensors.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/tensor/buffer.h"

namespace sidereal::ckpt {

using tensor::DType;
using tensor::Tensor;

std::vector<Slice> pieces_of(const StoredTensor& tensor) {
  if (!tensor.slices.empty()) return tensor.slices;
  return {whole_slice(tensor.shape)};
}

const StoredTensor* TensorReader::find(std::string_view name) const {
  const auto at =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const StoredTensor& t, std::string_view n) { return t.name < n; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

Result<const StoredTensor*> TensorReader::readable(std::string_view name) const {
  const StoredTensor* stored = find(name);
  if (stored == nullptr) {
    return base::not_found("there is no tensor '{}' among the {} of this file",
                           base::message_text(name, 200), tensors_.size());
  }
  if (stored->dtype == DType::kInvalid) {
    return base::invalid_argument("the tensor '{}' has a dtype that Sidereal does not have", name);
  }
  return stored;
}

Result<Tensor> TensorReader::read(std::string_view name) {
  SR_ASSIGN_OR_RETURN(const StoredTensor* stored, readable(name));
  return read_whole(*stored);
}

Result<Tensor> TensorReader::read(std::string_view name, const Slice& part) {
  SR_ASSIGN_OR_RETURN(const StoredTensor* stored, readable(name));
  const Status status = check_slice(part, stored->shape);
  if (!status.ok()) return base::with_context(status, fmt::format("tensor '{}'", name));
  return read_part(*stored, part);
}

Status TensorReader::verify(std::string_view name) {
  SR_ASSIGN_OR_RETURN(const StoredTensor* stored, readable(name));
  return verify_stored(*stored);
}

void TensorReader::set_tensors(std::vector<StoredTensor> tensors) {
  tensors_ = std::move(tensors);
  std::sort(tensors_.begin(), tensors_.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
}

Result<Tensor> tensor_for(DType dtype, const tensor::Shape& shape) {
  size_t bytes = tensor::size_of(dtype);
  for (const int64_t extent : shape.dims()) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes) ||
        bytes > static_cast<size_t>(std::numeric_limits<int64_t>::max())) {
      return base::invalid_argument("{}{} is no tensor", tensor::name_of(dtype), shape.to_string());
    }
  }
  auto buffer = dtype == DType::kString ? tensor::Buffer::try_allocate_zeroed(bytes)
                                        : tensor::Buffer::try_allocate(bytes);
  if (buffer == nullptr) {
    return base::resource_exhausted("no memory for {} ({}{})",
                                    base::human_bytes(static_cast<double>(bytes)),
                                    tensor::name_of(dtype), shape.to_string());
  }
  return Tensor(dtype, shape, std::move(buffer));
}

}  // namespace sidereal::ckpt
