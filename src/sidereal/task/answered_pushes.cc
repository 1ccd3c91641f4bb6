#include "sidereal/task/answered_pushes.h"

#include <cstring>

namespace sidereal::task {

namespace {

/// Begins what was pushed: no field of a protocol buffer's message begins so.
constexpr char kMark = 0;
constexpr size_t kHeadBytes = 1 + sizeof(uint16_t);
constexpr size_t kBytesOfEach = 4 * sizeof(uint64_t) + sizeof(uint16_t);

template <class T>
char* put(char* to, T value) {
  std::memcpy(to, &value, sizeof(value));
  return to + sizeof(value);
}
template <class T>
const char* get(const char* from, T* value) {
  std::memcpy(value, from, sizeof(*value));
  return from + sizeof(*value);
}

}  // namespace

void encode_pushed(const Pushed& pushed, std::string* out) {
  out->clear();
  if (pushed.empty()) return;
  out->resize(kHeadBytes + pushed.size() * kBytesOfEach);
  char* to = put(out->data(), kMark);
  to = put(to, static_cast<uint16_t>(pushed.size()));
  for (const resources::PushedSoFar& one : pushed) {
    to = put(to, one.life);
    to = put(to, static_cast<uint16_t>(one.lane));
    to = put(to, one.number);
    to = put(to, one.pushes);
    to = put(to, one.rows);
  }
}

Status take_pushed(std::string_view* bytes, Pushed* out) {
  out->clear();
  if (bytes->empty() || bytes->front() != kMark) return {};
  uint16_t count = 0;
  const char* from = bytes->data() + 1;
  if (bytes->size() >= kHeadBytes) from = get(from, &count);
  const size_t size = kHeadBytes + count * kBytesOfEach;
  if (count == 0 || count > resources::PushCounts::kLanesMax || bytes->size() < size) {
    return base::data_loss("an answer says in {} bytes that {} lanes were pushed to", bytes->size(),
                           count);
  }
  for (uint16_t i = 0; i < count; ++i) {
    resources::PushedSoFar& one = out->emplace_back();
    uint16_t lane = 0;
    from = get(from, &one.life);
    from = get(from, &lane);
    from = get(from, &one.number);
    from = get(from, &one.pushes);
    from = get(from, &one.rows);
    if (lane >= resources::PushCounts::kLanesMax) {
      return base::data_loss("an answer says that lane {} was pushed to", lane);
    }
    one.lane = lane;
  }
  bytes->remove_prefix(size);
  return {};
}

}  // namespace sidereal::task
