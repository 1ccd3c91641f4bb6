#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ckpt/formats.h"

/// What is done with all tensors of a checkpoint: they are written in another format, or compared
/// with those of another one. Tables go through memory in pieces.
namespace sidereal::ckpt {

/// What was written.
struct Converted {
  int64_t tensors = 0;
  uint64_t bytes = 0;
  std::vector<std::string> left_out;  ///< "name: why the format cannot hold it".
};

/// Writes the tensors that the format can hold to `path`. Checksums are checked before anything
/// gets its name. Slices stay slices where the format has them.
Result<Converted> convert(TensorReader* from, Format to, const std::string& path);

/// How a tensor of one checkpoint differs from that of another.
struct Difference {
  std::string name;
  std::string how;
};

/// The differences of two checkpoints, in the order of names. Numbers that are further apart than
/// `tolerance` differ, and so do a NaN and a number.
Result<std::vector<Difference>> compare(TensorReader* a, TensorReader* b, double tolerance);

/// Calls `use` with parts of a slice of the tensor, whole rows of it of some megabytes, in order.
Status for_each_part(const Slice& slice, tensor::DType dtype,
                     absl::FunctionRef<Status(const Slice& part)> use);

}  // namespace sidereal::ckpt
