#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sidereal/app/cluster.h"
#include "sidereal/app/testing/model.h"
#include "sidereal/ckpt/checkpoint_reader.h"
#include "sidereal/ckpt/index.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/train/checkpointing.h"
#include "sidereal/train/models.h"
#include "sidereal/train/trainer.h"

// Trainings that end and go on, on clusters in this process.
namespace sidereal::train {
namespace {

using cluster::Protocol;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBatch = 32;
constexpr int64_t kSteps = 11;  // Of an epoch; the last batch is not full.
constexpr int64_t kEpochs = 2;

data::DataSpec stream(int64_t first_row, int64_t rows) {
  data::DataSpec spec;
  spec.format = data::Format::kSynthetic;
  spec.synthetic = {.rows = rows, .first_row = first_row, .seed = 3, .vocabulary_max = 60};
  return spec;
}
data::DataSpec rows() { return stream(0, kBatch * kSteps - 5); }

CompiledModel deep_fm(int64_t units = 8, const std::string& optimizer = "adam") {
  ModelOptions options;
  options.kind = "deepfm";
  options.schema = data::inspect(stream(0, 1)).value();
  options.embedding_dim = 4;
  options.embedding_stddev = 0.1;
  options.hidden = {units};
  options.dropout = 0.2;
  options.optimizer = make_optimizer(optimizer, 0.05, {}).value();
  options.seed = 5;
  auto model = build_model(options);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

struct Cluster {
  int ps = 2;
  int ps_lanes = 2;
  Protocol protocol = Protocol::kStarServer;
  int workers = 1;
};

/// A training from the start of a cluster to its end.
struct Running {
  explicit Running(const Cluster& how, CompiledModel model = deep_fm()) {
    auto started = app::start_local_cluster({.ps = how.ps,
                                             .workers = how.workers,
                                             .ps_lanes = how.ps_lanes,
                                             .spin_us = 0,
                                             .protocol = how.protocol,
                                             .in_process = true});
    EXPECT_TRUE(started.ok()) << started.status();
    cluster = *std::move(started);
    auto made = Trainer::create(cluster.get(), std::move(model));
    EXPECT_TRUE(made.ok()) << made.status();
    trainer = *std::move(made);
  }

  /// The bytes of all variables.
  std::map<std::string, std::string> values() const {
    std::map<std::string, std::string> out;
    for (const ModelVariable& variable : trainer->model().variables) {
      const auto value = trainer->read_variable(variable.name);
      EXPECT_TRUE(value.ok()) << value.status();
      if (value.ok()) {
        out[variable.name].assign(reinterpret_cast<const char*>(value->raw()), value->nbytes());
      }
    }
    return out;
  }

  std::unique_ptr<app::Cluster> cluster;
  std::unique_ptr<Trainer> trainer;
};

class ACheckpoint : public ::testing::TestWithParam<Protocol> {
 protected:
  ACheckpoint() : path_(::testing::TempDir() + fmt::format("training_{}", ::getpid())) {
    std::filesystem::remove_all(path_);
  }
  ~ACheckpoint() override { std::filesystem::remove_all(path_); }

  [[nodiscard]] FitOptions options(const std::string& save_every = "1000steps") {
    FitOptions out;
    out.batch_size = kBatch;
    out.epochs = kEpochs;
    out.checkpoints.directory = path_;
    out.checkpoints.save_every = save_every;
    out.on_message = [this](base::LogLevel level, const std::string& text) {
      if (level == base::LogLevel::kWarning) warnings_.push_back(text);
    };
    return out;
  }
  FitResult fit(const Running& run, const FitOptions& how) {
    auto fitted = run.trainer->fit(rows(), how);
    EXPECT_TRUE(fitted.ok()) << fitted.status();
    return fitted.ok() ? *std::move(fitted) : FitResult();
  }
  /// What a training leaves that nothing disturbs.
  std::map<std::string, std::string> undisturbed(const Cluster& how) {
    const Running run(how);
    FitOptions plain = options();
    plain.checkpoints = {};
    EXPECT_EQ(fit(run, plain).steps, kEpochs * kSteps);
    return run.values();
  }
  [[nodiscard]] std::string checkpoint(int64_t step) const {
    return fmt::format("{}/model.ckpt-{}", path_, step);
  }
  /// Cuts off the ends of its data files.
  void damage(int64_t step) const {
    for (const auto& file : std::filesystem::directory_iterator(path_)) {
      if (!file.path().string().starts_with(checkpoint(step) + ".data-")) continue;
      std::filesystem::resize_file(file.path(), std::filesystem::file_size(file.path()) / 2);
    }
  }

  const std::string path_;
  std::vector<std::string> warnings_;
};
INSTANTIATE_TEST_SUITE_P(Over, ACheckpoint,
                         ::testing::Values(Protocol::kGrpc, Protocol::kGrpcPlusPlus,
                                           Protocol::kStarServer, Protocol::kStarServerLite),
                         [](const auto& info) {
                           std::string name(cluster::name_of(info.param));
                           std::ranges::replace(name, '+', 'p');
                           return name;
                         });

TEST_P(ACheckpoint, is_gone_on_from_to_the_same_bits) {
  const Cluster how{.protocol = GetParam()};
  const auto expected = undisturbed(how);
  // Ends within the first epoch, then within the second one.
  for (const int64_t ends_at : {7, 15}) {
    const Running run(how);
    FitOptions part = options();
    part.steps_max = ends_at;
    fit(run, part);
  }
  const Running last(how);
  const FitResult result = fit(last, options());
  EXPECT_EQ(result.checkpoints.resumed_from, checkpoint(15));
  EXPECT_EQ(result.checkpoints.steps_before, 15);
  EXPECT_EQ(result.checkpoints.rows_before, 15 * kBatch - 5);
  EXPECT_EQ(result.checkpoints.rows_lost, 0);
  EXPECT_EQ(result.steps, kEpochs * kSteps - 15);
  EXPECT_EQ(result.epochs, kEpochs);
  // What its pulls miss is a matter of time over star_server_lite.
  if (GetParam() != Protocol::kStarServerLite) {
    EXPECT_EQ(last.values(), expected);
  }
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_P(ACheckpoint, holds_up_nothing_that_training_learns) {
  const Cluster how{.protocol = GetParam()};
  const auto expected = undisturbed(how);
  for (const char* const save_every : {"3steps", "epoch", "1s"}) {
    const Running run(how);
    FitOptions saving = options(save_every);
    saving.checkpoints.resume = "never";
    const FitResult result = fit(run, saving);
    EXPECT_EQ(result.steps, kEpochs * kSteps) << save_every;
    EXPECT_GE(result.checkpoints.saved, 1) << save_every;
    EXPECT_EQ(result.checkpoints.failed, 0) << result.checkpoints.first_failure;
    EXPECT_EQ(result.checkpoints.latest, checkpoint(kEpochs * kSteps)) << save_every;
    if (GetParam() != Protocol::kStarServerLite) {
      EXPECT_EQ(run.values(), expected) << save_every;
    }
  }
  EXPECT_THAT(warnings_, IsEmpty());
}

using ACheckpointOverOneProtocol = ACheckpoint;
INSTANTIATE_TEST_SUITE_P(Over, ACheckpointOverOneProtocol,
                         ::testing::Values(Protocol::kStarServer));

TEST_P(ACheckpointOverOneProtocol, of_what_has_changed_is_gone_on_from_to_the_same_bits) {
  const auto expected = undisturbed({});
  const auto base_of = [&](int64_t step) {
    const auto index = ckpt::read_index(sys::posix::create_disk().get(), checkpoint(step));
    EXPECT_TRUE(index.ok()) << index.status();
    return index.ok() ? index->base : "?";
  };
  FitOptions part = options("2steps");
  part.checkpoints.full_every = 3;
  part.checkpoints.keep = 2;
  part.steps_max = 9;
  fit(Running({}), part);
  EXPECT_EQ(base_of(8), "");
  EXPECT_EQ(base_of(9), "model.ckpt-8");
  EXPECT_FALSE(std::filesystem::exists(checkpoint(6) + ".index"));
  const Running last({});
  FitOptions how = options("2steps");
  how.checkpoints.full_every = 100;
  how.checkpoints.keep = 2;
  EXPECT_EQ(fit(last, how).checkpoints.resumed_from, checkpoint(9));
  EXPECT_EQ(last.values(), expected);
  EXPECT_EQ(base_of(11), "");
  EXPECT_EQ(base_of(13), "model.ckpt-11");
  EXPECT_FALSE(std::filesystem::exists(checkpoint(9) + ".index"));
  // The newest of a long chain has all there is.
  FitOptions more = options();
  const Running again({});
  const FitResult result = fit(again, more);
  EXPECT_EQ(result.checkpoints.steps_before, kEpochs * kSteps);
  EXPECT_EQ(again.values(), expected);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_P(ACheckpointOverOneProtocol, is_restored_on_other_parameter_servers) {
  const auto expected = undisturbed({});
  FitOptions part = options();
  part.steps_max = 7;
  fit(Running({.ps = 3, .ps_lanes = 2}), part);
  const Running last({.ps = 1, .ps_lanes = 1});
  EXPECT_EQ(fit(last, options()).checkpoints.steps_before, 7);
  EXPECT_EQ(last.values(), expected);
}

TEST_P(ACheckpointOverOneProtocol, is_gone_on_from_by_other_workers_with_each_row_once) {
  FitOptions part = options();
  part.steps_max = 3;
  const FitResult first = fit(Running({.workers = 2}), part);
  EXPECT_EQ(first.rows, 6 * kBatch);
  const FitResult last = fit(Running({.workers = 3}), options());
  EXPECT_EQ(first.rows + last.rows, kEpochs * (kBatch * kSteps - 5));
}

TEST_P(ACheckpointOverOneProtocol, of_replicas_in_step_is_gone_on_from_to_the_same_bits) {
  const Cluster how{.workers = 2};
  FitOptions in_step = options("6steps");
  in_step.consistency = "sync";
  std::map<std::string, std::string> expected;
  {
    const Running run(how);
    FitOptions plain = in_step;
    plain.checkpoints = {};
    fit(run, plain);
    expected = run.values();
  }
  FitOptions part = in_step;
  part.steps_max = 4;
  fit(Running(how), part);
  const Running last(how);
  const FitResult result = fit(last, in_step);
  EXPECT_EQ(result.checkpoints.steps_before, 8);
  EXPECT_EQ(last.values(), expected);
}

TEST_P(ACheckpointOverOneProtocol, that_is_damaged_is_named_and_the_one_before_taken) {
  const auto expected = undisturbed({});
  FitOptions part = options("3steps");
  part.steps_max = 9;
  fit(Running({}), part);
  damage(9);
  {
    const Running last({});
    const FitResult result = fit(last, options());
    EXPECT_EQ(result.checkpoints.resumed_from, checkpoint(6));
    EXPECT_EQ(last.values(), expected);
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr(checkpoint(9))));
  }
  for (const int64_t step : {3, 6, 22}) damage(step);
  const Running none({});
  const Status refused = none.trainer->fit(rows(), options()).status();
  EXPECT_EQ(refused.code(), StatusCode::kDataLoss) << refused;
  EXPECT_THAT(base::message_of(refused), HasSubstr("never"));
}

TEST_P(ACheckpointOverOneProtocol, of_another_model_is_refused_with_file_tensor_and_remedy) {
  FitOptions part = options();
  part.steps_max = 2;
  fit(Running({}), part);
  const auto refused = [&](CompiledModel model) {
    const Running run({}, std::move(model));
    return base::message_of(run.trainer->fit(rows(), options()).status());
  };
  EXPECT_THAT(refused(deep_fm(16)),
              AllOf(HasSubstr(checkpoint(2) + ".index"), HasSubstr("/kernel' is float32"),
                    HasSubstr("--resume never")));
  EXPECT_THAT(refused(deep_fm(8, "sgd")), HasSubstr("this one has no '"));
  FitOptions other = options();
  auto spec = rows();
  spec.synthetic.seed = 4;
  const Running run({});
  EXPECT_THAT(base::message_of(run.trainer->fit(spec, other).status()),
              HasSubstr("in the middle of data"));
}

TEST_P(ACheckpointOverOneProtocol, that_cannot_be_saved_is_told_and_training_goes_on) {
  std::filesystem::create_directories(checkpoint(6) + ".index/held");
  const Running run({});
  const FitResult result = fit(run, options("3steps"));
  EXPECT_EQ(result.steps, kEpochs * kSteps);
  EXPECT_EQ(result.checkpoints.failed, 1);
  EXPECT_EQ(result.checkpoints.saved, 7);
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr(checkpoint(6)), HasSubstr("step 6"))));
}

TEST_P(ACheckpointOverOneProtocol, keeps_the_curve_and_stops_when_that_says_so) {
  const auto valid = stream(10'000, 300);
  FitOptions how = options("epoch");
  how.epochs = 3;
  std::vector<EvalResult> expected;
  {
    const Running run({});
    FitOptions plain = how;
    plain.checkpoints = {};
    expected = run.trainer->fit(rows(), plain, &valid)->validation;
  }
  FitOptions first = how;
  first.epochs = 2;
  ASSERT_TRUE(Running({}).trainer->fit(rows(), first, &valid).ok());
  const auto result = Running({}).trainer->fit(rows(), how, &valid);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->validation.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(result->validation[i].auc, expected[i].auc) << i;
  EXPECT_EQ(result->steps, kSteps);
}

TEST(SaveEvery, is_a_time_a_number_of_steps_or_an_epoch) {
  EXPECT_EQ(parse_save_every("5m").value(), (SaveEvery{.seconds = 300}));
  EXPECT_EQ(parse_save_every("1.5h").value(), (SaveEvery{.seconds = 5400}));
  EXPECT_EQ(parse_save_every("1000steps").value(), (SaveEvery{.steps = 1000}));
  EXPECT_EQ(parse_save_every(" 20 steps ").value(), (SaveEvery{.steps = 20}));
  EXPECT_EQ(parse_save_every("epoch").value(), (SaveEvery{.epoch = true}));
  for (const char* const wrong : {"", "5", "m", "-5m", "0s", "0.5steps", "5 days", "1e300h"}) {
    const Status refused = parse_save_every(wrong).status();
    EXPECT_THAT(base::message_of(refused), HasSubstr("1000steps")) << wrong;
  }
}

}  // namespace
}  // namespace sidereal::train
