#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "sidereal/cluster/protocol.h"
#include "sidereal/runtime/channels.h"
#include "sidereal/runtime/task.h"

/// A master's hold on one task for one session. Internal to runtime.
namespace sidereal::runtime {

/// One task as a session sees it: programs that are registered there, parts of steps that run.
/// Thread: any. Callbacks come from any thread and must not block.
class Link {
 public:
  virtual ~Link() = default;

  /// A part of a step that was begun.
  class Part {
   public:
    virtual ~Part() = default;
    /// Ends it soon: its result comes, and says what it waited for.
    virtual void cancel() = 0;
    /// The whole step has ended. If the result has not come it comes now, as kCancelled. Once.
    virtual void end() = 0;
  };

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
  virtual void register_program(NewProgram program, std::function<void(Result<uint64_t>)> done) = 0;
  /// Begins a part of a step; `done` gets its result, once.
  virtual std::shared_ptr<Part> run(ProgramCall call, std::function<void(ProgramResult)> done) = 0;
  /// Lets go of the task. What was registered is forgotten. Before the link goes.
  virtual void detach() = 0;
};

/// A task of this process.
std::shared_ptr<Link> local_link(Task* task, uint64_t session, bool isolated);

class DataChannels;

/// A task behind a channel.
struct RemoteLinkOptions {
  std::string task;  ///< Its full name.
  std::string peer;  ///< For messages.
  uint64_t session = 0;
  bool isolated = false;
  cluster::Protocol protocol = cluster::Protocol::kGrpc;
  DataChannels* data = nullptr;  ///< What its parts go over; nullptr: the channel.
  /// Called, once, when the task was attached and is not reached any more.
  std::function<void(Status)> on_lost;
};
std::shared_ptr<Link> remote_link(std::shared_ptr<grpc::Channel> channel,
                                  RemoteLinkOptions options);

}  // namespace sidereal::runtime
