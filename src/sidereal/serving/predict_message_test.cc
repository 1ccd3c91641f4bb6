#include "sidereal/serving/predict_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "sidereal/parse/protobuf_wire.h"

namespace sidereal::serving {
namespace {

using tensor::DType;
using tensor::Shape;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string number(uint32_t field, uint64_t value) { return varint(field << 3) + varint(value); }

std::string bytes(uint32_t field, const std::string& value) {
  return varint(field << 3 | 2) + varint(value.size()) + value;
}

std::string shape_of(std::initializer_list<int64_t> dims) {
  std::string out;
  for (const int64_t dim : dims) out += bytes(2, number(1, static_cast<uint64_t>(dim)));
  return bytes(2, out);
}

template <class T>
std::string raw(std::initializer_list<T> values) {
  std::string out(values.size() * sizeof(T), '\0');
  std::memcpy(out.data(), values.begin(), out.size());
  return out;
}

std::string input(const std::string& name, const std::string& message) {
  return bytes(2, bytes(1, name) + bytes(2, message));
}

Signature two_inputs() {
  return {.name = "s",
          .inputs = {{"a", DType::kFloat32, Shape{-1, 2}}, {"b", DType::kInt32, Shape{-1}}},
          .outputs = {"y", "z"},
          .batcher = nullptr};
}

template <class T>
std::vector<T> values_of(const Tensor& value) {
  const auto data = value.data<T>();
  return {data.begin(), data.end()};
}

TEST(PredictMessage, HasASpecInputsAndAFilter) {
  const std::string spec = bytes(1, "m") + bytes(4, "stable") + bytes(2, number(1, 7));
  const std::string message = bytes(1, spec) + input("a", "x") + bytes(1, bytes(3, "s")) +
                              input("a", "y") + bytes(3, "z") + bytes(99, "unknown");
  const auto read = read_predict_request(message);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->model, "m");
  EXPECT_EQ(read->signature, "s");
  // Of a choice the last counts.
  EXPECT_TRUE(read->has_version && !read->has_label);
  EXPECT_EQ(read->version, 7);
  ASSERT_EQ(read->inputs.size(), 2U);
  EXPECT_EQ(read->inputs[1].message, "y");
  EXPECT_THAT(read->output_filter, ElementsAre("z"));
}

TEST(PredictMessage, PartsOfAnInputAreOne) {
  const std::string message =
      bytes(2, bytes(1, "a") + bytes(2, number(1, 3)) + bytes(2, shape_of({2}) + number(7, 5)));
  const auto read = read_predict_request(message);
  ASSERT_TRUE(read.ok());
  const auto made = read_tensor("a", read->inputs[0].message, 100);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(values_of<int32_t>(*made), ElementsAre(5, 5));
}

template <class T>
void expect_values(uint32_t dtype, const std::string& values, const std::string& content, T first,
                   T second) {
  SCOPED_TRACE(dtype);
  for (const std::string& said : {values, bytes(4, content)}) {
    const auto made = read_tensor("x", number(1, dtype) + shape_of({2}) + said, 100);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(values_of<T>(*made), (std::vector<T>{first, second}));
  }
}

TEST(PredictMessage, EachDtypeHasItsFieldAndItsContent) {
  const uint64_t minus = static_cast<uint64_t>(-2);
  expect_values<float>(1, bytes(5, raw({1.5F, -2.0F})), raw({1.5F, -2.0F}), 1.5F, -2.0F);
  expect_values<double>(2, varint(6 << 3 | 1) + raw({1.5}) + varint(6 << 3 | 1) + raw({-2.0}),
                        raw({1.5, -2.0}), 1.5, -2.0);
  expect_values<int32_t>(3, number(7, 1) + number(7, minus), raw<int32_t>({1, -2}), 1, -2);
  expect_values<uint8_t>(4, bytes(7, varint(1) + varint(255)), raw<uint8_t>({1, 255}), 1, 255);
  expect_values<int16_t>(5, bytes(7, varint(1) + varint(minus)), raw<int16_t>({1, -2}), 1, -2);
  expect_values<int8_t>(6, bytes(7, varint(1) + varint(minus)), raw<int8_t>({1, -2}), 1, -2);
  expect_values<int64_t>(9, bytes(10, varint(1) + varint(minus)), raw<int64_t>({1, -2}), 1, -2);
  expect_values<bool>(10, bytes(11, varint(0) + varint(1)), raw<char>({0, 7}), false, true);
  expect_values<uint16_t>(17, bytes(7, varint(1) + varint(65535)), raw<uint16_t>({1, 65535}), 1,
                          65535);
  expect_values<uint32_t>(22, bytes(16, varint(1) + varint(4294967295U)),
                          raw<uint32_t>({1, 4294967295U}), 1, 4294967295U);
  expect_values<uint64_t>(23, bytes(17, varint(1) + varint(minus)), raw<uint64_t>({1, minus}), 1,
                          minus);
  const auto halves =
      read_tensor("x", number(1, 19) + shape_of({2}) + bytes(13, varint(0x3c00)), 100);
  ASSERT_TRUE(halves.ok()) << halves.status();
  EXPECT_EQ(static_cast<float>(halves->data<tensor::Float16>()[1]), 1.0F);
}

TEST(PredictMessage, StringsOutliveTheMessage) {
  Tensor kept;
  {
    const std::string message = number(1, 7) + shape_of({3}) + bytes(8, "ab") + bytes(8, "");
    auto made = read_tensor("x", message, 100);
    ASSERT_TRUE(made.ok()) << made.status();
    kept = *made;
  }
  EXPECT_THAT(values_of<std::string_view>(kept), ElementsAre("ab", "", ""));
}

std::string refusal(const std::string& message, size_t bytes_max = 1000) {
  const auto made = read_tensor("x", message, bytes_max);
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  return std::string(made.status().message());
}

TEST(PredictMessage, WhatIsNoTensorIsRefused) {
  const std::string one = raw({1.0F});
  EXPECT_THAT(refusal(number(1, 99) + shape_of({1})), HasSubstr("the dtype 99"));
  EXPECT_THAT(refusal(number(1, 1) + shape_of({-1})), HasSubstr("no known shape"));
  EXPECT_THAT(refusal(number(1, 1) + bytes(2, number(3, 1))), HasSubstr("no known shape"));
  EXPECT_THAT(refusal(number(1, 1) + shape_of({int64_t{1} << 40, int64_t{1} << 40})),
              HasSubstr("more than 1000 bytes"));
  EXPECT_THAT(refusal(number(1, 1) + shape_of({0, int64_t{1} << 62})),
              HasSubstr("more than 1000 bytes"));
  EXPECT_THAT(refusal(number(1, 1) + shape_of({251})), HasSubstr("more than 1000 bytes"));
  EXPECT_THAT(refusal(number(1, 1) + shape_of({2}) + bytes(4, one)),
              HasSubstr("4 bytes of content, and its shape [2] of float32 takes 8"));
  EXPECT_THAT(refusal(number(1, 1) + shape_of({2})), HasSubstr("0 values for the shape [2]"));
  EXPECT_THAT(refusal(number(1, 1) + shape_of({1}) + bytes(5, one + one)),
              HasSubstr("2 values for the shape [1]"));
  EXPECT_THAT(refusal(number(1, 4) + shape_of({1}) + number(7, 256)),
              HasSubstr("values that uint8 does not hold"));
  EXPECT_THAT(refusal(number(1, 1) + shape_of({1}) + bytes(5, "abc")), HasSubstr("no TensorProto"));
  EXPECT_THAT(refusal(number(1, 1) + shape_of({1}) + "\x2a\xff"), HasSubstr("no TensorProto"));
  std::string dims;
  for (int i = 0; i < 100; ++i) dims += bytes(2, number(1, 1));
  EXPECT_THAT(refusal(number(1, 1) + bytes(2, dims)), HasSubstr("100 dimensions, at most 32"));
}

TEST(PredictMessage, ColumnsAreThoseOfTheSignature) {
  const Signature signature = two_inputs();
  const std::string a =
      number(1, 1) + shape_of({3, 2}) + bytes(4, raw({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}));
  const std::string b = number(1, 3) + shape_of({3}) + number(7, 1);
  const auto columns = [&](const std::string& message) {
    const auto request = read_predict_request(message);
    EXPECT_TRUE(request.ok());
    return read_columns(*request, signature, 1000);
  };
  const auto both = columns(input("b", b) + input("a", a));
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ((*both)[0].shape(), (Shape{3, 2}));
  EXPECT_EQ(rows_of(*both, signature), 3);
  const auto other =
      columns(input("a", a) + input("b", number(1, 3) + shape_of({1}) + number(7, 1)));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(rows_of(*other, signature), -1);
  EXPECT_THAT(columns(input("a", a)).status().message(), HasSubstr("takes a, b; given are a"));
  EXPECT_THAT(columns(input("a", a) + input("b", b) + input("c", b)).status().message(),
              HasSubstr("given are a, b, c"));
  EXPECT_THAT(columns(input("a", b) + input("b", b)).status().message(),
              HasSubstr("'a' takes float32, and not int32"));
  EXPECT_THAT(columns(input("b", b) +
                      input("a", number(1, 1) + shape_of({2}) + bytes(4, raw({1.0F, 2.0F}))))
                  .status()
                  .message(),
              HasSubstr("'a' has the shape [2], and the model takes [?, 2]"));
}

TEST(PredictMessage, AnAnswerHasTheOutputsThatAreWanted) {
  const Version version{.model = "m", .number = 300, .labels = {}, .signatures = {}};
  const Signature signature = two_inputs();
  PredictRequest request;
  request.output_filter = {"z"};
  const auto wanted = wanted_outputs(request, signature);
  ASSERT_TRUE(wanted.ok());
  const std::vector<Tensor> outputs = {
      Tensor::of<float>(Shape{2}, std::vector<float>{1, 2}),
      Tensor::strings(Shape{2}, std::vector<std::string>{"p", ""})};
  const auto made = write_predict_response(version, signature, *wanted, outputs);
  ASSERT_TRUE(made.ok());
  const std::string tensor = number(1, 7) + shape_of({2}) + bytes(8, "p") + bytes(8, "");
  const std::string spec = bytes(1, "m") + bytes(2, number(1, 300)) + bytes(3, "s");
  EXPECT_EQ(*made, bytes(1, bytes(1, "z") + bytes(2, tensor)) + bytes(2, spec));
  request.output_filter = {"w"};
  EXPECT_THAT(wanted_outputs(request, signature).status().message(),
              HasSubstr("no output 'w' but y, z"));
  const std::vector<Tensor> odd = {Tensor::zeros(DType::kBFloat16, Shape{}), outputs[1]};
  const std::vector<size_t> first = {0};
  EXPECT_EQ(write_predict_response(version, signature, first, odd).status().code(),
            StatusCode::kUnimplemented);
}

TEST(PredictMessage, ThatIsCutIsRefusedOrShorter) {
  const std::string message = bytes(1, bytes(1, "m")) + input("a", number(1, 1) + shape_of({2}));
  for (size_t n = 0; n < message.size(); ++n) {
    const auto read = read_predict_request(message.substr(0, n));
    EXPECT_TRUE(!read.ok() || read->inputs.empty()) << n;
  }
}

}  // namespace
}  // namespace sidereal::serving
