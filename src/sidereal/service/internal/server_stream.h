#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "sidereal/service/callback_order.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/internal/outbox.h"

/// For the .cc files of service.
namespace sidereal::service {

/// A stream that reads requests and writes what is in its outbox, and ends when the other side has
/// ended its half and everything was written. What waits to be written leaves together. Keeps
/// itself until gRPC is done with it.
template <class Request, class Reply>
class ServerStream : public grpc::ServerBidiReactor<Request, Reply>,
                     public std::enable_shared_from_this<ServerStream<Request, Reply>> {
 public:
  ServerStream() = default;

  void start(std::shared_ptr<ServerStream> self) {
    self_ = std::move(self);
    callback_ran(this);
    this->StartRead(&request_);
  }

  void OnReadDone(bool ok) final {
    callback_runs(&request_);
    if (ok) {
      const Status taken = take(&request_);
      if (taken.ok()) return read_on();
      refused();
      end(taken);
      return;
    }
    end(half_closed());
  }

  /// Beside the others.
  void OnCancel() final {
    callback_runs(this);
    cancelled();
  }

  void OnWriteDone(bool ok) final {
    std::unique_lock lock(mutex_);
    writing_ = false;
    if (!ok) {
      broken_ = true;
      outbox_.clear();
    }
    const bool reads = paused_ && outbox_.size() < kReadsAhead;
    if (reads) paused_ = false;
    const size_t waiting = outbox_.size();
    go_on(&lock);
    if (lock.owns_lock()) lock.unlock();
    if (reads) this->StartRead(&request_);
    wrote(waiting);
  }

  void OnDone() final {
    callback_runs(&request_);
    hung_up();
    const std::shared_ptr<ServerStream> last = std::move(self_);
  }

 protected:
  /// A request came, which may be moved from; an error ends the stream.
  virtual Status take(Request* request) = 0;
  /// take() refused something.
  virtual void refused() {}
  /// The other side says no more. Maybe more than once.
  virtual void hung_up() = 0;
  /// The other side has closed its half, or has gone; an error ends the stream.
  virtual Status half_closed() {
    hung_up();
    return {};
  }
  /// The call was cancelled. Beside any other callback.
  virtual void cancelled() {}
  /// A message was written, or cannot be; `waiting` messages and tensors are left. Beside any other
  /// callback.
  virtual void wrote(size_t /*waiting*/) {}
  /// Whether nothing more is going to be put; yes after put_last() in any case.
  [[nodiscard]] virtual bool said_all() const = 0;
  void put(Reply reply) {
    std::unique_lock lock(mutex_);
    if (!broken_) outbox_.put(std::move(reply));
    go_on(&lock);
  }
  void put(int32_t index, tensor::Tensor value) {
    std::unique_lock lock(mutex_);
    if (!broken_) outbox_.put(index, std::move(value));
    go_on(&lock);
  }
  /// A message and tensors, which nothing else comes between.
  void put_all(Reply reply, std::span<tensor::Tensor> values) {
    std::unique_lock lock(mutex_);
    if (!broken_) {
      outbox_.put(std::move(reply));
      for (size_t i = 0; i < values.size(); ++i) {
        outbox_.put(static_cast<int32_t>(i), std::move(values[i]));
      }
    }
    go_on(&lock);
  }
  /// Messages and tensors that wait to be written.
  [[nodiscard]] size_t waiting() {
    const std::lock_guard lock(mutex_);
    return outbox_.size();
  }
  /// The last word of this side: the stream ends with it.
  void put_last(Reply reply) {
    std::unique_lock lock(mutex_);
    has_last_ = true;
    if (!broken_) outbox_.put(std::move(reply));
    go_on(&lock);
  }

  /// Bytes of tensors written.
  [[nodiscard]] int64_t bytes_written() const { return bytes_written_; }

 private:
  /// Answers that may wait to be written before the next request is read.
  static constexpr size_t kReadsAhead = 64;

  /// Who does not read answers is not read from.
  void read_on() {
    callback_ran(&request_);
    {
      const std::lock_guard lock(mutex_);
      // What is in the outbox is being written: the end of that reads on.
      paused_ = !broken_ && outbox_.size() >= kReadsAhead;
      if (paused_) return;
    }
    this->StartRead(&request_);
  }

  void end(const Status& status) {
    std::unique_lock lock(mutex_);
    if (!ended_) status_ = status;
    ended_ = true;
    go_on(&lock);
  }

  void go_on(std::unique_lock<std::mutex>* lock) {
    if (writing_ || finished_) return;
    if (!outbox_.empty() && status_.ok()) {
      writing_ = true;
      const grpc::WriteOptions options = outbox_.next(&reply_);
      bytes_written_ += bytes_of(reply_);
      if (outbox_.empty() && has_last_) {
        finished_ = true;
        lock->unlock();
        this->StartWriteAndFinish(&reply_, options, to_grpc(status_));
      } else {
        this->StartWrite(&reply_, options);
      }
    } else if (ended_ && (has_last_ || said_all() || !status_.ok())) {
      finished_ = true;
      lock->unlock();
      this->Finish(to_grpc(status_));
    }
  }

  static int64_t bytes_of(const Reply& reply) {
    if constexpr (requires { reply.piece(); }) {
      return static_cast<int64_t>(reply.piece().data().size());
    }
    return 0;
  }

  Request request_;
  Reply reply_;
  std::mutex mutex_;
  Outbox<Reply> outbox_;
  bool writing_ = false;
  bool paused_ = false;
  bool broken_ = false;
  bool has_last_ = false;
  bool ended_ = false;
  bool finished_ = false;
  Status status_;
  std::atomic<int64_t> bytes_written_ = 0;
  std::shared_ptr<ServerStream> self_;
};

}  // namespace sidereal::service
