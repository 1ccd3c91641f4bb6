#include "sidereal/data/byte_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "sidereal/data/line_reader.h"
#include "sidereal/data/testing/files.h"

namespace sidereal::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<std::string> read_all(const std::string& path, size_t step = 1000) {
  SR_ASSIGN_OR_RETURN(auto source, open_bytes(path));
  std::string text;
  std::string part(step, '\0');
  while (true) {
    SR_ASSIGN_OR_RETURN(const size_t n, source->read(part));
    if (n == 0) break;
    text.append(part, 0, n);
  }
  EXPECT_EQ(source->position(), source->size());
  return text;
}

Result<std::vector<std::string>> lines_of(const std::string& path, bool quoted) {
  SR_ASSIGN_OR_RETURN(auto reader, LineReader::open(path, quoted));
  std::vector<std::string> lines;
  std::string_view line;
  while (true) {
    SR_ASSIGN_OR_RETURN(const bool more, reader->next(&line));
    if (!more) return lines;
    lines.push_back(std::to_string(reader->line()) + ":" + std::string(line));
  }
}

std::string long_text() {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += std::to_string(i * 7919) + "\n";
  return text;
}

TEST(ByteSource, ReadsPlainAndGzipAlikeWhateverTheName) {
  const TestFolder folder;
  const std::string text = long_text();
  EXPECT_EQ(*read_all(folder.write("a.gz", text)), text);
  EXPECT_EQ(*read_all(folder.write_gzip("b.txt", text)), text);
  EXPECT_EQ(*read_all(folder.write_gzip("c", text), 3), text);
}

TEST(ByteSource, ReadsSeveralGzipMembersAndZeroPadding) {
  const TestFolder folder;
  const std::string bytes = gzip("one\n") + gzip("") + gzip("two\n") + std::string(512, '\0');
  EXPECT_EQ(*read_all(folder.write("a.gz", bytes)), "one\ntwo\n");
}

TEST(ByteSource, EmptyFilesAreEmpty) {
  const TestFolder folder;
  EXPECT_EQ(*read_all(folder.write("a", "")), "");
  EXPECT_EQ(*read_all(folder.write_gzip("b", "")), "");
}

TEST(ByteSource, SaysWhenGzipDataIsCutOffOrDamaged) {
  const TestFolder folder;
  const std::string whole = gzip(long_text());
  const auto cut = read_all(folder.write("cut.gz", whole.substr(0, whole.size() / 2)));
  EXPECT_EQ(cut.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(cut.status().message()), HasSubstr("cut.gz: gzip data near byte"));
  EXPECT_THAT(std::string(cut.status().message()), HasSubstr("cut off"));

  std::string flipped = whole;
  flipped[whole.size() / 2] ^= 0x55;
  EXPECT_EQ(read_all(folder.write("bad.gz", flipped)).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(read_all(folder.write("tail.gz", gzip("x") + "garbage")).status().code(),
            StatusCode::kDataLoss);
}

TEST(ByteSource, NamesAMissingFileAndAFolder) {
  const TestFolder folder;
  const auto missing = open_bytes(folder.path("nothing.csv"));
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("nothing.csv: no such file"));
  const auto directory = open_bytes(folder.path(""));
  EXPECT_EQ(directory.status().code(), StatusCode::kInvalidArgument);
}

TEST(LineReader, CutsLinesWithEitherEndAndPassesOverEmptyOnes) {
  const TestFolder folder;
  const auto lines = lines_of(folder.write("a", "one\r\n\n\r\ntwo\nthree"), false);
  EXPECT_THAT(*lines, ElementsAre("1:one", "4:two", "5:three"));
}

TEST(LineReader, KeepsQuotedLineEndsInOneRecord) {
  const TestFolder folder;
  const auto lines = lines_of(folder.write("a", "x,\"a\nb\"\r\n\"c\"\"\n\n\",d\ne\n"), true);
  EXPECT_THAT(*lines, ElementsAre("1:x,\"a\nb\"", "3:\"c\"\"\n\n\",d", "6:e"));
  const auto open = lines_of(folder.write("b", "x\n\"never\nclosed\n"), true);
  EXPECT_THAT(*open, ElementsAre("1:x", "2:\"never\nclosed"));
}

TEST(LineReader, HandlesRowsLongerThanItsBufferAndRefusesEndlessOnes) {
  const TestFolder folder;
  const std::string row(1 << 20, 'x');
  EXPECT_THAT(*lines_of(folder.write("a", row + "\nb"), false), ElementsAre("1:" + row, "2:b"));
  const std::string endless(LineReader::kRowBytesMax * 2 + 1, 'x');
  const auto refused = lines_of(folder.write("b", "a\n" + endless), false);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("b:2: a row longer than"));
}

}  // namespace
}  // namespace sidereal::data
