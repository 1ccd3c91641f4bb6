#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/cluster/protocol.h"
#include "sidereal/task/data_channels.h"
#include "sidereal/task/task.h"

/// A master's hold on one task for one session.
namespace sidereal::master {

/// One task as a session sees it: programs that are registered there, parts of steps that run.
/// Thread: any. Callbacks come from any thread and must not block.
class Link {
 public:
  virtual ~Link() = default;

  /// True for a task of this process.
  [[nodiscard]] virtual bool is_local() const { return false; }
  /// What a task says of itself.
  struct Attached {
    uint64_t incarnation = 0;
    int lanes = 1;
  };
  /// Attaches the session. Before anything else, once.
  virtual void attach(std::function<void(Result<Attached>)> done) = 0;
  /// By what number the session runs the program, which it may from then on.
  virtual void register_program(task::NewProgram program,
                                std::function<void(Result<uint64_t>)> done) = 0;
  /// Begins a part of a step; `done` gets its result, once.
  virtual std::shared_ptr<task::StepPart> run(task::ProgramCall call,
                                              std::function<void(task::ProgramResult)> done) = 0;
  /// Lets go of the task. What was registered is forgotten. Before the link goes.
  virtual void detach() = 0;
};

/// A task of this process.
std::shared_ptr<Link> local_link(task::Task* task, uint64_t session, task::SessionState state);

/// What a link to a task of another process is made for. Value type.
struct LinkOptions {
  std::string task;  ///< Its full name.
  uint64_t session = 0;
  task::SessionState state = {};
  cluster::Protocol protocol = cluster::Protocol::kGrpc;
  uint64_t lease = 0;                  ///< Of the session's job; 0: of none.
  std::string cluster = {};            ///< That the session named, as JSON; "": none.
  std::string master = {};             ///< The task of the master.
  task::DataChannels* data = nullptr;  ///< What its parts go over; nullptr: gRPC.
  /// Keeps the counts of pushes in answers over gRPC; null: they are dropped.
  task::AnsweredPushes* answered = nullptr;
  /// Called, once, when the task was attached and is not reached any more.
  std::function<void(Status)> on_lost;
};

/// The tasks of a cluster as its masters reach them. Thread: any.
class ClusterTasks {
 public:
  virtual ~ClusterTasks() = default;
  /// Full names of all that are known now, sorted by job and index. Good as long as this object.
  [[nodiscard]] virtual const std::vector<std::string>& names() const = 0;
  /// "/job:ps/replica:0/task:0 at host:port", for messages.
  [[nodiscard]] virtual std::string describe(const std::string& task) const = 0;
  /// A link to one of another process. kNotFound when the cluster has no such task.
  virtual Result<std::shared_ptr<Link>> link(LinkOptions options) = 0;
};

}  // namespace sidereal::master
