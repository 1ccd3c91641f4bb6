#include "sidereal/wire/frame.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "sidereal/base/bytes.h"
#include "sidereal/base/check.h"
#include "sidereal/tensor/half.h"
#include "sidereal/wire/checksum.h"

namespace sidereal::wire {
namespace {

constexpr uint16_t kDeadBit = 1;
constexpr int kFormShift = 1;  // two bits
constexpr uint16_t kSlotFlags = kDeadBit | 3 << kFormShift;
constexpr size_t kNarrowBytes = 2;
constexpr uint32_t kStringBytesMax = 1024;
constexpr uint32_t kStatusCodeMax = 16;  // UNAUTHENTICATED

/// The header as it lies in memory and on the wire.
struct RawHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t method;
  uint16_t flags;
  uint16_t kind;
  uint32_t status;
  uint64_t call_id;
  uint64_t program;
  uint64_t step;
  uint32_t slot_count;
  uint32_t meta_bytes;
  uint64_t payload_bytes;
  uint64_t session;
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
         number <= static_cast<uint16_t>(Method::kSwitch);
}

uint16_t flags_of(Method method) {
  switch (method) {
    case Method::kCall:
      return kSummed | kExtra | kNumbered | kRepeatable;
    case Method::kReply:
      return kSummed | kExtra | kNumbered;
    case Method::kError:
      return kDerived | kNumbered;
    default:
      return 0;
  }
}

bool has_order(Method method, uint16_t flags) {
  return method == Method::kCall && (flags & kNumbered) != 0;
}

/// What `raw` promises, checked against itself.
Status check_consistent(const RawHeader& raw, Method method) {
  if ((raw.flags & ~flags_of(method)) != 0) {
    return base::data_loss("{} frame with unknown flags {:#x}", name_of(method), raw.flags);
  }
  if ((raw.flags & kRepeatable) != 0 && (raw.flags & kNumbered) == 0) {
    return base::data_loss("a call that may be run again and has no number");
  }
  if (method != Method::kCall && (raw.kind != 0 || raw.session != 0)) {
    return base::data_loss("{} frame with kind {} of session {:#x}", name_of(method), raw.kind,
                           raw.session);
  }
  if ((method == Method::kError) != (raw.status != 0) || raw.status > kStatusCodeMax) {
    return base::data_loss("{} frame with status {}", name_of(method), raw.status);
  }
  if (raw.payload_bytes % kPayloadAlign != 0) {
    return base::data_loss("{} frame with {} payload bytes, not a multiple of {}", name_of(method),
                           raw.payload_bytes, kPayloadAlign);
  }
  if (has_slots(method)) {
    const uint64_t rest = ((raw.flags & kSummed) != 0 ? sizeof(Checksums) : 0) +
                          (has_order(method, raw.flags) ? kOrderBytes : 0);
    if (raw.meta_bytes < uint64_t{raw.slot_count} * slot_entry_bytes(0) + rest) {
      return base::data_loss("{} frame with {} slots in {} meta bytes", name_of(method),
                             raw.slot_count, raw.meta_bytes);
    }
  } else if (raw.slot_count != 0 || raw.payload_bytes != 0) {
    return base::data_loss("{} frame with {} slots and {} payload bytes", name_of(method),
                           raw.slot_count, raw.payload_bytes);
  }
  const bool is_empty = method == Method::kPing || method == Method::kPong ||
                        method == Method::kGoodbye || method == Method::kCancel ||
                        method == Method::kConfirm || method == Method::kDecline ||
                        method == Method::kSwitch;
  if (is_empty && raw.meta_bytes != 0) {
    return base::data_loss("{} frame with {} meta bytes", name_of(method), raw.meta_bytes);
  }
  return {};
}

Status check_limits(const RawHeader& raw, Method method, const Limits& limits) {
  const uint32_t meta_max = method == Method::kError
                                ? std::min(limits.meta_bytes_max, kErrorBytesMax)
                                : limits.meta_bytes_max;
  if (raw.meta_bytes > meta_max) {
    return base::resource_exhausted("{} frame with {} meta bytes; the limit is {}", name_of(method),
                                    raw.meta_bytes, meta_max);
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
    case Method::kCancel:
      return "Cancel";
    case Method::kConfirm:
      return "Confirm";
    case Method::kOffer:
      return "Offer";
    case Method::kDecline:
      return "Decline";
    case Method::kSwitch:
      return "Switch";
  }
  return "?";
}

// Field by field: a copy of the whole would wait for the stores that made it.
void encode_header(const FrameHeader& header, std::byte* out) {
  const auto put = [out](size_t offset, auto value) {
    std::memcpy(out + offset, &value, sizeof(value));
  };
  put(offsetof(RawHeader, magic), kMagic);
  put(offsetof(RawHeader, version), header.version);
  put(offsetof(RawHeader, method), static_cast<uint16_t>(header.method));
  put(offsetof(RawHeader, flags), header.flags);
  put(offsetof(RawHeader, kind), header.kind);
  put(offsetof(RawHeader, status), header.status);
  put(offsetof(RawHeader, call_id), header.call_id);
  put(offsetof(RawHeader, program), header.program);
  put(offsetof(RawHeader, step), header.step);
  put(offsetof(RawHeader, slot_count), header.slot_count);
  put(offsetof(RawHeader, meta_bytes), header.meta_bytes);
  put(offsetof(RawHeader, payload_bytes), header.payload_bytes);
  put(offsetof(RawHeader, session), header.session);
}

Result<FrameHeader> decode_header(const std::byte* bytes, const Limits& limits) {
  FrameHeader header;
  SR_RETURN_IF_ERROR(decode_header(bytes, limits, &header));
  return header;
}

Status decode_header(const std::byte* bytes, const Limits& limits, FrameHeader* header) {
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
  header->version = raw.version;
  header->method = method;
  header->flags = raw.flags;
  header->kind = raw.kind;
  header->status = raw.status;
  header->call_id = raw.call_id;
  header->program = raw.program;
  header->step = raw.step;
  header->slot_count = raw.slot_count;
  header->meta_bytes = raw.meta_bytes;
  header->payload_bytes = raw.payload_bytes;
  header->session = raw.session;
  return {};
}

uint64_t payload_bytes_of(const tensor::Tensor& tensor, Form form) {
  if (!tensor.defined()) return 0;
  if (tensor.dtype() == tensor::DType::kString) {
    uint64_t bytes = static_cast<uint64_t>(tensor.num_elements()) * sizeof(uint64_t);
    for (const std::string_view s : tensor.data<const std::string_view>()) bytes += s.size();
    return bytes;
  }
  const bool is_narrow = form != Form::kWhole && tensor.dtype() == tensor::DType::kFloat32;
  return is_narrow ? static_cast<uint64_t>(tensor.num_elements()) * kNarrowBytes : tensor.nbytes();
}

FrameSize size_of(std::span<const tensor::Tensor> tensors, std::span<const Form> forms) {
  FrameSize size;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const tensor::Tensor& t = tensors[i];
    size.meta_bytes += slot_entry_bytes(t.defined() ? t.shape().rank() : 0);
    size.payload_bytes += padded(payload_bytes_of(t, forms.empty() ? Form::kWhole : forms[i]));
  }
  return size;
}

size_t encode_slot(uint32_t slot, const tensor::Tensor& tensor, std::byte* out, Form form) {
  RawSlot raw = {.slot = slot, .dtype = 0, .rank = 0, .flags = kDeadBit, .nbytes = 0};
  if (tensor.defined()) {
    if (tensor.dtype() != tensor::DType::kFloat32) form = Form::kWhole;
    raw.dtype = static_cast<uint8_t>(tensor.dtype());
    raw.rank = static_cast<uint8_t>(tensor.shape().rank());
    raw.flags = static_cast<uint16_t>(static_cast<uint16_t>(form) << kFormShift);
    raw.nbytes = payload_bytes_of(tensor, form);
    const auto dims = tensor.shape().dims();
    if (!dims.empty()) std::memcpy(out + sizeof(raw), dims.data(), dims.size_bytes());
  }
  std::memcpy(out, &raw, sizeof(raw));
  return slot_entry_bytes(raw.rank);
}

void encode_order(const FrameHeader& header, std::byte* out) {
  std::memcpy(out, &header.number, sizeof(header.number));
  std::memcpy(out + sizeof(header.number), &header.confirmed, sizeof(header.confirmed));
}

void encode_checksums(const Checksums& sums, std::byte* out) {
  std::memcpy(out, &sums, sizeof(sums));
}

namespace {

/// Whether a live slot of these properties can have `nbytes` bytes.
bool fits(const SlotEntry& entry) {
  if (!tensor::is_valid(entry.dtype)) return false;
  const bool is_strings = entry.dtype == tensor::DType::kString;
  uint64_t expected = 0;
  // The size of a string's view does not travel; its length does, with 8 bytes.
  if (!byte_count(entry.shape, is_strings ? tensor::DType::kUInt64 : entry.dtype, &expected)) {
    return false;
  }
  if (is_strings) {
    const bool has_room = expected > 0 ? entry.nbytes >= expected : entry.nbytes == 0;
    return has_room && entry.nbytes <= static_cast<uint64_t>(INT64_MAX);
  }
  if (entry.form == Form::kWhole) return entry.nbytes == expected;
  return entry.dtype == tensor::DType::kFloat32 && entry.nbytes == expected / 2;
}

/// Reads the entry at the front of `meta` and takes it off.
Status decode_slot(uint32_t number, std::string_view* meta, SlotEntry* entry) {
  RawSlot raw;
  if (meta->size() < sizeof(raw)) return base::data_loss("slot {} lies outside its frame", number);
  std::memcpy(&raw, meta->data(), sizeof(raw));
  if (raw.rank > kRankMax || meta->size() < slot_entry_bytes(raw.rank)) {
    return base::data_loss("slot {} has rank {} in {} bytes", number, raw.rank, meta->size());
  }
  entry->slot = raw.slot;
  entry->dtype = static_cast<tensor::DType>(raw.dtype);
  entry->dead = (raw.flags & kDeadBit) != 0;
  entry->nbytes = raw.nbytes;
  entry->form = static_cast<Form>(raw.flags >> kFormShift & 3);
  entry->shape = tensor::Shape();
  for (int d = 0; d < raw.rank; ++d) {
    int64_t extent;
    std::memcpy(&extent, meta->data() + slot_entry_bytes(d), sizeof(extent));
    entry->shape.append(extent);
  }
  meta->remove_prefix(slot_entry_bytes(raw.rank));
  const bool good = entry->dead ? raw.dtype == 0 && raw.rank == 0 && raw.nbytes == 0 &&
                                      entry->form == Form::kWhole
                                : entry->form <= Form::kFloat16 && fits(*entry);
  if (!good || (raw.flags & ~kSlotFlags) != 0) {
    return base::data_loss("slot {} (dtype {}, shape {}, flags {:#x}) cannot have {} bytes", number,
                           raw.dtype, entry->shape.to_string(), raw.flags, raw.nbytes);
  }
  return {};
}

/// The checksum of the header and of the meta before the checksums.
uint64_t head_sum(const FrameHeader& header, std::string_view meta) {
  std::array<std::byte, kHeaderBytes> bytes;
  encode_header(header, bytes.data());
  Checksum sum;
  sum.add(bytes.data(), bytes.size());
  sum.add(meta.data(), meta.size());
  return sum.value();
}

}  // namespace

Result<Meta> decode_meta(const FrameHeader& header, std::string_view meta,
                         std::vector<SlotEntry>* entries) {
  Meta out;
  SR_RETURN_IF_ERROR(decode_meta(header, meta, entries, &out));
  return out;
}

Status decode_meta(const FrameHeader& header, std::string_view meta,
                   std::vector<SlotEntry>* entries, Meta* out) {
  *out = {};
  if ((header.flags & kSummed) != 0) {
    if (meta.size() < sizeof(Checksums)) return base::data_loss("checksums outside their frame");
    std::memcpy(&out->sums, meta.data() + meta.size() - sizeof(Checksums), sizeof(Checksums));
    meta.remove_suffix(sizeof(Checksums));
    if (head_sum(header, meta) != out->sums.head) {
      return base::data_loss("the head of a {} frame was changed on its way (checksum)",
                             name_of(header.method));
    }
  }
  uint64_t payload = 0;
  if (meta.size() / slot_entry_bytes(0) < header.slot_count) {
    return base::data_loss("{} slots in {} bytes", header.slot_count, meta.size());
  }
  entries->resize(header.slot_count);
  for (uint32_t i = 0; i < header.slot_count; ++i) {
    SlotEntry& entry = (*entries)[i];
    SR_RETURN_IF_ERROR(decode_slot(i, &meta, &entry));
    // nbytes is at most 2^63 - 1 here, so rounding up cannot wrap; the sum is checked.
    if (__builtin_add_overflow(payload, padded(entry.nbytes), &payload)) {
      return base::data_loss("the slots have more than 2^64 bytes");
    }
  }
  if (has_order(header.method, header.flags)) {
    if (meta.size() < kOrderBytes) return base::data_loss("the number of a call lies outside it");
    std::memcpy(&out->number, meta.data(), sizeof(out->number));
    std::memcpy(&out->confirmed, meta.data() + sizeof(out->number), sizeof(out->confirmed));
    meta.remove_prefix(kOrderBytes);
  }
  if ((header.flags & kExtra) != 0) {
    out->extra = meta;
  } else if (!meta.empty()) {
    return base::data_loss("{} bytes behind the last slot", meta.size());
  }
  if (payload != header.payload_bytes) {
    return base::data_loss("slots of {} bytes in a frame with {} payload bytes", payload,
                           header.payload_bytes);
  }
  return {};
}

Result<tensor::Tensor> strings_of(const SlotEntry& entry, tensor::Buffer::Ptr bytes) {
  const auto count = static_cast<uint64_t>(entry.shape.num_elements());
  const auto* at = reinterpret_cast<const char*>(bytes->data());
  uint64_t left = entry.nbytes - count * sizeof(uint64_t);
  const char* text = at + count * sizeof(uint64_t);
  tensor::Buffer::Ptr memory =
      tensor::Buffer::try_allocate_zeroed(count * sizeof(std::string_view));
  if (memory == nullptr)
    return base::resource_exhausted("there is no memory for {} strings", count);
  tensor::Tensor out(tensor::DType::kString, entry.shape, std::move(memory));
  std::string_view* views = out.data<std::string_view>().data();
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t length;
    std::memcpy(&length, at + i * sizeof(length), sizeof(length));
    if (length > left) {
      return base::data_loss("string {} of {} has {} bytes where {} are left", i, count, length,
                             left);
    }
    views[i] = {text, length};
    text += length;
    left -= length;
  }
  if (left > 0) return base::data_loss("{} bytes behind the last of {} strings", left, count);
  if (entry.nbytes > 0) out.buffer()->keep(std::make_shared<tensor::Buffer::Ptr>(std::move(bytes)));
  return out;
}

void narrow(Form form, const float* from, size_t count, std::byte* out) {
  SR_DCHECK(form != Form::kWhole);
  constexpr size_t kBlock = 256;
  std::array<uint16_t, kBlock> block;
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t n = std::min(kBlock, count - at);
    if (form == Form::kBfloat16) {
      for (size_t i = 0; i < n; ++i) block[i] = tensor::internal::to_bfloat_bits(from[at + i]);
    } else {
      for (size_t i = 0; i < n; ++i) block[i] = tensor::internal::to_half_bits(from[at + i]);
    }
    std::memcpy(out + at * kNarrowBytes, block.data(), n * kNarrowBytes);
  }
}

// Block by block from the front: what is written ends before what is not yet read.
void widen(Form form, const std::byte* from, size_t count, float* out) {
  SR_DCHECK(form != Form::kWhole);
  constexpr size_t kBlock = 256;
  std::array<uint16_t, kBlock> block;
  std::array<float, kBlock> wide;
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t n = std::min(kBlock, count - at);
    std::memcpy(block.data(), from + at * kNarrowBytes, n * kNarrowBytes);
    if (form == Form::kBfloat16) {
      for (size_t i = 0; i < n; ++i) wide[i] = std::bit_cast<float>(uint32_t{block[i]} << 16);
    } else {
      for (size_t i = 0; i < n; ++i) wide[i] = tensor::internal::from_half_bits(block[i]);
    }
    std::memcpy(out + at, wide.data(), n * sizeof(float));
  }
}

std::string_view cut_text(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max;
  // Bytes 10xxxxxx continue a character of UTF-8.
  for (int i = 0; i < 3 && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80; ++i) {
    --end;
  }
  return text.substr(0, end);
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
  out.put(hello.client_high);
  out.put(hello.client_low);
  out.put(hello.session);
  out.put(hello.confirmed);
  out.put(hello.attempt);
  out.put(hello.resume_ms);
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
  SR_RETURN_IF_ERROR(in.get(&hello.client_high));
  SR_RETURN_IF_ERROR(in.get(&hello.client_low));
  SR_RETURN_IF_ERROR(in.get(&hello.session));
  SR_RETURN_IF_ERROR(in.get(&hello.confirmed));
  SR_RETURN_IF_ERROR(in.get(&hello.attempt));
  SR_RETURN_IF_ERROR(in.get(&hello.resume_ms));
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
  out.put(ack.session);
  out.put(ack.seen);
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
  SR_RETURN_IF_ERROR(in.get(&ack.session));
  SR_RETURN_IF_ERROR(in.get(&ack.seen));
  if (in.remaining() != 0) return base::data_loss("{} bytes behind the hello", in.remaining());
  return ack;
}

std::string encode_offer(const Offer& offer) {
  base::ByteWriter out;
  out.put(offer.process);
  out.put(offer.descriptor);
  out.put(offer.key_high);
  out.put(offer.key_low);
  out.put(offer.ring_bytes);
  return out.take();
}

Result<Offer> decode_offer(std::string_view meta) {
  base::ByteReader in(meta);
  Offer offer;
  SR_RETURN_IF_ERROR(in.get(&offer.process));
  SR_RETURN_IF_ERROR(in.get(&offer.descriptor));
  SR_RETURN_IF_ERROR(in.get(&offer.key_high));
  SR_RETURN_IF_ERROR(in.get(&offer.key_low));
  SR_RETURN_IF_ERROR(in.get(&offer.ring_bytes));
  if (in.remaining() != 0) return base::data_loss("{} bytes behind the offer", in.remaining());
  return offer;
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
