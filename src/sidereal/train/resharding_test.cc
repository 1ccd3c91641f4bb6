#include "sidereal/train/resharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <random>

#include "sidereal/app/cluster.h"
#include "sidereal/app/server.h"
#include "sidereal/app/testing/model.h"
#include "sidereal/app/testing/ports.h"
#include "sidereal/cluster/protocol.h"
#include "sidereal/train/models.h"
#include "sidereal/train/trainer.h"

// Parts of a model that go from server to server while it trains: real servers of this process.
namespace sidereal::train {
namespace {

using cluster::Protocol;
using service::JobCommand;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Clock = std::chrono::steady_clock;
using Kind = JobCommand::Kind;

constexpr int64_t kBatch = 64;
constexpr int64_t kSteps = 100;
constexpr std::chrono::seconds kLong(90);

data::DataSpec stream() {
  data::DataSpec spec;
  spec.format = data::Format::kSynthetic;
  spec.synthetic = {.rows = kBatch * kSteps, .seed = 3, .vocabulary_max = 60};
  return spec;
}

CompiledModel deep_fm() {
  ModelOptions options;
  options.kind = "deepfm";
  options.schema = data::inspect(stream()).value();
  options.embedding_dim = 4;
  options.embedding_stddev = 0.1;
  options.hidden = {16, 8};
  options.dropout = 0.2;
  options.optimizer = optimizer_of("adam", 0.01);
  options.seed = 5;
  return build_model(options).value();
}

/// Commands, one after the other, each until it has been carried out or refused. One whose fit ends
/// before is given again in the next one.
class Script final : public service::JobCommands {
 public:
  static constexpr int kNever = std::numeric_limits<int>::max();
  struct Line {
    JobCommand command;
    int looks = kNever;  ///< After so many it is cancelled.
    Status status = base::internal("it has not ended");
    std::string text = {};
  };

  explicit Script(std::vector<Line> lines) : lines_(std::move(lines)) {}

  std::optional<JobCommand> next() override {
    EXPECT_FALSE(is_running_);
    if (at_ == lines_.size()) return std::nullopt;
    is_running_ = true;
    looks_ = 0;
    return lines_[at_].command;
  }
  bool is_cancelled() override { return ++looks_ > lines_[at_].looks; }
  void tell(const service::JobCommandProgress& progress) override {
    EXPECT_LE(0, progress.bytes);
    told_ = progress;
  }
  void end(const Status& status, const std::string& text) override {
    EXPECT_TRUE(is_running_);
    is_running_ = false;
    if (base::message_of(status).find("the training ended") != std::string_view::npos) {
      ++unfinished_;
      return;
    }
    lines_[at_].status = status;
    lines_[at_].text = text;
    ++at_;
  }

  /// Whether a fit ended before a command, since this was last asked.
  bool was_cut_short() { return std::exchange(unfinished_, 0) > 0; }
  [[nodiscard]] bool is_over() const { return at_ == lines_.size(); }
  [[nodiscard]] const std::vector<Line>& lines() const { return lines_; }

 private:
  std::vector<Line> lines_;
  size_t at_ = 0;
  bool is_running_ = false;
  int unfinished_ = 0;
  int looks_ = 0;
  service::JobCommandProgress told_;
};

Script::Line scale(int ps) { return {.command = {.kind = Kind::kScale, .ps = ps}}; }
Script::Line drain(int ps) { return {.command = {.kind = Kind::kDrain, .ps = ps}}; }
Script::Line rebalance() { return {.command = {.kind = Kind::kRebalance}}; }

FitOptions options_of(const std::string& consistency) {
  FitOptions options;
  options.batch_size = kBatch;
  options.consistency = consistency;
  options.on_message = [](base::LogLevel, const std::string&) {};
  return options;
}

/// The epochs of fits, one after the other.
using Fits = std::vector<int64_t>;

/// Fits until the script is over. A fit that was too short for a command is followed by a longer
/// one.
Fits play(Trainer* trainer, const std::shared_ptr<Script>& script, FitOptions options,
          int64_t* moves = nullptr) {
  options.commands = script;
  options.epochs = 8;
  const auto until = Clock::now() + kLong;
  Fits fits;
  while (!script->is_over() && Clock::now() < until) {
    const auto fitted = trainer->fit(stream(), options);
    EXPECT_TRUE(fitted.ok()) << fitted.status();
    if (!fitted.ok()) break;
    EXPECT_EQ(fitted->rows, options.epochs * kBatch * kSteps);
    if (moves != nullptr) *moves += fitted->moves;
    fits.push_back(options.epochs);
    if (script->was_cut_short()) options.epochs *= 2;
  }
  EXPECT_TRUE(script->is_over());
  return fits;
}

/// The bytes of each variable.
std::map<std::string, std::string> values_of(Trainer* trainer) {
  std::map<std::string, std::string> out;
  for (const ModelVariable& variable : trainer->model().variables) {
    const auto value = trainer->read_variable(variable.name);
    EXPECT_TRUE(value.ok()) << value.status();
    if (!value.ok()) continue;
    out[variable.name].assign(reinterpret_cast<const char*>(value->raw()), value->nbytes());
  }
  return out;
}

/// What a training without any command comes to in the same fits.
std::map<std::string, std::string> undisturbed(const Fits& fits, FitOptions options) {
  const auto cluster =
      app::start_local_cluster({.ps = 1, .spin_us = 0, .in_process = true}).value();
  const auto trainer = Trainer::create(cluster.get(), deep_fm()).value();
  for (const int64_t epochs : fits) {
    options.epochs = epochs;
    EXPECT_TRUE(trainer->fit(stream(), options).ok());
  }
  return values_of(trainer.get());
}

void expect_same(const std::map<std::string, std::string>& a,
                 const std::map<std::string, std::string>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, bytes] : a) EXPECT_TRUE(bytes == b.at(name)) << name << " differs";
}

std::unique_ptr<app::Cluster> start(int ps, Protocol protocol, int workers = 1) {
  return app::start_local_cluster({.ps = ps,
                                   .workers = workers,
                                   .ps_lanes = 2,
                                   .spin_us = 0,
                                   .protocol = protocol,
                                   .in_process = true})
      .value();
}

class Moves : public testing::TestWithParam<Protocol> {};

TEST_P(Moves, a_model_goes_from_server_to_server_and_learns_the_same_to_the_bit) {
  const auto cluster = start(3, GetParam());
  const auto trainer = Trainer::create(cluster.get(), deep_fm(), {}, {.start_ps = 2}).value();
  const auto script = std::make_shared<Script>(
      std::vector<Script::Line>{scale(3), drain(1), scale(2), rebalance()});
  const FitOptions options = options_of("async");
  int64_t moves = 0;
  const Fits fits = play(trainer.get(), script, options, &moves);
  for (const Script::Line& line : script->lines()) EXPECT_TRUE(line.status.ok()) << line.status;
  EXPECT_GE(moves, 3);
  EXPECT_THAT(script->lines()[0].text, HasSubstr("from 2 to 3 parameter servers"));
  EXPECT_THAT(script->lines()[0].text, HasSubstr("training stood still for"));
  expect_same(values_of(trainer.get()), undisturbed(fits, options));
  const auto evaluated = trainer->evaluate(stream(), options);
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_GT(evaluated->auc, 0.6);
}

INSTANTIATE_TEST_SUITE_P(, Moves,
                         testing::Values(Protocol::kGrpc, Protocol::kGrpcPlusPlus,
                                         Protocol::kStarServer, Protocol::kStarServerLite),
                         app::test_name);

TEST(Resharding, commands_that_are_cancelled_anywhere_leave_nothing) {
  std::mt19937 random(11);
  std::vector<Script::Line> lines;
  for (int i = 0; i < 8; ++i) {
    Script::Line line = scale(3);
    line.looks = std::uniform_int_distribution<int>(0, 4)(random);
    lines.push_back(line);
  }
  // What was left there would be in the way of this.
  lines.push_back(scale(3));
  const auto cluster = start(3, Protocol::kStarServer);
  const auto trainer = Trainer::create(cluster.get(), deep_fm(), {}, {.start_ps = 2}).value();
  const auto script = std::make_shared<Script>(lines);
  const FitOptions options = options_of("async");
  const Fits fits = play(trainer.get(), script, options);
  int cancelled = 0;
  for (const Script::Line& line : script->lines()) {
    cancelled += line.status.code() == StatusCode::kCancelled ? 1 : 0;
    EXPECT_TRUE(line.looks != Script::kNever || line.status.ok()) << line.status;
  }
  EXPECT_GE(cancelled, 3);
  expect_same(values_of(trainer.get()), undisturbed(fits, options));
}

TEST(Resharding, says_what_cannot_be_done_and_goes_on) {
  const auto cluster = start(2, Protocol::kStarServer);
  const auto trainer = Trainer::create(cluster.get(), deep_fm()).value();
  const auto script = std::make_shared<Script>(
      std::vector<Script::Line>{scale(0), scale(3), drain(5), drain(0), scale(2)});
  const FitOptions options = options_of("async");
  int64_t moves = 0;
  const Fits fits = play(trainer.get(), script, options, &moves);
  EXPECT_EQ(moves, 0);
  const std::vector<Script::Line>& lines = script->lines();
  const auto said = [&](size_t i) { return base::message_of(lines[i].status); };
  EXPECT_THAT(said(0), HasSubstr("not on 0"));
  EXPECT_THAT(said(1), HasSubstr("the cluster has 2 parameter servers"));
  EXPECT_THAT(said(2), HasSubstr("has no /job:ps/task:5"));
  EXPECT_THAT(said(3), HasSubstr("drain another one"));
  EXPECT_THAT(lines[4].text, HasSubstr("nothing is to be moved"));
  expect_same(values_of(trainer.get()), undisturbed(fits, options));
}

TEST(Resharding, every_way_to_be_consistent_goes_on_where_parts_have_moved) {
  const auto cluster = start(2, Protocol::kStarServer, 2);
  for (const std::string consistency : {"sync", "bounded(2)", "hybrid", "geo(4)"}) {
    SCOPED_TRACE(consistency);
    const auto trainer = Trainer::create(cluster.get(), deep_fm(), {}, {.start_ps = 1}).value();
    const auto script = std::make_shared<Script>(std::vector<Script::Line>{scale(2), drain(1)});
    const FitOptions options = options_of(consistency);
    play(trainer.get(), script, options);
    for (const Script::Line& line : script->lines()) EXPECT_TRUE(line.status.ok()) << line.status;
    const auto evaluated = trainer->evaluate(stream(), options);
    ASSERT_TRUE(evaluated.ok()) << evaluated.status();
    EXPECT_GT(evaluated->auc, 0.6);
  }
}

/// Servers at ports that are known before, so that each begins and ends when a test says so.
class Servers : public testing::Test {
 protected:
  Servers() {
    cluster::ClusterSpec spec;
    const std::vector<std::string> all = ports_.addresses();
    EXPECT_TRUE(spec.add_job("ps", std::vector<std::string>{all[0], all[1]}).ok());
    EXPECT_TRUE(spec.add_job("worker", std::vector<std::string>{all[2]}).ok());
    cluster_ = app::remote_cluster(spec).value();
  }
  void begin(const std::string& job, int task) {
    app::ServerOptions options;
    options.job = job;
    options.task = task;
    options.listen = cluster_->spec().task_address(job, task).value();
    options.protocol = Protocol::kStarServer;
    options.data.spin_us = 0;
    auto server = app::Server::create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    servers_[app::task_name(job, task)] = *std::move(server);
  }

  app::ReservedPorts ports_{3};
  std::unique_ptr<app::Cluster> cluster_;
  std::map<std::string, std::unique_ptr<app::Server>> servers_;
};

TEST_F(Servers, one_is_not_there_before_it_is_needed_nor_after) {
  begin("ps", 0);
  begin("worker", 0);
  const auto trainer = Trainer::create(cluster_.get(), deep_fm(), {}, {.start_ps = 1}).value();
  const FitOptions options = options_of("async");
  const auto early = std::make_shared<Script>(std::vector<Script::Line>{scale(2)});
  Fits fits = play(trainer.get(), early, options);
  EXPECT_THAT(base::message_of(early->lines()[0].status), HasSubstr("task:1"));
  EXPECT_EQ(early->lines()[0].status.code(), StatusCode::kUnavailable);
  begin("ps", 1);
  const auto there = std::make_shared<Script>(std::vector<Script::Line>{scale(2), drain(1)});
  std::ranges::copy(play(trainer.get(), there, options), std::back_inserter(fits));
  for (const Script::Line& line : there->lines()) EXPECT_TRUE(line.status.ok()) << line.status;
  servers_["/job:ps/task:1"]->stop();
  ASSERT_TRUE(trainer->fit(stream(), options).ok());
  fits.push_back(1);
  expect_same(values_of(trainer.get()), undisturbed(fits, options));
}

TEST(Autoscaled, a_model_is_on_as_many_servers_as_are_allowed) {
  const auto cluster = start(3, Protocol::kStarServer);
  const auto trainer = Trainer::create(cluster.get(), deep_fm(), {}, {.start_ps = 1}).value();
  FitOptions options = options_of("async");
  options.autoscale = "2-4";
  const auto refused = trainer->fit(stream(), options);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(refused.status()), HasSubstr("3 parameter servers"));
  options.autoscale = "2-3";
  std::string told;
  options.on_message = [&](base::LogLevel level, const std::string& text) {
    if (level == base::LogLevel::kInfo) told = text;
  };
  const auto until = Clock::now() + kLong;
  Fits fits;
  const std::string wanted = "from 1 to 2 parameter servers";
  const auto has_moved = [&] { return told.find(wanted) != std::string::npos; };
  for (options.epochs = 8; !has_moved() && Clock::now() < until; options.epochs *= 2) {
    const auto fitted = trainer->fit(stream(), options);
    ASSERT_TRUE(fitted.ok()) << fitted.status();
    fits.push_back(options.epochs);
  }
  EXPECT_THAT(told, HasSubstr(wanted));
  expect_same(values_of(trainer.get()), undisturbed(fits, options_of("async")));
}

}  // namespace
}  // namespace sidereal::train
