#include "sidereal/data/record_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sidereal/base/bytes.h"
#include "sidereal/data/testing/files.h"
#include "sidereal/parse/crc32c.h"

namespace sidereal::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void put_masked_crc(std::string_view bytes, base::ByteWriter* out) {
  const uint32_t crc = parse::crc32c(bytes);
  out->put(((crc >> 15) | (crc << 17)) + 0xa282ead8U);
}

std::string record(std::string_view bytes) {
  base::ByteWriter head;
  head.put(static_cast<uint64_t>(bytes.size()));
  base::ByteWriter out;
  out.put_bytes(head.bytes());
  put_masked_crc(head.bytes(), &out);
  out.put_bytes(bytes);
  put_masked_crc(bytes, &out);
  return out.take();
}

Result<std::vector<std::string>> records_of(const std::string& path) {
  SR_ASSIGN_OR_RETURN(auto reader, RecordReader::open(path));
  std::vector<std::string> out;
  std::string one;
  for (;;) {
    SR_ASSIGN_OR_RETURN(const bool some, reader->next(&one));
    if (!some) return out;
    out.push_back(one);
  }
}

TEST(RecordReader, ReadsPlainAndGzipFiles) {
  const TestFolder folder;
  const std::string large(3'000'000, 'x');
  const std::string bytes = record("one") + record("") + record(large);
  EXPECT_THAT(*records_of(folder.write("a", bytes)), ElementsAre("one", "", large));
  EXPECT_THAT(*records_of(folder.write_gzip("b", bytes)), ElementsAre("one", "", large));
  EXPECT_THAT(*records_of(folder.write("c", "")), ElementsAre());
}

TEST(RecordReader, SaysWhereAFileIsDamaged) {
  const TestFolder folder;
  const std::string bytes = record("one") + record("two");
  for (size_t size = 1; size < bytes.size(); ++size) {
    if (size == record("one").size()) continue;
    const auto cut = records_of(folder.write("a", bytes.substr(0, size)));
    EXPECT_EQ(cut.status().code(), StatusCode::kDataLoss) << size;
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    const auto read = records_of(folder.write("a", changed));
    EXPECT_EQ(read.status().code(), StatusCode::kDataLoss) << at;
    EXPECT_THAT(base::message_of(read.status()), HasSubstr(folder.path("a"))) << at;
  }
}

}  // namespace
}  // namespace sidereal::data
