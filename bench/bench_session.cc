// Latency of a step of a session, beside raw gRPC unary calls that carry as many bytes: an empty
// step, 1 MB fed, 1 MB fetched, both. `local`: the step runs on the master's own device; `remote`:
// on another task, which the master asks. Client, master, task and gRPC server are four processes,
// loopback TCP. Sides take turns within each round; figures are of all rounds together.

#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/session/echo.grpc.pb.h"
#include "ps/process.h"
#include "ps/work.h"
#include "sidereal/app/server.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ops/ops.h"
#include "sidereal/service/session.h"

namespace {

using namespace sidereal::bench;  // NOLINT: this is that namespace's main program.
namespace base = sidereal::base;
namespace ir = sidereal::ir;
namespace app = sidereal::app;
namespace service = sidereal::service;
using sidereal::Result;
using sidereal::Status;
using sidereal::tensor::DType;
using sidereal::tensor::Shape;
using sidereal::tensor::Tensor;

constexpr double kReadySeconds = 60;
constexpr int64_t kElements = 262'144;
constexpr int64_t kBytes = kElements * 4;

struct Flags {
  int rounds = 20;
  int calls = 50;
  std::string json;
};

// --- The processes.

class EchoService final : public Echo::Service {
  grpc::Status Call(grpc::ServerContext*, const Ask* request, Answer* reply) override {
    if (request->reply_bytes() < 0 || request->reply_bytes() > kBytes) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "reply_bytes"};
    }
    reply->mutable_data()->resize(static_cast<size_t>(request->reply_bytes()));
    return grpc::Status::OK;
  }
};

Status serve_echo(int in, int out) {
  EchoService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  builder.SetMaxReceiveMessageSize(2 * kBytes);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return base::unavailable("no gRPC server");
  write_all(out, &port, sizeof(port));
  char byte = 0;
  static_cast<void>(read_all(in, &byte, 1));
  return {};
}

/// A task of a cluster whose ports are read from `in`.
Status serve_task(int in, int out, int task) {
  std::array<int32_t, 2> ports = {};
  if (!read_all(in, ports.data(), sizeof(ports))) return base::unavailable("no ports");
  app::ServerOptions options;
  std::vector<std::string> addresses;
  for (const int32_t port : ports) addresses.push_back(fmt::format("127.0.0.1:{}", port));
  SR_RETURN_IF_ERROR(options.cluster.add_job("bench", addresses));
  options.job = "bench";
  options.task = task;
  SR_ASSIGN_OR_RETURN(const auto server, app::Server::create(options));
  const int32_t ready = 1;
  write_all(out, &ready, sizeof(ready));
  char byte = 0;
  static_cast<void>(read_all(in, &byte, 1));
  return {};
}

/// Two ports that nobody uses at present.
std::array<int32_t, 2> free_ports() {
  std::array<int32_t, 2> out = {};
  std::vector<std::unique_ptr<app::Server>> holders;
  for (int32_t& port : out) {
    auto server = app::Server::create_local();
    const std::string target = (*server)->target();
    port = std::stoi(target.substr(target.rfind(':') + 1));
    holders.push_back(*std::move(server));
  }
  return out;
}

// --- What is measured.

struct Case {
  std::string name;
  bool feed = false;
  bool fetch = false;
};

const std::array<Case, 4> kCases = {Case{"empty", false, false}, Case{"1 MB fed", true, false},
                                    Case{"1 MB fetched", false, true},
                                    Case{"1 MB fed and fetched", true, true}};

/// A session whose nodes are on one task.
class SessionSide {
 public:
  static Result<std::unique_ptr<SessionSide>> create(const std::string& target,
                                                     const std::string& device) {
    auto out = std::make_unique<SessionSide>();
    ir::OpRegistry registry;
    sidereal::ops::register_all(&registry);
    ir::Graph graph;
    ir::Builder b(&graph, &registry);
    const ir::Output x =
        b.add("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", Shape{-1}}}, "x");
    b.add("Relu", {x}, {}, "y");
    b.add("Const", {}, {{"value", Tensor::zeros(DType::kFloat32, Shape{1})}}, "one");
    b.add("Const", {}, {{"value", Tensor::of(Shape{1}, std::vector<int64_t>{kElements})}}, "shape");
    b.add("BroadcastTo", {*graph.find_output("one"), *graph.find_output("shape")}, {}, "wide");
    b.add_node("NoOp", {}, {}, {}, "nothing");
    b.add_node("NoOp", {}, {}, {graph.find("y")->id}, "take");
    SR_RETURN_IF_ERROR(b.status());
    for (const ir::Node& node : graph.nodes()) graph.mutable_node(node.id).device = device;
    SR_ASSIGN_OR_RETURN(out->session_, service::Session::create(target, graph));
    return out;
  }

  Status call(const Case& one) {
    std::vector<service::Session::Feed> feeds;
    if (one.feed) feeds.emplace_back("x", value_);
    std::vector<std::string> fetches;
    std::vector<std::string> targets;
    if (one.fetch) {
      fetches.emplace_back(one.feed ? "y" : "wide");
    } else {
      targets.emplace_back(one.feed ? "take" : "nothing");
    }
    return session_->run(feeds, fetches, targets).status();
  }

 private:
  std::unique_ptr<service::Session> session_;
  Tensor value_ = Tensor::zeros(DType::kFloat32, Shape{kElements});
};

class EchoSide {
 public:
  explicit EchoSide(int port)
      : stub_(Echo::NewStub(grpc::CreateCustomChannel(
            fmt::format("127.0.0.1:{}", port), grpc::InsecureChannelCredentials(), arguments()))),
        data_(static_cast<size_t>(kBytes), 'x') {}

  Status call(const Case& one) {
    Ask request;
    // As a step does: the bytes are the caller's and are put into a message.
    if (one.feed) request.set_data(data_);
    if (one.fetch) request.set_reply_bytes(kBytes);
    Answer answer;
    grpc::ClientContext context;
    const grpc::Status status = stub_->Call(&context, request, &answer);
    return status.ok() ? Status() : base::unavailable("{}", status.error_message());
  }

 private:
  static grpc::ChannelArguments arguments() {
    grpc::ChannelArguments out;
    out.SetMaxReceiveMessageSize(2 * kBytes);
    return out;
  }

  std::unique_ptr<Echo::Stub> stub_;
  std::string data_;
};

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

using Call = std::function<Status(const Case&)>;

Status measure(const Flags& flags, const std::vector<std::pair<std::string, Call>>& sides,
               nlohmann::json* rows) {
  fmt::print("{:<22} {:<14} {:>9} {:>9} {:>9} {:>12}\n", "step", "side", "p50 us", "p99 us",
             "min us", "p50 / gRPC");
  for (const Case& one : kCases) {
    std::map<std::string, std::vector<double>> times;
    for (int round = -1; round < flags.rounds; ++round) {
      for (const auto& [name, call] : sides) {
        for (int i = 0; i < flags.calls; ++i) {
          const int64_t began = now_ns();
          SR_RETURN_IF_ERROR(base::with_context(call(one), name));
          // The first round warms up.
          if (round >= 0) times[name].push_back(static_cast<double>(now_ns() - began) * 1e-3);
        }
      }
    }
    const double grpc = quantile(times.at("gRPC unary"), 0.5);
    for (const auto& [name, call] : sides) {
      const std::vector<double>& all = times.at(name);
      const double p50 = quantile(all, 0.5);
      const double p99 = quantile(all, 0.99);
      fmt::print("{:<22} {:<14} {:>9.0f} {:>9.0f} {:>9.0f} {:>12.2f}\n", one.name, name, p50, p99,
                 quantile(all, 0), p50 / grpc);
      rows->push_back({{"step", one.name},
                       {"side", name},
                       {"p50_us", p50},
                       {"p99_us", p99},
                       {"ratio_to_grpc", p50 / grpc}});
    }
  }
  return {};
}

Status run(const Flags& flags) {
  // Forked before anything here has threads.
  SR_ASSIGN_OR_RETURN(const auto echo, Process::fork("the gRPC server", serve_echo));
  SR_ASSIGN_OR_RETURN(const auto master, Process::fork("the master", [](int in, int out) {
                        return serve_task(in, out, 0);
                      }));
  SR_ASSIGN_OR_RETURN(const auto task, Process::fork("the task", [](int in, int out) {
                        return serve_task(in, out, 1);
                      }));
  int32_t echo_port = 0;
  SR_RETURN_IF_ERROR(echo->receive(&echo_port, sizeof(echo_port), kReadySeconds));
  const std::array<int32_t, 2> ports = free_ports();
  int32_t ready = 0;
  for (Process* const process : {master.get(), task.get()}) {
    SR_RETURN_IF_ERROR(process->send(ports.data(), sizeof(ports)));
    SR_RETURN_IF_ERROR(process->receive(&ready, sizeof(ready), kReadySeconds));
  }
  const std::string target = fmt::format("grpc://127.0.0.1:{}", ports[0]);
  SR_ASSIGN_OR_RETURN(const auto local, SessionSide::create(target, "/job:bench/task:0"));
  SR_ASSIGN_OR_RETURN(const auto remote, SessionSide::create(target, "/job:bench/task:1"));
  EchoSide raw(echo_port);
  nlohmann::json rows = nlohmann::json::array();
  SR_RETURN_IF_ERROR(
      measure(flags,
              {{"gRPC unary", [&](const Case& one) { return raw.call(one); }},
               {"session local", [&](const Case& one) { return local->call(one); }},
               {"session remote", [&](const Case& one) { return remote->call(one); }}},
              &rows));
  if (!flags.json.empty()) std::ofstream(flags.json) << rows.dump(1) << "\n";
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Latency of steps of sessions, beside gRPC unary calls of the same size.");
  app.option_defaults()->always_capture_default();
  app.add_option("--rounds", flags.rounds, "rounds in which the sides take turns")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--calls", flags.calls, "calls of each side in a round")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--json", flags.json, "write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  const Status status = run(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "bench_session: {}\n", base::message_of(status));
  return 1;
}
