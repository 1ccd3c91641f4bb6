#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/data/record_reader.h"
#include "sidereal/data/testing/files.h"
#include "sidereal/dataset/definition.h"
#include "sidereal/dataset/iterator.h"

namespace sidereal::dataset {
namespace {

using testing::HasSubstr;

Parameter number(int64_t value) { return Parameter::of(Tensor::scalar(value)); }

DatasetPtr range(int64_t count) {
  return *Dataset::make({.op = "Range",
                         .attrs = {{"dtype", tensor::DType::kInt64}},
                         .parameters = {number(0), number(count), number(1)}});
}

DatasetPtr cached(const DatasetPtr& input, const std::string& path) {
  return *Dataset::make(
      {.op = "CacheFile",
       .inputs = {input},
       .parameters = {Parameter::of(Tensor::strings({}, std::vector<std::string>{path}))}});
}

/// Elements of numbers, of strings and of a list of tensors.
DatasetPtr mixed(int64_t count) {
  const DatasetPtr names = *Dataset::make(
      {.op = "TensorSlices",
       .parameters = {Parameter::of(Tensor::strings(
           tensor::Shape{4}, std::vector<std::string>{"", "a", "bc", std::string(30, 'd')}))}});
  const DatasetPtr windows = *Dataset::make(
      {.op = "Window", .inputs = {range(20)}, .parameters = {number(2), number(2), number(1)}});
  return *Dataset::make({.op = "Zip", .inputs = {range(count), names, windows}});
}

std::unique_ptr<Iterator> open(const DatasetPtr& dataset) { return *Iterator::make(dataset, {}); }

/// How many elements there are until the end or an error.
Result<int64_t> count(Iterator* iterator) {
  Element element;
  for (int64_t i = 0;; ++i) {
    SR_ASSIGN_OR_RETURN(const bool some, iterator->next(&element));
    if (!some) return i;
  }
}

Result<int64_t> count(const DatasetPtr& dataset) { return count(open(dataset).get()); }

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

class CacheFiles : public testing::Test {
 protected:
  void forget() const {
    for (const char* end : {"", ".part"}) std::remove((path_ + end).c_str());
  }
  [[nodiscard]] bool is_there() const { return std::ifstream(path_).good(); }

  /// One for each test: several run at once.
  data::TestFolder folder_;
  std::string path_ = folder_.path("cache");
};

TEST_F(CacheFiles, AreWrittenByTheFirstWholePassAndReadByLaterOnes) {
  EXPECT_EQ(*count(cached(mixed(4), path_)), 4);
  ASSERT_TRUE(is_there());
  // Of another dataset with elements of this kind, nothing is read.
  Element element;
  const auto again = open(cached(mixed(0), path_));
  ASSERT_TRUE(*again->next(&element));
  ASSERT_TRUE(*again->next(&element));
  EXPECT_EQ(element[0].tensor.data<const int64_t>()[0], 1);
  EXPECT_EQ(element[1].tensor.data<const std::string_view>()[0], "a");
  EXPECT_EQ((*element[2].list)[1].data<const int64_t>()[0], 3);
  EXPECT_EQ(*count(again.get()), 2);
  const DatasetPtr repeated = *Dataset::make(
      {.op = "Repeat", .inputs = {cached(mixed(4), path_)}, .parameters = {number(3)}});
  EXPECT_EQ(*count(repeated), 12);
}

TEST_F(CacheFiles, AreThereWhenTheyAreWholeOnly) {
  Element element;
  {
    const auto first = open(cached(range(5), path_));
    ASSERT_TRUE(*first->next(&element));
    // What is read at the same time would write the same file.
    const auto second = open(cached(range(5), path_));
    const auto refused = second->next(&element).status();
    EXPECT_EQ(refused.code(), StatusCode::kAlreadyExists);
    EXPECT_THAT(base::message_of(refused), HasSubstr(path_));
    EXPECT_FALSE(is_there());
    EXPECT_EQ(*count(first.get()), 4);
    EXPECT_TRUE(is_there());
    EXPECT_EQ(*count(second.get()), 5);
  }
  forget();
  {
    const auto given_up = open(cached(range(5), path_));
    ASSERT_TRUE(*given_up->next(&element));
  }
  EXPECT_FALSE(is_there());
  // What a process that was killed has left.
  write(path_ + ".part", "half of it");
  EXPECT_EQ(*count(cached(range(5), path_)), 5);
  EXPECT_EQ(*count(cached(range(0), path_)), 5);
  EXPECT_FALSE(std::ifstream(path_ + ".part").good());
}

TEST_F(CacheFiles, HavePositions) {
  Element element;
  const DatasetPtr dataset = cached(range(6), path_);
  for (const bool is_read : {false, true}) {
    const auto first = open(dataset);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(*first->next(&element));
    const std::string position = *first->save();
    EXPECT_EQ(*count(first.get()), 2);
    EXPECT_EQ(is_there(), true) << is_read;
    const auto second = open(dataset);
    ASSERT_TRUE(second->restore(position).ok());
    ASSERT_TRUE(*second->next(&element));
    EXPECT_EQ(element[0].tensor.data<const int64_t>()[0], 4);
    EXPECT_EQ(*count(second.get()), 1);
    const std::string end = *second->save();
    ASSERT_TRUE(first->restore(end).ok());
    EXPECT_EQ(*count(first.get()), 0);
  }
}

TEST_F(CacheFiles, OfOtherElementsAreRefused) {
  ASSERT_TRUE(count(cached(range(3), path_)).ok());
  const Status wrong = count(cached(mixed(3), path_)).status();
  EXPECT_EQ(wrong.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::message_of(wrong), HasSubstr("int64"));
  EXPECT_EQ(Iterator::make(cached(range(3), ""), {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(count(cached(range(3), testing::TempDir() + "/none/x")).status().code(),
            StatusCode::kNotFound);
}

TEST_F(CacheFiles, ThatAreCutOrHaveOtherBytesAreDataLoss) {
  ASSERT_TRUE(count(cached(mixed(3), path_)).ok());
  const std::string whole = content_of(path_);
  for (size_t size = 0; size < whole.size(); ++size) {
    write(path_, whole.substr(0, size));
    const Status cut = count(cached(mixed(3), path_)).status();
    ASSERT_EQ(cut.code(), StatusCode::kDataLoss) << size << ": " << cut;
    ASSERT_THAT(base::message_of(cut), HasSubstr(path_));
  }
  std::mt19937 random(3);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string other = whole;
    other[at] = static_cast<char>(other[at] ^ (1 + random() % 255));
    write(path_, other);
    const Status wrong = count(cached(mixed(3), path_)).status();
    ASSERT_EQ(wrong.code(), StatusCode::kDataLoss) << at << ": " << wrong;
  }
  write(path_, whole + data::record_of("more"));
  EXPECT_EQ(count(cached(mixed(3), path_)).status().code(), StatusCode::kDataLoss);
}

// Whoever wrote the file may have known how checksums are made.
TEST_F(CacheFiles, WithRightChecksumsGiveElementsOfTheirKindOrDataLoss) {
  ASSERT_TRUE(count(cached(mixed(3), path_)).ok());
  std::vector<std::string> records;
  std::string record;
  const auto reader = *data::RecordReader::open(path_);
  while (*reader->next(&record)) records.push_back(record);
  std::mt19937 random(4);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string other;
    for (const std::string& one : records) {
      std::string bytes = one;
      const uint32_t what = random() % 8;
      if (what == 0 && !bytes.empty()) bytes[random() % bytes.size()] = static_cast<char>(random());
      if (what == 1) bytes.resize(random() % (bytes.size() + 1));
      if (what == 2) bytes += static_cast<char>(random());
      if (what == 3) continue;
      other += data::record_of(bytes);
    }
    write(path_, other);
    const Status status = count(cached(mixed(3), path_)).status();
    if (status.ok()) continue;
    ++refused;
    ASSERT_TRUE(status.code() == StatusCode::kDataLoss ||
                status.code() == StatusCode::kFailedPrecondition)
        << status;
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace sidereal::dataset
