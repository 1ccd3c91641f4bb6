#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_callback.h>

#include <memory>
#include <mutex>
#include <utility>

#include "sidereal/service/callback_order.h"
#include "sidereal/service/internal/outbox.h"

/// For the .cc files of service.
namespace sidereal::service {

/// The client's half of a stream: writes what is in its outbox, one after the other, and closes
/// its half when told to. What waits to be written leaves together. Keeps itself until gRPC is done
/// with it.
template <class Request, class Reply>
class ClientStream : public grpc::ClientBidiReactor<Request, Reply>,
                     public std::enable_shared_from_this<ClientStream<Request, Reply>> {
 public:
  void OnWriteDone(bool ok) final {
    std::unique_lock lock(mutex_);
    writing_ = false;
    if (!ok) {
      broken_ = true;
      outbox_.clear();
    }
    go_on();
    const bool is_idle = !writing_;
    lock.unlock();
    if (is_idle) wrote();
  }

  void OnReadDone(bool ok) final {
    callback_runs(&reply_);
    // Nothing more comes, so nothing more is to be said.
    if (!ok) return close();
    take(&reply_);
    callback_ran(&reply_);
    if (reads_on()) this->StartRead(&reply_);
  }

  void OnDone(const grpc::Status& status) final {
    callback_runs(&reply_);
    ended(status);
    std::shared_ptr<ClientStream> last;
    const std::lock_guard lock(mutex_);
    done_ = true;
    last = std::move(self_);
  }

 protected:
  // The call begins with its first request, in one write.
  ClientStream() { context_.set_initial_metadata_corked(true); }

  virtual void take(Reply* reply) = 0;
  virtual void ended(const grpc::Status& status) = 0;
  /// Whether the next reply is read at once; otherwise when read_on() is called, once.
  virtual bool reads_on() { return true; }
  /// All that was put has been written, or cannot be.
  virtual void wrote() {}
  void read_on() { this->StartRead(&reply_); }

  /// To be called once, after the call was made on the stub.
  void begin() {
    begun_ = true;
    self_ = this->shared_from_this();
    this->AddHold();
    this->StartRead(&reply_);
    this->StartCall();
  }
  void put(Request request) {
    const std::lock_guard lock(mutex_);
    if (broken_ || closed_) return;
    outbox_.put(std::move(request));
    go_on();
  }
  void put(int32_t index, tensor::Tensor value) {
    const std::lock_guard lock(mutex_);
    if (broken_ || closed_) return;
    outbox_.put(index, std::move(value));
    go_on();
  }
  /// The first piece of the tensor goes with the request.
  void put(Request request, int32_t index, tensor::Tensor value) {
    const std::lock_guard lock(mutex_);
    if (broken_ || closed_) return;
    outbox_.put(std::move(request), index, std::move(value));
    go_on();
  }
  /// Says that no more requests come.
  void close() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    go_on();
  }
  /// Ends the call at once.
  void hang_up() {
    {
      const std::lock_guard lock(mutex_);
      if (done_ || !begun_) return;
      broken_ = true;
      outbox_.clear();
    }
    context_.TryCancel();
    close();
  }

  grpc::ClientContext context_;

 private:
  void go_on() {
    if (writing_ || !begun_) return;
    if (!outbox_.empty()) {
      writing_ = true;
      const grpc::WriteOptions options = outbox_.next(&request_);
      this->StartWrite(&request_, options);
    } else if (closed_ && !std::exchange(half_closed_, true)) {
      this->StartWritesDone();
      this->RemoveHold();
    }
  }

  std::mutex mutex_;
  Outbox<Request> outbox_;
  Request request_;
  Reply reply_;
  bool begun_ = false;
  bool writing_ = false;
  bool broken_ = false;
  bool closed_ = false;
  bool half_closed_ = false;
  bool done_ = false;
  std::shared_ptr<ClientStream> self_;
};

}  // namespace sidereal::service
