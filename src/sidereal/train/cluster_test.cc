#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <map>

#include "sidereal/app/cluster.h"
#include "sidereal/app/control.grpc.pb.h"
#include "sidereal/app/control_client.h"
#include "sidereal/app/server.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/train/models.h"
#include "sidereal/train/trainer.h"

// Whole clusters in this process, trained as by a user: real lanes, real TCP, real control calls.
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

CompiledModel deep_fm(const ir::OptimizerDef& optimizer, double dropout = 0.2) {
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

std::unique_ptr<app::Cluster> start(int ps, int ps_lanes, int workers = 1) {
  auto cluster = app::start_local_cluster(
      {.ps = ps, .workers = workers, .ps_lanes = ps_lanes, .spin_us = 0, .in_process = true});
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

Outcome train_once(const ir::OptimizerDef& optimizer, int ps, int ps_lanes,
                   int64_t steps_in_flight = 1, const std::string& protocol = "star_server") {
  Outcome out;
  const auto cluster = start(ps, ps_lanes);
  auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer));
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  if (!trainer.ok()) return out;
  FitOptions options;
  options.batch_size = kBatch;
  options.steps_in_flight = steps_in_flight;
  options.protocol = protocol;
  options.record_losses = true;
  const auto fitted = (*trainer)->fit(stream(0, kBatch * kSteps), options);
  EXPECT_TRUE(fitted.ok()) << fitted.status();
  if (!fitted.ok()) return out;
  EXPECT_EQ(fitted->steps, kSteps);
  out.losses = fitted->losses;
  for (const ir::VariableDef& def : (*trainer)->model().graph.variables()) {
    const auto value = (*trainer)->read_variable(def.name);
    EXPECT_TRUE(value.ok()) << value.status();
    if (!value.ok()) continue;
    EXPECT_EQ(value->shape(), def.shape);
    out.variables[def.name].assign(reinterpret_cast<const char*>(value->raw()), value->nbytes());
  }
  const auto predictions = (*trainer)->predict(stream(5000, 100), options);
  EXPECT_TRUE(predictions.ok()) << predictions.status();
  if (predictions.ok()) out.predictions = *predictions;
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
  const ir::OptimizerDef optimizer = make_optimizer(GetParam(), 0.05).value();
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

TEST(Cluster, trains_to_the_same_bits_with_star_server_lite_and_refuses_what_is_for_sessions) {
  expect_same(train_once(optimizer_of("adagrad"), 2, 2, 1, "star_server_lite"),
              train_once(optimizer_of("adagrad"), 1, 1, 1, "star_server"));
  const auto cluster = start(1, 1);
  auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer_of("adagrad")));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  for (const char* protocol : {"grpc", "grpc++"}) {
    FitOptions options;
    options.protocol = protocol;
    const Status status = (*trainer)->fit(stream(0, kBatch), options).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(base::message_of(status)), HasSubstr("is for sessions"));
  }
}

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
  ASSERT_EQ(fitted->traces.size(), 4U);
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++found;
    return found;
  };
  int workers = 0;
  for (const std::string& trace : fitted->traces) {
    const bool worker = trace.find("/job:worker") != std::string::npos;
    workers += worker ? 1 : 0;
    // Pull and push of both lanes, two steps; on a ps lane those of both workers.
    EXPECT_EQ(count(trace, "\"cat\": \"send\""), worker ? 8 : 0);
    EXPECT_EQ(count(trace, "\"cat\": \"wait\""), worker ? 8 : 0);
    EXPECT_EQ(count(trace, "\"cat\": \"step\""), worker ? 2 : 8);
    EXPECT_EQ(count(trace, "\"name\": \"ShardApply\"") > 0, !worker);
    EXPECT_EQ(count(trace, "\"step\": 3") > 0 && count(trace, "\"step\": 4") > 0, true);
    EXPECT_EQ(count(trace, "\"step\": 2,") + count(trace, "\"step\": 5,"), 0);
  }
  EXPECT_EQ(workers, 2);
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

TEST(Cluster, a_ps_of_one_cluster_with_the_worker_of_another_is_refused) {
  const auto ps = app::Server::create({.job = "ps", .cluster_id = 1});
  const auto worker = app::Server::create({.job = "worker", .cluster_id = 2});
  ASSERT_TRUE(ps.ok() && worker.ok());
  const auto mixed = remote({(*ps)->address()}, {(*worker)->address()});
  const Status refused =
      Trainer::create(mixed.get(), deep_fm(optimizer_of("sgd", 0.1), 0)).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::message_of(refused),
              AllOf(HasSubstr("/job:worker/task:0"), HasSubstr("another cluster")));
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
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(base::message_of(status), HasSubstr("outside the table's 10 rows"));
}

TEST(Cluster, a_task_of_another_kind_at_an_address_is_named) {
  const auto cluster = start(1, 1);
  app::ControlClient client("/job:ps/task:1", *cluster->spec().task_address("worker", 0),
                            cluster->credentials());
  const Status status = client.get_status(10).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::message_of(status), AllOf(HasSubstr("/job:ps/task:1 was expected at"),
                                              HasSubstr("/job:worker/task:0 is there")));
}

TEST(Cluster, a_local_cluster_refuses_programs_without_its_secret) {
  const auto cluster = start(1, 1);
  const auto refused = [&](const security::SecurityOptions& options) {
    auto other = app::remote_cluster(cluster->spec(), options);
    EXPECT_TRUE(other.ok()) << other.status();
    const auto asked = Clock::now();
    const Status status = Trainer::create(other->get(), deep_fm(optimizer_of("sgd", 0.1))).status();
    EXPECT_LT(Clock::now() - asked, std::chrono::seconds(8));
    for (const char* job : {"ps", "worker"}) {
      app::ControlClient client(app::task_name(job, 0), *cluster->spec().task_address(job, 0),
                                (*other)->credentials());
      EXPECT_FALSE(client.shutdown(0.2).ok());
    }
    return status;
  };
  const Status without = refused({});
  EXPECT_EQ(without.code(), StatusCode::kUnauthenticated) << without;
  EXPECT_THAT(base::message_of(without), HasSubstr("/job:ps/task:0 at 127.0.0.1:"));
  EXPECT_EQ(refused({.secret = "another cluster's"}).code(), StatusCode::kUnauthenticated);
  // It goes on for the program that started it.
  auto trainer = Trainer::create(cluster.get(), deep_fm(optimizer_of("sgd", 0.01)));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  FitOptions options;
  options.batch_size = kBatch;
  EXPECT_TRUE((*trainer)->fit(stream(0, 1000), options).ok());
}

TEST(Cluster, nobody_at_an_address_is_named_once_the_deadline_has_passed) {
  std::string address;
  {
    const auto gone = start(1, 1);
    address = *gone->spec().task_address("ps", 0);
  }
  app::ControlClient client("/job:ps/task:0", address, nullptr);
  const Status status = client.get_status(0.3).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(base::message_of(status), HasSubstr("cannot reach /job:ps/task:0 at " + address));
}

/// A task of a release to come.
class FutureTask final : public control::v1::Control::Service {
  grpc::Status GetStatus(grpc::ServerContext*, const control::v1::GetStatusRequest*,
                         control::v1::TaskStatus* reply) override {
    reply->set_version(99);
    reply->set_task("/job:ps/task:0");
    return grpc::Status::OK;
  }
};

TEST(Cluster, a_task_of_another_version_is_refused_by_name_on_either_side) {
  FutureTask future;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&future);
  const auto server = builder.BuildAndStart();
  const std::string address = fmt::format("127.0.0.1:{}", port);
  const auto newer = remote({address}, {address});
  const Status status = Trainer::create(newer.get(), deep_fm(optimizer_of("sgd", 0.1))).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::message_of(status),
              AllOf(HasSubstr("/job:ps/task:0 at " + address), HasSubstr("version 99")));
  server->Shutdown();

  const auto ours = app::Server::create({.job = "ps"});
  ASSERT_TRUE(ours.ok()) << ours.status();
  const auto stub = control::v1::Control::NewStub(
      grpc::CreateChannel((*ours)->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  control::v1::GetStatusRequest request;
  request.set_version(99);
  control::v1::TaskStatus reply;
  const grpc::Status refused = stub->GetStatus(&context, request, &reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), AllOf(HasSubstr("/job:ps/task:0"), HasSubstr("99")));
}

TEST(Server, a_port_in_use_is_named) {
  const auto first = app::Server::create({.job = "ps"});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = app::Server::create({.job = "ps", .address = (*first)->address()});
  EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(base::message_of(second.status()), HasSubstr((*first)->address()));
}

TEST(Server, listens_on_loopback_only) {
  for (const std::string address : {"0.0.0.0:0", "[::]:0", "192.168.1.1:0"}) {
    const Status status = app::Server::create({.job = "worker", .address = address}).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << address;
    EXPECT_THAT(base::message_of(status), AllOf(HasSubstr(address), HasSubstr("127.0.0.1")));
  }
}

TEST(Server, options_that_make_no_sense_are_refused) {
  using app::Server;
  EXPECT_EQ(Server::create({.job = "boss"}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Server::create({.task = -1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Server::create({.lanes = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Server::create({.address = "nonsense"}).status().code(), StatusCode::kInvalidArgument);
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
        app::ServerOptions options{.job = job, .task = i, .cluster_id = 77};
        options.options.spin_us = 0;
        auto server = app::Server::create(options);
        EXPECT_TRUE(server.ok()) << server.status();
        (job == "ps" ? ps : worker).push_back((*server)->address());
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
  EXPECT_THAT(base::message_of(status), HasSubstr("/job:ps/task:1"));
}

TEST_F(Stopping, a_worker_ends_the_job_within_ten_seconds_and_names_it) {
  const Status status = stop_amid("/job:worker/task:1");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(base::message_of(status), HasSubstr("/job:worker/task:1"));
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
