#include "sidereal/reference/value.h"

namespace sidereal::reference::internal {
namespace {

template <class T, class Number>
void read(const Tensor& tensor, std::vector<Number>* out) {
  for (const T x : tensor.data<T>()) out->push_back(static_cast<Number>(x));
}

template <class T, class Number>
void write(const std::vector<Number>& values, Tensor* tensor) {
  const auto out = tensor->data<T>();
  for (size_t i = 0; i < values.size(); ++i) out[i] = static_cast<T>(values[i]);
}

}  // namespace

Value make_value(DType dtype, const Shape& shape) {
  Value out;
  out.dtype = dtype;
  out.shape = shape;
  if (out.is_real()) {
    out.real.assign(shape.num_elements(), 0.0);
  } else {
    out.integer.assign(shape.num_elements(), 0);
  }
  return out;
}

Result<Value> from_tensor(const Tensor& tensor) {
  Value out;
  out.dtype = tensor.dtype();
  out.shape = tensor.shape();
  switch (tensor.dtype()) {
    case DType::kFloat32:
      read<float>(tensor, &out.real);
      break;
    case DType::kFloat64:
      read<double>(tensor, &out.real);
      break;
    case DType::kInt32:
      read<int32_t>(tensor, &out.integer);
      break;
    case DType::kInt64:
      read<int64_t>(tensor, &out.integer);
      break;
    case DType::kUInt8:
      read<uint8_t>(tensor, &out.integer);
      break;
    case DType::kBool:
      read<bool>(tensor, &out.integer);
      break;
    default:
      return base::unimplemented("the reference does not know {}", tensor.to_string());
  }
  return out;
}

Tensor to_tensor(const Value& value) {
  Tensor out = Tensor::empty(value.dtype, value.shape);
  switch (value.dtype) {
    case DType::kFloat32:
      write<float>(value.real, &out);
      break;
    case DType::kFloat64:
      write<double>(value.real, &out);
      break;
    case DType::kInt32:
      write<int32_t>(value.integer, &out);
      break;
    case DType::kInt64:
      write<int64_t>(value.integer, &out);
      break;
    case DType::kUInt8:
      write<uint8_t>(value.integer, &out);
      break;
    case DType::kBool:
      write<bool>(value.integer, &out);
      break;
    default:
      SR_CHECK(false, "a value of {}", out.to_string());
  }
  return out;
}

std::vector<int64_t> broadcast_strides(const Shape& from, const Shape& to) {
  std::vector<int64_t> out(to.rank(), 0);
  int64_t stride = 1;
  for (int i = 1; i <= from.rank(); ++i) {
    if (from.dim(-i) != 1) out[to.rank() - i] = stride;
    stride *= from.dim(-i);
  }
  return out;
}

}  // namespace sidereal::reference::internal
