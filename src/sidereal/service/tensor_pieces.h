#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "sidereal/base/status.h"
#include "sidereal/task/arrival_memory.h"
#include "sidereal/tensor/tensor.h"

namespace google::protobuf {
template <class Element>
class RepeatedPtrField;
}  // namespace google::protobuf

namespace sidereal::session::v1 {
class TensorPiece;
}  // namespace sidereal::session::v1

/// Tensors as messages: see TensorPiece in session.proto. A message has bounded size however large
/// the tensor is.
namespace sidereal::service {

/// Bytes of elements in one message.
inline constexpr size_t kPieceBytes = size_t{1} << 20;
/// Pieces in one message.
inline constexpr int kPiecesMax = 4096;

/// Cuts one tensor into pieces. Reads the tensor's memory at each next(), not before.
/// Thread: one at a time.
class PieceCutter {
 public:
  PieceCutter(int32_t index, tensor::Tensor value);

  /// True when the last piece was given out.
  [[nodiscard]] bool done() const { return done_; }
  /// Writes the next piece, with at most `bytes_max` (> 0) bytes of elements.
  void next(session::v1::TensorPiece* piece, size_t bytes_max = kPieceBytes);

 private:
  int32_t index_;
  tensor::Tensor value_;
  std::string strings_;
  uint64_t bytes_ = 0;
  uint64_t at_ = 0;
  bool begun_ = false;
  bool done_ = false;
};

/// Adds pieces of tensors, of one after the other, to those of a message that has `*bytes` bytes of
/// elements already, as long as the message has room; tensors that are through are taken out.
void cut_pieces(std::deque<PieceCutter>* tensors,
                google::protobuf::RepeatedPtrField<session::v1::TensorPiece>* out, size_t* bytes);

/// What all tensors that arrive at a server may take together. Thread: any.
class ArrivingBytes {
 public:
  explicit ArrivingBytes(uint64_t max) : max_(max) {}

  /// False when that would be too much.
  [[nodiscard]] bool take(uint64_t bytes) {
    uint64_t now = bytes_.load(std::memory_order_relaxed);
    while (bytes <= max_ && now <= max_ - bytes) {
      if (bytes_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  void give_back(uint64_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  [[nodiscard]] uint64_t max() const { return max_; }
  [[nodiscard]] uint64_t taken() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  const uint64_t max_;
  std::atomic<uint64_t> bytes_ = 0;
};

/// What the first piece of a tensor says of it, and every piece of itself.
struct PieceHead {
  int32_t index = 0;
  int32_t dtype = 0;  ///< First piece only, as the next two.
  absl::InlinedVector<int64_t, 8> dims = {};
  uint64_t bytes = 0;
};

/// Puts tensors together. Pieces come from anyone: what they announce is checked against what is
/// allowed, and memory is touched as bytes come. Thread: one at a time.
class PieceJoiner {
 public:
  /// Takes indices below `count`, and tensors of at most `bytes_max` bytes.
  explicit PieceJoiner(int32_t count, uint64_t bytes_max = kBytesMax)
      : count_(count), bytes_max_(bytes_max) {}
  /// Puts them into memory of `memory`, which is borrowed.
  PieceJoiner(int32_t count, task::ArrivalMemory* memory)
      : count_(count), bytes_max_(kBytesMax), memory_(memory) {}
  /// What it announces is taken from `arriving`, until the joiner goes.
  PieceJoiner(int32_t count, std::shared_ptr<ArrivingBytes> arriving)
      : count_(count), bytes_max_(arriving->max()), arriving_(std::move(arriving)) {}
  ~PieceJoiner() {
    if (arriving_ != nullptr) arriving_->give_back(taken_);
  }
  PieceJoiner(const PieceJoiner&) = delete;
  PieceJoiner& operator=(const PieceJoiner&) = delete;

  /// The tensor that `piece` completes, with its index; each index once. Errors: kInvalidArgument,
  /// kDataLoss, kResourceExhausted for a tensor that is too large or for which there is no memory.
  /// After an error every piece gets it.
  Result<std::optional<std::pair<int32_t, tensor::Tensor>>> add(
      const session::v1::TensorPiece& piece);

  /// The same in two parts: memory for the `size` bytes of a piece, then, once they are there, the
  /// tensor that they complete.
  Result<std::byte*> room(const PieceHead& head, size_t size);
  Result<std::optional<std::pair<int32_t, tensor::Tensor>>> filled();

 private:
  struct Part {
    tensor::Tensor value;
    std::string strings;
    tensor::Shape shape;
    tensor::DType dtype = tensor::DType::kInvalid;
    uint64_t bytes = 0;
    uint64_t at = 0;
    bool complete = false;
  };

  Result<std::byte*> make_room(const PieceHead& head, size_t size);
  Status begin(const PieceHead& head, Part* part);
  static Result<tensor::Tensor> finish(Part* part);

  static constexpr uint64_t kBytesMax = uint64_t{1} << 40;
  int32_t count_;
  uint64_t bytes_max_;
  task::ArrivalMemory* memory_ = nullptr;
  std::shared_ptr<ArrivingBytes> arriving_;
  uint64_t taken_ = 0;
  Status failure_;
  absl::flat_hash_map<int32_t, Part> parts_;
  int32_t filling_ = -1;  // The index of the part that has room for a piece,
  size_t size_ = 0;       // and its bytes.
};

}  // namespace sidereal::service
