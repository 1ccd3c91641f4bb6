#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/task/task.h"

/// Calls on other tasks that no step waits for. Internal to task.
namespace sidereal::task {

/// Those of one lane. A session has a few of them under way at most; the first failure ends a step
/// that runs, or else the next one, or is what closing the session says.
/// Thread: the lane.
class AsyncPushes {
 public:
  /// Hears that a session has a failure that nobody has taken; maybe from within a call.
  using OnFailure = std::function<void(uint64_t session)>;

  /// `peers` is borrowed, and can run programs.
  explicit AsyncPushes(Peers* peers, OnFailure on_failure = nullptr);
  ~AsyncPushes();
  AsyncPushes(const AsyncPushes&) = delete;
  AsyncPushes& operator=(const AsyncPushes&) = delete;

  /// Sends a call; false, when the session has as many under way as it may: then it is to be waited
  /// for. The memory of `feeds` must not change while somebody else holds it.
  bool start(const std::string& task, const Peers::Call& call,
             std::span<const tensor::Tensor> feeds);
  /// The first failure of a session's calls since the last time; ok when there is none.
  Status take_failure(uint64_t session);
  /// Whether any session has one.
  [[nodiscard]] bool any_failure() const { return failures_ > 0; }
  /// Calls `done` once none of the session's is under way, maybe at once, with the failure that
  /// nobody has taken.
  using Done = std::function<void(const Status&)>;
  void when_done(uint64_t session, Done done);
  /// The task is not reached any more: the session's calls there end with `why`.
  void lose(uint64_t session, const std::string& task, const Status& why);
  /// Ends all of them.
  void drop();

  /// Under way of one session.
  static constexpr int kCallsMax = 16;
  static constexpr size_t kBytesMax = size_t{64} << 20;

 private:
  class Sent;
  struct Session {
    std::vector<std::unique_ptr<Sent>> sent;
    size_t bytes = 0;
    Status failure = {};
    std::vector<Done> waiting = {};
  };
  void ended(Sent* sent, const Status& status);

  Peers* const peers_;
  const OnFailure on_failure_;
  absl::flat_hash_map<uint64_t, Session> sessions_;
  int failures_ = 0;  ///< Of sessions_: those with a failure.
};

}  // namespace sidereal::task
