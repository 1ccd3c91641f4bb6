#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ckpt/stored_tensors.h"

/// Files of the format safetensors: a header in JSON that says where each tensor's elements lie,
/// then these. It has no strings, no slices and no checksums.
namespace sidereal::ckpt {

/// True when the file begins as one.
bool is_safetensors(const std::string& path);

/// kNotFound, kDataLoss for a header that cannot be.
Result<std::unique_ptr<TensorReader>> open_safetensors(const std::string& path);

/// Writes `tensors`, whose elements are then added in any order, each tensor in one piece or in
/// rows one after the other. kInvalidArgument for strings and for names that are no UTF-8.
Result<std::unique_ptr<TensorWriter>> create_safetensors(const std::string& path,
                                                         std::vector<StoredTensor> tensors);

}  // namespace sidereal::ckpt
