#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/base/ref_counted.h"
#include "sidereal/base/ring_queue.h"
#include "sidereal/exec/stop_signal.h"
#include "sidereal/task/step_state.h"
#include "sidereal/task/task.h"

/// What begins when a lane has nothing else to do. Internal to task.
namespace sidereal::task {

/// A call that has not begun.
struct WaitingCall {
  ProgramCall call;
  base::RefPtr<SessionProgram> program;
  std::shared_ptr<exec::StopSignal> stop;  ///< Of a step that another thread began; or nullptr.
  Task::Done done;
  bool cancelled = false;
};

/// Calls in the order in which they came. Of a thousand workers few have a step open this way, so
/// that what these need stays in the caches, and what was pulled is pushed soon.
/// Thread: core-local. Limits: whoever adds them bounds their number.
class WaitingCalls {
 public:
  [[nodiscard]] bool empty() const { return calls_.empty(); }
  /// Some of the session wait: what it asks for now comes after them.
  [[nodiscard]] bool has(uint64_t session) const {
    return !calls_.empty() && sessions_.contains(session);
  }

  /// Moves from `call`, and leaves it memory for another list of feeds.
  void add(ProgramCall* call, base::RefPtr<SessionProgram> program,
           std::shared_ptr<exec::StopSignal> stop, Task::Done done) {
    ++sessions_[call->session];
    calls_.push_back({std::move(*call), std::move(program), std::move(stop), std::move(done)});
    call->feeds.clear();
    if (spare_feeds_.empty()) return;
    call->feeds = std::move(spare_feeds_.back());
    spare_feeds_.pop_back();
  }
  /// The oldest. Not to be called when empty().
  WaitingCall take() {
    WaitingCall out = calls_.pop_front();
    const auto session = sessions_.find(out.call.session);
    if (--session->second == 0) sessions_.erase(session);
    return out;
  }
  /// All of a session, in their order.
  std::vector<WaitingCall> take_all(uint64_t session) {
    std::vector<WaitingCall> out;
    if (!has(session)) return out;
    for (size_t left = calls_.size(); left > 0; --left) {
      WaitingCall next = calls_.pop_front();
      if (next.call.session == session) {
        out.push_back(std::move(next));
      } else {
        calls_.push_back(std::move(next));
      }
    }
    sessions_.erase(session);
    return out;
  }
  /// Serves for later ones.
  void give_back(std::vector<tensor::Tensor> feeds) {
    feeds.clear();
    spare_feeds_.push_back(std::move(feeds));
  }
  /// Has no effect on a step that does not wait.
  void cancel(uint64_t step) {
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (calls_[i].call.step == step) calls_[i].cancelled = true;
    }
  }

 private:
  base::RingQueue<WaitingCall> calls_;
  std::vector<std::vector<tensor::Tensor>> spare_feeds_;
  absl::flat_hash_map<uint64_t, size_t> sessions_;  // How many of each wait.
};

}  // namespace sidereal::task
