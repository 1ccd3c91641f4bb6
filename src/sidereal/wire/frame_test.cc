#include "sidereal/wire/frame.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "sidereal/tensor/half.h"
#include "sidereal/tensor/strings.h"
#include "sidereal/wire/checksum.h"

namespace sidereal::wire {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

std::string payload_of(const Tensor& t, Form form) {
  if (t.dtype() == DType::kString) return tensor::strings_to_bytes(t);
  if (form == Form::kWhole) return {reinterpret_cast<const char*>(t.raw()), t.nbytes()};
  std::string out(static_cast<size_t>(t.num_elements()) * 2, '\0');
  narrow(form, t.data<const float>().data(), static_cast<size_t>(t.num_elements()),
         reinterpret_cast<std::byte*>(out.data()));
  return out;
}

/// A whole Call or Reply in one string.
std::string encode_frame(FrameHeader header, const std::vector<Tensor>& tensors,
                         const std::vector<uint32_t>& slots, const std::vector<Form>& forms = {},
                         const std::string& extra = "") {
  const FrameSize size = size_of(tensors, forms);
  header.slot_count = static_cast<uint32_t>(tensors.size());
  const bool numbered = header.method == Method::kCall && (header.flags & kNumbered) != 0;
  header.meta_bytes =
      static_cast<uint32_t>(size.meta_bytes + extra.size() + (numbered ? kOrderBytes : 0));
  header.payload_bytes = size.payload_bytes;
  if (!extra.empty()) header.flags |= kExtra;
  std::string payload;
  Checksum payload_sum;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    const std::string bytes = payload_of(tensors[i], forms.empty() ? Form::kWhole : forms[i]);
    payload_sum.add(bytes.data(), bytes.size());
    payload += bytes + std::string(padded(bytes.size()) - bytes.size(), '\0');
  }
  const bool summed = (header.flags & kSummed) != 0;
  if (summed) header.meta_bytes += sizeof(Checksums);
  std::string out(kHeaderBytes + size.meta_bytes, '\0');
  auto* bytes = reinterpret_cast<std::byte*>(out.data());
  encode_header(header, bytes);
  size_t at = kHeaderBytes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    at += encode_slot(slots[i], tensors[i], bytes + at, forms.empty() ? Form::kWhole : forms[i]);
  }
  EXPECT_EQ(at, out.size());
  if (numbered) {
    out.resize(at + kOrderBytes);
    encode_order(header, reinterpret_cast<std::byte*>(out.data() + at));
  }
  out += extra;
  if (summed) {
    Checksum head_sum;
    head_sum.add(out.data(), out.size());
    Checksums sums = {head_sum.value(), payload_sum.value()};
    out.append(reinterpret_cast<const char*>(&sums), sizeof(sums));
  }
  return out + payload;
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
      SR_RETURN_IF_ERROR(decode_meta(header, meta, &entries).status());
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

void expect_bytes(const std::string& frame, const std::vector<unsigned char>& golden) {
  ASSERT_EQ(frame.size(), golden.size());
  for (size_t i = 0; i < golden.size(); ++i) {
    EXPECT_EQ(static_cast<int>(static_cast<unsigned char>(frame[i])), golden[i]) << "byte " << i;
  }
}

TEST(Frame, GoldenBytesOfACallAreThoseOfTheFormatPage) {
  FrameHeader header = example_header();
  header.kind = 2;
  header.session = 0x0807060504030201;
  expect_bytes(encode_frame(header, {Tensor::of<int32_t>({3}, {1, 2, 3})}, {5}),
               {
                   0x53, 0x44, 0x52, 0x4c, 4,    0,    3,    0,     //
                   0,    0,    2,    0,    0,    0,    0,    0,     //
                   7,    0,    0,    0,    0,    0,    0,    0,     //
                   0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,  //
                   3,    0,    0,    0,    0,    0,    0,    0,     //
                   1,    0,    0,    0,    0x18, 0,    0,    0,     //
                   0x10, 0,    0,    0,    0,    0,    0,    0,     //
                   1,    2,    3,    4,    5,    6,    7,    8,     //
                   5,    0,    0,    0,    3,    1,    0,    0,     //
                   0x0c, 0,    0,    0,    0,    0,    0,    0,     //
                   3,    0,    0,    0,    0,    0,    0,    0,     //
                   1,    0,    0,    0,    2,    0,    0,    0,     //
                   3,    0,    0,    0,    0,    0,    0,    0,
               });
}

TEST(Frame, GoldenBytesOfANumberedCallAndItsAnswerAreThoseOfTheFormatPage) {
  FrameHeader header = example_header();
  header.flags = kNumbered;
  header.number = 12;
  header.confirmed = 9;
  expect_bytes(encode_frame(header, {Tensor()}, {5}),
               {
                   0x53, 0x44, 0x52, 0x4c, 4,    0,    3,    0,     //
                   8,    0,    0,    0,    0,    0,    0,    0,     //
                   7,    0,    0,    0,    0,    0,    0,    0,     //
                   0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,  //
                   3,    0,    0,    0,    0,    0,    0,    0,     //
                   1,    0,    0,    0,    0x20, 0,    0,    0,     //
                   0,    0,    0,    0,    0,    0,    0,    0,     //
                   0,    0,    0,    0,    0,    0,    0,    0,     //
                   5,    0,    0,    0,    0,    0,    1,    0,     //
                   0,    0,    0,    0,    0,    0,    0,    0,     //
                   12,   0,    0,    0,    0,    0,    0,    0,     //
                   9,    0,    0,    0,    0,    0,    0,    0,
               });
  FrameHeader answer;
  answer.method = Method::kReply;
  answer.flags = kNumbered;
  answer.call_id = 7;
  answer.step = 10;
  std::vector<unsigned char> golden = {0x53, 0x44, 0x52, 0x4c, 4, 0, 4, 0, 8};
  golden.resize(kHeaderBytes);
  golden[16] = 7;
  golden[32] = 10;
  expect_bytes(encode_frame(answer, {}, {}), golden);
}

TEST(Frame, NumbersOfACallComeBackAsTheyWere) {
  FrameHeader header = example_header();
  header.flags = kNumbered | kRepeatable | kSummed;
  header.number = 1;
  header.confirmed = ~uint64_t{0};
  const std::string frame = encode_frame(header, {Tensor()}, {0}, {}, "more");
  const FrameHeader got = decode_header(raw(frame), Limits()).value();
  EXPECT_EQ(got.flags, kNumbered | kRepeatable | kSummed | kExtra);
  std::vector<SlotEntry> entries;
  const Meta meta =
      decode_meta(got, std::string_view(frame).substr(64, got.meta_bytes), &entries).value();
  EXPECT_EQ(meta.number, 1u);
  EXPECT_EQ(meta.confirmed, ~uint64_t{0});
  EXPECT_EQ(meta.extra, "more");
  header.flags = kRepeatable;
  std::byte bytes[kHeaderBytes];
  encode_header(header, bytes);
  EXPECT_EQ(decode_header(bytes, Limits()).status().code(), StatusCode::kDataLoss);
  header.flags = kNumbered;  // without room for them
  encode_header(header, bytes);
  EXPECT_EQ(decode_header(bytes, Limits()).status().code(), StatusCode::kDataLoss);
}

TEST(Frame, GoldenBytesOfHandshakesAreThoseOfTheFormatPage) {
  const Hello hello = {.cluster_id = 1,
                       .incarnation = 2,
                       .lane = 3,
                       .task = "w",
                       .peer_task = "ps",
                       .client_high = 0x0102030405060708,
                       .client_low = 5,
                       .session = 0x21,
                       .confirmed = 9,
                       .attempt = 2,
                       .resume_ms = 5000};
  expect_bytes(encode_hello(hello), {
                                        4,    0, 4, 0,                    //
                                        1,    0, 0, 0, 0,    0,    0, 0,  //
                                        2,    0, 0, 0, 0,    0,    0, 0,  //
                                        3,    0, 0, 0,                    //
                                        1,    0, 0, 0, 'w',               //
                                        2,    0, 0, 0, 'p',  's',         //
                                        8,    7, 6, 5, 4,    3,    2, 1,  //
                                        5,    0, 0, 0, 0,    0,    0, 0,  //
                                        0x21, 0, 0, 0, 0,    0,    0, 0,  //
                                        9,    0, 0, 0, 0,    0,    0, 0,  //
                                        2,    0, 0, 0, 0x88, 0x13, 0, 0,
                                    });
  const HelloAck ack = {
      .incarnation = 4, .lane = 3, .lane_count = 8, .task = "ps", .session = 0x21, .seen = 11};
  expect_bytes(encode_hello_ack(ack), {
                                          4,    0,                        //
                                          4,    0, 0, 0, 0,   0,   0, 0,  //
                                          3,    0, 0, 0, 8,   0,   0, 0,  //
                                          2,    0, 0, 0, 'p', 's',        //
                                          0x21, 0, 0, 0, 0,   0,   0, 0,  //
                                          11,   0, 0, 0, 0,   0,   0, 0,
                                      });
}

TEST(Frame, GoldenBytesOfAnOfferAreThoseOfTheFormatPage) {
  const Offer offer = {.process = 77,
                       .descriptor = 12,
                       .key_high = 0x0102030405060708,
                       .key_low = 5,
                       .ring_bytes = 1 << 20};
  const std::string meta = encode_offer(offer);
  expect_bytes(meta, {
                         77, 0, 0,    0, 12, 0, 0, 0,  //
                         8,  7, 6,    5, 4,  3, 2, 1,  //
                         5,  0, 0,    0, 0,  0, 0, 0,  //
                         0,  0, 0x10, 0, 0,  0, 0, 0,
                     });
  EXPECT_EQ(decode_offer(meta).value(), offer);
  EXPECT_FALSE(decode_offer(meta + "x").ok());
  EXPECT_FALSE(decode_offer(meta.substr(1)).ok());
}

TEST(Frame, GoldenBytesOfAReplyWithStringsRoundedFloatsAndExtraAreThoseOfTheFormatPage) {
  FrameHeader header;
  header.method = Method::kReply;
  header.flags = kSummed;
  header.call_id = 7;
  const std::string frame = encode_frame(header,
                                         {Tensor::strings({2}, std::vector<std::string>{"ab", "c"}),
                                          Tensor::of<float>({2}, {1.0f, -2.0f})},
                                         {0, 1}, {Form::kWhole, Form::kBfloat16}, "key");
  expect_bytes(frame, {
                          0x53, 0x44, 0x52, 0x4c, 4,    0,    4,    0,     //
                          6,    0,    0,    0,    0,    0,    0,    0,     //
                          7,    0,    0,    0,    0,    0,    0,    0,     //
                          0,    0,    0,    0,    0,    0,    0,    0,     //
                          0,    0,    0,    0,    0,    0,    0,    0,     //
                          2,    0,    0,    0,    0x43, 0,    0,    0,     //
                          0x20, 0,    0,    0,    0,    0,    0,    0,     //
                          0,    0,    0,    0,    0,    0,    0,    0,     //
                          0,    0,    0,    0,    14,   1,    0,    0,     //
                          0x13, 0,    0,    0,    0,    0,    0,    0,     //
                          2,    0,    0,    0,    0,    0,    0,    0,     //
                          1,    0,    0,    0,    1,    1,    2,    0,     //
                          4,    0,    0,    0,    0,    0,    0,    0,     //
                          2,    0,    0,    0,    0,    0,    0,    0,     //
                          'k',  'e',  'y',                                 //
                          0x3c, 0x6d, 0x40, 0xb6, 0x65, 0x49, 0x61, 0xd6,  //
                          0x9c, 0xe5, 0xe6, 0xd8, 0x88, 0x21, 0x82, 0x83,  //
                          2,    0,    0,    0,    0,    0,    0,    0,     //
                          1,    0,    0,    0,    0,    0,    0,    0,     //
                          'a',  'b',  'c',  0,    0,    0,    0,    0,     //
                          0x80, 0x3f, 0,    0xc0, 0,    0,    0,    0,
                      });
}

TEST(Frame, GoldenBytesOfCancelAreThoseOfTheFormatPage) {
  FrameHeader header;
  header.method = Method::kCancel;
  header.call_id = 7;
  std::string out(kHeaderBytes, '\0');
  encode_header(header, reinterpret_cast<std::byte*>(out.data()));
  std::vector<unsigned char> golden = {0x53, 0x44, 0x52, 0x4c, 4, 0, 9, 0};
  golden.resize(kHeaderBytes);
  golden[16] = 7;
  expect_bytes(out, golden);
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
      decode_meta(header, std::string_view(frame).substr(64, header.meta_bytes), &entries).ok());
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0], (SlotEntry{4, DType::kFloat32, false, {2, 3}, 24, Form::kWhole}));
  EXPECT_TRUE(entries[1].dead);
  EXPECT_EQ(entries[2], (SlotEntry{2, DType::kInt64, false, {}, 8, Form::kWhole}));
  EXPECT_EQ(entries[3], (SlotEntry{1, DType::kUInt8, false, {0, 4}, 0, Form::kWhole}));
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
  EXPECT_EQ(code([](FrameHeader& h) { h.method = static_cast<Method>(14); }),
            StatusCode::kDataLoss);
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
    return decode_meta(header, meta, &entries).ok();
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

TEST(Frame, StringsNeedRoomForTheirLengthsAndLengthsThatAddUp) {
  FrameHeader header = example_header();
  header.slot_count = 1;
  const auto decode = [&](uint64_t nbytes, int64_t count) {
    std::string meta(24, '\0');
    meta[4] = static_cast<char>(DType::kString);
    meta[5] = 1;
    std::memcpy(meta.data() + 8, &nbytes, 8);
    std::memcpy(meta.data() + 16, &count, 8);
    header.payload_bytes = padded(nbytes);
    std::vector<SlotEntry> entries;
    return decode_meta(header, meta, &entries).ok();
  };
  EXPECT_TRUE(decode(16, 2));
  EXPECT_TRUE(decode(1000, 2));
  EXPECT_TRUE(decode(0, 0));
  EXPECT_FALSE(decode(15, 2));
  EXPECT_FALSE(decode(8, 0));
  EXPECT_FALSE(decode(8, int64_t{1} << 61));  // 8 for each wraps to zero
  EXPECT_FALSE(decode(~uint64_t{0}, 1));
  const auto strings = [](std::vector<uint64_t> lengths, const std::string& text) {
    const size_t head = lengths.size() * 8;
    const auto buffer = tensor::Buffer::allocate(head + text.size() + 1);
    std::memcpy(buffer->data(), lengths.data(), head);
    std::memcpy(buffer->data() + head, text.data(), text.size());
    SlotEntry entry;
    entry.dtype = DType::kString;
    entry.shape = Shape{static_cast<int64_t>(lengths.size())};
    entry.nbytes = head + text.size();
    return strings_of(entry, buffer);
  };
  const Tensor good = strings({2, 0, 3}, "abcde").value();
  EXPECT_EQ(good.data<const std::string_view>()[2], "cde");
  EXPECT_EQ(strings({2, 0, 2}, "abcde").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(strings({2, 0, 4}, "abcde").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(strings({~uint64_t{0}, 6}, "abcde").status().code(), StatusCode::kDataLoss);
}

TEST(Frame, FormsAreForFloat32AndHalveItsBytes) {
  FrameHeader header = example_header();
  header.slot_count = 1;
  const auto decode = [&](DType dtype, uint8_t flags, uint64_t nbytes) {
    std::string meta(24, '\0');
    meta[4] = static_cast<char>(dtype);
    meta[5] = 1;
    meta[6] = static_cast<char>(flags);
    std::memcpy(meta.data() + 8, &nbytes, 8);
    meta[16] = 3;
    header.payload_bytes = padded(nbytes);
    std::vector<SlotEntry> entries;
    return decode_meta(header, meta, &entries).ok();
  };
  EXPECT_TRUE(decode(DType::kFloat32, 0, 12));
  EXPECT_TRUE(decode(DType::kFloat32, 2, 6));
  EXPECT_TRUE(decode(DType::kFloat32, 4, 6));
  EXPECT_FALSE(decode(DType::kFloat32, 2, 12));
  EXPECT_FALSE(decode(DType::kFloat32, 6, 6));  // no such form
  EXPECT_FALSE(decode(DType::kFloat32, 8, 12));
  EXPECT_FALSE(decode(DType::kFloat64, 2, 12));
  EXPECT_FALSE(decode(DType::kInt32, 2, 6));
}

TEST(Frame, RoundedFloatsWidenInTheMemoryTheyCameTo) {
  for (const size_t count : {1, 2, 3, 255, 256, 257, 1000}) {
    std::vector<float> values(count), memory(count);
    for (size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i)) * 1e3f;
    for (const Form form : {Form::kBfloat16, Form::kFloat16}) {
      auto* end = reinterpret_cast<std::byte*>(memory.data()) + 2 * count;
      narrow(form, values.data(), count, end);
      widen(form, end, count, memory.data());
      for (size_t i = 0; i < count; ++i) {
        const float expected = form == Form::kBfloat16
                                   ? static_cast<float>(tensor::BFloat16(values[i]))
                                   : static_cast<float>(tensor::Float16(values[i]));
        ASSERT_EQ(memory[i], expected) << i << " of " << count;
      }
    }
  }
}

TEST(Frame, OnlyMethodsThatHaveThemMaySetFlagsKindAndSession) {
  const auto code = [](FrameHeader header) {
    std::byte bytes[kHeaderBytes];
    encode_header(header, bytes);
    return decode_header(bytes, Limits()).status().code();
  };
  FrameHeader error;
  error.method = Method::kError;
  error.status = 3;
  error.flags = kDerived;
  EXPECT_EQ(code(error), StatusCode::kOk);
  error.meta_bytes = kErrorBytesMax;
  EXPECT_EQ(code(error), StatusCode::kOk);
  error.meta_bytes = kErrorBytesMax + 1;
  EXPECT_EQ(code(error), StatusCode::kResourceExhausted);
  FrameHeader call = example_header();
  call.flags = kDerived;
  EXPECT_EQ(code(call), StatusCode::kDataLoss);
  call.flags = kSummed;  // without room for the checksums
  EXPECT_EQ(code(call), StatusCode::kDataLoss);
  FrameHeader ping;
  ping.session = 1;
  EXPECT_EQ(code(ping), StatusCode::kDataLoss);
  ping.session = 0;
  ping.kind = 1;
  EXPECT_EQ(code(ping), StatusCode::kDataLoss);
}

TEST(Frame, LongTextsAreCutBetweenCharacters) {
  EXPECT_EQ(cut_text("abc", 3), "abc");
  EXPECT_EQ(cut_text("abcd", 3), "abc");
  EXPECT_EQ(cut_text("ab\xc3\xa9", 3), "ab");
  EXPECT_EQ(cut_text("\xf0\x9f\x98\x80", 3), "");
  EXPECT_EQ(cut_text("\x80\x80\x80\x80\x80\x80", 5).size(), 2u);  // no UTF-8 at all
}

TEST(Handshake, HelloAndAckComeBackAsTheyWere) {
  const Hello hello = {.cluster_id = 1,
                       .incarnation = 2,
                       .lane = 3,
                       .task = "/job:worker/task:0",
                       .peer_task = "/job:ps/task:1",
                       .client_high = 4,
                       .client_low = 5,
                       .session = 9,
                       .confirmed = 6,
                       .attempt = 7,
                       .resume_ms = 8};
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
  refused(wrong, {"/job:worker/task:3 speaks 7 to 7", "/job:ps/task:0 speaks 4 to 4"});
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
      encode_frame(example_header(),
                   {Tensor::strings({2}, std::vector<std::string>{"ab", "c"}),
                    Tensor::of<float>({3}, {1, 2, 3})},
                   {0, 1}, {Form::kWhole, Form::kFloat16}, "extra"),
      [] {
        FrameHeader header = example_header();
        header.flags = kNumbered;
        return encode_frame(header, {Tensor::scalar<int64_t>(1)}, {0});
      }(),
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
