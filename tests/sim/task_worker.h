#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/control.h"
#include "tests/sim/plans.h"
#include "tests/sim/push_table.h"
#include "tests/sim/task_life.h"

namespace sidereal::sim {

/// A worker that is a real task, and master of a session that is attached to all ps: tracks that
/// run steps, one at a time. When a ps ends, so does the session, and another one is made.
class TaskWorker final : public TaskLife, public WorkerLife {
 public:
  /// `number` is unique among the lives of all workers. All else is borrowed.
  TaskWorker(const Context& context, sys::sim::Host* host, int index, uint64_t number,
             Control* control, const std::vector<StepPlan>& plans, PushTable* pushes);
  ~TaskWorker() override;

  [[nodiscard]] uint64_t number() const { return number_; }
  [[nodiscard]] std::string device() const { return task()->name() + "/device:CPU:0"; }

  /// What Control says, on the lane.
  void attached(uint64_t session, const Attached& at);
  void lost(uint64_t session, int ps);

  [[nodiscard]] sys::sim::Node* node() const override { return node_of(0); }
  void quiet() override { is_quiet_ = true; }
  void stalled(int64_t ns) override { slack_ns_ += ns; }
  bool is_idle() override { return state_ == State::kNone && activity().empty(); }
  void check_idle() override;
  [[nodiscard]] Outcomes outcomes() const override { return outcomes_; }
  /// Steps.
  int64_t take_done() override { return std::exchange(done_, 0); }

 private:
  class Step;
  struct Track;
  enum class State : uint8_t {
    kNone,       ///< No session.
    kAttaching,  ///< Not attached to all ps.
    kReady,      ///< Steps run.
    kEnding,     ///< Steps that run are waited for.
    kClosing,    ///< And then what they left.
  };

  void open();
  void become_ready();
  void close_if_done();
  void later(Track* track, int64_t ns);
  void begin(Track* track);
  void choose(Track* track);
  void draw_feeds(Track* track, Step* step);
  void ended(Track* track, Step* step);
  void count(const Step& step);
  void check(Track* track, const Step& step);
  [[nodiscard]] sys::sim::Rng& random() const { return node()->random(); }
  [[nodiscard]] lane::Lane* own_lane() const { return task()->lane(0); }
  /// Of the ps of a place, that the session is attached to.
  [[nodiscard]] uint64_t life_of(size_t place) const {
    return attached_[place / static_cast<size_t>(scenario().lanes)].life;
  }

  const uint64_t number_;
  Control* const control_;
  const std::vector<StepPlan>& plans_;
  PushTable* const pushes_;
  std::vector<std::unique_ptr<Track>> tracks_;
  State state_ = State::kNone;
  const tensor::Tensor all_weights_ =
      tensor::Tensor::empty(tensor::DType::kFloat32, {weights(scenario())});
  uint64_t session_ = 0;
  std::vector<Attached> attached_;      // by ps
  std::vector<uint64_t> own_programs_;  // by plan
  int running_ = 0;                     // steps
  Outcomes outcomes_;
  int64_t done_ = 0;
  int64_t slack_ns_ = 0;
  bool is_quiet_ = false;
  bool is_ending_ = false;
};

}  // namespace sidereal::sim
