#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "sidereal/runtime/tensor_pieces.h"

/// What one end of a stream still has to write. Internal to runtime.
namespace sidereal::runtime {

/// Messages and tensors in the order they were put in. Tensors are cut when their turn comes, so
/// that they take no memory twice. `Message` has a member mutable_piece(), or
/// no tensors are put in. Thread: one at a time.
template <class Message>
class Outbox {
 public:
  void put(Message message) { items_.push_back({std::move(message), std::nullopt}); }
  void put(int32_t index, tensor::Tensor value) {
    items_.push_back({Message(), PieceCutter(index, std::move(value))});
  }
  [[nodiscard]] bool empty() const { return items_.empty(); }
  [[nodiscard]] size_t size() const { return items_.size(); }

  /// Takes the next message out; there is one.
  void next(Message* message) {
    Item& item = items_.front();
    if (!item.tensor) {
      *message = std::move(item.message);
    } else {
      message->Clear();
      if constexpr (requires { message->mutable_piece(); }) {
        item.tensor->next(message->mutable_piece());
      }
      if (!item.tensor->done()) return;
    }
    items_.pop_front();
  }
  /// Nothing more is written.
  void clear() { items_.clear(); }

 private:
  struct Item {
    Message message;
    std::optional<PieceCutter> tensor;
  };

  std::deque<Item> items_;
};

}  // namespace sidereal::runtime
