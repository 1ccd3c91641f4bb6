#include "sidereal/resources/accumulator.h"

#include <algorithm>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/resources/push_counts.h"
#include "sidereal/tensor/dispatch.h"

namespace sidereal::resources {

using base::invalid_argument;
using tensor::DType;
using tensor::RealTypes;
using tensor::Shape;
using tensor::Tensor;

Result<std::shared_ptr<Accumulator>> Accumulator::make(AccumulatorDef def) {
  if (def.dtype != DType::kFloat32 && def.dtype != DType::kFloat64) {
    return invalid_argument("accumulator '{}' is of {}; it must be float32 or float64", def.name,
                            tensor::name_of(def.dtype));
  }
  if (def.sparse && def.shape.has_rank() && def.shape.rank() == 0) {
    return invalid_argument("sparse accumulator '{}' is of scalars, which have no rows", def.name);
  }
  return std::shared_ptr<Accumulator>(new Accumulator(std::move(def)));
}

bool Accumulator::is_given(const ClosureKey& closure) {
  if (closure.client == 0) return false;
  if (std::exchange(client_, closure.client) != closure.client) {
    given_.clear();
    taken_.clear();
  }
  const auto taken = taken_.find(place_of_closure(closure.closure));
  const bool is_taken = taken != taken_.end() && taken->second >= turn_of_closure(closure.closure);
  if (!is_taken && !given_.contains(closure.closure)) return false;
  PushCounts::add_repeated_here();
  return true;
}

void Accumulator::note_given(const ClosureKey& closure) {
  ++count_;
  if (closure.client != 0) given_.insert(closure.closure);
}

Status Accumulator::apply(const Tensor& grad, int64_t local_step, const ClosureKey& closure) {
  if (def_.sparse) return invalid_argument("accumulator '{}' takes rows", def_.name);
  if (grad.dtype() != def_.dtype || !def_.shape.accepts(grad.shape())) {
    return invalid_argument("accumulator '{}' takes {}{}; a gradient {} is given", def_.name,
                            tensor::name_of(def_.dtype), def_.shape.to_string(), grad.to_string());
  }
  const std::lock_guard lock(mutex_);
  if (local_step < step_ || is_given(closure)) return {};
  if (count_ == 0) {
    shape_ = grad.shape();
    sum_.assign(static_cast<size_t>(grad.num_elements()), 0);
  } else if (!(shape_ == grad.shape())) {
    return invalid_argument("a gradient {} for accumulator '{}', which has some of shape {}",
                            grad.to_string(), def_.name, shape_.to_string());
  }
  tensor::visit_dtype<RealTypes>(grad.dtype(), [&]<class T>() {
    const auto data = grad.data<const T>();
    for (size_t i = 0; i < data.size(); ++i) sum_[i] += static_cast<double>(data[i]);
  });
  note_given(closure);
  serve();
  return {};
}

Status Accumulator::apply_rows(const Tensor& indices, const Tensor& values, int64_t local_step,
                               const ClosureKey& closure) {
  if (!def_.sparse) return invalid_argument("accumulator '{}' takes dense gradients", def_.name);
  const bool fits = indices.dtype() == DType::kInt64 && indices.shape().rank() == 1 &&
                    values.dtype() == def_.dtype && values.shape().rank() >= 1 &&
                    values.shape().dim(0) == indices.num_elements();
  if (!fits) {
    return invalid_argument("rows {} with values {} for accumulator '{}' of {}",
                            indices.to_string(), values.to_string(), def_.name,
                            tensor::name_of(def_.dtype));
  }
  const Shape row(values.shape().dims().subspan(1));
  Shape whole = values.shape();
  if (def_.shape.has_rank()) whole.set_dim(0, def_.shape.dim(0));
  if (!def_.shape.accepts(whole)) {
    return invalid_argument("rows of shape {} for accumulator '{}' of shape {}", row.to_string(),
                            def_.name, def_.shape.to_string());
  }
  const std::span<const int64_t> ids = indices.data<const int64_t>();
  for (const int64_t id : ids) {
    const int64_t rows = def_.shape.has_rank() ? def_.shape.dim(0) : -1;
    if (id >= 0 && (rows < 0 || id < rows)) continue;
    return invalid_argument("row {} for accumulator '{}' of shape {}", id, def_.name,
                            def_.shape.to_string());
  }
  const std::lock_guard lock(mutex_);
  if (local_step < step_ || is_given(closure)) return {};
  if (count_ == 0) shape_ = row;
  if (!(shape_ == row)) {
    return invalid_argument("rows of shape {} for accumulator '{}', which has some of shape {}",
                            row.to_string(), def_.name, shape_.to_string());
  }
  const auto width = static_cast<size_t>(row.num_elements());
  // Rows that repeat in one gradient add up and count once.
  std::map<int64_t, bool> seen;
  tensor::visit_dtype<RealTypes>(values.dtype(), [&]<class T>() {
    const T* from = values.data<const T>().data();
    for (const int64_t id : ids) {
      Row& to = rows_[id];
      to.sum.resize(width, 0);
      for (size_t i = 0; i < width; ++i) to.sum[i] += static_cast<double>(from[i]);
      from += width;
      if (seen.emplace(id, true).second) ++to.count;
    }
  });
  note_given(closure);
  serve();
  return {};
}

Result<std::unique_ptr<Ticket>> Accumulator::take(int64_t count) {
  if (count <= 0) {
    return invalid_argument("{} gradients of accumulator '{}'; ask for at least 1", count,
                            def_.name);
  }
  auto request = std::make_shared<Request>();
  request->count = count;
  const std::lock_guard lock(mutex_);
  taking_.push_back(request);
  serve();
  return std::make_unique<Ticket>(shared_from_this(), std::move(request));
}

Result<Tuple> Accumulator::take_now() {
  const std::lock_guard lock(mutex_);
  if (count_ == 0) {
    Shape one = def_.shape;
    if (def_.sparse && one.has_rank()) one = Shape(one.dims().subspan(1));
    if (!one.is_fully_defined()) {
      return base::failed_precondition(
          "nothing was added to accumulator '{}', whose gradients have shape {}", def_.name,
          def_.shape.to_string());
    }
    shape_ = std::move(one);
  }
  Tuple out = end_step();
  serve_awaiting();
  serve();
  return out;
}

Result<std::unique_ptr<Ticket>> Accumulator::await_step(int64_t step) {
  auto request = std::make_shared<Request>();
  request->count = step;
  const std::lock_guard lock(mutex_);
  awaiting_.push_back(request);
  serve_awaiting();
  return std::make_unique<Ticket>(shared_from_this(), std::move(request));
}

Status Accumulator::restart(int64_t step, int64_t contributors) {
  if (contributors <= 0) {
    return invalid_argument("{} contributors to accumulator '{}'; there must be at least 1",
                            contributors, def_.name);
  }
  const std::lock_guard lock(mutex_);
  const Status anew = base::aborted("accumulator '{}' begins anew", def_.name);
  end_all(&taking_, anew);
  end_all(&awaiting_, anew);
  step_ = step;
  contributors_ = contributors;
  count_ = 0;
  rows_.clear();
  given_.clear();
  return {};
}

Status Accumulator::leave(int64_t count) {
  const std::lock_guard lock(mutex_);
  if (count < 0 || count > contributors_) {
    return invalid_argument("{} of {} contributors leave accumulator '{}'", count, contributors_,
                            def_.name);
  }
  contributors_ -= count;
  serve();
  return {};
}

void Accumulator::serve() {
  if (taking_.empty()) return;
  if (count_ == 0 && contributors_ == 0) {
    return end_all(&taking_, base::out_of_range("nothing more comes to accumulator '{}': all its "
                                                "contributors have left",
                                                def_.name));
  }
  if (count_ == 0) return;
  if (count_ < std::min(taking_.front()->count, contributors_)) return;
  Request& request = *taking_.front();
  request.result = end_step();
  request.done = true;
  taking_.pop_front();
  serve_awaiting();
  serve();
}

/// What was added, and the next step begins.
Tuple Accumulator::end_step() {
  Tuple out = def_.sparse ? give_out_rows() : give_out();
  for (const uint64_t closure : given_) {
    uint64_t& latest = taken_[place_of_closure(closure)];
    latest = std::max(latest, turn_of_closure(closure));
  }
  given_.clear();
  ++step_;
  count_ = 0;
  rows_.clear();
  return out;
}

void Accumulator::serve_awaiting() {
  std::erase_if(awaiting_, [this](const RequestPtr& request) {
    if (step_ <= request->count) return false;
    request->result = {Tensor::scalar(step_)};
    request->done = true;
    return true;
  });
}

void Accumulator::end_all(std::deque<RequestPtr>* requests, const Status& why) {
  for (const RequestPtr& request : *requests) {
    request->done = true;
    request->status = why;
  }
  requests->clear();
}

/// What a sum over `having` gradients is divided by.
double Accumulator::divisor(int64_t having) const {
  if (def_.reduction == Reduction::kSum) return 1;
  return static_cast<double>(def_.reduction == Reduction::kMean ? having : count_);
}

Tuple Accumulator::give_out() {
  Tensor out = Tensor::empty(def_.dtype, shape_);
  const double scale = divisor(count_);
  tensor::visit_dtype<RealTypes>(def_.dtype, [&]<class T>() {
    T* to = out.data<T>().data();
    if (count_ == 0) {
      std::fill_n(to, out.num_elements(), T{0});
      return;
    }
    for (const double value : sum_) *to++ = static_cast<T>(value / scale);
  });
  return {std::move(out)};
}

Tuple Accumulator::give_out_rows() {
  const auto n = static_cast<int64_t>(rows_.size());
  Shape shape{n};
  for (const int64_t extent : shape_.dims()) shape.append(extent);
  Tensor indices = Tensor::empty(DType::kInt64, Shape{n});
  Tensor values = Tensor::empty(def_.dtype, shape);
  int64_t* id = indices.data<int64_t>().data();
  tensor::visit_dtype<RealTypes>(def_.dtype, [&]<class T>() {
    T* to = values.data<T>().data();
    for (const auto& [row, held] : rows_) {
      *id++ = row;
      const double scale = divisor(held.count);
      for (const double value : held.sum) *to++ = static_cast<T>(value / scale);
    }
  });
  return {std::move(indices), std::move(values)};
}

int64_t Accumulator::num_accumulated() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

void Accumulator::set_global_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  serve_awaiting();
}

int64_t Accumulator::global_step() const {
  const std::lock_guard lock(mutex_);
  return step_;
}

std::string Accumulator::describe() const {
  const std::lock_guard lock(mutex_);
  return fmt::format("accumulator '{}' ({} gradients of step {})", def_.name, count_, step_);
}

void Accumulator::cancel() {
  const std::lock_guard lock(mutex_);
  const Status gone = base::cancelled("accumulator '{}' is gone", def_.name);
  end_all(&taking_, gone);
  end_all(&awaiting_, gone);
}

bool Accumulator::poll(const Request& request) {
  const std::lock_guard lock(mutex_);
  return request.done;
}

void Accumulator::withdraw(const RequestPtr& request) {
  const std::lock_guard lock(mutex_);
  std::erase(taking_, request);
  std::erase(awaiting_, request);
  serve();
}

}  // namespace sidereal::resources
