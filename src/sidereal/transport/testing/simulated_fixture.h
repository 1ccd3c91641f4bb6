#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/sys/sim/world.h"
#include "sidereal/transport/acceptor.h"
#include "sidereal/transport/channel.h"

/// For tests: a server and a client on simulated hosts, whose time passes when it is asked to.
namespace sidereal::transport::testing {

/// A life of a task.
struct SimulatedTask : sys::sim::Runner {
  SimulatedTask(sys::sim::World* world, sys::sim::Host* host, const std::string& name,
                const config::Options& options)
      : node(world->add_node(host)) {
    lane = lane::Lane::create(
               {.name = name, .spin_us = 0, .inbox_slots = 16, .network = node, .clock = node})
               .value();
    end = Endpoint::create(lane.get(),
                           {.cluster_id = 1, .task = name, .incarnation = node->random().next()},
                           options)
              .value();
    node->drive(this);
  }
  bool step() override { return lane->step(); }
  int64_t next_wake() override { return lane->next_wake(); }

  sys::sim::Node* node;
  std::unique_ptr<lane::Lane> lane;
  std::unique_ptr<Endpoint> end;
};

class SimulatedTest : public ::testing::Test {
 protected:
  SimulatedTest() {
    options_.keepalive_timeout_ms = 1000;
    options_.connect_deadline_ms = 5000;
    make_world({});
  }
  // Handlers of a test belong to its fixture: they are told of the end.
  void TearDown() override { end_all(); }

  void make_world(const sys::sim::WorldOptions& options) {
    end_all();
    world_ = std::make_unique<sys::sim::World>(1, options);
    server_host_ = world_->add_host();
    client_host_ = world_->add_host();
  }
  void start_server(CallHandler* handler) {
    server_ =
        std::make_unique<SimulatedTask>(world_.get(), server_host_, "/job:ps/task:0", options_);
    acceptor_ =
        Acceptor::create(server_->end.get(), {server_host_->address(), 2222}, handler).value();
  }
  void end_server(sys::sim::Death death) {
    world_->kill(server_->node, death);
    acceptor_.reset();
    server_.reset();
  }
  void start_client() {
    client_ =
        std::make_unique<SimulatedTask>(world_.get(), client_host_, "/job:worker/task:0", options_);
  }
  [[nodiscard]] Peer peer() const {
    return {.task = "/job:ps/task:0", .lane = 0, .address = {server_host_->address(), 2222}};
  }
  void run(int64_t ns) {
    // The test may have left something to do.
    for (SimulatedTask* const task : {server_.get(), client_.get()}) {
      if (task != nullptr && task->node->alive()) task->node->drive(task);
    }
    world_->run_until(world_->now() + ns);
  }
  void end_all() {
    if (client_ != nullptr) world_->kill(client_->node, sys::sim::Death::kKilled);
    if (server_ != nullptr) world_->kill(server_->node, sys::sim::Death::kKilled);
    channel_.reset();
    acceptor_.reset();
    client_.reset();
    server_.reset();
  }

  config::Options options_;
  std::unique_ptr<sys::sim::World> world_;
  sys::sim::Host* server_host_ = nullptr;
  sys::sim::Host* client_host_ = nullptr;
  std::unique_ptr<SimulatedTask> server_, client_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<Channel> channel_;
};

}  // namespace sidereal::transport::testing
