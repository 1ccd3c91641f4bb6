#include "sidereal/task/answered_pushes.h"

#include "sidereal/base/bytes.h"

namespace sidereal::task {

namespace {

/// Begins what was pushed: no field of a protocol buffer's message begins so.
constexpr uint8_t kMark = 0;
constexpr size_t kBytesOfEach = 4 * sizeof(uint64_t) + sizeof(uint16_t);

}  // namespace

std::string encode_pushed(const Pushed& pushed) {
  if (pushed.empty()) return {};
  base::ByteWriter out;
  out.put(kMark);
  out.put(static_cast<uint16_t>(pushed.size()));
  for (const resources::PushedSoFar& one : pushed) {
    out.put(one.life);
    out.put(static_cast<uint16_t>(one.lane));
    out.put(one.number);
    out.put(one.pushes);
    out.put(one.rows);
  }
  return out.take();
}

Status take_pushed(std::string_view* bytes, Pushed* out) {
  out->clear();
  if (bytes->empty() || bytes->front() != static_cast<char>(kMark)) return {};
  base::ByteReader in(bytes->substr(1));
  uint16_t count = 0;
  SR_RETURN_IF_ERROR(in.get(&count));
  if (count > resources::PushCounts::kLanesMax || in.remaining() < count * kBytesOfEach) {
    return base::data_loss("an answer says that {} lanes were pushed to, in {} bytes", count,
                           in.remaining());
  }
  for (uint16_t i = 0; i < count; ++i) {
    resources::PushedSoFar& one = out->emplace_back();
    uint16_t lane = 0;
    SR_RETURN_IF_ERROR(in.get(&one.life));
    SR_RETURN_IF_ERROR(in.get(&lane));
    SR_RETURN_IF_ERROR(in.get(&one.number));
    SR_RETURN_IF_ERROR(in.get(&one.pushes));
    SR_RETURN_IF_ERROR(in.get(&one.rows));
    if (lane >= resources::PushCounts::kLanesMax) {
      return base::data_loss("an answer says that lane {} was pushed to", lane);
    }
    one.lane = lane;
  }
  bytes->remove_prefix(bytes->size() - in.remaining());
  return {};
}

}  // namespace sidereal::task
