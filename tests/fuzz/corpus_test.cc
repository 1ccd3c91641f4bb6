#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

// Inputs found by fuzzing, and those people wrote down, read once more by every build.

#define SR_FUZZ_ENTRY(name) void fuzz_##name(std::string_view input);
#include "fuzz_targets.inc"
#undef SR_FUZZ_ENTRY

namespace {

using Target = std::function<void(std::string_view)>;

const std::map<std::string, Target>& targets() {
  static const auto* const all = new std::map<std::string, Target>{
#define SR_FUZZ_ENTRY(name) {#name, fuzz_##name},
#include "fuzz_targets.inc"
#undef SR_FUZZ_ENTRY
  };
  return *all;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Corpus, OfEveryTargetIsReadWithoutACrash) {
  for (const auto& [name, target] : targets()) {
    int inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator("tests/corpus/" + name)) {
      SCOPED_TRACE(entry.path());
      const std::string input = contents(entry.path());
      target(input);
      // Cut and changed as well, so that a few inputs go a long way.
      for (size_t n = 1; n < input.size(); n += 1 + input.size() / 64) {
        target(std::string_view(input).substr(0, n));
        std::string changed = input;
        changed[n] = static_cast<char>(changed[n] ^ (1 << (n % 8)));
        target(changed);
      }
      ++inputs;
    }
    EXPECT_GT(inputs, 0) << "tests/corpus/" << name << " has no input";
  }
}

TEST(Corpus, HasNoFolderWithoutATarget) {
  for (const auto& entry : std::filesystem::directory_iterator("tests/corpus")) {
    EXPECT_TRUE(targets().contains(entry.path().filename())) << entry.path();
  }
}

}  // namespace
