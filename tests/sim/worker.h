#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sidereal/transport/channel.h"
#include "tests/sim/process.h"

namespace sidereal::sim {

/// How calls have ended.
struct Outcomes {
  int64_t ok = 0;
  int64_t refused = 0;  ///< by the handler
  int64_t late = 0;     ///< past their deadline
  int64_t cancelled = 0;
  int64_t lost = 0;     ///< with their connection
  int64_t unknown = 0;  ///< nobody knows whether they were done
  int64_t no_room = 0;
  int64_t resumed = 0;  ///< connections that went on

  void add(const Outcomes& other);
};

/// A worker: tracks that pull and push in turn, at any lanes of any ps.
class Worker final : public Process {
 public:
  /// `number` is unique among the lives of all workers.
  Worker(sys::sim::World* world, sys::sim::Host* host, const Scenario& scenario, Ledger* ledger,
         int index, uint64_t number, const std::vector<sys::sim::Host*>& ps);
  ~Worker() override;

  /// Begins no more calls.
  void quiet() { is_quiet_ = true; }
  /// The process stood still: its deadlines are noticed late.
  void stalled(int64_t ns) { slack_ns_ += ns; }
  /// Complains of calls that have not ended.
  void check_idle();
  [[nodiscard]] Outcomes outcomes() const;
  /// Pushes that went well since the last call of this.
  int64_t take_done() { return std::exchange(done_, 0); }

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
