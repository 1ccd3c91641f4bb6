#include "sidereal/cli/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace sidereal::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Commands, EverySubcommandHasHelp) {
  for (const std::string name :
       {"train", "demo", "serve", "top", "ckpt", "graph", "ops", "version"}) {
    const Parsed parsed = parse({name, "--help"});
    EXPECT_EQ(parsed.exit_code, 0);
    EXPECT_FALSE(parsed.action);
    EXPECT_THAT(parsed.out, HasSubstr("Usage: sidereal " + name)) << name;
    EXPECT_THAT(parse({"--help"}).out, HasSubstr(name));
  }
}

TEST(Commands, TheHelpOfTrainNamesEveryOptionWithItsDefault) {
  const std::string help = parse({"train", "--help"}).out;
  for (const char* option : {"--data",         "--valid",           "--test",
                             "--format",       "--label",           "--numeric",
                             "--categorical",  "--delimiter",       "--hash-buckets",
                             "--id-space",     "--bad-rows",        "--shuffle-rows",
                             "--model",        "--embedding-dim",   "--hidden",
                             "--dropout",      "--cross-layers",    "--l2-embedding",
                             "--l2-linear",    "--l2-dense",        "--optimizer",
                             "--lr",           "--lr-decay",        "--batch-size",
                             "--epochs",       "--steps-in-flight", "--consistency",
                             "--patience",     "--restore-best",    "--warmup-steps",
                             "--metrics-by",   "--config",          "--seed",
                             "--ps",           "--workers",         "--ps-lanes",
                             "--worker-lanes", "--protocol",        "--cluster",
                             "--json",         "--losses",          "--quiet"}) {
    EXPECT_THAT(help, HasSubstr(option));
  }
  EXPECT_THAT(help, HasSubstr("=1024"));
  EXPECT_THAT(help, HasSubstr("400,400,400"));
  EXPECT_THAT(help, HasSubstr("Examples:"));
}

TEST(Commands, TheHelpOfADumpHasWhatItUses) {
  const std::string help = parse({"graph", "dump", "--help"}).out;
  for (const char* option :
       {"--stage model|plan|program=model", "--ps N=1", "--cluster JSON|FILE"}) {
    EXPECT_THAT(help, HasSubstr(option));
  }
  for (const char* other : {"to start here", "--secret-file", "--workers", "TEXT:{", "INT in"}) {
    EXPECT_THAT(help, ::testing::Not(HasSubstr(other))) << other;
  }
}

TEST(Commands, TheLaunchersOptionsOfServeAreHidden) {
  EXPECT_THAT(parse({"serve", "--help"}).out, ::testing::Not(HasSubstr("lifeline")));
  EXPECT_TRUE(parse({"serve", "--job", "ps", "--lifeline-fd", "4", "--report-fd", "3"}).action);
}

TEST(Commands, WrongUsageIsOneLineOnStandardErrorAndCodeTwo) {
  for (const std::vector<std::string>& line : std::vector<std::vector<std::string>>{
           {"train"},
           {"train", "--data", "x", "--model", "gpt"},
           {"train", "--data", "x", "--batch-size", "0"},
           {"train", "--data", "x", "--no-such-option"},
           {"serve"},
           {"brew"},
       }) {
    const Parsed parsed = parse(line);
    EXPECT_EQ(parsed.exit_code, 2);
    EXPECT_FALSE(parsed.action && parsed.exit_code == 0);
    EXPECT_THAT(parsed.error, StartsWith("sidereal: error: INVALID_ARGUMENT: "));
    EXPECT_EQ(std::count(parsed.error.begin(), parsed.error.end(), '\n'), 1) << parsed.error;
  }
  EXPECT_THAT(parse({"train", "--data", "x", "--model", "gpt"}).error, HasSubstr("deepfm"));
}

TEST(Commands, AFlagTakesNoNumber) {
  EXPECT_THAT(
      parse({"events", "--json=3"}).error,
      HasSubstr("'--json' is said or not, and has no value but true and false, not '3' (see "
                "sidereal events --help)"));
  EXPECT_EQ(parse({"events", "--json=false"}).error, "");
}

TEST(Commands, ATypoIsNamedWithWhatWasMeant) {
  const auto error = [](const std::vector<std::string>& line) { return parse(line).error; };
  EXPECT_THAT(error({"train", "--modle", "lr"}),
              HasSubstr("'sidereal train' has no option '--modle'; did you mean --model? (see "
                        "sidereal train --help)"));
  EXPECT_THAT(error({"train", "--modle=lr"}), HasSubstr("did you mean --model?"));
  EXPECT_THAT(error({"train", "--batch", "7"}), HasSubstr("did you mean --batch-size?"));
  EXPECT_THAT(error({"trian", "--model", "lr"}),
              HasSubstr("'sidereal' has no command 'trian'; did you mean train?"));
  EXPECT_THAT(error({"lunch", "x.py"}), HasSubstr("did you mean launch?"));
  EXPECT_THAT(error({"ckpt", "verfy", "x"}),
              HasSubstr("'sidereal ckpt' has no command 'verfy'; did you mean verify?"));
  EXPECT_THAT(error({"brew"}), HasSubstr("no command 'brew' (see"));
  EXPECT_THAT(error({"serve", "--lifeline-fdd", "1"}), ::testing::Not(HasSubstr("did you mean")));
}

TEST(Commands, AValueMayLookLikeAnOption) {
  EXPECT_TRUE(parse({"train", "--data", "x", "--label", "--odd"}).action);
  EXPECT_TRUE(parse({"launch", "x.py", "--anything"}).action);
}

TEST(Commands, VersionAndHelpAreFoundByTheirUsualNames) {
  EXPECT_THAT(parse({"--version"}).out, StartsWith("sidereal "));
  EXPECT_EQ(parse({"--version"}).exit_code, 0);
  EXPECT_EQ(parse({"help"}).out, parse({"--help"}).out);
  EXPECT_EQ(parse({"help", "train"}).out, parse({"train", "--help"}).out);
  EXPECT_EQ(parse({"help", "ckpt", "ls"}).out, parse({"ckpt", "ls", "--help"}).out);
  const Parsed launch = parse({"launch", "--help"});
  ASSERT_TRUE(launch.action);
  EXPECT_TRUE(launch.action().ok());
}

TEST(Commands, EveryCommandSaysItsVersion) {
  const std::string version = parse({"version", "--version"}).out;
  EXPECT_THAT(version, StartsWith("sidereal "));
  EXPECT_EQ(parse({"train", "--version"}).out, version);
  EXPECT_EQ(parse({"ckpt", "ls", "--version"}).out, version);
  EXPECT_THAT(parse({"train", "--help"}).out, ::testing::Not(HasSubstr("--version")));
}

TEST(Commands, OptionsAreATableForCompletions) {
  const Parsed parsed = parse({"options"});
  ASSERT_TRUE(parsed.action);
  EXPECT_THAT(parse({"--help"}).out, ::testing::Not(HasSubstr("all commands and their options")));
  ::testing::internal::CaptureStdout();
  ASSERT_TRUE(parsed.action().ok());
  const auto table = nlohmann::json::parse(::testing::internal::GetCapturedStdout());
  const auto named = [](const nlohmann::json& rows, const std::string& name) {
    for (const auto& row : rows) {
      if (row.value("name", "") == name) return row;
      for (const auto& one : row.value("names", nlohmann::json::array())) {
        if (one == name) return row;
      }
    }
    return nlohmann::json();
  };
  const auto train = named(table["commands"], "train");
  const auto protocol = named(train["options"], "--protocol");
  EXPECT_THAT(protocol["choices"], ::testing::Contains("star_server_lite"));
  EXPECT_EQ(named(train["options"], "--json")["value"], "FILE");
  EXPECT_TRUE(named(train["options"], "--json")["choices"].empty());
  EXPECT_EQ(named(train["options"], "--take-over")["value"], "");
  EXPECT_TRUE(named(named(table["commands"], "serve")["options"], "--lifeline-fd").is_null());
  EXPECT_FALSE(named(named(table["commands"], "ckpt")["commands"], "ls").is_null());
}

TEST(Commands, OfAnOptionGivenTwiceTheLastOneCounts) {
  const std::string path = ::testing::TempDir() + "columns.csv";
  std::ofstream(path) << "first,last\n1,2\n";
  const Parsed parsed = parse({"train", "--data", path, "--label", "first", "--label", "absent"});
  ASSERT_TRUE(parsed.action);
  EXPECT_THAT(base::message_of(parsed.action()), HasSubstr("absent"));
}

TEST(Commands, NoCommandShowsTheHelp) {
  const Parsed parsed = parse({});
  EXPECT_EQ(parsed.exit_code, 2);
  EXPECT_THAT(parsed.error, HasSubstr("train"));
}

TEST(Commands, AnErrorIsOneLine) {
  EXPECT_EQ(format_error(base::not_found("no\nfile")), "sidereal: error: NOT_FOUND: no file\n");
  EXPECT_EQ(format_error(base::not_found("\x1b[2J")), "sidereal: error: NOT_FOUND: \\x1b[2J\n");
}

TEST(Commands, AProtocolThatDoesNotExistIsRefusedWithThoseThatDo) {
  const Parsed parsed = parse({"demo", "--protocol", "rdma"});
  EXPECT_EQ(parsed.exit_code, 2);
  EXPECT_THAT(parsed.error, HasSubstr("grpc++"));
}

}  // namespace
}  // namespace sidereal::cli
