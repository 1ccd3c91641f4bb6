#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "sidereal/resources/change_entry.h"
#include "sidereal/task/change_reading.h"
#include "sidereal/task/task_copy.h"
#include "tests/sim/move_ps.h"

namespace sidereal::sim {

class LateCopy;

/// A stream that reads a lane, both of its ends: in the place of a FollowChanges call. What is said
/// keeps its order, each way, and is late.
class LateStream final : public task::CopyStream,
                         public task::ChangesSink,
                         public std::enable_shared_from_this<LateStream> {
 public:
  LateStream(const MoveContext& context, LateCopy* copy, int lane, sys::sim::Rng rng);

  /// The reader's end.
  void start(task::ChangesWanted wanted);
  void ask(uint64_t mark);
  /// It wants no more; the task is told, or not.
  void hang_up(bool tells);
  /// The copy has gone.
  void let_go() { copy_ = nullptr; }
  [[nodiscard]] bool is_read() const { return copy_ != nullptr && !has_ended_; }
  [[nodiscard]] int lane() const { return lane_; }
  /// Nothing gets anywhere before.
  void stand_until(int64_t ns) { stands_until_ = ns; }
  /// The lane waits for what comes after this cut, of this opening of its log; nothing: it waits
  /// for nothing.
  [[nodiscard]] const std::optional<resources::LogPosition>& answers_from() const {
    return answers_from_;
  }

  /// The task's end; the task has been killed.
  void task_ends();
  void begun(uint64_t incarnation) override;
  void give(const std::shared_ptr<const std::string>& bytes, uint64_t end) override;
  void at(uint64_t end, uint64_t mark) override;
  void in_sync(uint64_t end) override;
  void ended(const Status& why) override;

 private:
  void say(task::LaneSays said, std::shared_ptr<const std::string> bytes = nullptr);
  void arrived(const task::LaneSays& said);
  /// Calls `fn` at the other end.
  void down(std::function<void()> fn) { send(&down_at_, std::move(fn)); }
  void up(std::function<void()> fn);
  void send(int64_t* last, std::function<void()> fn);
  void end(const Status& why);

  const MoveContext& context_;
  LateCopy* copy_;
  const int lane_;
  sys::sim::Rng rng_;
  MovePs* ps_ = nullptr;  // nullptr: it is dead, or not reached yet.
  std::shared_ptr<task::ChangesReader> reader_;
  int lanes_ = 1;      // Of the task,
  uint64_t life_ = 0;  // and which start of it.
  uint64_t incarnation_ = 0;
  std::optional<resources::LogPosition> answers_from_;
  uint64_t taken_ = 0;  // Bytes.
  int64_t stands_until_ = 0;
  int64_t down_at_ = 0;
  int64_t up_at_ = 0;
  bool is_cancelled_ = false;
  bool is_task_dead_ = false;
  bool has_ended_ = false;
};

/// A task::TaskCopy with what brings it, in the place of service::Follower.
/// Thread: the world's.
class LateCopy {
 public:
  /// The life of a parameter server that is there now, and lets itself be read; or nullptr.
  using Find = std::function<MovePs*()>;
  struct Options {
    int ps = 0;  ///< Which one, of which `find` knows the life.
    resources::WantedNames names = {};
    int64_t cut_ns = 20 * sys::kMillisecond;
    bool is_synchronous = false;
  };
  LateCopy(const MoveContext& context, Options options, Find find);
  /// As with its process: streams end, and tasks are told or not.
  ~LateCopy();
  LateCopy(const LateCopy&) = delete;
  LateCopy& operator=(const LateCopy&) = delete;

  [[nodiscard]] task::TaskCopy& copy() { return copy_; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] MovePs* find() const { return find_(); }
  void ask(uint64_t mark);
  /// Ends all streams, for good.
  void stop();
  /// See task::TaskCopy::hold().
  void hold(uint64_t life);
  /// Whether all that the task has answered is here: its lanes wait for it.
  [[nodiscard]] bool has_all_answered();

 private:
  friend class LateStream;
  static LateStream* of(const task::TaskCopy::Stream& stream) {
    return static_cast<LateStream*>(stream.get());
  }
  void look();
  void open(int lane);
  void hang_up(const task::TaskCopy::Stream& stream);
  void disturb(const std::shared_ptr<LateStream>& stream);
  void after(int64_t ns, std::function<void()> fn);

  const MoveContext& context_;
  const Options options_;
  const Find find_;
  sys::sim::Rng rng_;
  task::TaskCopy copy_;
  std::vector<std::weak_ptr<LateStream>> opened_;
  bool has_stopped_ = false;
  const std::shared_ptr<bool> is_there_ = std::make_shared<bool>(true);
};

}  // namespace sidereal::sim
