#include "sidereal/wire/frame.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

namespace sidereal::wire {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// A whole Call or Reply in one string.
std::string encode_frame(FrameHeader header, const std::vector<Tensor>& tensors,
                         const std::vector<uint32_t>& slots) {
  const FrameSize size = size_of(tensors);
  header.slot_count = static_cast<uint32_t>(tensors.size());
  header.meta_bytes = static_cast<uint32_t>(size.meta_bytes);
  header.payload_bytes = size.payload_bytes;
  std::string out(kHeaderBytes + size.meta_bytes, '\0');
  auto* bytes = reinterpret_cast<std::byte*>(out.data());
  encode_header(header, bytes);
  size_t at = kHeaderBytes;
  for (size_t i = 0; i < tensors.size(); ++i) at += encode_slot(slots[i], tensors[i], bytes + at);
  EXPECT_EQ(at, out.size());
  for (const Tensor& t : tensors) {
    if (!t.defined()) continue;
    out.append(reinterpret_cast<const char*>(t.raw()), t.nbytes());
    out.append(padded(t.nbytes()) - t.nbytes(), '\0');
  }
  return out;
}

const std::byte* raw(const std::string& bytes) {
  return reinterpret_cast<const std::byte*>(bytes.data());
}

/// Decodes as a receiver does; ok only when everything about the frame is right.
Status decode_all(const std::string& bytes, const Limits& limits) {
  if (bytes.size() < kHeaderBytes) return base::data_loss("short");
  SR_ASSIGN_OR_RETURN(FrameHeader header, decode_header(raw(bytes), limits));
  const std::string_view rest = std::string_view(bytes).substr(kHeaderBytes);
  if (rest.size() < header.meta_bytes) return base::data_loss("short");
  const std::string_view meta = rest.substr(0, header.meta_bytes);
  std::vector<SlotEntry> entries;
  switch (header.method) {
    case Method::kHello:
      return decode_hello(meta).status();
    case Method::kHelloAck:
      return decode_hello_ack(meta).status();
    case Method::kCall:
    case Method::kReply:
      SR_RETURN_IF_ERROR(decode_slots(header, meta, &entries));
      break;
    default:
      break;
  }
  for (const SlotEntry& entry : entries) EXPECT_LE(entry.nbytes, limits.payload_bytes_max);
  return {};
}

FrameHeader example_header() {
  FrameHeader header;
  header.method = Method::kCall;
  header.call_id = 7;
  header.program = 0x1122334455667788;
  header.step = 3;
  return header;
}

TEST(Frame, GoldenBytesAreThoseOfTheFormatPage) {
  const unsigned char golden[] = {
      0x53, 0x44, 0x52, 0x4c, 1,    0,    3,    0,     //
      0,    0,    0,    0,    0,    0,    0,    0,     //
      7,    0,    0,    0,    0,    0,    0,    0,     //
      0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,  //
      3,    0,    0,    0,    0,    0,    0,    0,     //
      1,    0,    0,    0,    0x18, 0,    0,    0,     //
      0x10, 0,    0,    0,    0,    0,    0,    0,     //
      0,    0,    0,    0,    0,    0,    0,    0,     //
      5,    0,    0,    0,    3,    1,    0,    0,     //
      0x0c, 0,    0,    0,    0,    0,    0,    0,     //
      3,    0,    0,    0,    0,    0,    0,    0,     //
      1,    0,    0,    0,    2,    0,    0,    0,     //
      3,    0,    0,    0,    0,    0,    0,    0,
  };
  const std::string frame =
      encode_frame(example_header(), {Tensor::of<int32_t>({3}, {1, 2, 3})}, {5});
  ASSERT_EQ(frame.size(), sizeof(golden));
  EXPECT_EQ(std::memcmp(frame.data(), golden, sizeof(golden)), 0);
}

TEST(Frame, HeaderAndSlotsComeBackAsTheyWere) {
  const std::vector<Tensor> tensors = {Tensor::zeros(DType::kFloat32, {2, 3}), Tensor(),
                                       Tensor::scalar<int64_t>(9),
                                       Tensor::zeros(DType::kUInt8, {0, 4})};
  const std::string frame = encode_frame(example_header(), tensors, {4, 3, 2, 1});
  const FrameHeader header = decode_header(raw(frame), Limits()).value();
  EXPECT_EQ(header.call_id, 7u);
  EXPECT_EQ(header.program, 0x1122334455667788u);
  EXPECT_EQ(header.step, 3u);
  std::vector<SlotEntry> entries;
  ASSERT_TRUE(
      decode_slots(header, std::string_view(frame).substr(64, header.meta_bytes), &entries).ok());
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0], (SlotEntry{4, DType::kFloat32, false, {2, 3}, 24}));
  EXPECT_TRUE(entries[1].dead);
  EXPECT_EQ(entries[2], (SlotEntry{2, DType::kInt64, false, {}, 8}));
  EXPECT_EQ(entries[3], (SlotEntry{1, DType::kUInt8, false, {0, 4}, 0}));
}

TEST(Frame, EachLimitIsCheckedBeforeAnythingElseIsRead) {
  Limits limits;
  limits.slots_max = 1;
  limits.meta_bytes_max = 100;
  limits.payload_bytes_max = 16;
  const auto code = [&](auto change) {
    FrameHeader header = example_header();
    change(header);
    std::byte bytes[kHeaderBytes];
    encode_header(header, bytes);
    return decode_header(bytes, limits).status().code();
  };
  EXPECT_EQ(code([](FrameHeader& h) { h.meta_bytes = 16; }), StatusCode::kOk);
  EXPECT_EQ(code([](FrameHeader& h) { h.meta_bytes = 101; }), StatusCode::kResourceExhausted);
  EXPECT_EQ(code([](FrameHeader& h) { h.slot_count = 2, h.meta_bytes = 32; }),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(code([](FrameHeader& h) { h.payload_bytes = 24; }), StatusCode::kResourceExhausted);
  EXPECT_EQ(code([](FrameHeader& h) { h.payload_bytes = ~uint64_t{7}; }),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(code([](FrameHeader& h) { h.payload_bytes = 12; }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](FrameHeader& h) { h.slot_count = 1, h.meta_bytes = 15; }),
            StatusCode::kDataLoss);
  EXPECT_EQ(code([](FrameHeader& h) { h.version = 2; }), StatusCode::kFailedPrecondition);
  EXPECT_EQ(code([](FrameHeader& h) { h.method = static_cast<Method>(9); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](FrameHeader& h) { h.status = 3; }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](FrameHeader& h) { h.method = Method::kPing, h.meta_bytes = 1; }),
            StatusCode::kDataLoss);
}

TEST(Frame, ByteCountsThatAreNotTheProductOfTheExtentsAreRefused) {
  FrameHeader header = example_header();
  header.slot_count = 1;
  std::vector<SlotEntry> entries;
  const auto decode = [&](uint64_t nbytes, std::vector<int64_t> dims, uint64_t payload) {
    std::string meta(16 + 8 * dims.size(), '\0');
    meta[4] = static_cast<char>(DType::kFloat32);
    meta[5] = static_cast<char>(dims.size());
    std::memcpy(meta.data() + 8, &nbytes, 8);
    std::memcpy(meta.data() + 16, dims.data(), 8 * dims.size());
    header.payload_bytes = payload;
    return decode_slots(header, meta, &entries).ok();
  };
  EXPECT_TRUE(decode(24, {2, 3}, 24));
  EXPECT_TRUE(decode(12, {3}, 16));
  EXPECT_TRUE(decode(0, {0, 1 << 20}, 0));
  EXPECT_FALSE(decode(12, {3}, 24));
  EXPECT_FALSE(decode(20, {2, 3}, 24));
  EXPECT_FALSE(decode(4, {-1, -1}, 8));
  EXPECT_FALSE(decode(0, {int64_t{1} << 62, 4}, 0));  // wraps to zero
  EXPECT_FALSE(decode(0, {0, int64_t{1} << 62, int64_t{1} << 62}, 0));
  EXPECT_FALSE(decode(4, std::vector<int64_t>(17, 1), 8));  // rank
}

TEST(Frame, BytesThatClaimToBeStringsAreRefusedAsTheyWouldBePointers) {
  FrameHeader header = example_header();
  header.slot_count = 1;
  header.payload_bytes = 16;
  std::string meta(16, '\0');
  meta[4] = static_cast<char>(DType::kString);
  meta[8] = 16;
  std::vector<SlotEntry> entries;
  EXPECT_EQ(decode_slots(header, meta, &entries).code(), StatusCode::kDataLoss);
}

TEST(Handshake, HelloAndAckComeBackAsTheyWere) {
  const Hello hello = {.cluster_id = 1,
                       .incarnation = 2,
                       .lane = 3,
                       .task = "/job:worker/task:0",
                       .peer_task = "/job:ps/task:1"};
  EXPECT_EQ(decode_hello(encode_hello(hello)).value(), hello);
  const HelloAck ack = {.incarnation = 5, .lane = 1, .lane_count = 2, .task = "/job:ps/task:1"};
  EXPECT_EQ(decode_hello_ack(encode_hello_ack(ack)).value(), ack);
  EXPECT_FALSE(decode_hello(encode_hello(hello) + "x").ok());
  EXPECT_FALSE(decode_hello(encode_hello(hello).substr(0, 20)).ok());
}

TEST(Handshake, EveryMismatchIsRefusedNamingBothSides) {
  const ServerIdentity server = {
      .cluster_id = 0xaa, .incarnation = 9, .lane = 0, .lane_count = 2, .task = "/job:ps/task:0"};
  Hello hello = {.cluster_id = 0xaa,
                 .incarnation = 1,
                 .lane = 0,
                 .task = "/job:worker/task:3",
                 .peer_task = "/job:ps/task:0"};
  const HelloAck ack = answer_hello(hello, server).value();
  EXPECT_EQ(ack.lane_count, 2u);
  EXPECT_EQ(ack.incarnation, 9u);
  const auto refused = [&](Hello wrong, std::vector<std::string> parts) {
    const Status status = answer_hello(wrong, server).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    for (const std::string& part : parts) {
      EXPECT_NE(base::message_of(status).find(part), std::string::npos)
          << part << " in " << base::message_of(status);
    }
  };
  Hello wrong = hello;
  wrong.version_min = wrong.version_max = 7;
  refused(wrong, {"/job:worker/task:3 speaks 7 to 7", "/job:ps/task:0 speaks 1 to 1"});
  wrong = hello;
  wrong.version_min = wrong.version_max = 0;
  refused(wrong, {"speaks 0 to 0"});
  wrong = hello;
  wrong.cluster_id = 0xbb;
  refused(wrong, {"00000000000000bb", "00000000000000aa"});
  wrong = hello;
  wrong.peer_task = "/job:ps/task:1";
  refused(wrong, {"wants /job:ps/task:1 but reached /job:ps/task:0"});
  wrong = hello;
  wrong.lane = 1;
  refused(wrong, {"wants lane 1", "reached lane 0"});
}

TEST(Frame, ErrorFramesCarryAnyStatus) {
  FrameHeader header;
  header.method = Method::kError;
  header.status = static_cast<uint32_t>(StatusCode::kNotFound);
  EXPECT_EQ(error_status(header, "no such program"), base::not_found("no such program"));
}

/// A seed from the clock would make a failure hard to repeat, a fixed one would never find more:
/// SIDEREAL_SEED in the environment of the test overrides the fixed one.
uint64_t test_seed() {
  const char* text = std::getenv("SIDEREAL_SEED");
  return text == nullptr ? 20240601 : std::strtoull(text, nullptr, 10);
}

TEST(FrameFuzz, RandomAndMutatedFramesNeverHarmTheDecoder) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE("SIDEREAL_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  Limits limits;
  limits.payload_bytes_max = 1 << 20;
  const std::vector<std::string> valid = {
      encode_frame(example_header(),
                   {Tensor::zeros(DType::kFloat32, {4, 5}), Tensor(), Tensor::scalar<int64_t>(1)},
                   {0, 1, 2}),
      [] {
        FrameHeader header;
        header.method = Method::kHello;
        const std::string meta = encode_hello({.task = "a", .peer_task = "b"});
        header.meta_bytes = static_cast<uint32_t>(meta.size());
        std::string out(kHeaderBytes, '\0');
        encode_header(header, reinterpret_cast<std::byte*>(out.data()));
        return out + meta;
      }(),
  };
  for (const std::string& frame : valid) ASSERT_TRUE(decode_all(frame, limits).ok());
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string bytes = valid[random() % valid.size()];
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
          break;
        case 2:
          bytes.resize(at + 1);
          break;
        default: {
          const uint64_t hostile[] = {0, 1, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 32};
          const uint64_t value = hostile[random() % 5];
          std::memcpy(bytes.data() + at, &value, std::min<size_t>(8, bytes.size() - at));
        }
      }
    }
    accepted += decode_all(bytes, limits).ok() ? 1 : 0;
  }
  // Changes of ids and payload are still valid frames; most others are not.
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 150'000);
  for (int round = 0; round < 50'000; ++round) {
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    EXPECT_FALSE(decode_all(bytes, limits).ok());
  }
}

}  // namespace
}  // namespace sidereal::wire
