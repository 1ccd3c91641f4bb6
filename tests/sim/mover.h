#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/sim/move_clients.h"
#include "tests/sim/move_cluster.h"
#include "tests/sim/move_in.h"

namespace sidereal::sim {

/// The training program, as far as it moves variables: in the place of train::Resharding, whose
/// rules these are. It makes another placement, has servers copy what they get, opens sessions for
/// it, drains, has all take the rest and then commit, and goes on; what is left behind is destroyed
/// after that. It may die at any time; who comes after it knows the placement, closes its sessions,
/// and destroys what belongs nowhere, as the end of a program's group of sessions does. It knows
/// at once what sessions a server has, which a real program is told.
/// Thread: the world's.
class Mover {
 public:
  Mover(const MoveContext& context, MoveCluster* cluster, Training* training, MoveClients* clients);
  /// It dies.
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  /// Begins no more moves; what belongs nowhere is destroyed.
  void quiet();
  [[nodiscard]] bool is_idle() const;
  [[nodiscard]] int64_t moves() const { return moves_; }
  [[nodiscard]] int64_t given_up() const { return given_up_; }

 private:
  enum class Stage : uint8_t { kIdle, kCopying, kDraining, kTaking, kCommitting };
  /// What the program and a task have of a move to that.
  struct Call {
    bool is_hung_up = false;  ///< And the task knows.
    std::shared_ptr<MoveIn> there = nullptr;
  };
  struct Going {
    int to = 0;
    uint64_t life = 0;  ///< Of the server.
    std::set<int> variables = {};
    std::shared_ptr<Call> call = std::make_shared<Call>();
    MoveSays heard = {};
  };

  void after(int64_t ns, std::function<void()> fn);
  void look();
  void look_after_sessions();
  void look_after_leftovers();
  void look_at_move();
  void begin();
  void call(Going* going, MoveIn::Sources sources);
  void heard(uint64_t move, size_t index, const MoveSays& says);
  void enter(Stage stage);
  void commit_next();
  void take_over();
  void abandon();
  void hang_up();
  void destroy(int ps, int variable);
  [[nodiscard]] bool has_only_wanted_sessions() const;
  [[nodiscard]] bool are_next_sessions_open() const;
  [[nodiscard]] sys::sim::Rng& random() { return rng_; }
  [[nodiscard]] const MovesScenario& scenario() const { return *context_.scenario; }

  const MoveContext& context_;
  MoveCluster* const cluster_;
  Training* const training_;
  MoveClients* const clients_;
  sys::sim::Rng rng_;
  Stage stage_ = Stage::kIdle;
  int64_t stage_began_ = 0;
  int64_t next_move_at_ = 0;
  uint64_t move_ = 0;  // How many have begun.
  std::vector<int> next_owners_;
  uint64_t next_session_ = 0;
  std::vector<Going> going_;
  size_t committed_ = 0;  // Of these.
  /// What is to be destroyed: server and variable; and which life of it was told, 0: none.
  std::map<std::pair<int, int>, uint64_t> leftovers_;
  int64_t moves_ = 0;
  int64_t given_up_ = 0;
  bool is_quiet_ = false;
  const std::shared_ptr<bool> is_there_ = std::make_shared<bool>(true);
};

}  // namespace sidereal::sim
