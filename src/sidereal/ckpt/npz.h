#pragma once

#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/ckpt/stored_tensors.h"

/// NumPy's files of many arrays (numpy.savez): a ZIP of .npy files, of which the names are those of
/// tensors with ".npy" behind. bfloat16 is "<V2" there, as ml_dtypes writes it; strings are "S".
namespace sidereal::ckpt {

/// True when the file begins as one.
bool is_npz(const std::string& path);

/// Opens what numpy.savez or numpy.savez_compressed wrote. Of a compressed array a part is found by
/// reading all before it. kNotFound, kDataLoss.
Result<std::unique_ptr<TensorReader>> open_npz(const std::string& path);

/// Writes one that is not compressed. add() refuses strings that end with NULs, which "S" does not
/// keep: kInvalidArgument.
Result<std::unique_ptr<TensorWriter>> create_npz(const std::string& path);

}  // namespace sidereal::ckpt
