#include "tests/sim/task_life.h"

#include <algorithm>

namespace sidereal::sim {

using task::DataChannels;
using task::DataPort;
using task::LaneAddress;
using task::LaneSystem;

TaskLife::TaskLife(const Context& context, sys::sim::Host* host, const Options& options,
                   Finder* finder)
    : context_(context), options_(options) {
  std::vector<LaneSystem> stepped;
  for (int i = 0; i < options.lanes; ++i) {
    lanes_.push_back(std::make_unique<LaneOfTask>());
    lanes_.back()->node = context.world->add_node(host);
    stepped.push_back({.network = lanes_.back()->node, .clock = lanes_.back()->node});
  }
  task_ = task::Task::create({.name = options.name,
                              .incarnation = options.incarnation,
                              .lanes = options.lanes,
                              .inbox_slots = options.inbox_slots,
                              .pool_bytes = size_t{16} << 20,
                              .standby_timeout_ns = context.scenario->standby_timeout_ns,
                              .stepped = std::move(stepped)})
              .value();
  for (int i = 0; i < options.lanes; ++i) {
    LaneOfTask& one = *lanes_[index(i)];
    one.lane = task_->lane(i);
    one.endpoint = transport::Endpoint::create(one.lane,
                                               {.cluster_id = kCluster,
                                                .task = options.name,
                                                .incarnation = options.incarnation,
                                                .lane_count = static_cast<uint32_t>(options.lanes)},
                                               context.scenario->options, context.credentials)
                       .value();
    one.channels = std::make_unique<DataChannels>(
        task_.get(), one.endpoint.get(),
        [finder, &one](const std::string& task, int lane, uint64_t /*incarnation*/,
                       std::function<void(Result<LaneAddress>)> done) {
          finder->find(one.node, one.lane, task, lane, std::move(done));
        },
        [](const std::string& task) { return task; }, &one.node->random());
    one.port =
        DataPort::create(task_.get(), i, one.endpoint.get(), {host->address(), kPort + i}).value();
  }
}

TaskLife::~TaskLife() { SR_CHECK(task_ == nullptr, "whoever derives from a task's life ends it"); }

void TaskLife::begin() {
  std::vector<task::Peers*> peers;
  for (const auto& one : lanes_) peers.push_back(one->channels.get());
  task_->start(peers);
  for (int i = 0; i < options_.lanes; ++i) {
    lanes_[index(i)]->node->drive(lanes_[index(i)].get());
  }
}

void TaskLife::end() {
  task_->stop();
  lanes_.clear();
  task_.reset();
}

std::vector<sys::sim::Node*> TaskLife::lane_nodes() const {
  std::vector<sys::sim::Node*> out;
  for (int i = 0; i < options_.lanes; ++i) out.push_back(lanes_[index(i)]->node);
  return out;
}

Memory TaskLife::task_memory() const {
  Memory out{.send_bytes_max = send_bytes_max_};
  for (const auto& one : lanes_) {
    out.add({.receive_bytes_max = one->endpoint->budget().used_max()});
  }
  return out;
}

void TaskLife::check_task_memory(int connections) {
  const auto& options = scenario().options;
  // One message that is larger than all room may be received alone.
  const auto room =
      static_cast<uint64_t>(std::max(options.lane_receive_bytes_max, scenario().bytes_large + 64));
  // Each connection may have a share, and one answer more: it is read no further then.
  const auto each = static_cast<uint64_t>((64 << 10) + scenario().bytes_large + 4096);
  const auto most = static_cast<uint64_t>(options.lane_send_bytes_max) +
                    each * static_cast<uint64_t>(connections + 1);
  for (const auto& one : lanes_) {
    const uint64_t received = one->endpoint->budget().used_max();
    const uint64_t sending = one->endpoint->send_bytes();
    send_bytes_max_ = std::max(send_bytes_max_, sending);
    if (received > room) {
      ledger()->complain("{}: {} bytes were received at a time; {} are allowed", one->lane->name(),
                         received, room);
    }
    if (sending > most) {
      ledger()->complain("{}: {} bytes wait to be sent; {} are allowed", one->lane->name(), sending,
                         most);
    }
  }
}

std::string TaskLife::activity() {
  std::string out;
  for (const auto& one : lanes_) {
    transport::Endpoint& end = *one->endpoint;
    if (end.budget().used() == 0 && end.budget().waiting() == 0 && end.send_bytes() == 0 &&
        end.chunks().taken() == 0) {
      continue;
    }
    out += fmt::format(
        "; {} keeps room for {} bytes, {} messages that wait, {} bytes to send and {} chunks",
        one->lane->name(), end.budget().used(), end.budget().waiting(), end.send_bytes(),
        end.chunks().taken());
  }
  const metrics::Readings figures = task_->figures();
  const int64_t running = figures.value("sidereal_task_steps_running");
  const int64_t blocked = figures.value("sidereal_task_steps_blocked");
  if (running != 0 || blocked != 0) {
    out += fmt::format("; {} runs {} steps, of which {} wait", task_->name(), running, blocked);
  }
  const int64_t own = options_.has_session ? 1 : 0;
  const int64_t sessions = figures.value("sidereal_task_sessions");
  const int64_t programs = figures.value("sidereal_task_programs");
  if (sessions != own || programs > 2 * own * lanes()) {
    out += fmt::format("; {} has {} sessions, and programs: {}", task_->name(), sessions, programs);
  }
  return out;
}

}  // namespace sidereal::sim
