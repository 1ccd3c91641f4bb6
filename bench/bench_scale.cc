// Light workers of one process: each has a session on the ps and the connections of a real worker,
// and says what one says, but computes nothing. bench/scale.py starts the ps and several such
// processes, and tells them on standard input what to do:
//
//   ps HOST:PORT             the control service of the ps; once
//   attach N                 the first N workers attach and connect, those that have not
//   run N WARM_MS MS         the first N workers make steps, one at a time each
//
// Every answer is a line of JSON. With --protocol alone it is gRPC without an engine, and --serve
// makes the process the ps of such workers.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <future>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "scale/alone.h"
#include "scale/control.h"
#include "scale/workers.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/ir/text.h"
#include "sidereal/ops/ops.h"

namespace {

using namespace sidereal::bench;  // NOLINT: this is that namespace's main program.
namespace base = sidereal::base;
namespace cluster = sidereal::cluster;
namespace ir = sidereal::ir;
using nlohmann::json;
using sidereal::Result;
using sidereal::Status;

/// How long attaching, and what comes after a window, may take.
constexpr auto kPatience = std::chrono::seconds(60);

struct Flags {
  std::string protocol;
  std::string graph;
  std::string target;
  int first = 0;
  int count = 1;
  int64_t ids = 64;
  int64_t rows = 50'000;
  int64_t row_bytes = 64;
  int tables = 8;
  int cpu = -1;
  bool serve = false;
};

AloneBytes alone_bytes(const Flags& flags) {
  const auto ids = static_cast<size_t>(flags.tables) * static_cast<size_t>(flags.ids);
  return {.ids = ids * sizeof(int64_t), .rows = ids * static_cast<size_t>(flags.row_bytes)};
}

class Workers {
 public:
  explicit Workers(Flags flags)
      : flags_(std::move(flags)),
        ids_(flags_.rows, flags_.ids, static_cast<uint64_t>(flags_.first) + 1) {}

  Result<json> start() {
    if (is_alone()) {
      SR_ASSIGN_OR_RETURN(alone_,
                          AloneEnd::create(static_cast<size_t>(flags_.count), alone_bytes(flags_)));
      return json{{"ports", alone_->ports()}};
    }
    SR_ASSIGN_OR_RETURN(common_.protocol, cluster::parse_protocol(flags_.protocol));
    common_.ids = &ids_;
    std::ifstream file(flags_.graph);
    std::ostringstream text;
    text << file.rdbuf();
    ir::OpRegistry registry;
    sidereal::ops::register_all(&registry);
    SR_ASSIGN_OR_RETURN(graph_, ir::from_text(text.str(), registry));
    if (cluster::has_data_port(common_.protocol)) {
      SR_ASSIGN_OR_RETURN(lane_, make_lane(flags_.cpu));
    }
    SR_ASSIGN_OR_RETURN(control_, Control::create(static_cast<size_t>(flags_.count)));
    return json{{"ports", control_->ports()}};
  }

  Result<json> execute(const std::string& line) {
    std::istringstream in(line);
    std::string command;
    in >> command;
    if (command == "ps") {
      in >> ps_;
      if (is_alone()) return json::object();
      SR_ASSIGN_OR_RETURN(data_, find_data_port(ps_));
      return json::object();
    }
    size_t count = 0;
    in >> count;
    if (count > static_cast<size_t>(flags_.count)) {
      return base::invalid_argument("this process has {} workers", flags_.count);
    }
    if (command == "attach") {
      while (workers_.size() < count) SR_RETURN_IF_ERROR(attach(workers_.size()));
      return json::object();
    }
    int64_t warm_ms = 0;
    int64_t measure_ms = 0;
    in >> warm_ms >> measure_ms;
    if (command != "run" || count > workers_.size()) {
      return base::invalid_argument("not understood: {}", line);
    }
    return run(count, warm_ms, measure_ms);
  }

 private:
  [[nodiscard]] bool is_alone() const { return flags_.protocol == kAlone; }

  Status attach(size_t number) {
    if (is_alone()) {
      workers_.push_back(alone_->worker(&common_, number, ps_));
      return {};
    }
    const int index = flags_.first + static_cast<int>(number);
    WorkerOptions options = {.number = number,
                             .task = sidereal::cluster::task_name("worker", index),
                             .session = random_(),
                             .data = data_,
                             .plan = {},
                             .programs = {}};
    cluster::ClusterSpec spec;
    SR_RETURN_IF_ERROR(spec.add_job("ps", std::vector<std::string>{ps_}));
    SR_RETURN_IF_ERROR(spec.add_job(
        "worker", cluster::ClusterSpec::Tasks{
                      {index, fmt::format("127.0.0.1:{}", control_->ports()[number])}}));
    SR_ASSIGN_OR_RETURN(options.plan, make_plan(graph_, flags_.target, spec, options.task,
                                                common_.protocol, flags_.ids));
    keep_alives_.push_back(std::make_unique<KeepAlive>(ps_, options.session, common_.protocol));
    SR_ASSIGN_OR_RETURN(options.programs, keep_alives_.back()->attach(options.plan.programs));
    auto worker = make(std::move(options));
    auto started = std::make_shared<std::promise<Status>>();
    worker->start([started](const Status& status) { started->set_value(status); });
    std::future<Status> future = started->get_future();
    if (future.wait_for(kPatience) != std::future_status::ready) {
      return base::deadline_exceeded("worker {} does not connect", index);
    }
    SR_RETURN_IF_ERROR(future.get());
    control_->set_data_port(number, worker->data_port());
    workers_.push_back(std::move(worker));
    return {};
  }

  std::unique_ptr<Worker> make(WorkerOptions options) {
    if (common_.protocol == cluster::Protocol::kGrpc) {
      return grpc_worker(&common_, control_.get(), keep_alives_.back().get(), std::move(options));
    }
    if (cluster::is_pull_push(common_.protocol)) {
      return call_worker(&common_, lane_.get(), std::move(options));
    }
    return part_worker(&common_, lane_.get(), std::move(options));
  }

  Result<json> run(size_t count, int64_t warm_ms, int64_t measure_ms) {
    std::promise<Status> ended;
    common_.tally.begin(count, warm_ms * 1'000'000, measure_ms * 1'000'000, &ended);
    for (size_t i = 0; i < count; ++i) workers_[i]->step();
    std::future<Status> future = ended.get_future();
    if (future.wait_for(kPatience) != std::future_status::ready) {
      return base::deadline_exceeded("steps do not end");
    }
    SR_RETURN_IF_ERROR(future.get());
    return json{{"steps", common_.tally.steps()}, {"times", common_.tally.times()}};
  }

  const Flags flags_;
  IdTensors ids_;
  std::mt19937_64 random_{std::random_device()()};
  Common common_;
  ir::Graph graph_;
  std::string ps_;
  sidereal::sys::Address data_;
  std::unique_ptr<AloneEnd> alone_;
  std::unique_ptr<Control> control_;
  std::vector<std::unique_ptr<KeepAlive>> keep_alives_;
  LanePtr lane_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

json in_words(const Result<json>& answer) {
  if (answer.ok()) return *answer;
  return json{{"error", base::message_of(answer.status())}};
}

void say(const json& answer) { std::cout << answer.dump() << std::endl; }

/// The ps of workers of gRPC alone, until standard input ends.
int serve(const Flags& flags) {
  const auto end = AloneEnd::create(1, alone_bytes(flags));
  say(end.ok() ? json{{"port", (*end)->ports()[0]}} : in_words(end.status()));
  if (!end.ok()) return 1;
  std::string line;
  while (std::getline(std::cin, line)) continue;
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Light workers of one process; started by bench/scale.py.");
  app.add_option("--protocol", flags.protocol, "what the ps was started with; or alone")
      ->required();
  app.add_option("--graph", flags.graph, "a file with the graph of a session");
  app.add_option("--target", flags.target, "the node that a step runs");
  app.add_option("--first", flags.first, "index of the first worker in its job");
  app.add_option("--count", flags.count, "workers of this process");
  app.add_option("--ids", flags.ids, "ids of one table in a step");
  app.add_option("--rows", flags.rows, "rows of a table");
  app.add_option("--row-bytes", flags.row_bytes, "bytes of a row; alone");
  app.add_option("--tables", flags.tables, "tables that a step uses; alone");
  app.add_flag("--serve", flags.serve, "be the ps; alone");
  app.add_option("--cpu", flags.cpu, "core of the lane; -1: any");
  CLI11_PARSE(app, argc, argv);
  if (flags.serve) return serve(flags);
  Workers workers(flags);
  const Result<json> started = workers.start();
  say(in_words(started));
  if (!started.ok()) return 1;
  std::string line;
  while (std::getline(std::cin, line)) say(in_words(workers.execute(line)));
  // Workers are taken down with their process: the ps is gone by now.
  std::fflush(nullptr);
  std::_Exit(0);
}
