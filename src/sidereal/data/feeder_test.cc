#include "sidereal/data/feeder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/base/bytes.h"
#include "sidereal/data/prefetch.h"
#include "sidereal/data/reader.h"
#include "sidereal/data/testing/files.h"

namespace sidereal::data {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kAsk = "read question\n";

/// The line of a shell that answers: a frame of a kind, its number, and what it says.
std::string answer(char kind, const std::string& body, StatusCode code = StatusCode::kOk) {
  std::string line = "printf '";
  line += kind;
  const auto escapes = std::count(body.begin(), body.end(), '\\');
  char size[8];
  snprintf(size, sizeof(size), "\\%03o", static_cast<unsigned>(body.size() - escapes));
  line += size;
  char number[8];
  snprintf(number, sizeof(number), "\\%03o", static_cast<unsigned>(code));
  line += std::string("\\000\\000\\000") + number;
  for (int i = 0; i < 7; ++i) line += "\\000";
  return line + "%b' '" + body + "'\n";
}

/// Feeders of these tests are scripts that say what they are told to, whatever they are asked.
class FeederTest : public testing::Test {
 protected:
  ~FeederTest() override { unsetenv("SIDEREAL_PYTHON"); }

  void say(const std::string& lines) {
    const std::string path = folder_.write("feeder", "#!/bin/sh\n" + begin_ + lines);
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
    // Another environment, so that no feeder of before is taken.
    setenv("SIDEREAL_PYTHON", path.c_str(), 1);
    setenv("FEEDER_TEST", std::to_string(++count_).c_str(), 1);
    take_environment();
  }

  static Result<std::string> text(const Feed& feed, const std::atomic<bool>* stop = nullptr) {
    SR_ASSIGN_OR_RETURN(auto source, fed_bytes(feed, stop));
    std::string all;
    std::string part(3, '\0');
    while (true) {
      SR_ASSIGN_OR_RETURN(const size_t n, source->read(part));
      if (n == 0) return all;
      all.append(part, 0, n);
    }
  }
  static Result<std::string> text() { return text({.path = "s3://b/x"}); }

  [[nodiscard]] size_t begun() const {
    std::ifstream file(folder_.path("begun"));
    return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
  }

  TestFolder folder_;
  std::string begin_ = "echo >> '" + folder_.path("begun") + "'\n";
  static inline int count_ = 0;
};

const std::string kOpened = kAsk + answer('R', "{\"size\": 9}");

TEST_F(FeederTest, BytesComeInPieces) {
  say(kOpened + kAsk + answer('D', "one\\n") + kAsk + answer('D', "two\\n") + kAsk +
      answer('E', "") + kAsk);
  EXPECT_EQ(*text(), "one\ntwo\n");
}

TEST_F(FeederTest, ColumnsComeInFrames) {
  base::ByteWriter frame;
  // Of version 1, one row and one column, "x" of kind 5: 7, of which none is missing.
  for (const uint32_t field : {1, 1, 1}) frame.put(field);
  frame.put_string("x");
  for (const uint8_t field : {5, 0, 7}) frame.put(field);
  std::string escaped;
  for (const char c : frame.bytes()) escaped += fmt::format("\\0{:03o}", c);
  const auto columns = [&](const std::string& body) {
    const std::string head = "printf 'C\\" + fmt::format("{:03o}", body.size() / 5) +
                             "\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000'\n";
    return head + "printf '%b' '" + body + "'\n";
  };
  say(kOpened + kAsk + columns(escaped) + kAsk + answer('E', "") + kAsk);
  auto source = fed_columns({.path = "s3://b/x", .format = "parquet"}, nullptr);
  ASSERT_TRUE(source.ok()) << base::message_of(source.status());
  ColumnFrame found;
  const auto more = (*source)->next(&found);
  ASSERT_TRUE(more.ok()) << base::message_of(more.status());
  ASSERT_TRUE(*more);
  EXPECT_EQ(found.rows, 1);
  ASSERT_EQ(found.columns.size(), 1U);
  float value = 0;
  EXPECT_TRUE(found.columns.front().cells.number(0, &value));
  EXPECT_EQ(value, 7);
  EXPECT_FALSE(*(*source)->next(&found));
}

TEST_F(FeederTest, WrongColumnsAreAnError) {
  for (const std::string& lines : {answer('C', "nonsense"), answer('D', "text")}) {
    say(kOpened + kAsk + lines + kAsk);
    auto source = fed_columns({.path = "s3://b/x", .format = "parquet"}, nullptr);
    ASSERT_TRUE(source.ok());
    ColumnFrame found;
    const auto more = (*source)->next(&found);
    EXPECT_EQ(more.status().code(), StatusCode::kInternal) << lines;
    EXPECT_THAT(base::message_of(more.status()), HasSubstr("s3://b/x: what reads it"));
    // It is not asked again.
    source->reset();
    const size_t before = begun();
    EXPECT_FALSE(text().ok());
    EXPECT_EQ(begun(), before + 1);
  }
}

TEST_F(FeederTest, OneThatEndsIsAnError) {
  for (const std::string& lines :
       {std::string("exit 0\n"), kOpened, kOpened + kAsk + answer('D', "one\\n"),
        kOpened + kAsk + "printf 'D\\000\\000'\n"}) {
    say(lines);
    const auto found = text();
    EXPECT_EQ(found.status().code(), StatusCode::kUnavailable) << lines;
    EXPECT_THAT(base::message_of(found.status()), HasSubstr("s3://b/x: the process that reads it"));
  }
}

TEST_F(FeederTest, WhatIsNoAnswerIsAnError) {
  for (const std::string& lines : {std::string(kAsk) + "printf 'Python 2 is not for this'\n" + kAsk,
                                   kAsk + answer('R', "{}") + kAsk, kAsk + answer('R', "[") + kAsk,
                                   kAsk + answer('X', "an error without a code") + kAsk}) {
    say(lines);
    const auto found = text();
    EXPECT_EQ(found.status().code(), StatusCode::kInternal) << lines;
    EXPECT_THAT(base::message_of(found.status()), HasSubstr("SIDEREAL_PYTHON"));
  }
}

TEST_F(FeederTest, ErrorsHaveTheirCodes) {
  say(kAsk + answer('X', "s3://b/x: there is no such file", StatusCode::kNotFound) + kAsk);
  const auto found = text();
  EXPECT_EQ(found.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(base::message_of(found.status()), "s3://b/x: there is no such file");
}

TEST_F(FeederTest, SilenceEnds) {
  say(kOpened + kAsk + kAsk);
  const auto found = text({.path = "s3://b/x", .silence = milliseconds(150)});
  EXPECT_EQ(found.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(base::message_of(found.status()), HasSubstr("s3://b/x: nothing came for 0.15 s"));
}

TEST_F(FeederTest, StoppingEndsWaiting) {
  say(kOpened + kAsk + kAsk);
  std::atomic<bool> stop = false;
  auto found = std::async(std::launch::async, [&] { return text({.path = "s3://b/x"}, &stop); });
  stop = true;
  EXPECT_EQ(found.get().status().code(), StatusCode::kCancelled);
}

/// As the loop of a session does that is cancelled while a table is opened.
TEST_F(FeederTest, StoppingEndsOpening) {
  // The first answer is of the first file, whose header is looked at.
  say(std::string(kAsk) + kAsk);
  std::atomic<bool> stop = true;
  DataSpec spec;
  spec.format = Format::kCsv;
  spec.files = {"s3://b/x.csv"};
  ReadOptions options;
  options.stop = &stop;
  EXPECT_EQ(Reader::open(spec, options).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(file_bytes("s3://b/x", &stop).status().code(), StatusCode::kCancelled);
  const auto stopped = std::make_shared<std::atomic<bool>>(false);
  auto opened = std::async(std::launch::async,
                           [&] { return PrefetchingReader::open(spec, {}, stopped).status(); });
  *stopped = true;
  EXPECT_EQ(opened.get().code(), StatusCode::kCancelled);
}

TEST_F(FeederTest, IsKeptWhileTheEnvironmentStays) {
  say("while read question; do\n" + answer('R', "7") + "done\n");
  EXPECT_EQ(*fed_size("s3://b/x"), 7);
  EXPECT_EQ(*fed_size("s3://b/y"), 7);
  EXPECT_EQ(begun(), 1U);
  setenv("FEEDER_TEST", "other", 1);
  EXPECT_EQ(*fed_size("s3://b/x"), 7);
  EXPECT_EQ(begun(), 1U);
  take_environment();
  EXPECT_EQ(*fed_size("s3://b/x"), 7);
  EXPECT_EQ(begun(), 2U);
}

TEST_F(FeederTest, IsKeptAfterErrorsOfFiles) {
  say("while read question; do\n" + answer('X', "there is no such file", StatusCode::kNotFound) +
      "done\n");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(text().status().code(), StatusCode::kNotFound);
  EXPECT_EQ(fed_size("s3://b/x").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(begun(), 1U);
}

TEST_F(FeederTest, ListsFiles) {
  say(kAsk + answer('R', "[\"s3://b/1\", \"s3://b/2\"]") + kAsk);
  EXPECT_THAT(*fed_list("s3://b/*"), ElementsAre("s3://b/1", "s3://b/2"));
  say(kAsk + answer('R', "[]") + kAsk);
  EXPECT_EQ(fed_list("s3://b/*").status().code(), StatusCode::kNotFound);
}

TEST_F(FeederTest, AProgramThatIsNotThereIsNamed) {
  for (const char* program : {"/nowhere/python", "python-of-nowhere"}) {
    setenv("SIDEREAL_PYTHON", program, 1);
    take_environment();
    const auto found = text();
    EXPECT_EQ(found.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(base::message_of(found.status()),
                HasSubstr(std::string("'") + program + "' cannot be started"));
  }
}

TEST_F(FeederTest, OthersMayChangeTheEnvironmentMeanwhile) {
  say(kOpened + kAsk);
  std::atomic<bool> done = false;
  std::thread other([&] {
    for (int i = 0; !done; ++i) {
      setenv(("FEEDER_TEST_" + std::to_string(i % 1000)).c_str(), std::to_string(i).c_str(), 1);
    }
  });
  // Each has a feeder of its own.
  std::vector<std::unique_ptr<ByteSource>> open;
  for (int i = 0; i < 20; ++i) {
    auto source = fed_bytes({.path = "s3://b/x"}, nullptr);
    EXPECT_TRUE(source.ok()) << source.status();
    if (source.ok()) open.push_back(*std::move(source));
  }
  done = true;
  other.join();
  EXPECT_EQ(begun(), 20U);
  for (int i = 0; i < 1000; ++i) unsetenv(("FEEDER_TEST_" + std::to_string(i)).c_str());
}

}  // namespace
}  // namespace sidereal::data
