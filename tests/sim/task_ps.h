#pragma once

#include <vector>

#include "tests/sim/plans.h"
#include "tests/sim/push_table.h"
#include "tests/sim/task_life.h"

namespace sidereal::sim {

/// A life of a parameter server that is a real task, with a variable of rows and one of weights for
/// each lane.
class TaskPs final : public TaskLife, public PsLife {
 public:
  /// All are borrowed.
  TaskPs(const Context& context, sys::sim::Host* host, int index, uint64_t life, Finder* finder,
         const std::vector<StatePrograms>& state, PushTable* pushes);
  ~TaskPs() override;

  [[nodiscard]] std::vector<sys::sim::Node*> nodes() const override { return lane_nodes(); }
  void check_memory() override;
  bool is_idle() override { return activity().empty(); }
  void check_idle() override;
  [[nodiscard]] Memory memory() const override { return task_memory(); }
  /// Compares its variables with what was pushed. Once.
  void read_variables();

 private:
  /// Has a lane run a program now.
  std::vector<tensor::Tensor> run(int lane, const std::string& program,
                                  std::vector<tensor::Tensor> feeds);

  const int index_;
  const std::vector<StatePrograms>& state_;  // By lane.
  PushTable* const pushes_;
  uint64_t steps_ = 0;
  bool was_read_ = false;
};

}  // namespace sidereal::sim
