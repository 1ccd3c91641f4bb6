#include "sidereal/store/dense_variable.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/optimizer.h"
#include "sidereal/store/memory.h"

namespace sidereal::store {
namespace {

using tensor::DType;
using tensor::Tensor;

// True when nobody but the holder of `t` has its bytes.
bool only_ours(const Tensor& t) { return t.buffer()->has_one_holder(); }

}  // namespace

Result<std::unique_ptr<DenseVariable>> DenseVariable::create(DenseOptions options) {
  SR_RETURN_IF_ERROR(
      base::with_context(options.initializer.validate(), "variable '" + options.name + "'"));
  if (!options.shape.is_fully_defined()) {
    return base::invalid_argument("variable '{}' has shape {}; every dimension must be known",
                                  options.name, options.shape.to_string());
  }
  int64_t n = 1;
  for (const int64_t extent : options.shape.dims()) {
    if (extent < 0) {
      return base::invalid_argument("variable '{}' has shape {}", options.name,
                                    options.shape.to_string());
    }
    SR_ASSIGN_OR_RETURN(n, checked_product(options.name, n, extent));
  }
  // One look at the whole before anything is taken.
  SR_ASSIGN_OR_RETURN(const int64_t all,
                      checked_product(options.name, n, 1 + options.rule.num_slots()));
  SR_ASSIGN_OR_RETURN(const int64_t bytes, checked_product(options.name, all, sizeof(float)));
  size_t left = options.bytes_max;
  if (static_cast<uint64_t>(bytes) > left) {
    SR_RETURN_IF_ERROR(allocate_floats(options.name, all, left).status());
  }
  std::unique_ptr<DenseVariable> variable(new DenseVariable(std::move(options)));
  const DenseOptions& o = variable->options_;
  SR_ASSIGN_OR_RETURN(tensor::Buffer::Ptr weights, allocate_floats(o.name, n, left));
  variable->current_ = Tensor(DType::kFloat32, o.shape, std::move(weights));
  o.initializer.fill(o.shape, 0, variable->current_.data<float>().data(), n);
  for (int i = 0; i < o.rule.num_slots(); ++i) {
    const tensor::Shape shape = o.rule.slot_shape(i, o.shape);
    const int64_t width = shape.num_elements();
    SR_ASSIGN_OR_RETURN(tensor::Buffer::Ptr slot, allocate_floats(o.name, width, left));
    variable->slots_.emplace_back(DType::kFloat32, shape, std::move(slot));
    kernels::fill(variable->slots_.back().data<float>().data(), width,
                  static_cast<float>(o.rule.initial_slot(i)));
  }
  return variable;
}

Status DenseVariable::check_like(const Tensor& t, const char* what) const {
  if (t.defined() && t.dtype() == DType::kFloat32 && t.shape() == shape()) return {};
  return base::invalid_argument("variable '{}' is float32{}; the {} is {}", name(),
                                shape().to_string(), what,
                                t.defined() ? t.to_string() : std::string("not there"));
}

Result<Tensor> DenseVariable::writable_version() {
  if (only_ours(current_)) return current_;
  for (size_t i = 0; i < older_.size(); ++i) {
    if (!only_ours(older_[i])) continue;
    Tensor free = std::move(older_[i]);
    older_.erase(older_.begin() + static_cast<std::ptrdiff_t>(i));
    return free;
  }
  SR_ASSIGN_OR_RETURN(tensor::Buffer::Ptr buffer,
                      allocate_floats(name(), current_.num_elements(), options_.bytes_max));
  return Tensor(DType::kFloat32, shape(), std::move(buffer));
}

void DenseVariable::publish(Tensor next) {
  if (next.buffer() == current_.buffer()) return;
  ++versions_made_;
  older_.push_back(std::move(current_));
  if (older_.size() > static_cast<size_t>(std::max(options_.spare_versions_max, 0))) {
    older_.erase(older_.begin());  // Whoever holds it frees it.
  }
  current_ = std::move(next);
}

Status DenseVariable::apply(const Tensor& grad) {
  SR_RETURN_IF_ERROR(check_like(grad, "gradient"));
  SR_ASSIGN_OR_RETURN(Tensor next, writable_version());
  kernels::DenseUpdate<float> update;
  update.w_in = current_.data<float>().data();
  update.w_out = next.data<float>().data();
  for (size_t i = 0; i < slots_.size(); ++i) update.slots[i] = slots_[i].data<float>().data();
  update.grad = grad.data<float>().data();
  update.n = current_.num_elements();
  update.row = kernels::elements_of_row(shape());
  const UpdateRule& rule = options_.rule;
  kernels::apply_dense<float>({.rule = &rule,
                               .step = static_cast<double>(++applies_),
                               .learning_rate = rule.learning_rate() * rate_factor_},
                              update);
  publish(std::move(next));
  return {};
}

Status DenseVariable::assign(const Tensor& value) {
  SR_RETURN_IF_ERROR(check_like(value, "value"));
  SR_ASSIGN_OR_RETURN(Tensor next, writable_version());
  if (value.num_elements() > 0) std::memmove(next.raw(), value.raw(), value.nbytes());
  publish(std::move(next));
  return {};
}

Tensor DenseVariable::read_slot(int i) const { return slots_.at(i).clone(); }

Status DenseVariable::assign_slot(int i, const Tensor& value) {
  if (i < 0 || i >= static_cast<int>(slots_.size())) {
    return base::invalid_argument("variable '{}' has {} slots; there is no slot {}", name(),
                                  slots_.size(), i);
  }
  if (!value.defined() || value.dtype() != DType::kFloat32 || value.shape() != slots_[i].shape()) {
    return base::invalid_argument("slot {} of variable '{}' is {}", i, name(),
                                  slots_[i].to_string());
  }
  if (value.num_elements() > 0) std::memmove(slots_[i].raw(), value.raw(), value.nbytes());
  return {};
}

size_t DenseVariable::bytes() const {
  size_t bytes = current_.nbytes();
  for (const Tensor& slot : slots_) bytes += slot.nbytes();
  return bytes;
}

}  // namespace sidereal::store
