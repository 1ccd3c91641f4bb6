#pragma once

#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/ckpt/stored_tensors.h"
#include "sidereal/sys/disk.h"

namespace sidereal::ckpt {

/// Writes a checkpoint of Sidereal's own format (index.h), all of it new, with one data file.
/// Replaces a checkpoint of that prefix.
Result<std::unique_ptr<TensorWriter>> create_checkpoint(std::shared_ptr<sys::Disk> disk,
                                                        const std::string& prefix);

}  // namespace sidereal::ckpt
