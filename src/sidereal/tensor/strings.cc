#include "sidereal/tensor/strings.h"

#include <memory>
#include <utility>

#include "sidereal/base/bytes.h"

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

std::string strings_to_bytes(const Tensor& t) {
  base::ByteWriter w;
  const auto strings = t.data<const std::string_view>();
  for (const std::string_view s : strings) w.put(static_cast<uint64_t>(s.size()));
  for (const std::string_view s : strings) w.put_bytes(s);
  return w.take();
}

Result<Tensor> strings_from_bytes(std::string_view bytes, const Shape& shape) {
  base::ByteReader r(bytes);
  const auto count = static_cast<uint64_t>(shape.num_elements());
  if (count > bytes.size() / sizeof(uint64_t)) {
    return base::data_loss("{} strings have {} bytes", count, bytes.size());
  }
  std::vector<uint64_t> lengths(count);
  for (uint64_t& length : lengths) SR_RETURN_IF_ERROR(r.get(&length));
  StringsBuilder strings;
  for (const uint64_t length : lengths) {
    SR_ASSIGN_OR_RETURN(const std::string_view string, r.take(length));
    strings.add(string);
  }
  if (r.remaining() > 0) {
    return base::data_loss("{} bytes follow the last string", r.remaining());
  }
  return std::move(strings).finish(shape);
}

}  // namespace sidereal::tensor
