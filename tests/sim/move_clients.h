#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "tests/sim/move_cluster.h"

namespace sidereal::sim {

/// What those who push know of the training: it outlives the program that moves variables.
struct Training {
  std::vector<int> owners;    ///< By variable: the server that has it.
  uint64_t session = 0;       ///< Of steps;
  std::set<uint64_t> wanted;  ///< with it, those that may be open.
};

/// Who pushes: each push is a closure that is tried until it is answered, of which one try is under
/// way at a time, and adds 1 to a row of its own, so that what was done of it stands in the
/// variable.
/// Thread: the world's.
class MoveClients {
 public:
  /// All are borrowed.
  MoveClients(const MoveContext& context, MoveCluster* cluster, const Training* training);

  /// Tries end, and none begin until go_on().
  void hold() { is_held_ = true; }
  void go_on();
  /// Whether no try is under way.
  [[nodiscard]] bool is_drained() const;
  /// Begins no more pushes.
  void quiet() { is_quiet_ = true; }
  [[nodiscard]] bool has_all_answers() const;
  [[nodiscard]] int64_t answered() const { return answered_; }
  [[nodiscard]] int64_t tries() const { return tries_; }
  /// Complains unless `value` of a variable has every push that was answered once, and no other
  /// more than once.
  void check(int variable, const tensor::Tensor& value) const;

 private:
  struct Push {
    int variable = 0;
    int64_t row = 0;
    bool is_answered = false;
  };
  struct Client {
    uint64_t key = 0;
    uint64_t turn = 0;  ///< Of its closures.
    size_t push = 0;
    bool has_push = false;
    bool is_trying = false;
    bool waits = false;   ///< To be let go on.
    uint64_t number = 0;  ///< Of its last try.
  };

  /// Whether there are rows that nobody has pushed to.
  [[nodiscard]] bool has_rows() const;
  void later(size_t client, int64_t ns);
  void next(size_t client);
  bool choose(Client* client);
  void begin_try(size_t client);
  void send(size_t client, const Push& push);
  void answered(size_t client, uint64_t number, int ps, const Status& status);
  void end_try(size_t client);

  const MoveContext& context_;
  MoveCluster* const cluster_;
  const Training* const training_;
  sys::sim::Rng rng_;
  std::vector<Client> clients_;
  std::vector<Push> pushes_;
  std::vector<int64_t> next_row_;  // By variable.
  bool is_held_ = false;
  bool is_quiet_ = false;
  int64_t answered_ = 0;
  int64_t tries_ = 0;
};

}  // namespace sidereal::sim
