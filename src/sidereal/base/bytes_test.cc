#include "sidereal/base/bytes.h"

#include <gtest/gtest.h>

namespace sidereal::base {
namespace {

TEST(Bytes, WhatIsWrittenIsRead) {
  ByteWriter writer;
  writer.put<uint32_t>(7);
  writer.put_string("lane");
  writer.put(2.5);
  ByteReader reader(writer.bytes());
  uint32_t n = 0;
  std::string text;
  double value = 0;
  ASSERT_TRUE(reader.get(&n).ok());
  ASSERT_TRUE(reader.get_string(&text, 16).ok());
  ASSERT_TRUE(reader.get(&value).ok());
  EXPECT_EQ(n, 7u);
  EXPECT_EQ(text, "lane");
  EXPECT_EQ(value, 2.5);
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(Bytes, EveryCutIsAnErrorAndNeverACrash) {
  ByteWriter writer;
  writer.put<uint32_t>(7);
  writer.put_string("lane");
  const std::string bytes = writer.take();
  for (size_t n = 0; n < bytes.size(); ++n) {
    ByteReader reader(std::string_view(bytes).substr(0, n));
    uint32_t value = 0;
    std::string text;
    Status status = reader.get(&value);
    if (status.ok()) status = reader.get_string(&text, 16);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << n;
  }
}

TEST(Bytes, ALyingCountIsRefusedBeforeMemoryIsTaken) {
  ByteWriter writer;
  writer.put<uint32_t>(1000000);
  ByteReader reader(writer.bytes());
  uint32_t count = 0;
  EXPECT_EQ(reader.get_count(&count, 2000000, 8).code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace sidereal::base
