#pragma once

#include <nanobind/nanobind.h>

#include "sidereal/tensor/tensor.h"

/// DLPack, the agreement by which array libraries hand each other memory without a copy
/// (https://dmlc.github.io/dlpack): its C structures, and both directions.
namespace sidereal::python {

/// A capsule that holds `value`'s memory. `versioned` capsules say that it is not to be written;
/// the older kind cannot say so.
nanobind::object to_dlpack(const tensor::Tensor& value, bool versioned);

/// A tensor over the memory of an object with `__dlpack__`, which lives as long as the tensor does.
/// Raises InvalidArgumentError saying what cannot be shared and what to do instead: memory of a
/// device, dtypes that are not ours, strides of other than a dense row-major array.
tensor::Tensor from_dlpack(nanobind::handle object);

}  // namespace sidereal::python
