#include <google/protobuf/descriptor.h>
#include <google/protobuf/stubs/logging.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/app/control.grpc.pb.h"
#include "sidereal/app/server.h"
#include "sidereal/base/check.h"
#include "sidereal/base/log.h"
#include "tests/fuzz/call_script.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/script_target.h"

namespace {

using sidereal::fuzz::Method;
using sidereal::fuzz::Outcome;
using sidereal::fuzz::ScriptRunner;
namespace app = sidereal::app;
namespace v1 = sidereal::control::v1;

/// In which a worker that was hung up on is free again.
constexpr std::chrono::seconds kBound(12);
/// Of a variable; and what a ps allows.
constexpr double kElementsMax = 1 << 20;
constexpr double kElementsAllowed = 0x1p44;
/// Nobody listens there.
constexpr const char* kNobody = "127.0.0.1:1";

/// A ps and a worker in this process, and who calls them.
class Cluster {
 public:
  Cluster() {
    std::vector<Method> methods;
    for (const char* job : {"ps", "worker"}) {
      app::ServerOptions options;
      options.job = job;
      options.options.spin_us = 0;
      auto server = app::Server::create(options);
      SR_CHECK(server.ok(), "{}", sidereal::base::message_of(server.status()));
      servers_.push_back(*std::move(server));
      const auto channel =
          grpc::CreateChannel(servers_.back()->address(), grpc::InsecureChannelCredentials());
      stubs_.push_back(v1::Control::NewStub(channel));
      sidereal::fuzz::add_methods(channel, "sidereal.control.v1.Control", &methods);
    }
    // It would be the end of the server.
    std::erase_if(methods, [](const Method& one) { return one.type->name() == "Shutdown"; });
    runner_ = std::make_unique<ScriptRunner>(
        std::move(methods), nullptr,
        [ps = servers_[0]->address()](const auto& method, std::string body) {
          if (method.name() == "RunJob") return with_ps(ps, std::move(body));
          return method.name() == "CreateVariables" ? with_room(std::move(body)) : body;
        });
  }

  std::vector<Outcome> run(std::string_view script, std::chrono::milliseconds moment) {
    // Jobs that fail say so.
    sidereal::base::set_log_level(sidereal::base::LogLevel::kError);
    ScriptRunner::Marks marks;
    std::vector<Outcome> out = runner_->run(sidereal::fuzz::parse_script(script), &marks, moment);
    wait_for_worker();
    forget_variables();
    return out;
  }

  [[nodiscard]] const std::vector<Method>& methods() const { return runner_->methods(); }

 private:
  /// A job may name the one ps there is, as "ps"; other machines are not to hear of this.
  static std::string with_ps(const std::string& address, std::string body) {
    v1::RunJobRequest request;
    if (!request.ParseFromString(body) || request.ps().empty()) return body;
    for (std::string& ps : *request.mutable_ps()) ps = ps == "ps" ? address : kNobody;
    return request.SerializeAsString();
  }

  /// A ps takes and fills what it is asked for; that is to be little, or more than it allows.
  static std::string with_room(std::string body) {
    v1::CreateVariablesRequest request;
    if (!request.ParseFromString(body)) return body;
    for (v1::LaneVariables& lane : *request.mutable_lanes()) {
      for (v1::Variable& variable : *lane.mutable_variables()) {
        double elements = 1;
        for (const int64_t extent : variable.dims()) elements *= static_cast<double>(extent);
        if (elements > kElementsMax && elements <= kElementsAllowed) variable.clear_dims();
      }
    }
    return request.SerializeAsString();
  }

  void forget_variables() {
    grpc::ClientContext context;
    v1::CreateVariablesReply reply;
    SR_CHECK(stubs_[0]->CreateVariables(&context, v1::CreateVariablesRequest(), &reply).ok(),
             "the ps is gone");
  }

  /// Its job has ended when it looks at the next one.
  void wait_for_worker() {
    const auto deadline = std::chrono::system_clock::now() + kBound;
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(deadline);
      const auto job = stubs_[1]->RunJob(&context, v1::RunJobRequest());
      v1::JobEvent event;
      while (job->Read(&event)) {
      }
      const grpc::Status status = job->Finish();
      if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) return;
      SR_CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED,
               "the worker goes on with a job that nobody wants: {}", status.error_message());
    }
  }

  std::vector<std::unique_ptr<app::Server>> servers_;
  std::vector<std::unique_ptr<v1::Control::Stub>> stubs_;
  std::unique_ptr<ScriptRunner> runner_;
};

/// Lives as long as the process.
Cluster& the_cluster() {
  static Cluster& kept = *[] {
    // Strings that are no UTF-8 are what it is about.
    google::protobuf::SetLogHandler(nullptr);
    return new Cluster;
  }();
  return kept;
}

}  // namespace

std::vector<Outcome> sidereal::fuzz::run_control_script(std::string_view script,
                                                        std::chrono::milliseconds moment) {
  return the_cluster().run(script, moment);
}

/// What anyone may say to the control services of a ps and a worker: each call ends, and the worker
/// is free for the next job.
SR_FUZZ_TARGET(control_calls) { the_cluster().run(input, sidereal::fuzz::kMoment); }

SR_FUZZ_SCRIPTS(the_cluster().methods())
