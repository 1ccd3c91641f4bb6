#include "sidereal/wire/frame.h"

#include <cstring>

#include "sidereal/base/bytes.h"

namespace sidereal::wire {
namespace {

constexpr uint16_t kDeadBit = 1;
constexpr uint32_t kStringBytesMax = 1024;
constexpr uint32_t kStatusCodeMax = 16;  // UNAUTHENTICATED

/// The header as it lies in memory and on the wire.
struct RawHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t method;
  uint32_t flags;
  uint32_t status;
  uint64_t call_id;
  uint64_t program;
  uint64_t step;
  uint32_t slot_count;
  uint32_t meta_bytes;
  uint64_t payload_bytes;
  uint64_t reserved;
};
static_assert(sizeof(RawHeader) == kHeaderBytes);

struct RawSlot {
  uint32_t slot;
  uint8_t dtype;
  uint8_t rank;
  uint16_t flags;
  uint64_t nbytes;
};
static_assert(sizeof(RawSlot) == 16);

bool has_slots(Method method) { return method == Method::kCall || method == Method::kReply; }

bool is_method(uint16_t number) {
  return number >= static_cast<uint16_t>(Method::kHello) &&
         number <= static_cast<uint16_t>(Method::kGoodbye);
}

/// What `raw` promises, checked against itself.
Status check_consistent(const RawHeader& raw, Method method) {
  if (raw.flags != 0 || raw.reserved != 0) {
    return base::data_loss("{} frame with unknown flags {:#x} or reserved bits", name_of(method),
                           raw.flags);
  }
  if ((method == Method::kError) != (raw.status != 0) || raw.status > kStatusCodeMax) {
    return base::data_loss("{} frame with status {}", name_of(method), raw.status);
  }
  if (raw.payload_bytes % kPayloadAlign != 0) {
    return base::data_loss("{} frame with {} payload bytes, not a multiple of {}", name_of(method),
                           raw.payload_bytes, kPayloadAlign);
  }
  if (has_slots(method)) {
    if (raw.meta_bytes < uint64_t{raw.slot_count} * slot_entry_bytes(0)) {
      return base::data_loss("{} frame with {} slots in {} meta bytes", name_of(method),
                             raw.slot_count, raw.meta_bytes);
    }
  } else if (raw.slot_count != 0 || raw.payload_bytes != 0) {
    return base::data_loss("{} frame with {} slots and {} payload bytes", name_of(method),
                           raw.slot_count, raw.payload_bytes);
  }
  const bool is_empty =
      method == Method::kPing || method == Method::kPong || method == Method::kGoodbye;
  if (is_empty && raw.meta_bytes != 0) {
    return base::data_loss("{} frame with {} meta bytes", name_of(method), raw.meta_bytes);
  }
  return {};
}

Status check_limits(const RawHeader& raw, Method method, const Limits& limits) {
  if (raw.meta_bytes > limits.meta_bytes_max) {
    return base::resource_exhausted("{} frame with {} meta bytes; the limit is {}", name_of(method),
                                    raw.meta_bytes, limits.meta_bytes_max);
  }
  if (raw.payload_bytes > limits.payload_bytes_max) {
    return base::resource_exhausted("{} frame with {} payload bytes; frame_bytes_max is {}",
                                    name_of(method), raw.payload_bytes, limits.payload_bytes_max);
  }
  if (raw.slot_count > limits.slots_max) {
    return base::resource_exhausted("{} frame with {} slots; slots_max is {}", name_of(method),
                                    raw.slot_count, limits.slots_max);
  }
  return {};
}

/// Product of the extents times the size of the dtype, or false when it does not fit.
bool byte_count(const tensor::Shape& shape, tensor::DType dtype, uint64_t* out) {
  uint64_t total = tensor::size_of(dtype);
  // All factors are multiplied even after a zero, so that absurd extents are never accepted.
  uint64_t nonzero = total;
  for (const int64_t extent : shape.dims()) {
    if (extent < 0) return false;
    const auto factor = static_cast<uint64_t>(extent);
    if (factor != 0 && __builtin_mul_overflow(nonzero, factor, &nonzero)) return false;
    if (nonzero > static_cast<uint64_t>(INT64_MAX)) return false;
    total *= factor;
  }
  *out = total;
  return true;
}

}  // namespace

const char* name_of(Method method) {
  switch (method) {
    case Method::kHello:
      return "Hello";
    case Method::kHelloAck:
      return "HelloAck";
    case Method::kCall:
      return "Call";
    case Method::kReply:
      return "Reply";
    case Method::kError:
      return "Error";
    case Method::kPing:
      return "Ping";
    case Method::kPong:
      return "Pong";
    case Method::kGoodbye:
      return "Goodbye";
  }
  return "?";
}

void encode_header(const FrameHeader& header, std::byte* out) {
  const RawHeader raw = {
      .magic = kMagic,
      .version = header.version,
      .method = static_cast<uint16_t>(header.method),
      .flags = header.flags,
      .status = header.status,
      .call_id = header.call_id,
      .program = header.program,
      .step = header.step,
      .slot_count = header.slot_count,
      .meta_bytes = header.meta_bytes,
      .payload_bytes = header.payload_bytes,
      .reserved = 0,
  };
  std::memcpy(out, &raw, sizeof(raw));
}

Result<FrameHeader> decode_header(const std::byte* bytes, const Limits& limits) {
  RawHeader raw;
  std::memcpy(&raw, bytes, sizeof(raw));
  if (raw.magic != kMagic) {
    return base::data_loss(
        "bytes that are no frame (magic {:#010x}, not {:#010x}); is the peer "
        "another program?",
        raw.magic, kMagic);
  }
  if (raw.version < kVersionMin || raw.version > kVersion) {
    return base::failed_precondition(
        "frame of protocol version {}; this side speaks {} to {}: run the same release on all "
        "tasks",
        raw.version, kVersionMin, kVersion);
  }
  if (!is_method(raw.method)) return base::data_loss("frame of unknown method {}", raw.method);
  const auto method = static_cast<Method>(raw.method);
  SR_RETURN_IF_ERROR(check_limits(raw, method, limits));
  SR_RETURN_IF_ERROR(check_consistent(raw, method));
  return FrameHeader{
      .version = raw.version,
      .method = method,
      .flags = raw.flags,
      .status = raw.status,
      .call_id = raw.call_id,
      .program = raw.program,
      .step = raw.step,
      .slot_count = raw.slot_count,
      .meta_bytes = raw.meta_bytes,
      .payload_bytes = raw.payload_bytes,
  };
}

FrameSize size_of(std::span<const tensor::Tensor> tensors) {
  FrameSize size;
  for (const tensor::Tensor& t : tensors) {
    size.meta_bytes += slot_entry_bytes(t.defined() ? t.shape().rank() : 0);
    if (t.defined()) size.payload_bytes += padded(t.nbytes());
  }
  return size;
}

size_t encode_slot(uint32_t slot, const tensor::Tensor& tensor, std::byte* out) {
  RawSlot raw = {.slot = slot, .dtype = 0, .rank = 0, .flags = kDeadBit, .nbytes = 0};
  if (tensor.defined()) {
    raw.dtype = static_cast<uint8_t>(tensor.dtype());
    raw.rank = static_cast<uint8_t>(tensor.shape().rank());
    raw.flags = 0;
    raw.nbytes = tensor.nbytes();
    const auto dims = tensor.shape().dims();
    if (!dims.empty()) std::memcpy(out + sizeof(raw), dims.data(), dims.size_bytes());
  }
  std::memcpy(out, &raw, sizeof(raw));
  return slot_entry_bytes(raw.rank);
}

Status decode_slots(const FrameHeader& header, std::string_view meta,
                    std::vector<SlotEntry>* entries) {
  entries->clear();
  uint64_t payload = 0;
  for (uint32_t i = 0; i < header.slot_count; ++i) {
    RawSlot raw;
    if (meta.size() < sizeof(raw)) return base::data_loss("slot {} lies outside its frame", i);
    std::memcpy(&raw, meta.data(), sizeof(raw));
    if (raw.rank > kRankMax || meta.size() < slot_entry_bytes(raw.rank)) {
      return base::data_loss("slot {} has rank {} in {} bytes", i, raw.rank, meta.size());
    }
    SlotEntry& entry = entries->emplace_back();
    entry.slot = raw.slot;
    entry.dtype = static_cast<tensor::DType>(raw.dtype);
    entry.dead = (raw.flags & kDeadBit) != 0;
    entry.nbytes = raw.nbytes;
    for (int d = 0; d < raw.rank; ++d) {
      int64_t extent;
      std::memcpy(&extent, meta.data() + slot_entry_bytes(d), sizeof(extent));
      entry.shape.append(extent);
    }
    meta.remove_prefix(slot_entry_bytes(raw.rank));
    uint64_t expected = 0;
    const bool fits = entry.dead ? raw.dtype == 0 && raw.rank == 0
                                 : tensor::is_valid(entry.dtype) &&
                                       // The bytes would be taken for pointers.
                                       entry.dtype != tensor::DType::kString &&
                                       byte_count(entry.shape, entry.dtype, &expected);
    if ((raw.flags & ~kDeadBit) != 0 || !fits || expected != raw.nbytes) {
      return base::data_loss("slot {} (dtype {}, shape {}, flags {:#x}) cannot have {} bytes", i,
                             raw.dtype, entry.shape.to_string(), raw.flags, raw.nbytes);
    }
    // nbytes is at most 2^63 - 1 here, so rounding up cannot wrap; the sum is checked.
    if (__builtin_add_overflow(payload, padded(raw.nbytes), &payload)) {
      return base::data_loss("the slots have more than 2^64 bytes");
    }
  }
  if (!meta.empty()) return base::data_loss("{} bytes behind the last slot", meta.size());
  if (payload != header.payload_bytes) {
    return base::data_loss("slots of {} bytes in a frame with {} payload bytes", payload,
                           header.payload_bytes);
  }
  return {};
}

Status error_status(const FrameHeader& header, std::string_view meta) {
  const bool known = header.status >= 1 && header.status <= kStatusCodeMax;
  const auto code = known ? static_cast<StatusCode>(header.status) : StatusCode::kUnknown;
  return base::make_status(code, std::string(meta));
}

std::string encode_hello(const Hello& hello) {
  base::ByteWriter out;
  out.put(hello.version_min);
  out.put(hello.version_max);
  out.put(hello.cluster_id);
  out.put(hello.incarnation);
  out.put(hello.lane);
  out.put_string(hello.task);
  out.put_string(hello.peer_task);
  return out.take();
}

Result<Hello> decode_hello(std::string_view meta) {
  base::ByteReader in(meta);
  Hello hello;
  SR_RETURN_IF_ERROR(in.get(&hello.version_min));
  SR_RETURN_IF_ERROR(in.get(&hello.version_max));
  SR_RETURN_IF_ERROR(in.get(&hello.cluster_id));
  SR_RETURN_IF_ERROR(in.get(&hello.incarnation));
  SR_RETURN_IF_ERROR(in.get(&hello.lane));
  SR_RETURN_IF_ERROR(in.get_string(&hello.task, kStringBytesMax));
  SR_RETURN_IF_ERROR(in.get_string(&hello.peer_task, kStringBytesMax));
  if (in.remaining() != 0) return base::data_loss("{} bytes behind the hello", in.remaining());
  return hello;
}

std::string encode_hello_ack(const HelloAck& ack) {
  base::ByteWriter out;
  out.put(ack.version);
  out.put(ack.incarnation);
  out.put(ack.lane);
  out.put(ack.lane_count);
  out.put_string(ack.task);
  return out.take();
}

Result<HelloAck> decode_hello_ack(std::string_view meta) {
  base::ByteReader in(meta);
  HelloAck ack;
  SR_RETURN_IF_ERROR(in.get(&ack.version));
  SR_RETURN_IF_ERROR(in.get(&ack.incarnation));
  SR_RETURN_IF_ERROR(in.get(&ack.lane));
  SR_RETURN_IF_ERROR(in.get(&ack.lane_count));
  SR_RETURN_IF_ERROR(in.get_string(&ack.task, kStringBytesMax));
  if (in.remaining() != 0) return base::data_loss("{} bytes behind the hello", in.remaining());
  return ack;
}

Result<HelloAck> answer_hello(const Hello& hello, const ServerIdentity& server) {
  const uint16_t version = std::min(hello.version_max, kVersion);
  if (version < kVersionMin || version < hello.version_min) {
    return base::failed_precondition(
        "protocol versions do not meet: {} speaks {} to {}, {} speaks {} to {}; run the same "
        "release on all tasks",
        hello.task, hello.version_min, hello.version_max, server.task, kVersionMin, kVersion);
  }
  if (hello.cluster_id != server.cluster_id) {
    return base::failed_precondition(
        "different clusters: {} belongs to cluster {:016x}, {} to cluster {:016x}; is a server of "
        "another run still listening there?",
        hello.task, hello.cluster_id, server.task, server.cluster_id);
  }
  if (hello.peer_task != server.task) {
    return base::failed_precondition(
        "wrong task: {} wants {} but reached {}; check the addresses of the cluster", hello.task,
        hello.peer_task, server.task);
  }
  if (hello.lane != server.lane) {
    return base::failed_precondition("wrong lane: {} wants lane {} of {} but reached lane {}",
                                     hello.task, hello.lane, server.task, server.lane);
  }
  return HelloAck{.version = version,
                  .incarnation = server.incarnation,
                  .lane = server.lane,
                  .lane_count = server.lane_count,
                  .task = server.task};
}

}  // namespace sidereal::wire
