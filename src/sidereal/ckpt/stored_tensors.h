#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ckpt/slice.h"
#include "sidereal/tensor/tensor.h"

/// Tensors in files, by name, whatever the format: what a reader gives and a writer takes.
namespace sidereal::ckpt {

/// What a file says of one of its tensors. Value type.
struct StoredTensor {
  std::string name;
  /// kInvalid: one that Sidereal has not; it can be listed, and not read.
  tensor::DType dtype = tensor::DType::kInvalid;
  tensor::Shape shape;             ///< Of the whole.
  std::vector<Slice> slices = {};  ///< The parts it lies in; empty: it lies in one piece.

  friend bool operator==(const StoredTensor& a, const StoredTensor& b) = default;
};

/// The slices that a tensor lies in: at least one.
std::vector<Slice> pieces_of(const StoredTensor& tensor);

/// Reads tensors from files that anyone may have written: what is wrong in them is an error that
/// names the file.
/// Thread: core-local.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  /// All tensors, in the order of their names.
  [[nodiscard]] const std::vector<StoredTensor>& list() const { return tensors_; }
  /// nullptr when there is none of that name.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;

  /// The whole tensor, put together from its slices, its checksums checked. kNotFound,
  /// kInvalidArgument when no tensor here can hold it, kDataLoss for files that are damaged,
  /// kResourceExhausted when the machine has no such memory.
  Result<tensor::Tensor> read(std::string_view name);
  /// The elements of a slice of it; reads those alone, so that checksums of more are not checked.
  /// kInvalidArgument when the slice is none of this tensor.
  Result<tensor::Tensor> read(std::string_view name, const Slice& part);
  /// Reads all that the files have of the tensor and checks every checksum, in little memory.
  Status verify(std::string_view name);

 protected:
  TensorReader() = default;

  /// For what opens the file: takes what list() gives, in any order.
  void set_tensors(std::vector<StoredTensor> tensors);
  /// As the public functions of these names. `part` lies in the tensor, whose dtype is valid.
  virtual Result<tensor::Tensor> read_whole(const StoredTensor& stored) = 0;
  virtual Result<tensor::Tensor> read_part(const StoredTensor& stored, const Slice& part) = 0;
  virtual Status verify_stored(const StoredTensor& stored) = 0;

 private:
  Result<const StoredTensor*> readable(std::string_view name) const;

  std::vector<StoredTensor> tensors_;
};

/// Writes tensors to files, which get their names when all is written.
/// Thread: core-local.
class TensorWriter {
 public:
  /// Without finish() nothing of it stays.
  virtual ~TensorWriter() = default;
  TensorWriter(const TensorWriter&) = delete;
  TensorWriter& operator=(const TensorWriter&) = delete;

  /// Appends the elements of `piece` to a slice of `tensor`, whose `slices` say which it has. A
  /// slice is written in one or more pieces, in row-major order, one after the other; then the next
  /// one is. kInvalidArgument for what the format cannot hold, kResourceExhausted when the disk is
  /// full, kPermissionDenied.
  virtual Status add(const StoredTensor& tensor, const Slice& slice,
                     const tensor::Tensor& piece) = 0;
  /// Puts everything on the disk, then gives the files their names, the one that names the others
  /// last. Once.
  virtual Status finish() = 0;

 protected:
  TensorWriter() = default;
};

/// An uninitialised tensor for what a file says it has: kResourceExhausted, and no memory taken,
/// when there is not so much; kInvalidArgument when it cannot be counted.
Result<tensor::Tensor> tensor_for(tensor::DType dtype, const tensor::Shape& shape);

}  // namespace sidereal::ckpt
