#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
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
  p.calls = {{"/job:ps/task:1", 0x0123456789abcdef, {0}, {2}}};
  p.instructions.resize(4);
  p.instructions[0] = {InstructionKind::kCallStart, "", "call_0", {}, {}, {}, {}, 0, {}};
  p.instructions[1] = {InstructionKind::kCompute, "Relu", "relu", {}, {0}, {1}, {}, -1, {}};
  p.instructions[2] = {InstructionKind::kCallWait, "", "call_0", {}, {}, {}, {0}, 0, {}};
  p.instructions[3] = {InstructionKind::kCompute, "Add", "sum", {}, {1, 2}, {3}, {1, 2}, -1, {}};
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
                             {"texts", ir::Tensor::strings({2}, {"one", "\xff"})},
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
  p.instructions[0] = {InstructionKind::kCompute, "Neg", "y", {}, {0}, {1}, {0}, -1, {}};
  return p;
}

/// A body x -> Neg(x).
Program negating_body() {
  Program p = worked_example();
  p.feed_names = {"arg"};
  p.fetch_names = {""};
  return p;
}

/// feed %0 flag, %1 x; %2 = If(%0, %1) of two bodies; %3, %4 = While(%1; captured %2).
Program program_with_bodies() {
  Program condition;
  condition.slots = {
      {DType::kFloat32, {-1}, -1}, {DType::kFloat32, {-1}, -1}, {DType::kBool, {}, 0}};
  condition.num_buffers = 1;
  condition.feeds = {0, 1};
  condition.feed_names = {"x", "c"};
  condition.fetches = {2};
  condition.fetch_names = {""};
  condition.instructions.resize(1);
  condition.instructions[0] = {
      InstructionKind::kCompute, "Any", "any", {}, {0}, {2}, {0, 1}, -1, {}};
  Program body = condition;
  body.slots[2] = {DType::kFloat32, {-1}, -1};
  body.num_buffers = 0;
  body.fetches = {2, 0};
  body.fetch_names = {"", ""};
  body.instructions[0] = {
      InstructionKind::kControl, "FunctionCall", "call", {}, {0}, {2}, {1}, -1, {0}};
  Program p;
  p.slots = {{DType::kBool, {}, -1},
             {DType::kFloat32, {-1}, -1},
             {DType::kFloat32, {-1}, -1},
             {DType::kFloat32, {-1}, -1},
             {DType::kFloat32, {-1, -1}, -1}};
  p.feeds = {0, 1};
  p.feed_names = {"flag", "x"};
  p.fetches = {3, 4};
  p.fetch_names = {"a", "b"};
  p.bodies = {negating_body(), negating_body(), condition, body};
  p.instructions.resize(2);
  p.instructions[0] = {InstructionKind::kControl, "If", "if", {}, {0, 1}, {2}, {0}, -1, {0, 1}};
  p.instructions[1] = {InstructionKind::kControl,
                       "While",
                       "while",
                       {{"maximum_iterations", int64_t{9}}, {"variables", int64_t{1}}},
                       {1, 2},
                       {3, 4},
                       {1, 2},
                       -1,
                       {2, 3}};
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
  EXPECT_EQ(bytes.size(), 361U);
  EXPECT_EQ(content_hash(bytes), 7807197316458510910U);
}

TEST(ProgramCodec, TheWorkedExampleOfTheFormatIsTrue) {
  EXPECT_EQ(hex(encode(worked_example())), R"(53 52 50 47 06 00 00 00 01 00 00 00 02 00 00 00
01 01 ff ff ff ff ff ff ff ff ff ff ff ff 01 01
ff ff ff ff ff ff ff ff 00 00 00 00 01 00 00 00
00 00 00 00 01 00 00 00 01 00 00 00 78 01 00 00
00 01 00 00 00 01 00 00 00 01 00 00 00 79 00 00
00 00 01 00 00 00 00 ff ff ff ff 03 00 00 00 4e
65 67 01 00 00 00 79 00 00 00 00 01 00 00 00 00
00 00 00 01 00 00 00 01 00 00 00 01 00 00 00 00
00 00 00 00 00 00 00
)");
}

TEST(ProgramCodec, WhatWasEncodedReadsBackAsTheSameBytes) {
  for (const Program& program :
       {small_program(), program_with_every_attribute(), program_with_bodies(), Program{}}) {
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
start call 0 /job:ps/task:1 (%0)
%1:b0 float32[?,2] = Relu(%0) "relu"
wait call 0 -> (%2 float32[2]) release %0
%3:b0 float32[?,2] = Add(%1, %2) "sum" release %1, %2
fetch %3 "sum"
)");
}

TEST(ProgramCodec, TextShowsBodiesBehindTheProgram) {
  EXPECT_THAT(to_text(program_with_bodies()), HasSubstr(R"(
%3 float32[?], %4 float32[?,?] = While(%1, %2) {maximum_iterations=9, variables=1} )"
                                                        R"(bodies(2, 3) "while" release %1, %2
fetch %3 "a"
fetch %4 "b"
body 0: 1 instructions, 2 slots, 1 buffers, 0 calls
)"));
}

TEST(ProgramCodec, TruncatedBytesAreAnError) {
  const std::string bytes = encode(program_with_every_attribute());
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(decode(bytes.substr(0, n)).ok()) << n;
  }
  EXPECT_FALSE(decode(bytes + '\0').ok());
  const std::string nested = encode(program_with_bodies());
  for (size_t n = 0; n < nested.size(); ++n) EXPECT_FALSE(decode(nested.substr(0, n)).ok()) << n;
}

TEST(ProgramCodec, MutatedBytesAreAnErrorOrAnotherProgram) {
  const std::array<std::string, 2> good = {encode(program_with_every_attribute()),
                                           encode(program_with_bodies())};
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string bytes = good[i % 2];
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
  bytes[4] = 1;
  const auto read = decode(bytes);
  EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(read.status()), HasSubstr("version 1, flags 0; this reads"));
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

TEST(ValidateProgram, TakesBodiesThatFit) {
  const Status status = validate(program_with_bodies());
  EXPECT_TRUE(status.ok()) << base::message_of(status);
}

TEST(ValidateProgram, NoBodyRunsItselfOrALaterOne) {
  Program p = program_with_bodies();
  p.bodies[3].instructions[0].bodies = {3};
  EXPECT_THAT(message(p),
              HasSubstr("body 3: instruction 0 'call': body 3 cannot be run from here"));
  p = program_with_bodies();
  p.instructions[0].bodies = {0, 4};
  EXPECT_THAT(message(p), HasSubstr("body 4 cannot be run from here"));
  p.instructions[0].bodies = {-1, 0};
  EXPECT_THAT(message(p), HasSubstr("body -1 cannot be run from here"));
}

TEST(ValidateProgram, BodiesTakeWhatTheyAreGiven) {
  Program p = program_with_bodies();
  p.instructions[0].bodies = {0};
  EXPECT_THAT(message(p), HasSubstr("op If with 1 bodies"));
  p = program_with_bodies();
  p.instructions[0].op = "Neg";
  EXPECT_THAT(message(p), HasSubstr("op Neg with 2 bodies"));
  p = program_with_bodies();
  p.bodies[1].slots[0].dtype = DType::kInt64;
  EXPECT_THAT(message(p), HasSubstr("float32 stands where a body has int64"));
  p = program_with_bodies();
  p.slots[0].dtype = DType::kInt32;
  EXPECT_THAT(message(p), HasSubstr("an If has no bool predicate"));
  p = program_with_bodies();
  p.bodies[2].slots[2].dtype = DType::kInt32;
  EXPECT_THAT(message(p), HasSubstr("a condition must return one bool"));
  p = program_with_bodies();
  p.instructions[1].attrs["variables"] = int64_t{3};
  EXPECT_THAT(message(p), HasSubstr("'variables' is 3; there are 2 inputs"));
  p.instructions[1].attrs.erase("variables");
  EXPECT_THAT(message(p), HasSubstr("attribute 'variables' is missing"));
  p = program_with_bodies();
  p.instructions[1].inputs = {1};
  EXPECT_THAT(message(p), HasSubstr("1 inputs for a body that takes 2"));
  p = program_with_bodies();
  p.instructions[1].op = "Scan";
  EXPECT_THAT(message(p), HasSubstr("op Scan with 2 bodies"));
  p.instructions[1].bodies = {3};
  p.instructions[1].attrs = {{"variables", int64_t{1}}, {"sequences", int64_t{0}}};
  EXPECT_THAT(message(p), HasSubstr("a Scan without sequences has no length"));
}

TEST(ValidateProgram, BodiesHaveNoBodies) {
  Program p = program_with_bodies();
  p.bodies[0].bodies.emplace_back();
  EXPECT_THAT(message(p), HasSubstr("a body has bodies of its own"));
}

TEST(ValidateProgram, WhatControlUnfoldsToIsBounded) {
  // Each body runs the one before twice: 2^n copies of slots.
  Program p;
  p.bodies = {negating_body()};
  for (int32_t k = 1; k < 31; ++k) {
    Program body = negating_body();
    body.num_buffers = 0;
    body.slots.push_back({DType::kFloat32, {-1}, -1});
    body.slots[1].buffer = -1;
    body.instructions = {
        {InstructionKind::kControl, "FunctionCall", "a", {}, {0}, {1}, {}, -1, {k - 1}},
        {InstructionKind::kControl, "FunctionCall", "b", {}, {1}, {2}, {}, -1, {k - 1}}};
    body.fetches = {2};
    p.bodies.push_back(std::move(body));
  }
  EXPECT_THAT(message(p), HasSubstr("take more than"));
}

}  // namespace
}  // namespace sidereal::program
