#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/exec/executor.h"
#include "sidereal/lane/lane.h"
#include "sidereal/ports/ports.h"
#include "sidereal/store/dense_variable.h"
#include "sidereal/store/embedding_shard.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/transport/acceptor.h"
#include "sidereal/transport/endpoint.h"
#include "sidereal/wire/frame.h"

namespace sidereal::app {

/// What a lane is asked to hold: a dense variable (shard -1) or one shard of an embedding.
struct VariableSpec {
  std::string name;
  bool embedding = false;
  tensor::Shape shape;  ///< Of the whole variable.
  store::UpdateRule rule;
  kernels::Initializer initializer;
  int32_t shard = -1;
  std::vector<int32_t> lanes;  ///< Embeddings: lanes of every ps task.
};

/// What a ps lane did so far.
struct PsLaneFigures {
  int64_t calls = 0;
  int64_t rows = 0;  ///< Embedding rows read and written.
};

/// One lane of a ps task: its shards, the programs that use them, and the connections of workers.
///
/// Lifecycle: create(), then lane().start(); stopped by lane().stop() before it dies.
/// Thread:    callbacks on the lane; the functions marked "control" from control threads, one at a
///            time.
class PsLane final : public transport::CallHandler, public ports::Parameters {
 public:
  /// Listens for workers on `address`, who prove themselves by `credentials`. `table` is borrowed.
  static Result<std::unique_ptr<PsLane>> create(
      const lane::LaneOptions& lane, const transport::Identity& identity,
      const config::Options& options, const sys::Address& address, const exec::KernelTable* table,
      std::shared_ptr<const security::Credentials> credentials = nullptr);
  ~PsLane() override;

  [[nodiscard]] lane::Lane& lane() { return *lane_; }
  [[nodiscard]] const sys::Address& address() const { return acceptor_->address(); }

  /// Control: forgets all variables and programs and makes these. Memory is taken and filled on the
  /// calling thread; the lane only swaps. Returns the bytes held.
  Result<int64_t> create_variables(const std::vector<VariableSpec>& specs);
  /// Control: from now on updates use `factor` times the learning rate of creation; finite, >= 0.
  Status scale_learning_rate(double factor);
  /// Control: decodes, binds and installs a program. Idempotent. Returns its hash.
  Result<uint64_t> register_program(const std::string& bytes);
  /// Control: rows [from, from + count) of an embedding shard as float32 bytes; for a dense
  /// variable (shard -1) elements instead of rows. Fewer at the end.
  Result<std::string> read(const std::string& name, int32_t shard, int64_t from, int64_t count);
  /// Control: forgets what was traced, and traces the calls of steps [first, end) from now on.
  Status start_trace(uint64_t first, uint64_t end);
  /// Control: ends the trace; its events for Chrome. "" when none was on. Times are since 1970,
  /// plus `options.offset_ns`.
  Result<std::string> take_trace(exec::ChromeOptions options);
  /// Control: figures so far. May be called beside the others.
  Result<PsLaneFigures> figures();

  Result<ports::ParameterShard*> find(std::string_view variable, int64_t shard) override;

  Result<tensor::Tensor> allocate(const transport::Connection& from, const wire::FrameHeader& call,
                                  int position, tensor::DType dtype,
                                  const tensor::Shape& shape) override;
  void on_call(const transport::Connection& from, const transport::Call& call,
               std::span<tensor::Tensor> feeds) override;
  void on_closed(const transport::Connection& from, const Status& why) override;

 private:
  class Shard;
  struct Registered {
    std::unique_ptr<exec::BoundProgram> bound;
    std::unique_ptr<exec::Step> step;
  };
  using Variables = std::map<std::pair<std::string, int64_t>, std::unique_ptr<Shard>>;

  explicit PsLane(const exec::KernelTable* table);
  Status run_call(Registered& program, const wire::FrameHeader& call,
                  std::span<const wire::SlotEntry> slots, std::span<tensor::Tensor> feeds);

  const exec::KernelTable* table_;
  std::unique_ptr<lane::Lane> lane_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  std::unique_ptr<transport::Acceptor> acceptor_;
  exec::BufferPool pool_;
  // The map is read and replaced by control threads; what it points to belongs to the lane.
  std::shared_ptr<Variables> variables_;
  // Guards the pointer: figures() is asked for while variables are made.
  mutable std::mutex variables_mutex_;
  // The rest belongs to the lane.
  absl::flat_hash_map<uint64_t, Registered> programs_;
  std::vector<tensor::Tensor> fetches_;
  std::vector<bool> fed_;
  PsLaneFigures figures_;
  std::unique_ptr<exec::Trace> trace_;  // Of calls of steps [trace_first_, trace_end_).
  uint64_t trace_first_ = 0;
  uint64_t trace_end_ = 0;
};

}  // namespace sidereal::app
