#include <google/protobuf/stubs/logging.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/app/server.h"
#include "sidereal/base/check.h"
#include "sidereal/base/log.h"
#include "sidereal/service/figures_message.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/worker_service.h"
#include "tests/fuzz/call_script.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/script_target.h"

namespace {

using sidereal::fuzz::Method;
using sidereal::fuzz::Outcome;
using sidereal::fuzz::ScriptRunner;
namespace app = sidereal::app;
namespace service = sidereal::service;
namespace v1 = sidereal::session::v1;
using Clock = std::chrono::steady_clock;

/// In which a server forgets calls that have ended.
constexpr std::chrono::seconds kBound(10);
/// What is kept by name, in containers that nobody knows of any more: then the servers start anew.
constexpr int64_t kResourcesMax = 1000;
constexpr int64_t kResourceBytesMax = int64_t{64} << 20;
/// Numbers of steps of one input.
constexpr uint64_t kSteps = 16;

std::unique_ptr<app::Server> started(const app::ServerOptions& options) {
  auto server = app::Server::create(options);
  SR_CHECK(server.ok(), "{}", sidereal::base::message_of(server.status()));
  return *std::move(server);
}

/// Two tasks of one cluster, in this process, and who calls them.
class Cluster {
 public:
  Cluster() {
    // Ports that were free a moment ago.
    std::vector<std::string> addresses;
    {
      std::vector<std::unique_ptr<app::Server>> holders;
      for (int i = 0; i < 2; ++i) {
        holders.push_back(*app::Server::create_local());
        addresses.push_back(holders.back()->target().substr(7));
      }
    }
    app::ServerOptions options;
    SR_CHECK(options.cluster.add_job("w", addresses).ok(), "no cluster");
    options.job = "w";
    std::vector<Method> methods;
    for (options.task = 0; options.task < 2; ++options.task) {
      servers_.push_back(started(options));
      const auto channel = grpc::CreateChannel(addresses[static_cast<size_t>(options.task)],
                                               grpc::InsecureChannelCredentials());
      masters_.push_back(v1::Master::NewStub(channel));
      workers_.push_back(v1::Worker::NewStub(channel));
      for (const char* service : {"Master", "Worker"}) {
        sidereal::fuzz::add_methods(channel, std::string("sidereal.session.v1.") + service,
                                    &methods);
      }
    }
    for (Method& method : methods) method.answers_late = method.type->name() == "KeepSessionAlive";
    runner_ = std::make_unique<ScriptRunner>(std::move(methods), &learn);
  }

  std::vector<Outcome> run(std::string_view script, std::chrono::milliseconds moment) {
    sidereal::base::set_log_level(sidereal::base::LogLevel::kError);
    ScriptRunner::Marks marks;
    for (uint64_t i = 0; i < 4; ++i) marks["NEWSTEP" + std::to_string(i)] = next_step_ + i;
    next_step_ += kSteps;
    std::vector<Outcome> out = runner_->run(sidereal::fuzz::parse_script(script), &marks, moment);
    sidereal::base::set_log_level(sidereal::base::LogLevel::kError);
    for (const auto& [word, number] : marks) {
      if (word.substr(0, 7) == "SESSION") close(number);
    }
    for (auto& worker : workers_) wait_until_quiet(worker.get());
    return out;
  }

  /// Whether much was kept that no script can know of.
  [[nodiscard]] bool is_full() const { return is_full_; }
  [[nodiscard]] const std::vector<Method>& methods() const { return runner_->methods(); }

 private:
  static void learn(const Outcome& call, ScriptRunner::Marks* marks) {
    const std::string& name = call.type->name();
    v1::CreateSessionReply session;
    if (name == "CreateSession" && session.ParseFromString(call.replies.back())) {
      add("SESSION", session.session(), marks);
    }
    v1::AttachReply attached;
    if (name == "Attach" && attached.ParseFromString(call.replies.back()) &&
        attached.program() != 0) {
      add("PROGRAM", attached.program(), marks);
    }
    v1::HearCommandsReply heard;
    if (name == "HearCommands" && heard.ParseFromString(call.replies.back()) &&
        heard.number() != 0) {
      add("COMMAND", heard.number(), marks);
    }
  }
  static void add(const std::string& word, uint64_t number, ScriptRunner::Marks* marks) {
    for (int i = 0; i < 8; ++i) {
      if (marks->try_emplace(word + std::to_string(i), number).second) return;
    }
  }

  /// Who made it closes it, or has lost it by a Reset.
  void close(uint64_t session) {
    for (auto& master : masters_) {
      grpc::ClientContext context;
      v1::CloseSessionRequest request;
      request.set_session(session);
      v1::CloseSessionReply reply;
      static_cast<void>(master->CloseSession(&context, request, &reply));
    }
  }

  void wait_until_quiet(v1::Worker::Stub* worker) {
    v1::ResetRequest reset;
    reset.add_containers("");
    v1::ResetReply done;
    grpc::ClientContext resetting;
    SR_CHECK(worker->ResetContainers(&resetting, reset, &done).ok(), "a worker is gone");
    const Clock::time_point deadline = Clock::now() + kBound;
    while (true) {
      grpc::ClientContext context;
      v1::GetStatusRequest request;
      request.set_version(service::kSessionVersion);
      v1::TaskStatus status;
      SR_CHECK(worker->GetStatus(&context, request, &status).ok(), "a worker is gone");
      const sidereal::metrics::Readings figures = service::figures_of(status);
      if (figures.value("sidereal_task_sessions") == 0 &&
          figures.value("sidereal_task_programs") == 0 &&
          figures.value("sidereal_task_steps_running") == 0 &&
          figures.value("sidereal_master_loops_running") == 0 &&
          figures.value("sidereal_task_steps_blocked") == 0 &&
          figures.value("sidereal_task_arriving_bytes") == 0) {
        is_full_ |= figures.value("sidereal_task_resources") > kResourcesMax ||
                    figures.value("sidereal_task_resource_bytes") > kResourceBytesMax;
        return;
      }
      SR_CHECK(Clock::now() < deadline, "something is left behind: {}", status.DebugString());
      std::this_thread::yield();
    }
  }

  std::vector<std::unique_ptr<app::Server>> servers_;
  std::vector<std::unique_ptr<v1::Master::Stub>> masters_;
  std::vector<std::unique_ptr<v1::Worker::Stub>> workers_;
  std::unique_ptr<ScriptRunner> runner_;
  uint64_t next_step_ = 1;
  bool is_full_ = false;
};

/// Lives as long as the process, but for what it has kept.
Cluster& the_cluster() {
  static std::unique_ptr<Cluster>& kept = *[] {
    // Strings that are no UTF-8 are what it is about.
    google::protobuf::SetLogHandler(nullptr);
    return new std::unique_ptr<Cluster>(std::make_unique<Cluster>());
  }();
  if (kept->is_full()) {
    kept = nullptr;
    kept = std::make_unique<Cluster>();
  }
  return *kept;
}

}  // namespace

std::vector<Outcome> sidereal::fuzz::run_session_script(std::string_view script,
                                                        std::chrono::milliseconds moment) {
  return the_cluster().run(script, moment);
}

/// What anyone may say to the services of a server: each call ends, and when all have, nothing is
/// left of them.
SR_FUZZ_TARGET(session_calls) { the_cluster().run(input, sidereal::fuzz::kMoment); }

SR_FUZZ_SCRIPTS(the_cluster().methods())
