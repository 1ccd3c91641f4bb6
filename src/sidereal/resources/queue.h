#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "sidereal/resources/manager.h"
#include "sidereal/resources/waiters.h"

namespace sidereal::resources {

/// The order in which a queue gives out its elements.
enum class QueueOrder {
  kFifo,      ///< As they came (tf.queue.FIFOQueue, PaddingFIFOQueue).
  kShuffled,  ///< At random (tf.queue.RandomShuffleQueue).
  kPriority,  ///< The smallest int64 of the first component first (tf.queue.PriorityQueue).
};

/// What is known of a queue when it is made. Value type.
struct QueueDef {
  std::string name = {};
  QueueOrder order = QueueOrder::kFifo;
  std::vector<tensor::DType> dtypes = {};  ///< By component; at least one.
  std::vector<tensor::Shape> shapes = {};  ///< By component; empty: anything, then without batches.
  int64_t capacity = -1;                   ///< Elements; -1: no bound.
  int64_t min_after_dequeue = 0;  ///< kShuffled: as many stay back while the queue is open.
  uint64_t seed = 0;              ///< kShuffled.
  bool pad =
      false;  ///< Batches are filled up to the longest of them; shapes may be partly unknown.
};

/// Elements that are tuples of tensors, put in by some steps and taken out by others. Requests are
/// served in the order they came, those to put in apart from those to take out.
/// Thread: any.
class Queue final : public Resource,
                    public WaitingRoom,
                    public std::enable_shared_from_this<Queue> {
 public:
  static constexpr std::string_view kKind = "queue";

  /// kInvalidArgument for a definition that makes no sense.
  static Result<std::shared_ptr<Queue>> make(QueueDef def);

  [[nodiscard]] std::string_view kind() const override { return kKind; }
  [[nodiscard]] const QueueDef& def() const { return def_; }

  /// Puts one element in, or (`many`) as many as the components have rows. Tensors are copied.
  /// kInvalidArgument when dtypes or shapes are not the queue's. The request ends with kCancelled
  /// when the queue is closed.
  Result<std::unique_ptr<Ticket>> enqueue(const Tuple& values, bool many);
  /// Takes `count` elements out: one as it is, or with `many` as a batch. The request ends with
  /// kOutOfRange when the queue is closed and has too few; with `up_to` only when it has none.
  Result<std::unique_ptr<Ticket>> dequeue(int64_t count, bool many, bool up_to);

  /// Nothing can be put in any more. What waits to be put in still goes in, unless
  /// `cancel_pending`.
  void close(bool cancel_pending);
  [[nodiscard]] bool closed() const;
  /// Elements that are in.
  [[nodiscard]] int64_t size() const;
  /// "queue 'q' (3 of 10 elements)", for who waits.
  [[nodiscard]] std::string describe() const;

  void cancel() override;
  bool poll(const Request& request) override;
  void withdraw(const RequestPtr& request) override;

 private:
  explicit Queue(QueueDef def) : def_(std::move(def)), random_(def_.seed) {}

  [[nodiscard]] Status check_values(const Tuple& values, bool many) const;
  void serve();
  bool serve_enqueue();
  bool serve_dequeue();
  void finish_dequeue(Request* request, Status status);
  void put(Tuple element);
  [[nodiscard]] Tuple take();
  [[nodiscard]] int64_t available() const;

  const QueueDef def_;
  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  std::deque<Tuple> elements_;  // kPriority: sorted.
  std::deque<RequestPtr> putting_;
  std::deque<RequestPtr> taking_;
  bool closed_ = false;
};

}  // namespace sidereal::resources
