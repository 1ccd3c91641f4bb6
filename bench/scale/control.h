#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/service/remote_link.h"
#include "workers.h"

/// What light workers say over gRPC: their sessions on the ps and, where the protocol is `grpc`,
/// their steps.
namespace sidereal::bench {

/// Answers the ps for all workers of a process, each of which has a port of its own.
class Control {
 public:
  /// What a worker is asked for: tensor groups of a step. Thread: any.
  class Answers {
   public:
    virtual ~Answers() = default;
    using Give = std::function<void(size_t index, ports::TensorGroup values)>;
    /// Gives the tensor group of each of `edges` when it is there.
    virtual void asked(const std::vector<int64_t>& edges, Give give) = 0;
  };

  /// Listens at `count` free ports of loopback.
  static Result<std::unique_ptr<Control>> create(size_t count);
  ~Control();

  [[nodiscard]] const std::vector<int>& ports() const;
  /// What the ps is told of worker `number`; before it asks.
  void set_data_port(size_t number, int port);
  void set_answers(size_t number, Answers* answers);

 private:
  class Impl;
  explicit Control(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Where the data port of the ps is; port 0: it has none.
Result<sys::Address> find_data_port(const std::string& ps);

/// The session of a worker on the ps, over a connection of its own.
class KeepAlive {
 public:
  KeepAlive(const std::string& ps, uint64_t session, cluster::Protocol protocol);
  ~KeepAlive();
  /// Attaches and registers the programs: what the ps calls them.
  Result<std::vector<uint64_t>> attach(const std::vector<task::NewProgram>& programs);
  [[nodiscard]] master::Link* link() const { return link_.get(); }
  [[nodiscard]] service::Channels* channels() { return &channels_; }

 private:
  service::Channels channels_;
  service::RemoteTasks tasks_;
  std::shared_ptr<master::Link> link_;
};

/// Of grpc: a RunProgram stream, and RecvTensors calls both ways, for each step.
std::unique_ptr<Worker> grpc_worker(Common* common, Control* control, KeepAlive* keep_alive,
                                    WorkerOptions options);

}  // namespace sidereal::bench
