#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/task/data_channels.h"
#include "sidereal/task/data_port.h"
#include "sidereal/task/task.h"
#include "sidereal/transport/endpoint.h"
#include "tests/sim/lives.h"
#include "tests/sim/process.h"

namespace sidereal::sim {

/// Finds data ports, as task::DataChannel::Find; `node` asks, on its lane.
class Finder {
 public:
  virtual ~Finder() = default;
  virtual void find(sys::sim::Node* node, lane::Lane* lane, const std::string& task, int which,
                    std::function<void(Result<task::LaneAddress>)> done) = 0;
};

/// A task::Task whose lanes are nodes of a simulation, each with a data port, and with channels
/// to those of others.
/// Lifecycle: begin(); the end of what derives from it calls end() first, after its nodes have been
///            killed.
class TaskLife {
 public:
  struct Options {
    std::string name;
    uint64_t incarnation = 0;
    int lanes = 1;
    int64_t inbox_slots = 64;
    bool has_session = false;  ///< Of its own, with two programs for each lane.
  };
  TaskLife(const Context& context, sys::sim::Host* host, const Options& options, Finder* finder);
  virtual ~TaskLife();

  [[nodiscard]] task::Task* task() const { return task_.get(); }
  [[nodiscard]] uint64_t life() const { return task_->incarnation(); }
  [[nodiscard]] std::vector<sys::sim::Node*> lane_nodes() const;
  [[nodiscard]] sys::sim::Node* node_of(int lane) const { return lanes_[index(lane)]->node; }
  [[nodiscard]] transport::Endpoint* endpoint(int lane) const {
    return lanes_[index(lane)]->endpoint.get();
  }
  [[nodiscard]] task::DataChannels* channels(int lane) const {
    return lanes_[index(lane)]->channels.get();
  }
  [[nodiscard]] int lanes() const { return options_.lanes; }

  /// Has a lane do a step more than the world has it do.
  void step(int lane) { lanes_[index(lane)]->step(); }
  /// What all connections take now and took at most.
  [[nodiscard]] Memory task_memory() const;
  /// Complains of memory that is out of bounds; others may have so many connections to a lane.
  void check_task_memory(int connections);
  /// "": idle. Else what goes on.
  [[nodiscard]] std::string activity();

 protected:
  /// Takes steps from now on.
  void begin();
  void end();
  [[nodiscard]] const Context& context() const { return context_; }
  [[nodiscard]] const Scenario& scenario() const { return *context_.scenario; }
  [[nodiscard]] Ledger* ledger() const { return context_.ledger; }

 private:
  struct LaneOfTask final : sys::sim::Runner {
    bool step() override { return lane->step(); }
    int64_t next_wake() override { return lane->next_wake(); }
    sys::sim::Node* node = nullptr;
    lane::Lane* lane = nullptr;
    std::unique_ptr<transport::Endpoint> endpoint;
    std::unique_ptr<task::DataChannels> channels;
    std::unique_ptr<task::DataPort> port;
  };
  static size_t index(int lane) { return static_cast<size_t>(lane); }

  const Context& context_;
  const Options options_;
  std::unique_ptr<task::Task> task_;
  std::vector<std::unique_ptr<LaneOfTask>> lanes_;
  uint64_t send_bytes_max_ = 0;
};

}  // namespace sidereal::sim
