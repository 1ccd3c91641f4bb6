#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sidereal/transport/channel.h"
#include "tests/sim/lives.h"
#include "tests/sim/process.h"

namespace sidereal::sim {

/// A worker: tracks that pull and push in turn, at any lanes of any ps.
class Worker final : public Process, public WorkerLife {
 public:
  /// `number` is unique among the lives of all workers.
  Worker(const Context& context, sys::sim::Host* host, int index, uint64_t number,
         const std::vector<sys::sim::Host*>& ps);
  ~Worker() override;

  [[nodiscard]] sys::sim::Node* node() const override { return Process::node(); }
  void quiet() override { is_quiet_ = true; }
  void stalled(int64_t ns) override { slack_ns_ += ns; }
  bool is_idle() override { return true; }  // Calls end by themselves, at their deadlines.
  void check_idle() override;
  [[nodiscard]] Outcomes outcomes() const override;
  int64_t take_done() override { return std::exchange(done_, 0); }

 private:
  class Call;
  class Track;

  std::vector<std::unique_ptr<transport::Channel>> channels_;  // ps by ps, lane by lane
  std::vector<std::unique_ptr<Track>> tracks_;
  Outcomes outcomes_;
  bool is_quiet_ = false;
  bool is_ending_ = false;
  int64_t slack_ns_ = 0;
  int64_t done_ = 0;
};

}  // namespace sidereal::sim
