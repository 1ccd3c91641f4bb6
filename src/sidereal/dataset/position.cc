#include "sidereal/dataset/position.h"

#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "sidereal/ir/schema.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::dataset {
namespace {

using base::data_loss;
using tensor::DType;

constexpr uint32_t kMessageBytesMax = 1 << 20;

}  // namespace

void PositionWriter::put(const Tensor& tensor) {
  out_.put(static_cast<uint8_t>(tensor.dtype()));
  out_.put(static_cast<uint8_t>(tensor.shape().rank()));
  for (const int64_t dim : tensor.shape().dims()) out_.put(dim);
  std::string strings;
  std::string_view bytes;
  if (tensor.dtype() == DType::kString) {
    strings = tensor::strings_to_bytes(tensor);
    bytes = strings;
  } else if (tensor.nbytes() > 0) {
    bytes = {reinterpret_cast<const char*>(tensor.raw()), tensor.nbytes()};
  }
  out_.put(static_cast<uint64_t>(bytes.size()));
  out_.put_bytes(bytes);
}

void PositionWriter::put(const Element& element) {
  out_.put(static_cast<uint32_t>(element.size()));
  for (const Component& component : element) {
    const bool is_list = component.list != nullptr;
    out_.put(is_list);
    if (!is_list) {
      put(component.tensor);
      continue;
    }
    out_.put(static_cast<uint32_t>(component.list->size()));
    for (const Tensor& tensor : *component.list) put(tensor);
  }
}

void PositionWriter::put(const Status& status) {
  out_.put(static_cast<uint32_t>(status.code()));
  out_.put_string(base::message_of(status).substr(0, kMessageBytesMax));
}

Status PositionReader::get_number(int64_t* out, int64_t max) {
  SR_RETURN_IF_ERROR(in_.get(out));
  if (*out >= 0 && *out <= max) return {};
  return data_loss("a position has the number {}, which is not from 0 to {}", *out, max);
}

Status PositionReader::get(bool* out) {
  uint8_t byte = 0;
  SR_RETURN_IF_ERROR(in_.get(&byte));
  *out = byte != 0;
  return {};
}

Status PositionReader::get_count(uint32_t* out, size_t bytes) {
  return in_.get_count(out, std::numeric_limits<uint32_t>::max(), bytes);
}

Status PositionReader::get(Tensor* out) {
  uint8_t dtype = 0;
  uint8_t rank = 0;
  SR_RETURN_IF_ERROR(in_.get(&dtype));
  SR_RETURN_IF_ERROR(in_.get(&rank));
  const auto type = static_cast<DType>(dtype);
  if (!tensor::is_valid(type) || rank > ir::kMaxRank) {
    return data_loss("a position has a tensor of dtype {} and rank {}", dtype, rank);
  }
  tensor::Shape shape;
  for (uint8_t d = 0; d < rank; ++d) {
    int64_t extent = 0;
    SR_RETURN_IF_ERROR(get_number(&extent));
    shape.append(extent);
  }
  if (!ir::check_shape(shape).ok()) {
    return data_loss("a position has a tensor of shape {}", shape.to_string());
  }
  uint64_t size = 0;
  SR_RETURN_IF_ERROR(in_.get(&size));
  SR_ASSIGN_OR_RETURN(const std::string_view bytes, in_.take(size));
  if (type == DType::kString) {
    SR_ASSIGN_OR_RETURN(*out, tensor::strings_from_bytes(bytes, shape));
    return {};
  }
  const auto wanted = static_cast<uint64_t>(shape.num_elements()) * tensor::size_of(type);
  if (wanted != size) {
    return data_loss("a position has {} bytes for a tensor of {}", size, wanted);
  }
  *out = Tensor::empty(type, shape);
  if (size > 0) std::memcpy(out->raw(), bytes.data(), size);
  return {};
}

Status PositionReader::get(Element* out, const std::vector<ComponentSpec>& specs) {
  out->clear();
  uint32_t count = 0;
  SR_RETURN_IF_ERROR(get_count(&count));
  for (uint32_t i = 0; i < count; ++i) {
    Component component;
    bool is_list = false;
    SR_RETURN_IF_ERROR(get(&is_list));
    if (!is_list) {
      SR_RETURN_IF_ERROR(get(&component.tensor));
    } else {
      uint32_t tensors = 0;
      SR_RETURN_IF_ERROR(get_count(&tensors));
      auto list = std::make_shared<std::vector<Tensor>>();
      for (uint32_t t = 0; t < tensors; ++t) {
        SR_RETURN_IF_ERROR(get(&list->emplace_back()));
      }
      component.list = std::move(list);
    }
    out->push_back(std::move(component));
  }
  const Status fits = check_element(*out, specs);
  return fits.ok() ? fits : data_loss("a position: {}", base::message_of(fits));
}

Status PositionReader::get(Status* out) {
  uint32_t code = 0;
  std::string message;
  SR_RETURN_IF_ERROR(in_.get(&code));
  SR_RETURN_IF_ERROR(in_.get_string(&message, kMessageBytesMax));
  if (code == 0 || code > static_cast<uint32_t>(StatusCode::kUnauthenticated)) {
    return data_loss("a position has the error code {}", code);
  }
  *out = base::make_status(static_cast<StatusCode>(code), message);
  return {};
}

}  // namespace sidereal::dataset
