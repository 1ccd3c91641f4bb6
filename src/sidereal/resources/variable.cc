#include "sidereal/resources/variable.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>

#include "absl/container/inlined_vector.h"
#include "sidereal/resources/change_log.h"

namespace sidereal::resources {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// Up to this size there is memory for two values, one to be read and one to be changed.
constexpr size_t kSpareBytesMax = size_t{1} << 20;
/// Variables of one change that take no memory: weights and the slots of any rule.
constexpr size_t kUsual = 4;

/// True when nobody but `value` has its bytes, which this thread counts from now on.
bool is_only_holder(const Tensor& value) {
  if (!value.buffer()->has_one_holder()) return false;
  value.buffer()->take_over();
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

Variable::Variable(VariableDef def, std::shared_ptr<Owner> owner)
    : def_(std::move(def)),
      owner_(std::move(owner)),
      mutex_(owner_ == nullptr ? std::make_unique<std::mutex>() : nullptr) {}

Result<std::shared_ptr<Variable>> Variable::make(VariableDef def, std::shared_ptr<Owner> owner) {
  if (!tensor::is_valid(def.dtype)) {
    return invalid_argument("variable '{}' has no dtype", def.name);
  }
  return std::shared_ptr<Variable>(new Variable(std::move(def), std::move(owner)));
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
      "attempting to use uninitialized value {} ({}{}): run its initializer first "
      "(global_variables_initializer)",
      def_.name, tensor::name_of(def_.dtype), def_.shape.to_string());
}

void Variable::Value::renew() {
  if (is_only_holder(now_)) return;
  const bool fits = spare_.defined() && spare_.dtype() == now_.dtype() &&
                    spare_.shape() == now_.shape() && is_only_holder(spare_);
  if (!fits) spare_ = Tensor::empty(now_.dtype(), now_.shape());
  std::swap(now_, spare_);
  if (spare_.nbytes() > kSpareBytesMax) spare_ = Tensor();
}

Tensor Variable::Value::get(Allocate allocate) const {
  if (!is_in_table()) return now_;
  const Rows from = rows();
  Tensor out = allocate(dtype(), shape());
  const size_t bytes = static_cast<size_t>(from.width) * tensor::size_of(dtype());
  std::byte* to = out.raw();
  for (int64_t r = 0; r < from.count; ++r, to += bytes) {
    std::memcpy(to, from.at + r * from.stride, bytes);
  }
  return out;
}

Rows Variable::Value::rows() const {
  Rows out = Rows::of(now_);
  if (is_in_table()) out.stride = stride_;
  return out;
}

void Variable::Value::all_will_change() {
  if (watch_ == nullptr || !now_.defined()) return;
  watch_->before_change_of_all([this] { return get(Tensor::empty); });
}

Rows Variable::Value::own() {
  all_will_change();
  return own_memory();
}

Rows Variable::Value::own(std::span<const int64_t> changed) {
  if (watch_ != nullptr) watch_->before_change(changed, rows(), tensor::size_of(dtype()));
  return own_memory();
}

Rows Variable::Value::own_memory() {
  if (is_in_table() || is_only_holder(now_)) return rows();
  const Tensor old = now_;
  renew();
  if (old.nbytes() > 0) std::memcpy(now_.raw(), old.raw(), old.nbytes());
  return rows();
}

void Variable::Value::copy_from(const Tensor& value) {
  all_will_change();
  if (!is_in_table()) {
    renew();
    if (value.nbytes() > 0) std::memcpy(now_.raw(), value.raw(), value.nbytes());
    return;
  }
  const Rows to = rows();
  const size_t bytes = static_cast<size_t>(to.width) * tensor::size_of(dtype());
  const std::byte* from = value.raw();
  for (int64_t r = 0; r < to.count; ++r, from += bytes) {
    std::memcpy(to.at + r * to.stride, from, bytes);
  }
}

std::unique_lock<std::mutex> Variable::lock() const {
  return mutex_ == nullptr ? std::unique_lock<std::mutex>() : std::unique_lock(*mutex_);
}

void Variable::forget_value() {
  if (value_.watch_ != nullptr) value_.watch_->lose();
  value_ = {};
  bytes_.store(0, std::memory_order_relaxed);
}

void Variable::cancel() {
  staleness_.end();
  if (owner_ == nullptr) {
    const auto held = lock();
    return forget_value();
  }
  const int lane = owner_->lane();
  // A lane that is stopping runs nothing that could use it.
  static_cast<void>(owner_->lanes()->post(lane, [self = shared_from_this(), lane] {
    // It may have been given to another one meanwhile.
    if (self->owner_->lane() != lane) return self->cancel();
    self->forget_value();
  }));
}

Result<Tensor> Variable::read(Allocate allocate) const {
  const auto held = lock();
  if (!value_.now_.defined()) return uninitialized();
  return value_.get(allocate);
}

bool Variable::is_initialized() const {
  const auto held = lock();
  return value_.now_.defined();
}

Status Variable::assign(const Tensor& value, bool checks_shape,
                        absl::FunctionRef<void(const Value&)> then) {
  const bool good_shape = !checks_shape || fits(def_.shape, value.shape());
  if (value.dtype() != def_.dtype || !good_shape) {
    return invalid_argument("{} is assigned to variable '{}', which is {}{}", value.to_string(),
                            def_.name, tensor::name_of(def_.dtype), def_.shape.to_string());
  }
  const auto held = lock();
  Tensor& now = value_.now_;
  if (!now.defined() || now.dtype() == DType::kString || now.shape() != value.shape()) {
    renew_with(value.clone());
  } else if (now.buffer() != value.buffer()) {
    value_.copy_from(value);
  }
  then(value_);
  return {};
}

void Variable::renew_with(Tensor value, int64_t stride) {
  value_.all_will_change();
  std::unique_ptr<ValueWatch> watch = std::move(value_.watch_);
  value_ = {};
  value_.watch_ = std::move(watch);
  value_.now_ = std::move(value);
  value_.stride_ = stride;
  value_.has_layout_ = stride != 0;
  bytes_.store(static_cast<int64_t>(value_.now_.nbytes()), std::memory_order_relaxed);
  if (log() != nullptr) return value_.watch_->log_all();
  if (owner_ == nullptr) return;
  for (ChangeLog* const of_lane : owner_->lanes()->logs(owner_->lane())) {
    of_lane->watch(shared_from_this(), /*is_new=*/true);
  }
}

void Variable::log_to(std::shared_ptr<ChangeLog> log, size_t source) {
  if (value_.watch_ == nullptr) value_.watch_ = std::make_unique<ValueWatch>();
  value_.watch_->log_to(std::move(log), source);
}

const ChangeLog* Variable::log() const {
  return value_.watch_ == nullptr ? nullptr : value_.watch_->log();
}

void Variable::note_made(const ClosureKey& closure, uint64_t change) {
  changes_made_.note(closure, change);
  if (value_.watch_ != nullptr) value_.watch_->log_made({closure, change});
}

Status Variable::take(Tensor value, int64_t stride) {
  const bool is_own = value.dtype() == def_.dtype && fits(def_.shape, value.shape());
  if (is_own && stride != 0) {
    const auto held = lock();
    renew_with(std::move(value), stride);
    return {};
  }
  {
    const auto held = lock();
    if (is_own && !value_.is_in_table() && is_only_holder(value)) {
      renew_with(std::move(value));
      return {};
    }
  }
  return assign(value);
}

Result<std::shared_ptr<Snapshot>> Variable::snapshot(std::span<const uint64_t> bases,
                                                     uint64_t cut) {
  const auto held = lock();
  const Tensor& now = value_.now_;
  if (!now.defined()) return uninitialized();
  if (value_.watch_ == nullptr) value_.watch_ = std::make_unique<ValueWatch>();
  const int64_t rows = now.shape().rank() > 0 ? now.shape().dim(0) : 1;
  auto out = std::make_shared<Snapshot>(now.dtype(), now.shape(),
                                        value_.watch_->changed_since(bases, rows));
  out->changes_made_ = changes_made_.encode();
  const bool is_small = !value_.is_in_table() && now.nbytes() <= kSpareBytesMax;
  if (is_small || now.dtype() == DType::kString) {
    // A change takes other memory then, as when a step holds the value.
    out->whole_ = now;
  } else {
    value_.watch_->add(out);
  }
  if (cut != 0) value_.watch_->track(cut, rows);
  return out;
}

Result<int64_t> Variable::read_on(Snapshot* snapshot, int64_t rows_max, std::byte* to,
                                  int64_t* which) {
  const auto held = lock();
  if (!snapshot->failure_.ok()) {
    return base::with_context(snapshot->failure_, fmt::format("variable '{}'", def_.name));
  }
  return snapshot->read(rows_max, value_.rows(), to, which);
}

Status Variable::look(absl::FunctionRef<Status(const Value&)> look) const {
  const auto held = lock();
  if (!value_.now_.defined()) return uninitialized();
  return look(value_);
}

Status Variable::change(std::span<Variable* const> variables,
                        absl::FunctionRef<Status(std::span<Value* const>)> change) {
  // All change their variables in this order, so that none waits for one that waits for it.
  absl::InlinedVector<Variable*, kUsual> ordered(variables.begin(), variables.end());
  std::sort(ordered.begin(), ordered.end(), std::less<>());
  const auto twice = std::adjacent_find(ordered.begin(), ordered.end());
  if (twice != ordered.end()) {
    return invalid_argument("variable '{}' is there twice in one update", (*twice)->def_.name);
  }
  absl::InlinedVector<std::unique_lock<std::mutex>, kUsual> locks;
  for (Variable* variable : ordered) {
    locks.push_back(variable->lock());
    if (!variable->value_.now_.defined()) return variable->uninitialized();
  }
  absl::InlinedVector<Value*, kUsual> values;
  for (Variable* variable : variables) values.push_back(&variable->value_);
  return change(values);
}

}  // namespace sidereal::resources
