#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "sidereal/base/status.h"
#include "sidereal/ports/ports.h"
#include "sidereal/service/tensor_pieces.h"
#include "sidereal/tensor/tensor.h"

/// Messages TensorGroupPieces of session.proto, written and read without the copies that protobuf
/// makes: bytes of tensors leave from where they are, and go where they belong. For the .cc files
/// of service.
namespace sidereal::service {

/// Cuts one tensor group into messages, several small tensors in one. Thread: one at a time.
class TensorGroupCutter {
 public:
  TensorGroupCutter(int32_t key, ports::TensorGroup values)
      : key_(key), values_(std::move(values)) {}

  /// True when the last message was given out.
  [[nodiscard]] bool done() const { return begun_ && at_ == values_.size(); }
  /// The next message; it holds the tensors whose bytes it shows.
  grpc::ByteBuffer next();
  /// Bytes of elements in the last message.
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  /// Bytes of the tensor at at_, which strings are made of once.
  struct Source {
    std::shared_ptr<const void> holder;
    const char* data = nullptr;
    uint64_t bytes = 0;
    uint64_t at = 0;
  };
  void open();

  int32_t key_;
  ports::TensorGroup values_;
  bool begun_ = false;
  size_t at_ = 0;
  size_t bytes_ = 0;
  std::optional<Source> source_;  // Of values_[at_], once it was begun.
};

/// Reads one message: tells `joiner_of` the key, which gives who puts the tensors of that tensor
/// group together, and `take` each tensor that is complete, with its index. Returns the bytes of
/// elements it had. Errors: kDataLoss for what is no such message, and those of PieceJoiner and
/// `joiner_of`.
Result<int64_t> read_tensor_group_message(
    grpc::ByteBuffer* message, absl::FunctionRef<Result<PieceJoiner*>(int32_t key)> joiner_of,
    absl::FunctionRef<void(int32_t index, tensor::Tensor value)> take);

}  // namespace sidereal::service
