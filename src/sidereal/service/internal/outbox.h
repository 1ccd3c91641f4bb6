#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <optional>
#include <utility>

#include "sidereal/service/tensor_pieces.h"

/// What one end of a stream still has to write. For the .cc files of service.
namespace sidereal::service {

/// How the messages of one stream are written: one that others follow waits for them, so that all
/// leave together. Not so the first: gRPC says that it was written, and takes the next, only when
/// the headers before it have left.
class Writes {
 public:
  grpc::WriteOptions next(bool is_last) {
    const bool waits = std::exchange(has_begun_, true) && !is_last;
    return waits ? grpc::WriteOptions().set_buffer_hint() : grpc::WriteOptions();
  }

 private:
  bool has_begun_ = false;
};

/// Messages and tensors in the order they were put in. Tensors are cut when their turn comes, so
/// that they take no memory twice. `Message` has a member mutable_piece(), or no tensors are put
/// in. Thread: one at a time.
template <class Message>
class Outbox {
 public:
  void put(Message message) { items_.push_back({std::move(message), std::nullopt}); }
  void put(int32_t index, tensor::Tensor value) {
    items_.push_back({std::nullopt, PieceCutter(index, std::move(value))});
  }
  /// The first piece of the tensor goes with the message.
  void put(Message message, int32_t index, tensor::Tensor value) {
    items_.push_back({std::move(message), PieceCutter(index, std::move(value))});
  }
  [[nodiscard]] bool empty() const { return items_.empty(); }
  [[nodiscard]] size_t size() const { return items_.size(); }

  /// Takes the next message out; there is one. Gives how it is to be written.
  grpc::WriteOptions next(Message* message) {
    take(message);
    return writes_.next(empty());
  }
  /// Nothing more is written.
  void clear() { items_.clear(); }

 private:
  struct Item {
    std::optional<Message> message;
    std::optional<PieceCutter> tensor;
  };

  void take(Message* message) {
    Item& item = items_.front();
    if (item.message) {
      *message = *std::move(item.message);
      item.message.reset();
    } else {
      message->Clear();
    }
    if (item.tensor) {
      if constexpr (requires { message->mutable_piece(); }) {
        item.tensor->next(message->mutable_piece());
      }
      if (!item.tensor->done()) return;
    }
    items_.pop_front();
  }

  std::deque<Item> items_;
  Writes writes_;
};

}  // namespace sidereal::service
