#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"
#include "sidereal/ckpt/stored_tensors.h"

/// TensorFlow's checkpoints (tensor_bundle.h: BundleReader, BundleWriter): PREFIX.index and data
/// files PREFIX.data-00000-of-00001. Little-endian ones only.
namespace sidereal::ckpt {

/// True when PREFIX.index is the index of a tensor bundle, whether or not it is whole.
bool is_tensor_bundle(const std::string& prefix);

/// Opens a bundle of any number of data files, which are opened when something in them is asked
/// for. kNotFound, kDataLoss, kUnimplemented for what a TensorFlow wrote that this cannot read.
Result<std::unique_ptr<TensorReader>> open_tensor_bundle(const std::string& prefix);

/// Writes a bundle with one data file. A tensor that was given slices is stored in them, and
/// TensorFlow reads it as one; their steps must be 1. Replaces a bundle of that prefix.
Result<std::unique_ptr<TensorWriter>> create_tensor_bundle(const std::string& prefix);

/// The key under which the index has a slice of a tensor (TensorFlow: EncodeTensorNameSlice). A
/// dimension that the slice has in full is written without its extent.
std::string bundle_slice_key(std::string_view name, const Slice& slice, const tensor::Shape& whole);

}  // namespace sidereal::ckpt
