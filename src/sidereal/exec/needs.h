#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/program/program.h"

namespace sidereal::exec {

/// Who needs what in a program that parks what waits: made once, when the program is bound. Taken
/// from what instructions read and write, not from what the program says of itself, so that no
/// program reads what is not there.
/// Thread: immutable.
class Needs {
 public:
  static constexpr int32_t kLate = INT32_MAX;

  explicit Needs(const program::Program& program);

  /// By instruction: how many others must have run before it; kLate: it is a late read.
  [[nodiscard]] const std::vector<int32_t>& missing() const { return missing_; }
  /// By slot: how many instructions use it, and one more where it is needed until the end.
  [[nodiscard]] const std::vector<int32_t>& uses() const { return uses_; }
  /// The instructions that wait for `instruction`.
  [[nodiscard]] std::span<const int32_t> readers(size_t instruction) const {
    return readers_.of(instruction);
  }
  /// The slots that `instruction` uses, each once.
  [[nodiscard]] std::span<const int32_t> slots(size_t instruction) const {
    return slots_.of(instruction);
  }
  /// Reads of variables that run just before `instruction`, if they have not run yet: what they
  /// hold keeps others from changing the variable in place, so they do not run while their first
  /// reader waits for something else.
  [[nodiscard]] std::span<const int32_t> late_reads(size_t instruction) const {
    return late_reads_.of(instruction);
  }
  /// The halves of calls, in order.
  [[nodiscard]] const std::vector<int32_t>& calls() const { return calls_; }
  /// The Recv instruction of an edge; -1: there is none.
  [[nodiscard]] int32_t recv_of(int64_t edge) const {
    const auto found = recvs_.find(edge);
    return found == recvs_.end() ? -1 : found->second;
  }
  /// How many instructions are no kCallWait.
  [[nodiscard]] size_t started() const { return started_; }

 private:
  /// A list for each number.
  struct Lists {
    std::vector<int32_t> first;
    std::vector<int32_t> all;
    [[nodiscard]] std::span<const int32_t> of(size_t i) const {
      return std::span(all).subspan(first[i], first[i + 1] - first[i]);
    }
  };
  void count(const program::Program& program, std::vector<std::vector<int32_t>>* before);
  static Lists joined(const std::vector<std::vector<int32_t>>& lists);

  std::vector<int32_t> missing_;
  std::vector<int32_t> uses_;
  Lists readers_;
  Lists slots_;
  Lists late_reads_;
  std::vector<int32_t> calls_;
  absl::flat_hash_map<int64_t, int32_t> recvs_;
  size_t started_ = 0;
};

}  // namespace sidereal::exec
