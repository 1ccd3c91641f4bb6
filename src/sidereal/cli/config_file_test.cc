#include "sidereal/cli/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>

#include "sidereal/cli/arguments.h"
#include "sidereal/cli/commands.h"

namespace sidereal::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConfigFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    app_.require_subcommand(0, 1);
    command_ = app_.add_subcommand("train", "");
    command_->option_defaults()->always_capture_default()->multi_option_policy(
        CLI::MultiOptionPolicy::TakeLast);
    add_data_options(command_, &arguments_);
    add_model_options(command_, &arguments_);
    add_training_options(command_, &arguments_);
    add_cluster_options(command_, &arguments_);
    add_output_options(command_, &arguments_);
    add_config_option(command_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text) {
    const std::string path = folder_ + "/some.toml";
    std::ofstream(path) << text;
    return path;
  }
  Result<std::vector<std::string>> words(const std::string& text,
                                         const std::vector<std::string>& own = {}) {
    std::vector<std::string> all = {"train", "--config", write(text)};
    all.insert(all.end(), own.begin(), own.end());
    places_.clear();
    return with_config(app_, all, &places_);
  }
  void parse_words(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());
    app_.parse(words);
  }
  std::string error(const std::string& text) { return base::message_of(words(text).status()); }

  std::string folder_ = ::testing::TempDir() + "config_file_" +
                        ::testing::UnitTest::GetInstance()->current_test_info()->name();
  CLI::App app_;
  CLI::App* command_ = nullptr;
  TrainArguments arguments_;
  ConfigPlaces places_;
};

TEST_F(ConfigFile, SaysWhatACommandLineWouldSay) {
  const auto got = words(
      "# Comment\ndata = ['a.csv', 'b.csv']\nepochs = 3\nlr = 0.5\nhidden = [8, 4]\ninsecure = "
      "true\n"
      "model = \"lr\"\nweight = \"\"\nquiet = false\n\n[run]\nhow = 'done'\n[run.last]\nauc = 1\n");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(*got, ElementsAre("train", "--data=a.csv", "--data=b.csv", "--epochs=3", "--lr=0.5",
                                "--hidden=8,4", "--insecure", "--model=lr", "--quiet=false"));
  parse_words(*got);
  EXPECT_THAT(arguments_.data, ElementsAre("a.csv", "b.csv"));
  EXPECT_EQ(arguments_.epochs, 3);
  EXPECT_EQ(arguments_.learning_rate, 0.5);
  EXPECT_EQ(arguments_.hidden, "8,4");
  EXPECT_TRUE(arguments_.security.insecure);
  EXPECT_FALSE(arguments_.quiet);
}

TEST_F(ConfigFile, CountsLessThanTheCommandLine) {
  const auto got = words("data = 'a.csv'\nepochs = 3\nlr = 0.5\nquiet = false\nseed = 4\n",
                         {"--data", "--epochs", "--learning-rate=0.1", "-q"});
  ASSERT_TRUE(got.ok()) << got.status();
  // What looks like an option may be the value of the one before.
  EXPECT_THAT(*got, ElementsAre("train", "--epochs=3", "--seed=4", "--data", "--epochs",
                                "--learning-rate=0.1", "-q"));
  EXPECT_EQ(places_.size(), 2U);
}

TEST_F(ConfigFile, ErrorsHaveFileAndLine) {
  EXPECT_THAT(error("\n# c\nbatch-sise = 3\n"),
              AllOf(HasSubstr("some.toml:3: "), HasSubstr("no option 'batch-sise'"),
                    HasSubstr("did you mean batch-size?")));
  EXPECT_THAT(error("epochs = 1\nepochs = 2\n"), HasSubstr("some.toml:2: "));
  EXPECT_THAT(error("epochs = 1\ninsecure = 'yes'\n"),
              AllOf(HasSubstr("some.toml:2: "), HasSubstr("true or false")));
  EXPECT_THAT(error("epochs = true\n"), AllOf(HasSubstr("some.toml:1: "), HasSubstr("(N)")));
  EXPECT_THAT(error("epochs = [1, 2]\n"), HasSubstr("takes one value"));
  EXPECT_THAT(error("config = 'other.toml'\n"), HasSubstr("no option 'config'"));
  EXPECT_THAT(error("\n[model]\nkind = 'lr'\n"), HasSubstr("some.toml:2: "));
  EXPECT_THAT(error("data = ['a',\n'lr = 1',\n'insecure = 1']\ninsecure = 1\n"),
              HasSubstr("some.toml:4: 'insecure'"));
  EXPECT_THAT(error("'sy\\nc' = 1\nlr = [1, 2]\n"), HasSubstr("some.toml:1: "));
  const auto none = with_config(app_, {"train", "--config", folder_ + "/none.toml"}, &places_);
  EXPECT_THAT(base::message_of(none.status()), HasSubstr("none.toml: "));
  EXPECT_FALSE(with_config(app_, {"train", "--config"}, &places_).ok());
  EXPECT_FALSE(with_config(app_, {"train", "--config=a", "--config=b"}, &places_).ok());
}

TEST_F(ConfigFile, ValuesThatTheCommandRefusesHaveFileAndLineToo) {
  const std::string path = write("data = 'x.csv'\nmodel = 'gpt'\n");
  const Parsed refused = parse({"train", "--config", path});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.error, AllOf(HasSubstr("some.toml:2: "), HasSubstr("gpt")));
  const std::string text = write("data = '/dev/null'\nconsistency = 'geo(2)'\nformat = 'criteo'\n");
  const Parsed taken = parse({"train", "--config", text});
  ASSERT_TRUE(taken.action) << taken.error;
}

TEST_F(ConfigFile, ErrorsOfOtherOptionsHaveNoPlace) {
  const ConfigPlaces places = {{"--lr", "a.toml:3"}};
  const Status of_lr = base::invalid_argument("--lr: bad");
  EXPECT_THAT(base::message_of(at_place(of_lr, places, false)), HasSubstr("a.toml:3: --lr"));
  for (const char* other : {"--lr-decay: bad", "no file; see --lr"}) {
    EXPECT_EQ(base::message_of(at_place(base::invalid_argument("{}", other), places, false)),
              other);
  }
  EXPECT_THAT(base::message_of(at_place(base::invalid_argument("bad: --lr = x"), places, true)),
              HasSubstr("a.toml:3"));
}

TEST_F(ConfigFile, AllThatWasAskedIsAFileAgain) {
  parse_words({"train", "--data", "a b.csv", "--data", "c\".csv", "--lr", "0.25", "--hidden", "8,4",
               "--insecure", "--optimizer-param", "beta_1=0.8"});
  std::string text;
  for (const AskedOption& one : asked_options(*command_)) {
    EXPECT_NE(one.name, "config");
    if (!one.value.is_null()) text += one.name + " = " + toml_value(one.value) + "\n";
  }
  EXPECT_THAT(text, AllOf(HasSubstr("epochs = 1\n"), HasSubstr("insecure = true\n"),
                          HasSubstr("lr = 0.25\n"), HasSubstr("quiet = false\n"),
                          HasSubstr("dropout = 0\n"), HasSubstr("patience = 0\n")));
  const TrainArguments before = arguments_;
  arguments_ = TrainArguments();
  const auto again = words(text);
  ASSERT_TRUE(again.ok()) << again.status();
  command_->clear();
  parse_words(*again);
  EXPECT_EQ(arguments_.data, before.data);
  EXPECT_EQ(arguments_.learning_rate, before.learning_rate);
  EXPECT_EQ(arguments_.hidden, before.hidden);
  EXPECT_EQ(arguments_.optimizer_parameters, before.optimizer_parameters);
  EXPECT_TRUE(arguments_.security.insecure);
  EXPECT_THAT(arguments_.valid, IsEmpty());
}

}  // namespace
}  // namespace sidereal::cli
