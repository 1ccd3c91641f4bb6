#include <gtest/gtest.h>

#include <thread>

#include "sidereal/app/testing/figures.h"
#include "sidereal/app/testing/processes.h"
#include "sidereal/base/sanitizer.h"
#include "sidereal/ir/text.h"
#include "sidereal/sys/posix/process.h"

// What sessions leave behind in processes, by their own figures.

namespace sidereal::app {
namespace {

namespace v1 = session::v1;

constexpr int kWarmUp = 20;
constexpr int kRounds = 100;
constexpr int64_t kMemory = int64_t{4} << 20;
/// gRPC starts threads when it needs them, and ends those it does not.
constexpr int64_t kThreads = 4;
/// Connections of this process that are being closed.
constexpr int64_t kFiles = 4;

enum class Round { kRuns, kFails, kTimesOut, kClientGoes };

std::string name_of(Round round) {
  switch (round) {
    case Round::kRuns:
      return "runs";
    case Round::kFails:
      return "fails";
    case Round::kTimesOut:
      return "times_out";
    case Round::kClientGoes:
      return "client_goes";
  }
  return "";
}

struct Case {
  int tasks = 1;
  Round round = Round::kRuns;
};

class Leaks : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (server_program().empty()) GTEST_SKIP() << "skipped: the program sidereal is not built";
    cluster_ = std::make_unique<ProcessCluster>(tasks_);
  }

  void run_round() {
    if (GetParam().round == Round::kClientGoes) return let_a_client_go();
    const auto made = service::Session::create(cluster_->target(), model_.graph(), patient());
    ASSERT_TRUE(made.ok()) << made.status();
    service::Session* const session = made->get();
    if (GetParam().round == Round::kRuns) {
      ASSERT_TRUE(session->run({feed_of_x()}, {"back"}).ok());
    } else if (GetParam().round == Round::kFails) {
      const Status status = session->run({feed_of_x(3)}, {"back", "wants_two"}).status();
      ASSERT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    } else {
      service::RunOptions options;
      options.timeout = std::chrono::milliseconds(5);
      const Status status = session->run({}, {"taken", "taken_elsewhere"}, {}, options).status();
      ASSERT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    }
    ASSERT_TRUE(session->close().ok());
  }

  /// A client whose connection breaks while its step waits.
  void let_a_client_go() {
    const auto stub = v1::Master::NewStub(cluster_->channel());
    v1::CreateSessionRequest request;
    request.set_version(service::kSessionVersion);
    request.set_graph(ir::to_text(model_.graph()));
    v1::CreateSessionReply made;
    grpc::ClientContext creating;
    ASSERT_TRUE(stub->CreateSession(&creating, request, &made).ok());
    grpc::ClientContext holding;
    v1::KeepSessionAliveRequest keep_alive;
    keep_alive.set_session(made.session());
    v1::KeepSessionAliveReply held;
    std::thread holder(
        [&] { static_cast<void>(stub->KeepSessionAlive(&holding, keep_alive, &held)); });
    grpc::ClientContext running;
    const auto step = stub->RunStep(&running);
    v1::StepRequest head;
    head.mutable_head()->set_session(made.session());
    head.mutable_head()->add_fetches("taken");
    EXPECT_TRUE(step->Write(head));
    EXPECT_TRUE(eventually([&] { return task_figure(cluster_->status(), "steps_running") > 0; }));
    running.TryCancel();
    holding.TryCancel();
    holder.join();
    static_cast<void>(step->Finish());
  }

  [[nodiscard]] bool is_quiet(int task) const {
    const v1::TaskStatus now = cluster_->status(task);
    return now.pid() != 0 && task_figure(now, "sessions") == 0 &&
           task_figure(now, "programs") == 0 && task_figure(now, "steps_running") == 0 &&
           task_figure(now, "steps_blocked") == 0;
  }

  const int tasks_ = GetParam().tasks;
  SpreadModel model_{tasks_};
  std::unique_ptr<ProcessCluster> cluster_;
};

TEST_P(Leaks, are_none_after_a_hundred_rounds) {
  for (int i = 0; i < kWarmUp; ++i) ASSERT_NO_FATAL_FAILURE(run_round());
  std::vector<v1::TaskStatus> before;
  for (int task = 0; task < tasks_; ++task) {
    ASSERT_TRUE(eventually([&] { return is_quiet(task); }));
    before.push_back(cluster_->status(task));
  }
  const auto here = sys::posix::process_figures();
  for (int i = 0; i < kRounds; ++i) ASSERT_NO_FATAL_FAILURE(run_round());
  for (int task = 0; task < tasks_; ++task) {
    const v1::TaskStatus& was = before[static_cast<size_t>(task)];
    EXPECT_TRUE(eventually([&] {
      return is_quiet(task) &&
             task_figure(cluster_->status(task), "open_files") <= task_figure(was, "open_files") &&
             task_figure(cluster_->status(task), "threads") <=
                 task_figure(was, "threads") + kThreads;
    })) << cluster_->status(task).DebugString();
    const v1::TaskStatus now = cluster_->status(task);
    EXPECT_EQ(task_figure(now, "resources"), task_figure(was, "resources"));
    EXPECT_EQ(task_figure(now, "resource_bytes"), task_figure(was, "resource_bytes"));
    RecordProperty(
        "bytes_" + std::to_string(task),
        std::to_string(task_figure(now, "memory_bytes") - task_figure(was, "memory_bytes")));
    if (!base::kIsSanitized) {
      EXPECT_LT(task_figure(now, "memory_bytes"), task_figure(was, "memory_bytes") + kMemory);
    }
  }
  EXPECT_TRUE(eventually([&] {
    const auto now = sys::posix::process_figures();
    return now.open_files <= here.open_files + kFiles && now.threads <= here.threads + kThreads;
  }));
  if (base::kIsSanitized) return;
  EXPECT_LT(sys::posix::process_figures().memory_used, here.memory_used + kMemory);
}

INSTANTIATE_TEST_SUITE_P(
    Rounds, Leaks,
    ::testing::Values(Case{1, Round::kRuns}, Case{3, Round::kRuns}, Case{1, Round::kFails},
                      Case{3, Round::kFails}, Case{1, Round::kTimesOut}, Case{3, Round::kTimesOut},
                      Case{1, Round::kClientGoes}, Case{3, Round::kClientGoes}),
    [](const auto& info) {
      return name_of(info.param.round) + "_on_" + std::to_string(info.param.tasks);
    });

}  // namespace
}  // namespace sidereal::app
