#include "tests/fuzz/conversations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/script_target.h"

namespace sidereal::fuzz {
namespace {

using ::testing::ElementsAreArray;

/// Everything that is waited for comes.
constexpr std::chrono::seconds kLong(20);

/// What stands in the corpus of `target` under `name`; written first when that was asked for.
std::string in_corpus(const std::string& target, const std::string& name,
                      const std::string& bytes) {
  const std::filesystem::path path = "tests/corpus/" + target + "/" + name;
  if (std::getenv("SIDEREAL_WRITE_CORPUS") != nullptr) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Conversations, are_those_of_the_corpus) {
  const char* const how = "is another; SIDEREAL_WRITE_CORPUS=1 build/dev/tests/fuzz_test writes it";
  for (const auto& [name, talk] : session_conversations()) {
    const std::string bytes = to_bytes(talk.script);
    EXPECT_EQ(in_corpus("session_calls", name, bytes), bytes) << name << " " << how;
  }
  for (const auto& [name, bytes] : tensors_in_pieces()) {
    EXPECT_EQ(in_corpus("tensor_pieces", name, bytes), bytes) << name << " " << how;
  }
}

template <class Run>
void expect_well(const std::map<std::string, Conversation>& talks, Run run) {
  for (const auto& [name, talk] : talks) {
    std::vector<std::pair<int, size_t>> outcomes;
    for (const Outcome& call : run(to_bytes(talk.script), kLong)) {
      outcomes.emplace_back(call.code, call.replies.size());
    }
    EXPECT_THAT(outcomes, ElementsAreArray(talk.outcomes)) << name;
  }
}

TEST(Conversations, of_sessions_go_well) {
  expect_well(session_conversations(), &run_session_script);
}

TEST(Scripts, come_back_from_their_bytes_whatever_those_are) {
  for (const auto& [name, talk] : session_conversations()) {
    const std::string bytes = to_bytes(talk.script);
    EXPECT_EQ(to_bytes(parse_script(bytes)), bytes) << name;
    for (size_t n = 0; n < bytes.size(); n += 7) {
      const std::string again = to_bytes(parse_script(bytes.substr(n)));
      EXPECT_EQ(to_bytes(parse_script(again)), again) << name << " from " << n;
    }
  }
}

}  // namespace
}  // namespace sidereal::fuzz
