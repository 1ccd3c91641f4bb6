#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <set>

#include "sidereal/app/cluster.h"
#include "sidereal/app/server.h"
#include "sidereal/app/testing/model.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/cluster/protocol.h"
#include "sidereal/ops/ops.h"
#include "sidereal/train/layers.h"
#include "sidereal/train/models.h"
#include "sidereal/train/trainer.h"

// Whole clusters in this process, trained as by a user: real lanes, real TCP, real sessions.
namespace sidereal::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int64_t kBatch = 64;
constexpr int64_t kSteps = 25;

data::DataSpec stream(int64_t first_row, int64_t rows) {
  data::DataSpec spec;
  spec.format = data::Format::kSynthetic;
  spec.synthetic = {.rows = rows, .first_row = first_row, .seed = 3, .vocabulary_max = 60};
  return spec;
}

CompiledModel deep_fm(const OptimizerDef& optimizer, double dropout = 0.2) {
  ModelOptions options;
  options.kind = "deepfm";
  options.schema = data::inspect(stream(0, 1)).value();
  options.embedding_dim = 4;
  options.embedding_stddev = 0.1;
  options.hidden = {16, 8};
  options.dropout = dropout;
  options.optimizer = optimizer;
  options.seed = 5;
  auto model = build_model(options);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

using cluster::Protocol;

std::unique_ptr<app::Cluster> start(int ps, int ps_lanes, int workers = 1,
                                    Protocol protocol = Protocol::kStarServer) {
  auto cluster = app::start_local_cluster({.ps = ps,
                                           .workers = workers,
                                           .ps_lanes = ps_lanes,
                                           .spin_us = 0,
                                           .protocol = protocol,
                                           .in_process = true});
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return *std::move(cluster);
}

std::unique_ptr<app::Cluster> remote(const std::vector<std::string>& ps,
                                     const std::vector<std::string>& worker) {
  cluster::ClusterSpec spec;
  EXPECT_TRUE(spec.add_job("ps", ps).ok() && spec.add_job("worker", worker).ok());
  auto cluster = app::remote_cluster(std::move(spec));
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return *std::move(cluster);
}

/// What a run leaves behind, to the bit.
struct Outcome {
  std::vector<float> losses;
  std::map<std::string, std::string> variables;  ///< Bytes by name.
  std::vector<float> predictions;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome train_once(const OptimizerDef& optimizer, int ps, int ps_lanes, int64_t steps_in_flight = 1,
                   Protocol protocol = Protocol::kStarServer) {
  Outcome out;
  const auto cluster = start(ps, ps_lanes, 1, protocol);
  auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer));
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  if (!trainer.ok()) return out;
  FitOptions options;
  options.batch_size = kBatch;
  options.steps_in_flight = steps_in_flight;
  options.record_losses = true;
  const auto fitted = (*trainer)->fit(stream(0, kBatch * kSteps), options);
  EXPECT_TRUE(fitted.ok()) << fitted.status();
  if (!fitted.ok()) return out;
  EXPECT_EQ(fitted->steps, kSteps);
  out.losses = fitted->losses;
  for (const ModelVariable& variable : (*trainer)->model().variables) {
    const auto value = (*trainer)->read_variable(variable.name);
    EXPECT_TRUE(value.ok()) << value.status();
    if (!value.ok()) continue;
    EXPECT_EQ(value->shape(), variable.shape);
    out.variables[variable.name].assign(reinterpret_cast<const char*>(value->raw()),
                                        value->nbytes());
  }
  const auto predictions = (*trainer)->predict(stream(5000, 100), options);
  EXPECT_TRUE(predictions.ok()) << predictions.status();
  if (predictions.ok()) {
    const auto values = predictions->data<const float>();
    out.predictions.assign(values.begin(), values.end());
  }
  return out;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses.size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.predictions, b.predictions);
  ASSERT_EQ(a.variables.size(), b.variables.size());
  for (const auto& [name, bytes] : a.variables) {
    EXPECT_TRUE(bytes == b.variables.at(name)) << name << " differs";
  }
}

class Determinism : public testing::TestWithParam<std::string> {};

TEST_P(Determinism, one_worker_gives_the_same_bits_again_and_on_any_number_of_ps_and_lanes) {
  const OptimizerDef optimizer = make_optimizer(GetParam(), 0.05).value();
  const Outcome first = train_once(optimizer, 1, 1);
  EXPECT_LT(first.losses.back(), first.losses.front());
  for (const int ps : {1, 2, 3}) {
    for (const int lanes : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} ps of {} lanes", ps, lanes));
      expect_same(train_once(optimizer, ps, lanes), first);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Determinism,
                         testing::Values("sgd", "adagrad", "adam", "ftrl", "rowwise_adagrad",
                                         "adagrad_decay", "nadam", "lamb"),
                         [](const auto& info) { return info.param; });

class Protocols : public testing::TestWithParam<Protocol> {};

TEST_P(Protocols, train_to_the_same_bits_on_any_number_of_ps_and_lanes) {
  for (const char* kind : {"sgd", "adagrad", "adam", "lamb", "lars"}) {
    SCOPED_TRACE(kind);
    const OptimizerDef optimizer = make_optimizer(kind, 0.05).value();
    const Outcome first = train_once(optimizer, 1, 1);
    expect_same(train_once(optimizer, 1, 1, 1, GetParam()), first);
    expect_same(train_once(optimizer, 3, 2, 1, GetParam()), first);
    if (HasFailure()) return;
  }
}

TEST_P(Protocols, learn_with_two_workers) {
  const auto cluster = start(2, 2, 2, GetParam());
  auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer_of("adam", 0.01), 0));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  FitOptions options;
  options.batch_size = 256;
  const data::DataSpec held_out = stream(100'000, 8000);
  const auto fitted = (*trainer)->fit(stream(0, 30'000), options, &held_out);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_EQ(fitted->rows, 30'000);
  ASSERT_EQ(fitted->validation.size(), 1U);
  EXPECT_GT(fitted->validation[0].auc, 0.6);
}

// The worker that gives the variables their first values is one of two, whose pushes nobody waits
// for over star_server_lite.
TEST_P(Protocols, begin_when_all_variables_have_values) {
  const int trainings = GetParam() == Protocol::kStarServerLite ? 20 : 2;
  for (int i = 0; i < trainings; ++i) {
    const auto cluster = start(2, 2, 2, GetParam());
    auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer_of("adam", 0.01), 0));
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    FitOptions options;
    options.batch_size = 64;
    const auto fitted = (*trainer)->fit(stream(0, 256), options);
    ASSERT_TRUE(fitted.ok()) << "training " << i << ": " << fitted.status();
  }
}

INSTANTIATE_TEST_SUITE_P(, Protocols,
                         testing::Values(Protocol::kGrpc, Protocol::kGrpcPlusPlus,
                                         Protocol::kStarServer, Protocol::kStarServerLite),
                         app::test_name);

TEST(Cluster, two_steps_in_flight_are_as_deterministic_and_another_order_of_updates) {
  const Outcome first = train_once(optimizer_of("adagrad"), 1, 1, 2);
  expect_same(train_once(optimizer_of("adagrad"), 1, 1, 2), first);
  expect_same(train_once(optimizer_of("adagrad"), 2, 2, 2), first);
  // The second step read before the first one's pushes.
  const Outcome strict = train_once(optimizer_of("adagrad"), 1, 1, 1);
  EXPECT_EQ(strict.losses[0], first.losses[0]);
  EXPECT_NE(strict.losses, first.losses);
}

TEST(Cluster, what_some_steps_do_is_traced_on_all_tasks) {
  const auto cluster = start(2, 1, 2);
  auto trainer = Trainer::create(cluster.get(), deep_fm(make_optimizer("adam", 0.05).value()));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  FitOptions options;
  options.batch_size = kBatch;
  options.steps_in_flight = 2;
  options.trace_first = 3;
  options.trace_end = 5;
  const auto fitted = (*trainer)->fit(stream(0, kBatch * kSteps), options);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  // Two workers, two steps.
  ASSERT_EQ(fitted->traces.size(), 4U);
  for (const std::string& trace : fitted->traces) {
    for (const char* part : {"/job:worker", "/job:ps/replica:0/task:0", "/job:ps/replica:0/task:1",
                             "\"cat\": \"send\"", "\"cat\": \"wait\"", "VariableUpdateRows"}) {
      EXPECT_THAT(trace, HasSubstr(part));
    }
  }
  options.trace_first = options.trace_end = 0;
  const auto again = (*trainer)->fit(stream(0, kBatch * kSteps), options);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->traces.empty());
}

TEST(Cluster, learning_rate_decay_slows_later_epochs_and_ends_with_the_fit) {
  const auto run = [](double decay) {
    const auto cluster = start(2, 1);
    auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer_of("sgd", 0.5))).value();
    FitOptions options;
    options.batch_size = kBatch;
    options.epochs = 2;
    options.record_losses = true;
    options.learning_rate_decay = decay;
    return trainer->fit(stream(0, kBatch * kSteps), options);
  };
  const auto plain = run(1);
  const auto decayed = run(1e-9);
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(decayed.ok()) << decayed.status();
  ASSERT_EQ(decayed->losses.size(), plain->losses.size());
  // The first epoch is the same; in the second, nothing moves any more.
  EXPECT_EQ(decayed->losses[kSteps - 1], plain->losses[kSteps - 1]);
  EXPECT_NE(decayed->losses.back(), plain->losses.back());
  EXPECT_EQ(run(0).status().code(), StatusCode::kInvalidArgument);
}

TEST(Cluster, of_two_workers_learns_and_is_evaluated_on_rows_never_trained_on) {
  const auto cluster = start(2, 2, 2);
  auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer_of("adam", 0.01), 0));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  FitOptions options;
  options.batch_size = 256;
  const auto before = (*trainer)->evaluate(stream(100'000, 8000), options);
  ASSERT_TRUE(before.ok()) << before.status();
  const data::DataSpec held_out = stream(100'000, 8000);
  const auto fitted = (*trainer)->fit(stream(0, 30'000), options, &held_out);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_EQ(fitted->rows, 30'000);
  ASSERT_EQ(fitted->validation.size(), 1U);
  EXPECT_EQ(fitted->validation[0].rows, 8000);
  EXPECT_GT(fitted->validation[0].auc, before->auc + 0.05);
  EXPECT_LT(fitted->validation[0].auc, *fitted->validation[0].best_auc);
  // Nothing was learned from the rows of the evaluation: once more gives the same.
  const auto after = (*trainer)->evaluate(held_out, options);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_NEAR(after->auc, fitted->validation[0].auc, 1e-12);
  ASSERT_EQ(fitted->tasks.size(), 4U);
  for (const TaskStats& task : fitted->tasks) EXPECT_GT(task.bytes_in, 0) << task.task;
}

TEST(Cluster, two_of_them_in_one_process_do_not_see_each_other) {
  const auto one = start(1, 1);
  const auto other = start(1, 1);
  auto first = Trainer::create(one.get(), deep_fm(optimizer_of("sgd", 0.1), 0));
  auto second = Trainer::create(other.get(), deep_fm(optimizer_of("sgd", 0.1), 0));
  ASSERT_TRUE(first.ok() && second.ok());
  FitOptions options;
  options.batch_size = kBatch;
  ASSERT_TRUE((*first)->fit(stream(0, kBatch * 5), options).ok());
  const auto trained = (*first)->read_variable("head/kernel");
  const auto fresh = (*second)->read_variable("head/kernel");
  ASSERT_TRUE(trained.ok() && fresh.ok());
  EXPECT_NE(std::memcmp(trained->raw(), fresh->raw(), fresh->nbytes()), 0);
}

TEST(Cluster, several_models_train_on_one_at_once_and_do_not_see_each_other) {
  const auto cluster = start(2, 1, 2);
  constexpr int kModels = 3;
  std::vector<std::future<Outcome>> outcomes;
  for (int i = 0; i < kModels; ++i) {
    outcomes.push_back(std::async(std::launch::async, [&cluster, i] {
      Outcome out;
      const double rate = 0.1 * (i + 1);
      auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer_of("sgd", rate), 0));
      EXPECT_TRUE(trainer.ok()) << trainer.status();
      if (!trainer.ok()) return out;
      FitOptions options;
      options.batch_size = kBatch;
      const auto fresh = (*trainer)->read_variable("head/kernel").value();
      EXPECT_TRUE((*trainer)->fit(stream(0, kBatch * 10), options).ok());
      for (const auto& value : {fresh, (*trainer)->read_variable("head/kernel").value()}) {
        const std::string name = out.variables.empty() ? "fresh" : "trained";
        out.variables[name].assign(reinterpret_cast<const char*>(value.raw()), value.nbytes());
      }
      return out;
    }));
  }
  std::set<std::string> fresh;
  std::set<std::string> trained;
  for (auto& outcome : outcomes) {
    Outcome got = outcome.get();
    fresh.insert(got.variables["fresh"]);
    trained.insert(got.variables["trained"]);
  }
  EXPECT_EQ(fresh.size(), 1U);
  EXPECT_EQ(trained.size(), static_cast<size_t>(kModels));
}

/// A model with two losses of its own: squared and absolute differences from two columns.
CompiledModel regression(const OptimizerDef& optimizer) {
  Model model(3);
  ir::Builder& b = model.builder();
  const ir::Output x = model.input("dense", ir::DType::kFloat32, {13});
  const ir::Output label = model.input("label", ir::DType::kFloat32, {});
  const ir::Output y = ops::reshape(b, Dense{.units = 1}(model, x), {-1});
  const ir::Output off = ops::sub(b, y, label);
  const ir::Output squares = ops::reduce_mean(b, ops::square(b, off), {}, false);
  const ir::Output sizes = ops::reduce_mean(b, ops::abs(b, off), {}, false);
  auto compiled = model.compile(y, ops::add(b, squares, sizes), optimizer);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return *std::move(compiled);
}

TEST(Cluster, a_model_of_numbers_with_two_losses_trains_evaluates_and_predicts) {
  const auto cluster = start(2, 1);
  auto trainer = Trainer::create(cluster.get(), regression(optimizer_of("adam", 0.01)));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  FitOptions options;
  options.batch_size = kBatch;
  const auto before = (*trainer)->evaluate(stream(5000, 1000), options);
  ASSERT_TRUE(before.ok()) << before.status();
  const data::DataSpec held_out = stream(5000, 1000);
  const auto fitted = (*trainer)->fit(stream(0, kBatch * 50), options, &held_out);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_LT(fitted->validation[0].loss, before->loss);
  EXPECT_EQ(fitted->validation[0].auc, 0);
  const auto predicted = (*trainer)->predict(stream(5000, 100), options);
  ASSERT_TRUE(predicted.ok()) << predicted.status();
  EXPECT_EQ(predicted->shape(), (ir::Shape{100}));
}

TEST(Cluster, an_id_outside_its_table_ends_the_job_with_an_error_that_says_so) {
  const auto cluster = start(1, 1);
  ModelOptions small;
  small.schema = data::inspect(stream(0, 1)).value();
  small.schema.rows = 10;
  small.hidden = {4};
  auto trainer = Trainer::create(cluster.get(), build_model(small).value());
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const Status status = (*trainer)->fit(stream(0, 100), {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(status), HasSubstr("outside the table's 10 rows"));
}

TEST(Cluster, a_local_cluster_refuses_programs_without_its_secret) {
  const auto cluster = start(1, 1);
  const auto refused = [&](const security::SecurityOptions& options) {
    auto other = app::remote_cluster(cluster->spec(), options);
    EXPECT_TRUE(other.ok()) << other.status();
    const auto asked = Clock::now();
    const Status status = Trainer::create(other->get(), deep_fm(optimizer_of("sgd", 0.1))).status();
    EXPECT_LT(Clock::now() - asked, std::chrono::seconds(15));
    return status;
  };
  const Status without = refused({});
  EXPECT_EQ(without.code(), StatusCode::kUnauthenticated) << without;
  EXPECT_EQ(refused({.secret = "another cluster's"}).code(), StatusCode::kUnauthenticated);
  // It goes on for the program that started it.
  auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer_of("sgd", 0.01)));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  FitOptions options;
  options.batch_size = kBatch;
  EXPECT_TRUE((*trainer)->fit(stream(0, 1000), options).ok());
}

TEST(Cluster, a_task_that_is_another_one_is_named) {
  const auto one = start(1, 1);
  const auto mixed =
      remote({*one->spec().task_address("worker", 0)}, {*one->spec().task_address("ps", 0)});
  const Status status = Trainer::create(mixed.get(), deep_fm(optimizer_of("sgd", 0.1), 0)).status();
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(app::start_local_cluster({.ps = 0, .in_process = true}).ok());
}

/// A cluster of servers that can be stopped one by one.
class Stopping : public testing::Test {
 protected:
  Stopping() {
    std::vector<std::string> ps;
    std::vector<std::string> worker;
    for (const std::string job : {"ps", "worker"}) {
      for (int i = 0; i < 2; ++i) {
        app::ServerOptions options;
        options.job = job;
        options.task = i;
        options.listen = "127.0.0.1:0";
        options.protocol = Protocol::kStarServer;
        options.data.spin_us = 0;
        auto server = app::Server::create(options);
        EXPECT_TRUE(server.ok()) << server.status();
        const std::string target = (*server)->target();
        (job == "ps" ? ps : worker).push_back(target.substr(target.find("://") + 3));
        servers_[app::task_name(job, i)] = *std::move(server);
      }
    }
    cluster_ = remote(ps, worker);
  }

  /// Stops `task` in the middle of a fit; the error of the fit.
  Status stop_amid(const std::string& task) {
    auto trainer = Trainer::create(cluster_.get(), deep_fm(optimizer_of("sgd", 0.01)));
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    if (!trainer.ok()) return trainer.status();
    std::promise<void> running;
    bool told = false;
    FitOptions options;
    options.batch_size = kBatch;
    options.epochs = 1'000'000;
    options.on_progress = [&](const Progress&) {
      if (!told) running.set_value();
      told = true;
    };
    auto fitted = std::async(std::launch::async,
                             [&] { return (*trainer)->fit(stream(0, 1000), options).status(); });
    EXPECT_EQ(running.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
    const auto stopped = Clock::now();
    servers_[task]->stop();
    const Status status = fitted.get();
    EXPECT_LT(Clock::now() - stopped, std::chrono::seconds(10));
    return status;
  }

  std::map<std::string, std::unique_ptr<app::Server>> servers_;
  std::unique_ptr<app::Cluster> cluster_;
};

TEST_F(Stopping, a_ps_ends_the_job_within_ten_seconds_and_names_it) {
  const Status status = stop_amid("/job:ps/task:1");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(base::message_of(status), HasSubstr("/job:ps/replica:0/task:1"));
}

TEST_F(Stopping, a_worker_ends_the_job_within_ten_seconds_and_names_it) {
  const Status status = stop_amid("/job:worker/task:1");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(base::message_of(status), HasSubstr("/job:worker/replica:0/task:1"));
}

TEST_F(Stopping, servers_do_not_wait_for_clients_that_stay_connected) {
  auto trainer = Trainer::create(cluster_.get(), deep_fm(optimizer_of("sgd", 0.01)));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  FitOptions options;
  options.batch_size = kBatch;
  ASSERT_TRUE((*trainer)->fit(stream(0, 1000), options).ok());
  const auto stopped = Clock::now();
  for (auto& [task, server] : servers_) server->stop();
  EXPECT_LT(Clock::now() - stopped, std::chrono::seconds(4));
}

TEST_F(Stopping, nothing_lets_the_rest_be_used_again_after_a_cancelled_fit) {
  auto trainer = Trainer::create(cluster_.get(), deep_fm(optimizer_of("sgd", 0.01)));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  FitOptions options;
  options.batch_size = kBatch;
  options.epochs = 1'000'000;
  bool seen = false;
  options.on_progress = [&](const Progress&) { seen = true; };
  options.cancelled = [&] { return seen; };
  const Status status = (*trainer)->fit(stream(0, 1000), options).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status;
  FitOptions again;
  again.batch_size = kBatch;
  const auto fitted = (*trainer)->fit(stream(0, 1000), again);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_EQ(fitted->rows, 1000);
}

}  // namespace
}  // namespace sidereal::train
