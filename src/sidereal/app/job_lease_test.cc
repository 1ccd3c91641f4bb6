#include "sidereal/service/job_lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <future>
#include <thread>

#include "sidereal/app/testing/figures.h"
#include "sidereal/app/testing/model.h"
#include "sidereal/app/testing/processes.h"
#include "sidereal/cluster/protocol.h"
#include "sidereal/ir/text.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/session.h"
#include "sidereal/service/status_client.h"

/// Jobs of a cluster: one of a name at a time, and one that takes the place of another.
namespace sidereal::app {
namespace {

namespace v1 = session::v1;
using tensor::DType;
using tensor::Shape;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A variable on task 2, which sessions share, and what waits for ever.
class SharedModel : public Model {
 public:
  SharedModel() {
    const ir::AttrMap is = {{"dtype", DType::kFloat32}, {"shape", Shape{1}}};
    ir::AttrMap named = is;
    named["shared_name"] = std::string("v");
    const ir::Output v = add("Variable", {}, named, "v", "/task:2");
    add("VariableAssign", {v, constant({0})}, {}, "init");
    add("VariableAssignAdd", {v, constant({1})}, {}, "add");
    add("VariableRead", {v}, is, "read");
    const ir::AttrMap dtypes = {{"dtypes", std::vector<std::string>{"float32"}}};
    ir::AttrMap queue = dtypes;
    queue["shared_name"] = std::string("q");
    add("QueueDequeue", {add("Queue", {}, queue, "q", "/task:1")}, dtypes, "wait");
  }
};

class JobLeaseTest : public ::testing::TestWithParam<ClusterKind> {
 protected:
  Result<std::unique_ptr<service::Session>> make(const service::JobOptions& job, int task) {
    service::SessionOptions options = patient();
    options.job = job;
    return service::Session::create(cluster_.target(task), model_.graph(), options);
  }
  std::unique_ptr<service::Session> session(const service::JobOptions& job, int task) {
    auto made = make(job, task);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  std::vector<std::string> jobs() {
    std::vector<std::string> out;
    for (const service::TaskReport& report : (*client_)->ask(std::chrono::seconds(60))) {
      for (const service::RunningJob& job : report.jobs) {
        out.push_back(job.holder.name + " of " + job.holder.user);
      }
    }
    return out;
  }
  static float read(service::Session* session) {
    const auto got = session->run({}, {"read"});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? floats((*got)[0])[0] : -1;
  }

  TestCluster cluster_{3, GetParam()};
  const SharedModel model_;
  const Result<std::unique_ptr<service::StatusClient>> client_ =
      service::StatusClient::create(cluster_.target(), {}, std::chrono::seconds(60));
};
INSTANTIATE_TEST_SUITE_P(Over, JobLeaseTest,
                         ::testing::Values(ClusterKind{cluster::Protocol::kGrpc},
                                           ClusterKind{cluster::Protocol::kGrpcPlusPlus},
                                           ClusterKind{cluster::Protocol::kStarServer},
                                           ClusterKind{cluster::Protocol::kStarServerLite},
                                           ClusterKind{cluster::Protocol::kStarServer, 3}),
                         kind_name);

TEST_P(JobLeaseTest, one_job_of_a_name_runs_whatever_its_master_is) {
  auto first = session({.name = "a", .user = "alice"}, 1);
  const auto other = session({.name = "b", .user = "bob"}, 0);
  EXPECT_THAT(jobs(), ElementsAre("a of alice", "b of bob"));
  for (const int task : {0, 1, 2}) {
    const Status refused = make({.name = "a", .user = "bob"}, task).status();
    EXPECT_EQ(refused.code(), StatusCode::kAlreadyExists) << refused;
    EXPECT_THAT(base::message_of(refused), AllOf(HasSubstr("the job 'a' is run by alice on host "),
                                                 HasSubstr(" since 20"), HasSubstr("--take-over")));
  }
  // Another session reads it next.
  ASSERT_TRUE(first->run({}, {}, {"init"}, {.waits_for_pushes = true}).ok());
  EXPECT_EQ(read(other.get()), 0);
  ASSERT_TRUE(first->close().ok());
  EXPECT_THAT(jobs(), ElementsAre("b of bob"));
  EXPECT_NE(session({.name = "a", .user = "bob"}, 2), nullptr);
}

TEST_P(JobLeaseTest, nothing_of_a_job_that_was_taken_over_changes_anything) {
  const auto first = session({.name = "a", .user = "alice"}, 1);
  ASSERT_TRUE(first->run({}, {}, {"init"}).ok());
  std::future<Status> waits =
      std::async(std::launch::async, [&] { return first->run({}, {}, {"wait"}).status(); });
  std::atomic<int> done = 0;
  std::future<Status> adds = std::async(std::launch::async, [&] {
    const service::RunOptions options = {.waits_for_pushes = true};
    while (true) {
      const Status added = first->run({}, {}, {"add"}, options).status();
      if (!added.ok()) return added;
      ++done;
    }
  });
  ASSERT_TRUE(eventually([&] { return done > 3; }));
  const auto second = session({.name = "a", .take_over = true, .user = "bob"}, 0);
  const float then = read(second.get());
  const auto is_told = [](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(base::message_of(status), HasSubstr("the job 'a' was taken over by bob on host"));
  };
  is_told(adds.get());
  is_told(waits.get());
  is_told(first->run({}, {}, {"add"}).status());
  is_told(first->extend(model_.graph()));
  EXPECT_EQ(read(second.get()), then);
  // The last of them may have been done without an answer.
  EXPECT_GE(then, static_cast<float>(done));
  EXPECT_LE(then, static_cast<float>(done + 1));
  EXPECT_THAT(jobs(), ElementsAre("a of bob"));
  // Its own end is nothing to the other one.
  EXPECT_TRUE(first->close().ok());
  EXPECT_THAT(jobs(), ElementsAre("a of bob"));
  EXPECT_EQ(make({.name = "a", .user = "carol"}, 1).status().code(), StatusCode::kAlreadyExists);
}

TEST_P(JobLeaseTest, all_sessions_of_a_lease_end_with_it_and_no_other_begins) {
  cluster::ClusterSpec spec = cluster_.options().cluster;
  const auto take = [&](const std::string& user, bool take_over) {
    return service::JobLease::create(spec, {.name = "a", .take_over = take_over, .user = user},
                                     patient());
  };
  auto alice = take("alice", false);
  ASSERT_TRUE(alice.ok()) << alice.status();
  const std::shared_ptr<service::JobLease> lease = *std::move(alice);
  EXPECT_EQ(take("bob", false).status().code(), StatusCode::kAlreadyExists);
  service::SessionOptions options = patient();
  options.lease = lease;
  std::vector<std::unique_ptr<service::Session>> sessions;
  const auto make_at = [&](int task) {
    return service::Session::create(cluster_.target(task), model_.graph(), options);
  };
  for (const int task : {0, 1, 2}) {
    auto made = make_at(task);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_TRUE((*made)->run({}, {}, {"init"}).ok());
    sessions.push_back(*std::move(made));
  }
  EXPECT_TRUE(lease->check().ok());
  const auto taken = take("bob", true);
  ASSERT_TRUE(taken.ok()) << taken.status();
  for (const auto& session : sessions) {
    const Status told = session->run({}, {"read"}).status();
    EXPECT_EQ(told.code(), StatusCode::kFailedPrecondition) << told;
  }
  EXPECT_TRUE(eventually([&] { return lease->check().code() == StatusCode::kFailedPrecondition; }));
  for (const int task : {0, 1, 2}) {
    const Status refused = make_at(task).status();
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused;
    EXPECT_THAT(base::message_of(refused), HasSubstr("taken over by bob"));
  }
}

TEST_P(JobLeaseTest, a_session_hears_at_once_that_its_lease_is_lost) {
  const auto session = this->session({.name = "a", .user = "alice"}, 1);
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  std::future<Status> waits =
      std::async(std::launch::async, [&] { return session->run({}, {}, {"wait"}).status(); });
  // It needs nothing of the task that granted its lease.
  cluster_.stop(0);
  const auto is_told = [](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
    EXPECT_THAT(
        base::message_of(status),
        HasSubstr("/job:w/replica:0/task:0 had granted the lease of the job 'a', which is lost: "));
  };
  is_told(waits.get());
  cluster_.start(0);
  is_told(session->run({}, {"read"}).status());
  is_told(session->extend(model_.graph()));
  static_cast<void>(session->close().ok());
  const auto again = this->session({.name = "a", .user = "alice"}, 1);
  EXPECT_EQ(read(again.get()), 0);
}

/// How a stream of closures has ended, of which one may end before.
class StreamEnd final : public service::ClosureObserver {
 public:
  void ended(std::vector<service::ClosureResult> /*results*/) override { ended_.set_value(); }
  void lost(const Status& why) override { why_.set_value(why); }
  /// kInternal when it goes on.
  Status wait() {
    auto why = why_.get_future();
    if (why.wait_for(std::chrono::seconds(60)) == std::future_status::ready) return why.get();
    return base::internal("closures go on without their lease");
  }
  void wait_for_one() { ended_.get_future().wait(); }

 private:
  std::promise<Status> why_;
  std::promise<void> ended_;
};

TEST_P(JobLeaseTest, closures_end_with_the_lease_of_their_session) {
  const auto session = this->session({.name = "a", .user = "alice"}, 1);
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  const auto begin = [&](const std::shared_ptr<StreamEnd>& end) {
    auto calls = session->run_closures(end);
    calls->add_plan(1, {.targets = {"wait"}});
    calls->run(1, 1, {}, std::chrono::milliseconds(0));
    calls->flush();
    return calls;
  };
  const auto running = std::make_shared<StreamEnd>();
  const auto calls = begin(running);
  // They need nothing of the task that granted it.
  cluster_.stop(0);
  const Status why = running->wait();
  EXPECT_EQ(why.code(), StatusCode::kAborted) << why;
  EXPECT_THAT(base::message_of(why), HasSubstr("had granted the lease of the job 'a'"));
  const auto late = std::make_shared<StreamEnd>();
  const auto late_calls = begin(late);
  EXPECT_EQ(late->wait(), why);
  cluster_.start(0);
}

TEST_P(JobLeaseTest, a_session_that_sees_a_part_of_the_cluster_has_a_lease_of_the_whole) {
  const auto first = session({.name = "a", .user = "alice"}, 0);
  service::SessionOptions options = patient();
  options.job = {.name = "a", .user = "bob"};
  const auto tasks = *cluster_.options().cluster.tasks("w");
  ASSERT_TRUE(
      options.cluster.add_job("w", cluster::ClusterSpec::Tasks{{1, tasks.at(1)}, {2, tasks.at(2)}})
          .ok());
  const auto make = [&] {
    return service::Session::create(cluster_.target(1), model_.graph(), options);
  };
  EXPECT_EQ(make().status().code(), StatusCode::kAlreadyExists);
  ASSERT_TRUE(first->close().ok());
  const auto second = make();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(jobs(), ElementsAre("a of bob"));
}

TEST_P(JobLeaseTest, is_granted_by_one_task_of_the_cluster) {
  const auto stub = v1::Master::NewStub(
      grpc::CreateChannel(cluster_.target(1).substr(7), grpc::InsecureChannelCredentials()));
  v1::CreateSessionRequest request;
  request.set_version(service::kSessionVersion);
  request.set_graph(ir::to_text(ir::Graph()));
  to_proto(*service::job_holder({.name = "a"}), request.mutable_job()->mutable_holder());
  v1::CreateSessionReply reply;
  grpc::ClientContext making;
  const grpc::Status refused = stub->CreateSession(&making, request, &reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(),
              AllOf(HasSubstr("at /job:w/replica:0/task:1; "),
                    HasSubstr("/job:w/replica:0/task:0 at " + cluster_.target(0).substr(7) +
                              " grants leases")));
}

TEST_P(JobLeaseTest, is_held_still_when_containers_are_reset) {
  const auto here = session({.name = "a", .user = "alice"}, 0);
  const auto elsewhere = session({.name = "b", .user = "bob"}, 1);
  ASSERT_TRUE(elsewhere->run({}, {}, {"init"}).ok());
  ASSERT_TRUE(service::Session::reset(cluster_.target(0), {"other"}).ok());
  EXPECT_THAT(jobs(), ElementsAre("a of alice", "b of bob"));
  // The reset ends sessions of its master, no others.
  const Status told = here->run({}, {}, {"init"}).status();
  EXPECT_EQ(told.code(), StatusCode::kAborted) << told;
  EXPECT_EQ(read(elsewhere.get()), 0);
}

/// As its connection is what goes when it is killed or its host is cut off.
TEST_P(JobLeaseTest, ends_with_the_connection_of_its_program) {
  const auto stub = v1::Master::NewStub(
      grpc::CreateChannel(cluster_.target(0).substr(7), grpc::InsecureChannelCredentials()));
  v1::CreateSessionRequest request;
  request.set_version(service::kSessionVersion);
  request.set_graph(ir::to_text(ir::Graph()));
  to_proto(*service::job_holder({.name = "a", .user = "alice"}),
           request.mutable_job()->mutable_holder());
  v1::CreateSessionReply reply;
  grpc::ClientContext making;
  ASSERT_TRUE(stub->CreateSession(&making, request, &reply).ok());
  EXPECT_EQ(reply.lease(), reply.session());
  v1::KeepSessionAliveRequest alive;
  alive.set_session(reply.session());
  grpc::ClientContext kept;
  std::promise<void> let_go;
  std::thread holder([&] {
    v1::KeepSessionAliveReply ignored;
    static_cast<void>(stub->KeepSessionAlive(&kept, alive, &ignored).ok());
    let_go.set_value();
  });
  EXPECT_THAT(jobs(), ElementsAre("a of alice"));
  EXPECT_EQ(make({.name = "a"}, 1).status().code(), StatusCode::kAlreadyExists);
  // Until it has come to the server, cancelling ends nothing there.
  kept.TryCancel();
  let_go.get_future().wait();
  holder.join();
  EXPECT_TRUE(eventually([&] { return jobs().empty(); }, 30));
  const auto next = session({.name = "a", .user = "bob"}, 1);
  EXPECT_TRUE(next->run({}, {}, {"init"}).ok());
}

TEST(JobLease, is_asked_for_with_a_name_and_ended_with_a_reason) {
  const auto server = local_server();
  const auto stub = v1::Master::NewStub(
      grpc::CreateChannel(server->target().substr(7), grpc::InsecureChannelCredentials()));
  v1::CreateSessionRequest request;
  request.set_version(service::kSessionVersion);
  request.set_graph(ir::to_text(ir::Graph()));
  request.mutable_job();
  v1::CreateSessionReply reply;
  grpc::ClientContext making;
  EXPECT_EQ(stub->CreateSession(&making, request, &reply).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  v1::EndLeaseRequest end;
  end.set_lease(7);
  end.mutable_why();
  v1::EndLeaseReply ended;
  grpc::ClientContext ending;
  EXPECT_EQ(stub->EndLease(&ending, end, &ended).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

/// Nobody can say what becomes of the last pushes of a session whose master does not answer.
TEST(JobLease, what_could_not_be_ended_with_it_is_ended_before_the_next) {
  if (server_program().empty()) GTEST_SKIP() << "skipped: the program sidereal is not built";
  ProcessCluster servers(3, {"--protocol", "star_server_lite"});
  const SharedModel model;
  service::SessionOptions options = patient();
  options.job = {.name = "a", .user = "alice"};
  auto first = service::Session::create(servers.target(1), model.graph(), options);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE((*first)->run({}, {}, {"init"}).ok());
  v1::CreateSessionRequest late;
  late.set_version(service::kSessionVersion);
  late.set_graph(ir::to_text(ir::Graph()));
  late.mutable_config()->set_lease((*first)->lease());
  servers.process(1).signal(SIGSTOP);
  EXPECT_EQ((*first)->close().code(), StatusCode::kDeadlineExceeded);
  cluster::ClusterSpec spec;
  ASSERT_TRUE(spec.add_job("w", {servers.address(0), servers.address(1), servers.address(2)}).ok());
  // To end what does not answer takes longer than it may take to reach a task.
  service::SessionOptions hurried = patient();
  hurried.connect_timeout = std::chrono::seconds(2);
  const auto second = service::JobLease::create(spec, {.name = "a", .user = "bob"}, hurried);
  EXPECT_TRUE(second.ok()) << second.status();
  servers.process(1).signal(SIGCONT);
  const auto stub = v1::Master::NewStub(servers.channel(2));
  v1::CreateSessionReply reply;
  grpc::ClientContext making;
  const grpc::Status refused = stub->CreateSession(&making, late, &reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::ABORTED) << refused.error_message();
  EXPECT_THAT(refused.error_message(), HasSubstr("the program of the job 'a' has gone"));
}

/// What a program does that is killed.
void run_closures_and_die(const std::string& target) {
  const SharedModel model;
  service::SessionOptions options = patient();
  options.job = {.name = "a", .user = "alice"};
  const auto session = service::Session::create(target, model.graph(), options);
  if (!session.ok()) return;
  const auto end = std::make_shared<StreamEnd>();
  const auto calls = (*session)->run_closures(end);
  calls->add_plan(1, {.targets = {"wait"}});
  calls->add_plan(2, {.targets = {"init"}});
  for (const uint64_t plan : {1, 2}) calls->run(plan, plan, {}, std::chrono::milliseconds(0));
  calls->flush();
  end->wait_for_one();
  raise(SIGKILL);
}

TEST(JobLease, closures_of_a_program_that_is_killed_end_with_it) {
  if (server_program().empty()) GTEST_SKIP() << "skipped: the program sidereal is not built";
  // The program that dies is this test, which begins anew there.
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  constexpr const char* kTarget = "SIDEREAL_TEST_TARGET";
  std::unique_ptr<ProcessCluster> servers;
  if (getenv(kTarget) == nullptr) {
    servers = std::make_unique<ProcessCluster>(3);
    setenv(kTarget, servers->target(1).c_str(), 0);
  }
  EXPECT_EXIT(run_closures_and_die(getenv(kTarget)), ::testing::KilledBySignal(SIGKILL), "");
  unsetenv(kTarget);
  for (const char* const figure : {"steps_running", "steps_blocked", "sessions"}) {
    for (const int task : {0, 1, 2}) {
      EXPECT_TRUE(eventually([&] { return task_figure(servers->status(task), figure) == 0; }, 60))
          << figure << " of task " << task;
    }
  }
  service::SessionOptions options = patient();
  options.job = {.name = "a", .user = "bob"};
  const SharedModel model;
  const auto next = service::Session::create(servers->target(2), model.graph(), options);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE((*next)->run({}, {}, {"read"}).ok());
}

TEST(JobLease, names_are_checked_before_anybody_is_asked) {
  const auto server = local_server();
  Model model;
  model.constant({1});
  service::SessionOptions options = patient();
  for (const std::string& name : {std::string("a\nb"), std::string(257, 'a')}) {
    options.job.name = name;
    EXPECT_EQ(service::Session::create(server->target(), model.graph(), options).status().code(),
              StatusCode::kInvalidArgument);
  }
  options.job.name = std::string(256, 'a');
  EXPECT_TRUE(service::Session::create(server->target(), model.graph(), options).ok());
}

}  // namespace
}  // namespace sidereal::app
