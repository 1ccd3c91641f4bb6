#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <map>

#include "sidereal/app/cluster.h"
#include "sidereal/app/testing/model.h"
#include "sidereal/cluster/protocol.h"
#include "sidereal/train/models.h"
#include "sidereal/train/trainer.h"

// Replicas that train in step, or within a bound of steps, on whole clusters in this process.
namespace sidereal::train {
namespace {

using cluster::Protocol;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 32;

/// A cluster as one line of the tests. Value type.
struct Cluster {
  int ps = 1;
  int ps_lanes = 1;
  int workers = 1;
  int worker_lanes = 1;
  [[nodiscard]] int replicas() const { return workers * worker_lanes; }
};

data::DataSpec rows(int64_t count, int64_t first_row = 0) {
  data::DataSpec spec;
  spec.format = data::Format::kSynthetic;
  spec.synthetic = {.rows = count, .first_row = first_row, .seed = 3, .vocabulary_max = 60};
  return spec;
}

CompiledModel deep_fm(const OptimizerDef& optimizer) {
  ModelOptions options;
  options.kind = "deepfm";
  options.schema = data::inspect(rows(1)).value();
  options.embedding_dim = 4;
  options.embedding_stddev = 0.1;
  options.hidden = {16, 8};
  options.optimizer = optimizer;
  options.seed = 5;
  return build_model(options).value();
}

std::unique_ptr<app::Cluster> start(const Cluster& shape,
                                    Protocol protocol = Protocol::kStarServer) {
  auto cluster = app::start_local_cluster({.ps = shape.ps,
                                           .workers = shape.workers,
                                           .ps_lanes = shape.ps_lanes,
                                           .worker_lanes = shape.worker_lanes,
                                           .spin_us = 0,
                                           .protocol = protocol,
                                           .in_process = true});
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return *std::move(cluster);
}

/// The values of all variables after a fit.
struct Trained {
  FitResult result;
  std::map<std::string, std::vector<float>> variables;
};

Trained train(const OptimizerDef& optimizer, const Cluster& shape, Protocol protocol,
              const data::DataSpec& data, const FitOptions& options) {
  Trained out;
  const auto cluster = start(shape, protocol);
  auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer));
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  if (!trainer.ok()) return out;
  auto fitted = (*trainer)->fit(data, options);
  EXPECT_TRUE(fitted.ok()) << fitted.status();
  if (!fitted.ok()) return out;
  out.result = *std::move(fitted);
  for (const ModelVariable& variable : (*trainer)->model().variables) {
    const auto value = (*trainer)->read_variable(variable.name);
    EXPECT_TRUE(value.ok()) << value.status();
    if (!value.ok()) continue;
    const auto floats = value->data<const float>();
    out.variables[variable.name].assign(floats.begin(), floats.end());
  }
  return out;
}

/// As `optimizer` trains one replica with all rows of `replicas`.
Trained train_alone(const OptimizerDef& optimizer, int replicas, const data::DataSpec& data,
                    int64_t epochs = 1) {
  return train(optimizer, {}, Protocol::kStarServer, data,
               {.batch_size = kBatch * replicas, .epochs = epochs});
}

void expect_near(const Trained& got, const Trained& want, double tolerance) {
  ASSERT_EQ(got.variables.size(), want.variables.size());
  for (const auto& [name, values] : want.variables) {
    const std::vector<float>& mine = got.variables.at(name);
    ASSERT_EQ(mine.size(), values.size()) << name;
    double worst = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(mine[i]) - values[i]));
    }
    EXPECT_LT(worst, tolerance) << name;
  }
}

class InStep : public testing::TestWithParam<Protocol> {};

TEST_P(InStep, replicas_are_one_with_all_their_rows) {
  constexpr int64_t kUpdates = 12;
  const Cluster shapes[] = {{.ps = 1, .ps_lanes = 1, .workers = 2, .worker_lanes = 1},
                            {.ps = 2, .ps_lanes = 2, .workers = 2, .worker_lanes = 2}};
  for (const char* kind : {"sgd", "adagrad", "adam"}) {
    const OptimizerDef optimizer = make_optimizer(kind, 0.02).value();
    for (const Cluster& shape : shapes) {
      SCOPED_TRACE(fmt::format("{}, {} ps", kind, shape.ps));
      const data::DataSpec data = rows(kBatch * shape.replicas() * kUpdates);
      const Trained got =
          train(optimizer, shape, GetParam(), data, {.batch_size = kBatch, .consistency = "sync"});
      EXPECT_EQ(got.result.steps, kUpdates * shape.replicas());
      EXPECT_EQ(got.result.updates, kUpdates);
      expect_near(got, train_alone(optimizer, shape.replicas(), data), 2e-6);
      if (HasFailure()) return;
    }
  }
}

TEST_P(InStep, a_replica_without_data_is_not_waited_for) {
  for (const char* const consistency : {"sync", "hybrid"}) {
    SCOPED_TRACE(consistency);
    // One replica has three batches, the last of one row, the other one two.
    const data::DataSpec data = rows(kBatch * 4 + 1);
    const Trained got = train(optimizer_of("adam", 0.01), {.ps = 2, .workers = 2}, GetParam(), data,
                              {.batch_size = kBatch, .epochs = 3, .consistency = consistency});
    EXPECT_EQ(got.result.rows, 3 * (kBatch * 4 + 1));
    EXPECT_EQ(got.result.steps, 3 * 5);
    EXPECT_EQ(got.result.updates, 3 * 3);
  }
}

TEST_P(InStep, spare_replicas_are_not_waited_for) {
  const data::DataSpec data = rows(kBatch * 3 * 10);
  const Trained got = train(optimizer_of("sgd", 0.1), {.ps = 2, .workers = 3}, GetParam(), data,
                            {.batch_size = kBatch, .consistency = "sync(2 of 3)"});
  EXPECT_EQ(got.result.rows, kBatch * 3 * 10);
  EXPECT_GE(got.result.updates, 10);
  EXPECT_LE(got.result.updates, 30);
}

TEST_P(InStep, no_steps_of_room_are_the_same_bits) {
  // Of two addends either order has the same sum.
  const Cluster shape{.ps = 2, .ps_lanes = 2, .workers = 2};
  const data::DataSpec data = rows(kBatch * shape.replicas() * 8);
  const OptimizerDef optimizer = optimizer_of("adam", 0.01);
  const Trained in_step =
      train(optimizer, shape, GetParam(), data, {.batch_size = kBatch, .consistency = "sync"});
  const Trained got = train(optimizer, shape, GetParam(), data,
                            {.batch_size = kBatch, .consistency = "bounded(0)"});
  EXPECT_EQ(got.variables, in_step.variables);
  EXPECT_EQ(got.result.updates, 8);
}

TEST_P(InStep, one_replica_of_hybrid_trains_as_if_there_were_no_others) {
  // Adam's updates of tables and dense variables have the number of the step.
  const data::DataSpec data = rows(kBatch * 6);
  const OptimizerDef optimizer = optimizer_of("adam", 0.05);
  const Cluster shape{.ps = 2, .ps_lanes = 2};
  const Trained got =
      train(optimizer, shape, GetParam(), data, {.batch_size = kBatch, .consistency = "hybrid"});
  const Trained want = train(optimizer, shape, GetParam(), data, {.batch_size = kBatch});
  EXPECT_EQ(got.variables, want.variables);
}

/// One lane has three batches in each epoch, the last of one row, the others two.
void expect_to_train_to_the_end(Protocol protocol, const std::string& consistency) {
  const Trained got =
      train(optimizer_of("adam", 0.01), {.ps = 2, .ps_lanes = 2, .workers = 2, .worker_lanes = 2},
            protocol, rows(kBatch * 8 + 1),
            {.batch_size = kBatch, .epochs = 3, .consistency = consistency});
  EXPECT_EQ(got.result.rows, 3 * (kBatch * 8 + 1));
  EXPECT_EQ(got.result.steps, 3 * 9);
  EXPECT_EQ(got.result.updates, got.result.steps);
}

class OnCopies : public testing::TestWithParam<Protocol> {};

TEST_P(OnCopies, one_replica_trains_as_without_them) {
  // Adam's updates have the number of the step; the last window has two steps.
  const data::DataSpec data = rows(kBatch * 8);
  for (const char* const kind : {"sgd", "adam"}) {
    const OptimizerDef optimizer = optimizer_of(kind, 0.05);
    const Cluster shape{.ps = 2, .ps_lanes = 2};
    const Trained want = train(optimizer, shape, GetParam(), data, {.batch_size = kBatch});
    for (const char* const consistency : {"geo(1)", "geo(3)", "geo(100)"}) {
      SCOPED_TRACE(fmt::format("{}, {}", kind, consistency));
      const Trained got = train(optimizer, shape, GetParam(), data,
                                {.batch_size = kBatch, .consistency = consistency});
      expect_near(got, want, 1e-5);
      EXPECT_EQ(got.result.updates, 8);
    }
  }
}

TEST_P(OnCopies, optimizers_go_on_from_one_loop_to_the_next) {
  const OptimizerDef optimizer = optimizer_of("adam", 0.05);
  const Cluster shape{.ps = 2, .ps_lanes = 2};
  std::vector<Trained> trained;
  for (const char* const consistency : {"async", "geo(3)"}) {
    // The rate has each epoch be a loop.
    trained.push_back(train(optimizer, shape, GetParam(), rows(kBatch * 4),
                            {.batch_size = kBatch,
                             .epochs = 3,
                             .consistency = consistency,
                             .learning_rate_decay = 0.9}));
  }
  expect_near(trained[1], trained[0], 1e-5);
}

TEST_P(OnCopies, replicas_of_all_lanes_train_to_the_end_of_their_data) {
  expect_to_train_to_the_end(GetParam(), "geo(2)");
}

TEST_P(OnCopies, more_replicas_than_rows_learn_all_the_same) {
  const Trained got = train(optimizer_of("adagrad", 0.1), {.workers = 3}, GetParam(), rows(2),
                            {.batch_size = kBatch, .epochs = 2, .consistency = "geo(4)"});
  EXPECT_EQ(got.result.rows, 4);
}

INSTANTIATE_TEST_SUITE_P(, OnCopies,
                         testing::Values(Protocol::kGrpc, Protocol::kGrpcPlusPlus,
                                         Protocol::kStarServer, Protocol::kStarServerLite),
                         app::test_name);

class WithinABound : public testing::TestWithParam<Protocol> {};

TEST_P(WithinABound, replicas_update_by_themselves_to_the_end_of_their_data) {
  expect_to_train_to_the_end(GetParam(), "bounded(1)");
}

TEST_P(WithinABound, one_replica_waits_for_none) {
  const data::DataSpec data = rows(kBatch * 6);
  const OptimizerDef optimizer = optimizer_of("adagrad", 0.05);
  const Trained got =
      train(optimizer, {}, GetParam(), data, {.batch_size = kBatch, .consistency = "bounded(2)"});
  const Trained want = train(optimizer, {}, GetParam(), data, {.batch_size = kBatch});
  EXPECT_EQ(got.variables, want.variables);
}

TEST_P(WithinABound, a_fit_that_is_cancelled_while_replicas_wait_ends_and_the_next_begins_anew) {
  const auto cluster = start({.ps = 2, .workers = 3}, GetParam());
  auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer_of("sgd", 0.01)));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  FitOptions options{.batch_size = kBatch, .epochs = 1'000'000, .consistency = "bounded(1)"};
  bool seen = false;
  options.on_progress = [&](const Progress&) { seen = true; };
  options.cancelled = [&] { return seen; };
  const Status status = (*trainer)->fit(rows(1000), options).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status;
  // And from one loop to the next.
  const data::DataSpec held_out = rows(200, 100'000);
  const auto fitted =
      (*trainer)->fit(rows(kBatch * 12),
                      {.batch_size = kBatch, .epochs = 2, .consistency = "bounded(1)"}, &held_out);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_EQ(fitted->steps, 24);
}

INSTANTIATE_TEST_SUITE_P(, WithinABound,
                         testing::Values(Protocol::kGrpc, Protocol::kGrpcPlusPlus,
                                         Protocol::kStarServer, Protocol::kStarServerLite),
                         app::test_name);

INSTANTIATE_TEST_SUITE_P(, InStep,
                         testing::Values(Protocol::kGrpc, Protocol::kGrpcPlusPlus,
                                         Protocol::kStarServer, Protocol::kStarServerLite),
                         app::test_name);

TEST(Synchronous, means_are_clipped_as_the_gradients_of_one_replica_are) {
  const Cluster shape{.ps = 2, .ps_lanes = 2, .workers = 2, .worker_lanes = 1};
  const data::DataSpec data = rows(kBatch * shape.replicas() * 6);
  const Trained free = train_alone(optimizer_of("sgd", 0.5), shape.replicas(), data);
  for (const Clipping& clipping :
       {Clipping{.value = 1e-3}, Clipping{.norm = 1e-2}, Clipping{.global_norm = 1e-2}}) {
    OptimizerDef optimizer = optimizer_of("sgd", 0.5);
    optimizer.clipping = clipping;
    SCOPED_TRACE(fmt::format("{} {} {}", clipping.value, clipping.norm, clipping.global_norm));
    const Trained want = train_alone(optimizer, shape.replicas(), data);
    EXPECT_NE(want.variables, free.variables);
    for (const Protocol protocol : {Protocol::kGrpc, Protocol::kStarServerLite}) {
      const Trained got =
          train(optimizer, shape, protocol, data, {.batch_size = kBatch, .consistency = "sync"});
      expect_near(got, want, 2e-6);
    }
  }
}

TEST(Synchronous, more_replicas_than_rows_learn_all_the_same) {
  for (const char* const consistency : {"sync", "bounded(1)"}) {
    SCOPED_TRACE(consistency);
    const Trained got =
        train(optimizer_of("adagrad", 0.1), {.workers = 3}, Protocol::kStarServer, rows(2),
              {.batch_size = kBatch, .epochs = 2, .consistency = consistency});
    EXPECT_EQ(got.result.rows, 4);
    // Replicas go on to the next epoch by themselves, one batch each.
    EXPECT_EQ(got.result.updates, consistency == std::string("sync") ? 2 : 4);
  }
}

TEST(Synchronous, epochs_with_validation_and_decay_go_on_from_each_other) {
  const auto cluster = start({.ps = 2, .workers = 2});
  auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer_of("adam", 0.01)));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const data::DataSpec held_out = rows(4000, 100'000);
  FitOptions options{
      .batch_size = 128, .epochs = 3, .consistency = "sync", .learning_rate_decay = 0.5};
  const auto fitted = (*trainer)->fit(rows(20'000), options, &held_out);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  ASSERT_EQ(fitted->validation.size(), 3U);
  EXPECT_GT(fitted->validation[2].auc, 0.6);
  EXPECT_EQ(fitted->updates, 3 * 79);
  // And without being in step.
  options.consistency = "async";
  const auto again = (*trainer)->fit(rows(2000), options);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->updates, again->steps);
}

TEST(Synchronous, what_cannot_be_in_step_is_refused) {
  const auto cluster = start({.workers = 2});
  auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer_of("sgd", 0.1)));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const auto error = [&](const FitOptions& options) {
    const Status status = (*trainer)->fit(rows(100), options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return base::message_of(status);
  };
  EXPECT_THAT(error({.steps_in_flight = 2, .consistency = "sync"}),
              HasSubstr("steps_in_flight is 2"));
  EXPECT_THAT(error({.consistency = "sync(2 of 3)"}), HasSubstr("2 replicas"));
  EXPECT_THAT(error({.consistency = "geo(0)"}), HasSubstr("geo(k) takes k from 1"));
  EXPECT_THAT(error({.consistency = "geo"}), HasSubstr("bounded(s), hybrid, geo(k)"));
}

TEST(Synchronous, a_fit_after_a_cancelled_one_begins_anew) {
  for (const char* const consistency : {"sync", "hybrid"}) {
    SCOPED_TRACE(consistency);
    const auto cluster = start({.ps = 2, .workers = 2});
    auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer_of("sgd", 0.01)));
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    FitOptions options{.batch_size = kBatch, .epochs = 1'000'000, .consistency = consistency};
    bool seen = false;
    options.on_progress = [&](const Progress&) { seen = true; };
    options.cancelled = [&] { return seen; };
    const Status status = (*trainer)->fit(rows(1000), options).status();
    EXPECT_EQ(status.code(), StatusCode::kCancelled) << status;
    const auto fitted =
        (*trainer)->fit(rows(kBatch * 8), {.batch_size = kBatch, .consistency = consistency});
    ASSERT_TRUE(fitted.ok()) << fitted.status();
    EXPECT_EQ(fitted->updates, 4);
  }
}

}  // namespace
}  // namespace sidereal::train
