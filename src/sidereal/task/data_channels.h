#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/base/status.h"
#include "sidereal/sys/clock.h"
#include "sidereal/task/data_port.h"
#include "sidereal/task/idle_list.h"
#include "sidereal/task/task.h"
#include "sidereal/transport/channel.h"

/// Connections from the lane of a task to the data ports of others.
namespace sidereal::task {

/// A data port, and which lane of its task listens there. Value type.
struct LaneAddress {
  sys::Address address;
  int lane = 0;
  int lanes = 1;             ///< Of the task.
  uint64_t incarnation = 0;  ///< Of the task; 0: not known.
};

/// The connection to a lane of a task: found, made and made again as calls ask for it.
/// Thread: the endpoint's lane.
class DataChannel {
 public:
  /// Gets the outcome of one call at a time.
  class Sink : public transport::CallSink {
   public:
    void done(const Status& status, std::span<tensor::Tensor> fetches) final;

   protected:
    /// As CallSink::done().
    virtual void ended(const Status& status, std::span<tensor::Tensor> fetches) = 0;

   private:
    friend class DataChannel;
    const DataChannel* channel_ = nullptr;
    uint64_t call_ = 0;  // 0: not sent, or ended.
  };
  /// Finds out where the data port of a task's lane is; `done` comes on the own lane, not before
  /// this returns.
  using Find = std::function<void(const std::string& task, int lane, uint64_t incarnation,
                                  std::function<void(Result<LaneAddress>)> done)>;
  /// The other end. Value type.
  struct Peer {
    std::string task;   ///< Its full name.
    int lane = 0;       ///< Modulo its lanes.
    std::string shown;  ///< For messages.
  };

  /// Hears how many lanes the task has, whenever it was found.
  using Learn = std::function<void(const std::string& task, int lanes)>;

  /// `task`, the own lane's `endpoint` and `random` are borrowed.
  DataChannel(Task* task, transport::Endpoint* endpoint, Peer peer, Find find, Learn learn,
              sys::Random* random);
  ~DataChannel();
  DataChannel(const DataChannel&) = delete;
  DataChannel& operator=(const DataChannel&) = delete;

  /// Sends a call to the start of the peer with this incarnation (0: any), once there is a
  /// connection. `sink`, which is borrowed, gets done() once, not from within. kAborted: the peer
  /// was restarted.
  void call(uint64_t incarnation, const transport::CallOptions& what,
            std::span<const tensor::Tensor> feeds, Sink* sink);
  /// Ends it with kCancelled, unless it has ended.
  void cancel(Sink* sink);

 private:
  struct Waiting {
    uint64_t incarnation = 0;
    transport::CallOptions what;
    std::string extra;
    std::vector<tensor::Tensor> feeds;
    Sink* sink = nullptr;
  };

  void find(uint64_t incarnation);
  void take(const LaneAddress& found);
  void connect(const LaneAddress& found);
  void connected(const Status& status);
  void broken();
  void fail(const Status& status);
  void send_waiting();
  Status send(uint64_t incarnation, const transport::CallOptions& what,
              std::span<const tensor::Tensor> feeds, Sink* sink);
  void refuse(Sink* sink, const Status& why);

  Task* const task_;
  transport::Endpoint* const endpoint_;
  const Peer peer_;
  const Find find_;
  const Learn learn_;
  sys::Random* const random_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  bool connecting_ = false;
  uint64_t incarnation_ = 0;  ///< That is looked for.
  int64_t deadline_ns_ = 0;   ///< For all tries together.
  std::unique_ptr<transport::Channel> channel_;
  std::deque<Waiting> waiting_;
};

/// All of one lane of a task.
/// Lifecycle: created before the task starts, destroyed after it has stopped.
class DataChannels final : public Peers {
 public:
  /// `random` is borrowed: runs on other tasks are numbered from there, and connections named.
  DataChannels(Task* task, transport::Endpoint* endpoint, DataChannel::Find find,
               std::function<std::string(const std::string& task)> describe, sys::Random* random);
  ~DataChannels() override;

  /// The one to a lane of a task, by the task's full name; `lane` is modulo the lanes it has.
  /// Thread: the lane.
  DataChannel* to(std::string_view task, int lane);

  /// Asks by kTensors calls, one for each key. Thread: the lane.
  base::RefPtr<ReceiveRequest> ask(const ports::TensorSource& source, uint64_t step,
                                   std::span<const Wanted> wanted, Requester* requester) override;

  std::shared_ptr<Run> run(const std::string& task, const Call& call,
                           std::span<const tensor::Tensor> feeds, RunDone* done) override;
  [[nodiscard]] bool can_run() const override { return true; }

  /// A part of a step on another task.
  class Part : public StepPart {
   public:
    /// The task is not reached any more: the part ends with `why`, if its answer has not come.
    virtual void lose(const Status& why) = 0;
  };
  /// Begins a part of a step on a task that is attached with this incarnation. Thread: any.
  std::shared_ptr<Part> run(const std::string& task, uint64_t incarnation, ProgramCall call,
                            std::function<void(ProgramResult)> done);

 private:
  class LaneReceiveRequest;
  /// The connections to one task.
  struct ToTask {
    int lanes = 0;  ///< 0: not known yet, and numbers of lanes are taken as they are.
    absl::flat_hash_map<int, std::unique_ptr<DataChannel>> by_lane;
    std::vector<std::unique_ptr<DataChannel>> others;  ///< Made before that was known.
  };
  void learn(const std::string& task, int lanes);

  Task* const task_;
  transport::Endpoint* const endpoint_;
  const DataChannel::Find find_;
  const std::function<std::string(const std::string& task)> describe_;
  sys::Random* const random_;
  IdleList<LaneReceiveRequest, base::RefPtr<LaneReceiveRequest>> idle_receive_requests_;
  absl::flat_hash_map<std::string, ToTask> tasks_;
  uint64_t next_run_;
};

}  // namespace sidereal::task
