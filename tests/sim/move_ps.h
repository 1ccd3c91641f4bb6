#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sidereal/sys/sim/world.h"
#include "sidereal/task/task.h"
#include "tests/sim/ledger.h"
#include "tests/sim/moves.h"

namespace sidereal::sim {

/// What all of a run of moves share; borrowed.
struct MoveContext {
  sys::sim::World* world = nullptr;
  const MovesScenario* scenario = nullptr;
  Ledger* ledger = nullptr;
};

/// The sessions whose variables move are a group of this name.
inline constexpr const char* kMovedGroup = "fit";
/// Parts of one table, and the slot of each of its optimizer, in turn.
std::string moved_name(int variable);

/// What is run over one variable.
enum class MoveWork : uint8_t { kBegin, kPush, kRead, kDestroy };
inline constexpr size_t kMoveWorks = 4;
/// By work, by variable: encoded programs.
using MovePrograms = std::vector<std::vector<std::string>>;
Result<MovePrograms> make_move_programs(const MovesScenario& scenario);

class LateStream;

/// A life of a parameter server: a real task, whose lanes are nodes of a simulation.
/// Thread: the world's.
class MovePs {
 public:
  /// All are borrowed.
  MovePs(const MoveContext& context, sys::sim::Host* host, int index, uint64_t life,
         const MovePrograms& programs);
  /// Its nodes have been killed.
  ~MovePs();
  MovePs(const MovePs&) = delete;
  MovePs& operator=(const MovePs&) = delete;

  [[nodiscard]] task::Task* task() const { return task_.get(); }
  [[nodiscard]] uint64_t life() const { return task_->incarnation(); }
  [[nodiscard]] int lanes() const { return static_cast<int>(lanes_.size()); }
  [[nodiscard]] sys::sim::Node* node(int lane) const { return lanes_[at(lane)]->node; }
  [[nodiscard]] int lane_of(int variable) const;

  /// A session of the group, with all programs; false while the task holds off.
  bool open(uint64_t session);
  void close(uint64_t session);
  [[nodiscard]] bool has(uint64_t session) const { return sessions_.contains(session); }
  [[nodiscard]] const std::set<uint64_t>& sessions() const { return sessions_; }

  /// Runs `fn` on a lane, which wakes up for it, unless the life ends before: as what gRPC calls
  /// does, it is on no thread that the task expects. What follows is called there.
  void post(std::function<void()> fn);

  struct Work {
    uint64_t session = 0;
    MoveWork what = MoveWork::kRead;
    int variable = 0;
    std::vector<tensor::Tensor> feeds = {};
    task::ClosureKey closure = {};
    uint64_t number = 0;
  };
  using Done = std::function<void(const Status&, const std::vector<tensor::Tensor>& fetches)>;
  /// `done` is told by a lane; or never, if the life ends before.
  void run(Work work, Done done);
  /// The same, at once.
  Result<std::vector<tensor::Tensor>> run_now(Work work);

  /// Which move was the last to give it a variable, of those that are counted here.
  struct Given {
    uint64_t moves = 0;
    std::map<int, uint64_t> by_variable = {};
  };
  [[nodiscard]] Given* given() { return &given_; }

  /// Streams that read it, which hear of its end.
  void add(const std::shared_ptr<LateStream>& stream) { streams_.push_back(stream); }
  [[nodiscard]] std::vector<std::shared_ptr<LateStream>> streams() const;
  [[nodiscard]] const std::shared_ptr<bool>& is_there() const { return is_there_; }

 private:
  struct LaneOfPs final : sys::sim::Runner {
    bool step() override { return lane->step(); }
    int64_t next_wake() override { return lane->next_wake(); }
    sys::sim::Node* node = nullptr;
    lane::Lane* lane = nullptr;
  };
  class NoPeers;
  static size_t at(int index) { return static_cast<size_t>(index); }

  const MoveContext& context_;
  const MovePrograms& programs_;
  std::vector<std::unique_ptr<LaneOfPs>> lanes_;
  std::unique_ptr<NoPeers> peers_;
  std::unique_ptr<task::Task> task_;
  std::set<uint64_t> sessions_;
  std::vector<std::vector<uint64_t>> numbers_;  // Of programs, by work, by variable.
  uint64_t steps_ = 0;
  Given given_;
  std::vector<std::weak_ptr<LateStream>> streams_;
  const std::shared_ptr<bool> is_there_ = std::make_shared<bool>(true);
};

}  // namespace sidereal::sim
