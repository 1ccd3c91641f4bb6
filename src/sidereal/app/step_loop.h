#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/function.h"
#include "sidereal/data/auc.h"
#include "sidereal/data/prefetch.h"
#include "sidereal/exec/executor.h"
#include "sidereal/lane/lane.h"
#include "sidereal/ports/ports.h"
#include "sidereal/sys/clock.h"
#include "sidereal/transport/channel.h"

namespace sidereal::app {

/// What one lane of a worker runs over and over.
struct StepLoopOptions {
  std::shared_ptr<const program::Program> program;
  const exec::KernelTable* kernels = nullptr;
  sys::Random* random = nullptr;  ///< Names the connections.
  /// Lanes the calls go to; calls[i].location indexes into it by (task, lane).
  std::vector<std::pair<ir::Location, transport::Peer>> peers;
  std::string loss;         ///< Fetch name; "" when there is none.
  std::string probability;  ///< Fetch name; "" when there is none.
  int64_t steps_in_flight = 1;
  int64_t steps_max = 0;
  uint64_t first_step = 0;
  bool record_losses = false;
  bool want_scores = false;
  /// Steps [trace_first, trace_end), by their numbers, are written down.
  uint64_t trace_first = 0;
  uint64_t trace_end = 0;
  /// Raised to end steps between two instructions, in the bodies of loops too; may be nullptr.
  std::shared_ptr<const exec::StopSignal> stop;
};

/// Figures of a loop since it began; the vectors hold what came since they were last taken.
struct StepLoopFigures {
  int64_t steps = 0;
  int64_t rows = 0;
  int64_t elapsed_ns = 0;  ///< From the beginning of the first step to the end of the latest.
  int64_t compute_ns = 0;
  int64_t wait_ns = 0;       ///< Waiting for answers or data.
  int64_t data_wait_ns = 0;  ///< The part of it spent waiting for data.
  double loss_sum = 0;
  int64_t loss_steps = 0;
  double auc = 0.5;
  data::ReadStats read;
  std::vector<float> losses;
  std::vector<float> scores;
  std::vector<float> labels;
  std::vector<float> truths;
};

/// Runs steps on one lane of a worker: takes batches, runs the program, keeps its calls apart.
///
/// Order, which is the same in every run: a step begins (its pulls are sent) when fewer than
/// `steps_in_flight` steps before it still compute; then the oldest step that computes runs until
/// its pushes are sent. Acknowledgements are collected on the side. As a connection and a ps lane
/// keep order, a pull sent after a push sees it: with steps_in_flight 1 no step misses a push of
/// the step before.
///
/// Lifecycle: create(), start() on the lane, `on_end` is called there once; destroyed on the lane,
///            or when it has stopped.
/// Thread:    core-local.
class StepLoop final : public lane::Driver, public ports::Exchange {
 public:
  static Result<std::unique_ptr<StepLoop>> create(transport::Endpoint* endpoint,
                                                  StepLoopOptions options,
                                                  std::unique_ptr<data::PrefetchingReader> reader);
  ~StepLoop() override;

  /// Connects to every peer, then runs. `on_end` gets ok when the data has ended and every step is
  /// done, else the first error.
  void start(base::Function<void(const Status&)> on_end);
  /// Ends the loop with `why`; steps in flight are abandoned.
  void cancel(const Status& why);
  /// Figures so far. Empties the vectors.
  StepLoopFigures take_figures();
  /// What the steps did that were to be traced, for Chrome; "" when none has run. Times are
  /// since 1970, plus `options.offset_ns`.
  [[nodiscard]] std::string trace(exec::ChromeOptions options) const;

  bool poll() override;
  Status start(int call, uint64_t step, std::span<const tensor::Tensor> feeds,
               ports::CallCompletion* completion) override;
  void yield() override;

 private:
  class Sink;
  class DataReady;
  struct Flight;

  StepLoop(transport::Endpoint* endpoint, StepLoopOptions options);
  Status prepare();
  void connected(const Status& status);
  Result<bool> launch();
  void begin(Flight* flight);
  Status feed(Flight* flight);
  void harvest(Flight* flight);
  bool step_once();
  void finish(const Status& status);
  Result<bool> advance(Flight* flight);

  transport::Endpoint* endpoint_;
  StepLoopOptions options_;
  exec::BufferPool pool_;
  std::unique_ptr<exec::BoundProgram> bound_;
  std::unique_ptr<data::PrefetchingReader> reader_;
  std::unique_ptr<DataReady> data_ready_;
  std::vector<std::unique_ptr<transport::Channel>> channels_;
  std::vector<transport::Channel*> channel_of_call_;
  std::vector<uint64_t> program_of_call_;
  std::vector<std::unique_ptr<Sink>> free_sinks_;
  std::vector<std::unique_ptr<Flight>> idle_;
  std::deque<std::unique_ptr<Flight>> draining_;   // All calls started; answers outstanding.
  std::deque<std::unique_ptr<Flight>> computing_;  // Oldest first.
  int loss_fetch_ = -1;
  int probability_fetch_ = -1;
  size_t to_connect_ = 0;
  bool running_ = false;
  bool ended_ = false;
  bool input_ended_ = false;
  Status broken_;
  int64_t last_io_ns_ = 0;
  int64_t waiting_since_ns_ = 0;  // 0: not waiting.
  bool waiting_for_data_ = false;
  int64_t launched_ = 0;
  int64_t began_ns_ = 0;
  base::Function<void(const Status&)> on_end_;
  data::WindowAuc auc_;
  StepLoopFigures figures_;
  std::unique_ptr<exec::Trace> trace_;  // Made when the first step is traced.
};

}  // namespace sidereal::app
