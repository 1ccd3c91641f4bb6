#include "sidereal/resources/variable.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

namespace sidereal::resources {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// True when nobody but `value` has its bytes. Readers may let go of them on another thread: taking
/// and dropping one more reference orders their last read before the next write.
bool is_only_holder(const Tensor& value) {
  if (value.buffer().use_count() != 1) return false;
  tensor::Buffer::Ptr probe = value.buffer();
  probe.reset();
  return true;
}

}  // namespace

bool fits(const Shape& wanted, const Shape& shape) {
  if (!wanted.has_rank() || !shape.has_rank()) return true;
  if (wanted.rank() != shape.rank()) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (wanted.dim(i) >= 0 && shape.dim(i) >= 0 && wanted.dim(i) != shape.dim(i)) return false;
  }
  return true;
}

Result<std::shared_ptr<Variable>> Variable::make(VariableDef def) {
  if (!tensor::is_valid(def.dtype)) {
    return invalid_argument("variable '{}' has no dtype", def.name);
  }
  return std::shared_ptr<Variable>(new Variable(std::move(def)));
}

Status Variable::check_same(const VariableDef& other) const {
  if (other.dtype == def_.dtype && fits(def_.shape, other.shape)) return {};
  return invalid_argument(
      "variable '{}' is {}{} here, and is asked for as {}{}; give one of the two another name or "
      "container",
      def_.name, tensor::name_of(def_.dtype), def_.shape.to_string(), tensor::name_of(other.dtype),
      other.shape.to_string());
}

Status Variable::uninitialized() const {
  return base::failed_precondition(
      "attempting to use uninitialized value {}: run its initializer first "
      "(global_variables_initializer)",
      def_.name);
}

Result<Tensor> Variable::read() const {
  const std::lock_guard lock(mutex_);
  if (!value_.defined()) return uninitialized();
  return value_;
}

int64_t Variable::bytes() const {
  const std::lock_guard lock(mutex_);
  return value_.defined() ? static_cast<int64_t>(value_.nbytes()) : 0;
}

bool Variable::is_initialized() const {
  const std::lock_guard lock(mutex_);
  return value_.defined();
}

Result<Tensor> Variable::assign(const Tensor& value, bool checks_shape) {
  const bool good_shape = !checks_shape || fits(def_.shape, value.shape());
  if (value.dtype() != def_.dtype || !good_shape) {
    return invalid_argument("{} is assigned to variable '{}', which is {}{}", value.to_string(),
                            def_.name, tensor::name_of(def_.dtype), def_.shape.to_string());
  }
  const std::lock_guard lock(mutex_);
  const bool in_place = value_.defined() && value_.dtype() != DType::kString &&
                        value_.shape() == value.shape() && is_only_holder(value_);
  if (!in_place) {
    value_ = value.clone();
  } else if (value.nbytes() > 0) {
    std::memcpy(value_.raw(), value.raw(), value.nbytes());
  }
  return value_;
}

void Variable::own(Tensor* value) {
  if (!is_only_holder(*value)) *value = value->clone();
}

Status Variable::change(std::span<const std::shared_ptr<Variable>> variables,
                        absl::FunctionRef<Status(std::span<Tensor* const>)> change) {
  // All change their variables in this order, so that none waits for one that waits for it.
  std::vector<Variable*> ordered;
  for (const auto& variable : variables) ordered.push_back(variable.get());
  std::sort(ordered.begin(), ordered.end(), std::less<>());
  const auto twice = std::adjacent_find(ordered.begin(), ordered.end());
  if (twice != ordered.end()) {
    return invalid_argument("variable '{}' is there twice in one update", (*twice)->def_.name);
  }
  std::vector<std::unique_lock<std::mutex>> locks;
  for (Variable* variable : ordered) {
    locks.emplace_back(variable->mutex_);
    if (!variable->value_.defined()) return variable->uninitialized();
  }
  std::vector<Tensor*> values;
  for (const auto& variable : variables) values.push_back(&variable->value_);
  return change(values);
}

}  // namespace sidereal::resources
