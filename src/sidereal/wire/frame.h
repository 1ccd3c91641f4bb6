#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/tensor/dtype.h"
#include "sidereal/tensor/shape.h"
#include "sidereal/tensor/tensor.h"

/// The frames of docs/formats/wire.md: bytes to structs and back. No I/O.
namespace sidereal::wire {

inline constexpr uint32_t kMagic = 0x4c524453;  // "SDRL" in little-endian order
inline constexpr uint16_t kVersion = 4;
inline constexpr uint16_t kVersionMin = 4;  // oldest version this build still speaks
inline constexpr size_t kHeaderBytes = 64;
inline constexpr size_t kPayloadAlign = 8;
inline constexpr int kRankMax = 16;
inline constexpr uint32_t kErrorBytesMax = 64 << 10;  // longer texts are cut by the sender

/// What a frame is. The numbers stand on the wire: never renumber.
enum class Method : uint16_t {
  kHello = 1,     ///< client to server, first frame
  kHelloAck = 2,  ///< server's answer
  kCall = 3,      ///< run a program with these feeds
  kReply = 4,     ///< the fetches of one call
  kError = 5,     ///< a call (or, with call id 0, the connection) has failed
  kPing = 6,      ///< are you alive
  kPong = 7,      ///< answer to a ping
  kGoodbye = 8,   ///< no more calls; the sender closes
  kCancel = 9,    ///< the client does not want the answer of a call any more
  kConfirm = 10,  ///< the client has the answers up to this one
  kOffer = 11,    ///< the client offers memory that both could share
  kDecline = 12,  ///< the server does without
  kSwitch = 13,   ///< last frame of the sender: what follows goes through the memory
};

/// Bits of FrameHeader::flags. The numbers stand on the wire: never renumber.
inline constexpr uint16_t kDerived = 1;  ///< Error: it follows from another one, elsewhere
inline constexpr uint16_t kSummed = 2;   ///< Call, Reply: meta ends with Checksums
inline constexpr uint16_t kExtra = 4;    ///< Call, Reply: bytes of their owner follow the slots
/// Call: Order follows the slots. Reply, Error: `step` is the number of the answer.
inline constexpr uint16_t kNumbered = 8;
inline constexpr uint16_t kRepeatable = 16;  ///< numbered Call: it may be run again

/// In what form a tensor travels. float32 may be rounded to 16 bits (to nearest, ties to even);
/// the receiver widens it again. The numbers stand on the wire: never renumber.
enum class Form : uint8_t { kWhole = 0, kBfloat16 = 1, kFloat16 = 2 };

/// "Call", "Reply", ...; "?" for a number that is no method.
const char* name_of(Method method);

/// Bounds on what a peer may announce; checked before memory is taken. Value type.
struct Limits {
  uint32_t meta_bytes_max = 1u << 20;
  uint64_t payload_bytes_max = uint64_t{1} << 30;
  uint32_t slots_max = 16'384;
};

/// The fixed part of every frame. Value type.
struct FrameHeader {
  uint16_t version = kVersion;
  Method method = Method::kPing;
  uint16_t flags = 0;
  uint16_t kind = 0;    ///< Call: what it asks for; 0: to run a program, others are their owner's
  uint32_t status = 0;  ///< a StatusCode; only kError has one that is not 0
  uint64_t call_id = 0;
  uint64_t program = 0;  ///< content hash of the program a call runs
  uint64_t step = 0;
  uint32_t slot_count = 0;
  uint32_t meta_bytes = 0;
  uint64_t payload_bytes = 0;
  uint64_t session = 0;  ///< Call: the owner's; opaque here
  /// Call with kNumbered: in meta, not in the 64 bytes. The number of the call among those of its
  /// client, and of the last answer that the client has.
  uint64_t number = 0;
  uint64_t confirmed = 0;

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

/// One tensor of a frame. Value type.
struct SlotEntry {
  uint32_t slot = 0;  ///< the receiver's slot number
  tensor::DType dtype = tensor::DType::kInvalid;
  bool dead = false;  ///< a value on a branch not taken: no dtype, no bytes
  tensor::Shape shape;
  uint64_t nbytes = 0;  ///< of the payload, in its form
  Form form = Form::kWhole;

  friend bool operator==(const SlotEntry&, const SlotEntry&) = default;
};

/// `bytes` rounded up to the alignment of payloads.
constexpr uint64_t padded(uint64_t bytes) {
  return (bytes + kPayloadAlign - 1) & ~uint64_t{kPayloadAlign - 1};
}

/// Writes the 64 bytes of `header` to `out`.
void encode_header(const FrameHeader& header, std::byte* out);

/// Reads and checks a header: magic, version, method, lengths against `limits` and each other.
/// kFailedPrecondition for another version, kResourceExhausted past a limit, else kDataLoss.
/// `bytes` holds at least kHeaderBytes.
Result<FrameHeader> decode_header(const std::byte* bytes, const Limits& limits);
/// The same into `header`, which is changed only when all is well.
Status decode_header(const std::byte* bytes, const Limits& limits, FrameHeader* header);

/// Bytes of a slot entry of that rank.
constexpr size_t slot_entry_bytes(int rank) { return 16 + 8 * static_cast<size_t>(rank); }

/// Bytes of the payload of `tensor`: of strings 8 for each length, then theirs. `form` other than
/// kWhole is for float32 only; other dtypes travel whole.
uint64_t payload_bytes_of(const tensor::Tensor& tensor, Form form);

/// Bytes the slot table of `tensors` takes (an undefined tensor is a dead slot), and the bytes of
/// their padded payloads. `forms[i]` is that of `tensors[i]`; empty: all whole.
struct FrameSize {
  uint64_t meta_bytes = 0;
  uint64_t payload_bytes = 0;
};
FrameSize size_of(std::span<const tensor::Tensor> tensors, std::span<const Form> forms = {});

/// Writes the entry of `tensor` (dead when undefined) as slot number `slot` to `out`; returns the
/// bytes written, slot_entry_bytes(rank).
size_t encode_slot(uint32_t slot, const tensor::Tensor& tensor, std::byte* out,
                   Form form = Form::kWhole);

/// What guards a Call or Reply with kSummed: XXH3 with 64 bits, seed 0. `head`: of the header and
/// of meta before these 16 bytes. `payload`: of the payloads of all slots without their padding.
struct Checksums {
  uint64_t head = 0;
  uint64_t payload = 0;

  friend bool operator==(const Checksums&, const Checksums&) = default;
};
void encode_checksums(const Checksums& sums, std::byte* out);

/// Bytes of what a numbered Call has behind its slots: `number` and `confirmed` of its header.
inline constexpr size_t kOrderBytes = 16;
void encode_order(const FrameHeader& header, std::byte* out);

/// What meta of a Call or Reply holds.
struct Meta {
  uint64_t number = 0;     ///< with kNumbered, of a Call
  uint64_t confirmed = 0;  ///< with kNumbered, of a Call
  std::string_view extra;  ///< bytes of the owner; shows those of `meta`
  Checksums sums;          ///< with kSummed
};

/// Reads the slot table of a Call or Reply into `entries`, in the place of what they hold, and what
/// follows it. Checks dtypes, ranks, extents, forms, that each byte count is the product it must be
/// (of strings: at least 8 for each), that the counts add up to `header.payload_bytes`, and the
/// checksum of the head. kDataLoss names the slot that is wrong.
Result<Meta> decode_meta(const FrameHeader& header, std::string_view meta,
                         std::vector<SlotEntry>* entries);
/// The same into `out`, of which nothing is to be used when there is an error.
Status decode_meta(const FrameHeader& header, std::string_view meta,
                   std::vector<SlotEntry>* entries, Meta* out);

/// The tensor that the payload of a slot of strings makes: its views show `bytes`, which it keeps.
/// kDataLoss when the lengths do not add up to entry.nbytes. Takes 16 bytes for each string.
Result<tensor::Tensor> strings_of(const SlotEntry& entry, tensor::Buffer::Ptr bytes);

/// Rounds `count` floats to 16 bits each. `form` is not kWhole.
void narrow(Form form, const float* from, size_t count, std::byte* out);
/// Widens `count` numbers of 16 bits each. `from` may be the second half of `out`'s memory.
void widen(Form form, const std::byte* from, size_t count, float* out);

/// What a client says first. Value type.
struct Hello {
  uint16_t version_min = kVersionMin;
  uint16_t version_max = kVersion;
  uint64_t cluster_id = 0;
  uint64_t incarnation = 0;  ///< random per start of the client
  uint32_t lane = 0;         ///< the lane of the server it wants
  std::string task;          ///< who the client is
  std::string peer_task;     ///< whom it means to reach
  /// Random numbers that name the client over all its connections; both 0: its calls end with the
  /// connection. The others matter only then.
  uint64_t client_high = 0;
  uint64_t client_low = 0;
  uint64_t session = 0;    ///< from the last HelloAck that it has had; 0: none
  uint64_t confirmed = 0;  ///< the last answer of that session that it has
  uint32_t attempt = 0;    ///< counts its connections
  uint32_t resume_ms = 0;  ///< how long it tries to come back when it loses one

  friend bool operator==(const Hello&, const Hello&) = default;
};

/// What a server answers. Value type.
struct HelloAck {
  uint16_t version = kVersion;  ///< the version both will speak
  uint64_t incarnation = 0;     ///< random per start of the server
  uint32_t lane = 0;
  uint32_t lane_count = 0;
  std::string task;
  uint64_t session = 0;  ///< of the client; another one than it named: all before is forgotten
  uint64_t seen = 0;     ///< the last call of the session that has come; 0: none

  friend bool operator==(const HelloAck&, const HelloAck&) = default;
};

/// The meta bytes of the two handshake frames.
std::string encode_hello(const Hello& hello);
Result<Hello> decode_hello(std::string_view meta);
std::string encode_hello_ack(const HelloAck& ack);
Result<HelloAck> decode_hello_ack(std::string_view meta);

/// Where the memory is that a client offers, and the sizes of the rings in it. Value type.
struct Offer {
  uint32_t process = 0;     ///< number of the client's process
  uint32_t descriptor = 0;  ///< of its descriptor of the memory
  uint64_t key_high = 0;    ///< random; stands in the memory, too
  uint64_t key_low = 0;
  uint64_t ring_bytes = 0;

  friend bool operator==(const Offer&, const Offer&) = default;
};

/// The meta bytes of an Offer.
std::string encode_offer(const Offer& offer);
Result<Offer> decode_offer(std::string_view meta);

/// Checks a client's hello against the server it reached, and chooses the version. An error names
/// the values of both sides: kFailedPrecondition for version, cluster, task or lane.
struct ServerIdentity {
  uint64_t cluster_id = 0;
  uint64_t incarnation = 0;
  uint32_t lane = 0;
  uint32_t lane_count = 1;
  std::string task;
};
Result<HelloAck> answer_hello(const Hello& hello, const ServerIdentity& server);

/// What of a message travels: its first bytes, cut between characters, when it is longer than
/// `bytes_max`.
std::string_view cut_text(std::string_view text, size_t bytes_max);

/// The status an Error frame carries; a code that is none becomes kUnknown.
Status error_status(const FrameHeader& header, std::string_view meta);

}  // namespace sidereal::wire
