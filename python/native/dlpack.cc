#include "dlpack.h"

#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"

namespace sidereal::python {

namespace nb = nanobind;

namespace {

using tensor::DType;
using tensor::Tensor;

// The structures of DLPack 1.0. Names and order are the agreement's.
struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};
struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor dl_tensor;
};

constexpr int32_t kCpu = 1;
constexpr int32_t kCudaHost = 3;
constexpr uint64_t kReadOnly = 1;
constexpr const char* kName = "dltensor";
constexpr const char* kUsedName = "used_dltensor";
constexpr const char* kVersionedName = "dltensor_versioned";
constexpr const char* kUsedVersionedName = "used_dltensor_versioned";

DLDataType to_dl(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * tensor::size_of(dtype));
  switch (dtype) {
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return {0, bits, 1};
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
      return {1, bits, 1};
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
      return {2, bits, 1};
    case DType::kBFloat16:
      return {4, bits, 1};
    case DType::kBool:
      return {6, bits, 1};
    default:
      raise(base::invalid_argument("{} cannot be shared: DLPack has no such dtype",
                                   tensor::name_of(dtype)));
  }
}

DType from_dl(DLDataType dtype) {
  if (dtype.lanes == 1) {
    for (uint8_t number = 1; tensor::is_valid(static_cast<DType>(number)); ++number) {
      const auto ours = static_cast<DType>(number);
      if (ours == DType::kString) continue;
      const DLDataType same = to_dl(ours);
      if (same.code == dtype.code && same.bits == dtype.bits) return ours;
    }
  }
  raise(base::invalid_argument(
      "an array of DLPack type (code {}, {} bits, {} lanes) cannot be shared: sidereal has no such "
      "dtype; convert it first, complex numbers to pairs of floats for example",
      dtype.code, dtype.bits, dtype.lanes));
}

/// What an exported tensor keeps alive.
template <class Managed>
struct Exported {
  Managed managed{};
  Tensor value;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

template <class Managed>
Exported<Managed>* export_tensor(const Tensor& value) {
  auto out = std::make_unique<Exported<Managed>>();
  out->value = value;
  out->shape.assign(value.shape().dims().begin(), value.shape().dims().end());
  out->strides.assign(out->shape.size(), 1);
  for (size_t i = out->shape.size(); i-- > 1;) {
    out->strides[i - 1] = out->strides[i] * std::max<int64_t>(out->shape[i], 1);
  }
  out->managed.dl_tensor = {.data = value.raw(),
                            .device = {kCpu, 0},
                            .ndim = value.shape().rank(),
                            .dtype = to_dl(value.dtype()),
                            .shape = out->shape.data(),
                            .strides = out->strides.data(),
                            .byte_offset = 0};
  out->managed.manager_ctx = out.get();
  out->managed.deleter = [](Managed* self) {
    std::unique_ptr<Exported<Managed>>(static_cast<Exported<Managed>*>(self->manager_ctx)).reset();
  };
  return out.release();
}

/// Frees what nobody took.
template <class Managed>
void drop(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed->deleter != nullptr) managed->deleter(managed);
}

std::string kind_of(nb::handle object) {
  return nb::cast<std::string>(
      nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))).attr("__name__"));
}

bool is_dense(const DLTensor& from) {
  if (from.strides == nullptr) return true;
  for (int32_t i = 0; i < from.ndim; ++i) {
    if (from.shape[i] == 0) return true;
  }
  int64_t expected = 1;
  for (int32_t i = from.ndim; i-- > 0;) {
    if (from.shape[i] != 1 && from.strides[i] != expected) return false;
    expected *= from.shape[i];
  }
  return true;
}

template <class Managed>
Tensor take(PyObject* capsule, const char* name, const char* used, const std::string& whose) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  const DLTensor& from = managed->dl_tensor;
  const DType dtype = from_dl(from.dtype);
  if (!is_dense(from)) {
    raise(base::invalid_argument(
        "{} cannot be shared: its elements do not lie row after row without gaps; make it "
        "contiguous (numpy.ascontiguousarray(x), x.contiguous()) or copy it with "
        "sidereal.constant(x)",
        whose));
  }
  const tensor::Shape shape(std::span<const int64_t>(from.shape, static_cast<size_t>(from.ndim)));
  const size_t bytes = static_cast<size_t>(shape.num_elements()) * tensor::size_of(dtype);
  std::byte* data = static_cast<std::byte*>(from.data) + from.byte_offset;
  if (bytes == 0 || from.data == nullptr) return Tensor::empty(dtype, shape);
  if (reinterpret_cast<uintptr_t>(data) % tensor::size_of(dtype) != 0) {
    raise(base::invalid_argument(
        "{} cannot be shared: its memory is not aligned to its elements; copy it with "
        "sidereal.constant(x)",
        whose));
  }
  PyCapsule_SetName(capsule, used);
  return {dtype, shape, tensor::Buffer::wrap(data, bytes, [managed] {
            if (managed->deleter != nullptr) managed->deleter(managed);
          })};
}

void check_device(nb::handle object, const std::string& whose) {
  const nb::object device = object.attr("__dlpack_device__")();
  const auto type = nb::cast<int64_t>(nb::object(nb::int_(nb::object(device[0]))));
  if (type == kCpu || type == kCudaHost) return;
  raise(base::invalid_argument(
      "{} cannot be shared: its memory is on a device (DLPack device type {}), and sidereal "
      "computes on CPUs; bring it to the host first: x.cpu() in PyTorch, jax.device_get(x) in JAX",
      whose, type));
}

nb::object capsule_of(nb::handle object, const std::string& whose) {
  const nb::object method = object.attr("__dlpack__");
  try {
    nb::dict arguments;
    arguments["max_version"] = nb::make_tuple(1, 0);
    return method(**arguments);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) {
      raise(base::invalid_argument("{} cannot be shared: {}; copy it with sidereal.constant(x)",
                                   whose, nb::cast<std::string>(nb::str(error.value()))));
    }
  }
  try {
    return method();
  } catch (nb::python_error& error) {
    raise(base::invalid_argument("{} cannot be shared: {}; copy it with sidereal.constant(x)",
                                 whose, nb::cast<std::string>(nb::str(error.value()))));
  }
}

}  // namespace

nb::object to_dlpack(const Tensor& value, bool versioned) {
  if (versioned) {
    auto* out = export_tensor<DLManagedTensorVersioned>(value);
    out->managed.version = {1, 0};
    out->managed.flags = kReadOnly;
    return nb::steal(PyCapsule_New(&out->managed, kVersionedName, [](PyObject* capsule) {
      drop<DLManagedTensorVersioned>(capsule, kVersionedName);
    }));
  }
  auto* out = export_tensor<DLManagedTensor>(value);
  return nb::steal(PyCapsule_New(&out->managed, kName,
                                 [](PyObject* capsule) { drop<DLManagedTensor>(capsule, kName); }));
}

Tensor from_dlpack(nb::handle object) {
  const std::string whose = "a " + kind_of(object);
  if (!nb::hasattr(object, "__dlpack__") || !nb::hasattr(object, "__dlpack_device__")) {
    raise(base::invalid_argument(
        "{} cannot be shared: it has no __dlpack__; copy it with sidereal.constant(x)", whose));
  }
  check_device(object, whose);
  const nb::object capsule = capsule_of(object, whose);
  if (PyCapsule_IsValid(capsule.ptr(), kVersionedName) != 0) {
    return take<DLManagedTensorVersioned>(capsule.ptr(), kVersionedName, kUsedVersionedName, whose);
  }
  if (PyCapsule_IsValid(capsule.ptr(), kName) != 0) {
    return take<DLManagedTensor>(capsule.ptr(), kName, kUsedName, whose);
  }
  raise(base::invalid_argument("{}.__dlpack__() gave no capsule of DLPack", whose));
}

}  // namespace sidereal::python
