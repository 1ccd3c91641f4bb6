#include "sidereal/service/voting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "sidereal/service/session.grpc.pb.h"

namespace sidereal::service {
namespace {

using membership::Ask;
using membership::Vote;
using testing::HasSubstr;

class VotingTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "voting_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string file() const { return folder_ + "/votes"; }
  Result<std::unique_ptr<Voting>> open(const std::string& file) {
    // Promises are over at once: what lasts is what was decided.
    return Voting::create({.lease_ns = 1, .file = file});
  }
  static Ask second(uint64_t life, uint64_t view, uint64_t held = 0) {
    return {.task = "/job:ps/replica:0/task:0",
            .life = life,
            .view = view,
            .held = held,
            .is_second = true};
  }
  void write(const std::string& text) { std::ofstream(file()) << text; }
  [[nodiscard]] std::string read() const {
    std::stringstream out;
    out << std::ifstream(file()).rdbuf();
    return out.str();
  }

  std::string folder_;
};

TEST_F(VotingTest, WhatWasDecidedOutlivesTheProcess) {
  {
    const auto voting = open(file());
    ASSERT_TRUE(voting.ok()) << voting.status();
    EXPECT_TRUE((*voting)->vote(second(0xabc, 3))->is_granted);
    EXPECT_EQ(read(), "sidereal votes 1\n3 0000000000000abc /job:ps/replica:0/task:0\nend 1\n");
    const auto again = open(file());
    EXPECT_EQ(again.status().code(), StatusCode::kFailedPrecondition) << again.status();
  }
  const auto voting = open(file());
  ASSERT_TRUE(voting.ok()) << voting.status();
  const Vote vote = *(*voting)->vote(second(0xdef, 2, 2));
  EXPECT_TRUE(vote.is_deposed);
  EXPECT_EQ(vote.life, 0xabc);
}

TEST_F(VotingTest, WithoutAFileNothingIsKept) {
  EXPECT_TRUE((*open(""))->vote(second(0xabc, 3))->is_granted);
  EXPECT_FALSE((*(*open(""))->vote(second(0xdef, 2, 2))).is_deposed);
}

TEST_F(VotingTest, OneThatCannotKeepWhatItSaysSaysNothing) {
  const auto voting = open(file());
  ASSERT_TRUE(voting.ok()) << voting.status();
  std::filesystem::remove_all(folder_);
  EXPECT_FALSE((*voting)->vote(second(1, 1)).ok());
  EXPECT_FALSE((*voting)->vote(second(1, 1)).ok()) << "nor when it is asked again";
  std::filesystem::create_directories(folder_);
  EXPECT_TRUE((*voting)->vote(second(1, 1))->is_granted);
  EXPECT_THAT(read(), HasSubstr("end 1"));
}

TEST_F(VotingTest, FilesThatAreNoneAreRefused) {
  const std::string line = "3 0000000000000abc ps\n";
  for (const std::string& text :
       {std::string(), std::string("x"), "sidereal votes 2\n" + line + "end 1\n",
        "sidereal votes 1\n" + line, "sidereal votes 1\n" + line + "end 2\n",
        "sidereal votes 1\n" + line + "end 1", "sidereal votes 1\n" + line + "end 1\nx",
        std::string("sidereal votes 1\n3 abc\nend 1\n"),
        std::string("sidereal votes 1\n3 xyz ps\nend 1\n"),
        std::string("sidereal votes 1\n0 abc ps\nend 1\n"),
        std::string("sidereal votes 1\n-3 abc ps\nend 1\n"),
        std::string("sidereal votes 1\n3 0 ps\nend 1\n"),
        std::string("sidereal votes 1\n3 abc \nend 1\n")}) {
    write(text);
    const auto voting = open(file());
    EXPECT_EQ(voting.status().code(), StatusCode::kDataLoss) << text;
    EXPECT_EQ(read(), text) << "it is left as it is";
  }
  write("sidereal votes 1\n" + line + "end 1\n");
  EXPECT_TRUE(open(file()).ok());
  EXPECT_FALSE(open(folder_ + "/not/there").ok());
}

TEST_F(VotingTest, MessagesSayAllOfIt) {
  const Ask ask{.task = "ps",
                .life = 1,
                .process = {.machine = "m", .pid = 2, .started = 3},
                .round = 4,
                .lease_ns = 5,
                .view = 6,
                .held = 7,
                .is_second = true,
                .gives_up = true,
                .gone = 8};
  session::v1::AskVoteRequest request;
  to_proto(ask, &request);
  EXPECT_EQ(from_proto(request), ask);
  const Vote vote{.is_granted = true,
                  .is_deposed = true,
                  .view = 1,
                  .life = 2,
                  .process = {.machine = "m", .pid = 3, .started = 4},
                  .wait_ns = 5};
  session::v1::AskVoteReply reply;
  to_proto(vote, &reply);
  EXPECT_EQ(from_proto(reply), vote);
}

}  // namespace
}  // namespace sidereal::service
