#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "sidereal/program/program.h"
#include "sidereal/program/validate.h"

namespace sidereal::program {
namespace {

using ir::DType;
using testing::HasSubstr;

/// feed %0; start call 0 (%0); %1 = Relu(%0); wait call 0 -> %2; %3 = Add(%1, %2); fetch %3.
Program small_program() {
  Program p;
  p.slots = {{DType::kFloat32, {-1, 2}, -1},
             {DType::kFloat32, {-1, 2}, 0},
             {DType::kFloat32, {2}, -1},
             {DType::kFloat32, {-1, 2}, 0}};
  p.num_buffers = 1;
  p.feeds = {0};
  p.feed_names = {"x"};
  p.fetches = {3};
  p.fetch_names = {"sum"};
  p.calls = {{{1, 2}, 0x0123456789abcdef, {0}, {2}}};
  p.instructions.resize(4);
  p.instructions[0] = {InstructionKind::kCallStart, "", "call_0", {}, {}, {}, {}, 0};
  p.instructions[1] = {InstructionKind::kCompute, "Relu", "relu", {}, {0}, {1}, {}, -1};
  p.instructions[2] = {InstructionKind::kCallWait, "", "call_0", {}, {}, {}, {0}, 0};
  p.instructions[3] = {InstructionKind::kCompute, "Add", "sum", {}, {1, 2}, {3}, {1, 2}, -1};
  return p;
}

Program program_with_every_attribute() {
  Program p = small_program();
  p.instructions[1].attrs = {{"bool", true},
                             {"dtype", DType::kInt64},
                             {"float", -0.0},
                             {"floats", std::vector<double>{1.5, 2.5}},
                             {"int", int64_t{-7}},
                             {"ints", std::vector<int64_t>{1, 2, 3}},
                             {"shape", ir::Shape{-1, 3}},
                             {"string", std::string("text\0with zero", 14)},
                             {"strings", std::vector<std::string>{"a", ""}},
                             {"tensor", ir::Tensor::of<float>({3}, {1, 2, 3})},
                             {"unranked", ir::Shape::unknown_rank()}};
  return p;
}

/// The worked example of docs/formats/program.md: feed %0; %1 = Neg(%0); fetch %1.
Program worked_example() {
  Program p;
  p.slots = {{DType::kFloat32, {-1}, -1}, {DType::kFloat32, {-1}, 0}};
  p.num_buffers = 1;
  p.feeds = {0};
  p.feed_names = {"x"};
  p.fetches = {1};
  p.fetch_names = {"y"};
  p.instructions.resize(1);
  p.instructions[0] = {InstructionKind::kCompute, "Neg", "y", {}, {0}, {1}, {0}, -1};
  return p;
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool line_ends = i % 16 == 15 || i + 1 == bytes.size();
    out += fmt::format("{:02x}{}", static_cast<unsigned char>(bytes[i]), line_ends ? "\n" : " ");
  }
  return out;
}

std::string message(const Program& program) {
  const Status status = validate(program);
  EXPECT_NE(status.code(), StatusCode::kOk);
  return base::message_of(status);
}

TEST(ProgramCodec, BytesOfASmallProgramNeverChange) {
  const std::string bytes = encode(small_program());
  EXPECT_EQ(bytes.size(), 346U);
  EXPECT_EQ(content_hash(bytes), 14992425456287127644U);
}

TEST(ProgramCodec, TheWorkedExampleOfTheFormatIsTrue) {
  EXPECT_EQ(hex(encode(worked_example())), R"(53 52 50 47 01 00 00 00 01 00 00 00 02 00 00 00
01 01 ff ff ff ff ff ff ff ff ff ff ff ff 01 01
ff ff ff ff ff ff ff ff 00 00 00 00 01 00 00 00
00 00 00 00 01 00 00 00 01 00 00 00 78 01 00 00
00 01 00 00 00 01 00 00 00 01 00 00 00 79 00 00
00 00 01 00 00 00 00 ff ff ff ff 03 00 00 00 4e
65 67 01 00 00 00 79 00 00 00 00 01 00 00 00 00
00 00 00 01 00 00 00 01 00 00 00 01 00 00 00 00
00 00 00
)");
}

TEST(ProgramCodec, WhatWasEncodedReadsBackAsTheSameBytes) {
  for (const Program& program : {small_program(), program_with_every_attribute(), Program{}}) {
    const std::string bytes = encode(program);
    const auto read = decode(bytes);
    ASSERT_TRUE(read.ok()) << base::message_of(read.status());
    EXPECT_EQ(encode(*read), bytes);
    EXPECT_EQ(to_text(*read), to_text(program));
  }
}

TEST(ProgramCodec, TextShowsOneInstructionALine) {
  EXPECT_EQ(to_text(small_program()), R"(program: 4 instructions, 4 slots, 1 buffers, 1 calls
feed %0 float32[?,2] "x"
start call 0 ps:1/lane:2 (%0)
%1:b0 float32[?,2] = Relu(%0) "relu"
wait call 0 -> (%2 float32[2]) release %0
%3:b0 float32[?,2] = Add(%1, %2) "sum" release %1, %2
fetch %3 "sum"
)");
}

TEST(ProgramCodec, TruncatedBytesAreAnError) {
  const std::string bytes = encode(program_with_every_attribute());
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(decode(bytes.substr(0, n)).ok()) << n;
  }
  EXPECT_FALSE(decode(bytes + '\0').ok());
}

TEST(ProgramCodec, MutatedBytesAreAnErrorOrAnotherProgram) {
  const std::string good = encode(program_with_every_attribute());
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string bytes = good;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int c = 0; c < changes; ++c) {
      const size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
          break;
        default:
          bytes.erase(at, 1 + random() % 4);
          break;
      }
    }
    const auto read = decode(bytes);
    if (!read.ok()) continue;
    ++accepted;
    EXPECT_EQ(encode(*read), bytes);
  }
  EXPECT_GT(accepted, 0);
}

TEST(ProgramCodec, AnotherVersionIsNamed) {
  std::string bytes = encode(small_program());
  bytes[4] = 2;
  const auto read = decode(bytes);
  EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(read.status()), HasSubstr("version 2"));
  EXPECT_EQ(decode("GARBAGE!").status().code(), StatusCode::kDataLoss);
}

TEST(ProgramCodec, ACountThatLiesTakesNoMemory) {
  std::string bytes = encode(small_program());
  for (size_t i = 12; i < 16; ++i) bytes[i] = static_cast<char>(i < 14 ? 0xff : 0);
  EXPECT_EQ(decode(bytes).status().code(), StatusCode::kDataLoss);
}

TEST(ValidateProgram, NamesTheInstructionThatReadsTooEarly) {
  Program p = small_program();
  std::swap(p.instructions[2], p.instructions[3]);
  EXPECT_THAT(message(p), HasSubstr("instruction 2 'sum': slot 2 is read before it is written"));
}

TEST(ValidateProgram, RefusesIndicesOutOfRange) {
  Program p = small_program();
  p.instructions[1].inputs = {4};
  EXPECT_THAT(message(p), HasSubstr("there is no slot 4"));
  p = small_program();
  p.instructions[1].outputs = {-1};
  EXPECT_THAT(message(p), HasSubstr("there is no slot -1"));
  p = small_program();
  p.slots[1].buffer = 1;
  EXPECT_THAT(message(p), HasSubstr("slot 1 is in buffer 1 of 1"));
  p = small_program();
  p.instructions[0].call = 1;
  EXPECT_THAT(message(p), HasSubstr("there is no call 1"));
  p = small_program();
  p.num_buffers = 5;
  EXPECT_THAT(message(p), HasSubstr("5 buffers for 4 slots"));
}

TEST(ValidateProgram, RefusesCallsThatAreNotOneRoundTrip) {
  Program p = small_program();
  p.instructions[2].kind = InstructionKind::kCallStart;
  EXPECT_THAT(message(p), HasSubstr("call 0 is started twice"));
  p = small_program();
  p.instructions[0].kind = InstructionKind::kCallWait;
  EXPECT_THAT(message(p), HasSubstr("not in flight"));
  p = small_program();
  p.instructions.resize(2);
  p.fetches = {1};
  EXPECT_THAT(message(p), HasSubstr("call 0 is never started or never waited for"));
}

TEST(ValidateProgram, RefusesToReleaseWhatACallStillSends) {
  Program p = small_program();
  p.instructions[1].releases = {0};
  p.instructions[2].releases = {};
  EXPECT_THAT(message(p), HasSubstr("slot 0 is released while a call sends it"));
}

TEST(ValidateProgram, RefusesReadsAfterReleaseAndSecondWrites) {
  Program p = small_program();
  p.instructions[3].releases = {3};
  EXPECT_THAT(message(p), HasSubstr("a fetch: slot 3 is read after it was released"));
  p = small_program();
  p.instructions[1].outputs = {0};
  EXPECT_THAT(message(p), HasSubstr("slot 0 is written twice"));
}

}  // namespace
}  // namespace sidereal::program
