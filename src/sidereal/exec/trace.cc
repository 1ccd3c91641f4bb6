#include "sidereal/exec/trace.h"

#include <cstring>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::exec {

using tensor::Tensor;

/// What stands in memory before the texts and values of an event.
struct Trace::Header {
  TraceEvent::Kind kind;
  int32_t track;
  uint64_t step;
  int64_t begin_ns;
  int64_t end_ns;
  int64_t sent_ns;
  int64_t answered_ns;
  int32_t call;
  uint32_t op_bytes;
  uint32_t name_bytes;
  uint32_t device_bytes;
  uint32_t inputs;
  uint32_t outputs;
};

namespace {

/// Dtype, rank, bytes; then the extents.
struct ValueHeader {
  tensor::DType dtype;
  uint8_t rank;
  uint64_t bytes;
};

size_t bytes_of(const std::vector<int32_t>& which, const std::vector<Tensor>& slots) {
  size_t bytes = 0;
  for (const int32_t slot : which) {
    const Tensor& value = slots[slot];
    bytes += sizeof(ValueHeader);
    if (value.defined()) bytes += value.shape().dims().size_bytes();
  }
  return bytes;
}

/// Takes what Trace wrote, one piece after another.
class Cursor {
 public:
  explicit Cursor(const char* at) : at_(at) {}

  template <class T>
  T get() {
    T value;
    std::memcpy(&value, at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string text(size_t bytes) {
    std::string out(at_, bytes);
    at_ += bytes;
    return out;
  }
  std::vector<TraceValue> values(size_t count) {
    std::vector<TraceValue> out;
    out.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const auto header = get<ValueHeader>();
      TraceValue value{header.dtype, {}, header.bytes};
      for (uint8_t d = 0; d < header.rank; ++d) value.shape.append(get<int64_t>());
      out.push_back(std::move(value));
    }
    return out;
  }
  [[nodiscard]] const char* at() const { return at_; }

 private:
  const char* at_;
};

}  // namespace

Trace::Trace(size_t bytes, Clock clock) : memory_(bytes), clock_(std::move(clock)) {}

void Trace::clear() {
  used_ = 0;
  count_ = 0;
  dropped_ = 0;
}

bool Trace::reserve(size_t bytes) {
  // Once something was left out, so is all that follows: a trace has one end.
  if (dropped_ == 0 && memory_.size() - used_ >= bytes) {
    ++count_;
    return true;
  }
  ++dropped_;
  return false;
}

void Trace::append(const void* from, size_t bytes) {
  if (bytes == 0) return;
  std::memcpy(memory_.data() + used_, from, bytes);
  used_ += bytes;
}

void Trace::append_values(const std::vector<int32_t>& which, const std::vector<Tensor>& slots) {
  for (const int32_t slot : which) {
    const Tensor& value = slots[slot];
    ValueHeader header{};
    if (value.defined()) {
      const auto dims = value.shape().dims();
      const bool strings = value.dtype() == tensor::DType::kString;
      header = {value.dtype(), static_cast<uint8_t>(dims.size()),
                strings ? tensor::string_bytes(value) : value.nbytes()};
      append(&header, sizeof(header));
      append(dims.data(), dims.size_bytes());
    } else {
      append(&header, sizeof(header));
    }
  }
}

void Trace::record(const TraceEvent& times, const program::Instruction& instruction,
                   const std::vector<int32_t>& inputs, const std::vector<int32_t>& outputs,
                   const std::vector<Tensor>& slots, std::string_view device) {
  const size_t bytes = sizeof(Header) + instruction.op.size() + instruction.name.size() +
                       device.size() + bytes_of(inputs, slots) + bytes_of(outputs, slots);
  if (!reserve(bytes)) return;
  const Header header{times.kind,
                      times.track,
                      times.step,
                      times.begin_ns,
                      times.end_ns,
                      times.sent_ns,
                      times.answered_ns,
                      times.call,
                      static_cast<uint32_t>(instruction.op.size()),
                      static_cast<uint32_t>(instruction.name.size()),
                      static_cast<uint32_t>(device.size()),
                      static_cast<uint32_t>(inputs.size()),
                      static_cast<uint32_t>(outputs.size())};
  append(&header, sizeof(header));
  append(instruction.op.data(), instruction.op.size());
  append(instruction.name.data(), instruction.name.size());
  append(device.data(), device.size());
  append_values(inputs, slots);
  append_values(outputs, slots);
}

void Trace::record_step(const TraceEvent& times, std::string_view label) {
  if (!reserve(sizeof(Header) + label.size())) return;
  Header header{};
  header.kind = TraceEvent::Kind::kStep;
  header.track = times.track;
  header.step = times.step;
  header.begin_ns = times.begin_ns;
  header.end_ns = times.end_ns;
  header.call = -1;
  header.op_bytes = static_cast<uint32_t>(label.size());
  append(&header, sizeof(header));
  append(label.data(), label.size());
}

std::vector<TraceEvent> Trace::events() const {
  std::vector<TraceEvent> out;
  out.reserve(count_);
  Cursor cursor(memory_.data());
  for (size_t i = 0; i < count_; ++i) {
    const auto header = cursor.get<Header>();
    TraceEvent event;
    event.kind = header.kind;
    event.track = header.track;
    event.step = header.step;
    event.begin_ns = header.begin_ns;
    event.end_ns = header.end_ns;
    event.sent_ns = header.sent_ns;
    event.answered_ns = header.answered_ns;
    event.call = header.call;
    event.op = cursor.text(header.op_bytes);
    event.name = cursor.text(header.name_bytes);
    event.device = cursor.text(header.device_bytes);
    event.inputs = cursor.values(header.inputs);
    event.outputs = cursor.values(header.outputs);
    out.push_back(std::move(event));
  }
  SR_CHECK(cursor.at() == memory_.data() + used_, "a trace reads otherwise than it was written");
  return out;
}

}  // namespace sidereal::exec
