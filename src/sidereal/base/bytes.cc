#include "sidereal/base/bytes.h"

#include <limits>

#include "sidereal/base/check.h"

namespace sidereal::base {

void ByteWriter::put_string(std::string_view text) {
  SR_CHECK(text.size() <= std::numeric_limits<uint32_t>::max(), "string of {} bytes", text.size());
  put(static_cast<uint32_t>(text.size()));
  put_bytes(text);
}

Status ByteReader::need(size_t n) const {
  if (n <= remaining()) return {};
  return make_status(StatusCode::kDataLoss,
                     fmt::format("bytes end at offset {} where {} more were expected and {} are "
                                 "left; the data was cut or damaged",
                                 at_, n, remaining()));
}

Status ByteReader::get_string(std::string* out, uint32_t max_bytes) {
  uint32_t length = 0;
  SR_RETURN_IF_ERROR(get(&length));
  if (length > max_bytes) {
    return data_loss("a string of {} bytes at offset {} is over the limit of {}", length, at_,
                     max_bytes);
  }
  SR_RETURN_IF_ERROR(need(length));
  out->assign(bytes_.substr(at_, length));
  at_ += length;
  return {};
}

Status ByteReader::get_count(uint32_t* out, uint32_t max, size_t item_bytes) {
  SR_RETURN_IF_ERROR(get(out));
  if (*out > max) {
    return data_loss("a count of {} at offset {} is over the limit of {}", *out, at_, max);
  }
  return need(static_cast<size_t>(*out) * item_bytes);
}

Result<std::string_view> ByteReader::take(size_t n) {
  SR_RETURN_IF_ERROR(need(n));
  const std::string_view taken = bytes_.substr(at_, n);
  at_ += n;
  return taken;
}

}  // namespace sidereal::base
