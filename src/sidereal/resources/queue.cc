#include "sidereal/resources/queue.h"

#include <algorithm>
#include <utility>

#include "sidereal/base/strings.h"

namespace sidereal::resources {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

Result<std::shared_ptr<Queue>> Queue::make(QueueDef def) {
  if (def.dtypes.empty()) return invalid_argument("queue '{}' has no components", def.name);
  if (!def.shapes.empty() && def.shapes.size() != def.dtypes.size()) {
    return invalid_argument("queue '{}' has {} dtypes and {} shapes", def.name, def.dtypes.size(),
                            def.shapes.size());
  }
  if (def.capacity == 0 || def.capacity < -1) {
    return invalid_argument("queue '{}' has the capacity {}; give one above 0, or -1 for no bound",
                            def.name, def.capacity);
  }
  for (const Shape& shape : def.shapes) {
    if (shape.is_fully_defined() || (def.pad && shape.has_rank())) continue;
    return invalid_argument(
        "queue '{}' has components of shape {}; {}", def.name, shape.to_string(),
        def.pad ? "the rank must be known" : "all extents must be known, or use a padding queue");
  }
  if (def.pad && def.shapes.empty()) {
    return invalid_argument("padding queue '{}' needs the shapes of its components", def.name);
  }
  const bool bounded = def.capacity > 0 && def.order == QueueOrder::kShuffled;
  if (def.min_after_dequeue < 0 || (bounded && def.min_after_dequeue >= def.capacity)) {
    return invalid_argument("queue '{}' keeps back {} elements of {}", def.name,
                            def.min_after_dequeue, def.capacity);
  }
  if (def.order == QueueOrder::kPriority && def.dtypes[0] != DType::kInt64) {
    return invalid_argument("queue '{}' is ordered by its first component, which must be int64",
                            def.name);
  }
  return std::shared_ptr<Queue>(new Queue(std::move(def)));
}

Status Queue::check_values(const Tuple& values, bool many) const {
  if (values.size() != def_.dtypes.size()) {
    return invalid_argument("queue '{}' takes {} components; {} are given", def_.name,
                            def_.dtypes.size(), values.size());
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor& value = values[i];
    if (value.dtype() != def_.dtypes[i]) {
      return invalid_argument("component {} of queue '{}' is {}; {} is given", i, def_.name,
                              tensor::name_of(def_.dtypes[i]), value.to_string());
    }
    Shape row = value.shape();
    if (many) {
      if (row.rank() == 0 || row.dim(0) != values[0].shape().dim(0)) {
        return invalid_argument(
            "component {} of a batch for queue '{}' is {}; all need as many rows", i, def_.name,
            value.to_string());
      }
      row = Shape(value.shape().dims().subspan(1));
    }
    if (!def_.shapes.empty() && !def_.shapes[i].accepts(row)) {
      return invalid_argument("component {} of queue '{}' has shape {}; an element of {} is given",
                              i, def_.name, def_.shapes[i].to_string(), row.to_string());
    }
    if (i == 0 && def_.order == QueueOrder::kPriority && row.rank() != 0) {
      return invalid_argument("the priority of an element for queue '{}' must be one number",
                              def_.name);
    }
  }
  return {};
}

Result<std::unique_ptr<Ticket>> Queue::enqueue(const Tuple& values, bool many) {
  SR_RETURN_IF_ERROR(check_values(values, many));
  auto request = std::make_shared<Request>();
  const int64_t rows = many ? values[0].shape().dim(0) : 1;
  for (int64_t row = 0; row < rows; ++row) {
    Tuple& element = request->rows.emplace_back();
    for (const Tensor& value : values) {
      element.push_back(many ? copy_row(value, row) : value.clone());
    }
  }
  std::reverse(request->rows.begin(), request->rows.end());  // The next one is the last.
  const std::lock_guard lock(mutex_);
  if (closed_) {
    request->done = true;
    request->status = base::cancelled("queue '{}' is closed", def_.name);
  } else {
    putting_.push_back(request);
    serve();
  }
  return std::make_unique<Ticket>(shared_from_this(), std::move(request));
}

Result<std::unique_ptr<Ticket>> Queue::dequeue(int64_t count, bool many, bool up_to) {
  if (count < 0) return invalid_argument("{} elements of queue '{}'", count, def_.name);
  if (many && def_.shapes.empty()) {
    return invalid_argument(
        "queue '{}' was made without shapes, so its elements make no batches; give it shapes",
        def_.name);
  }
  auto request = std::make_shared<Request>();
  request->count = count;
  request->many = many;
  request->up_to = up_to;
  const std::lock_guard lock(mutex_);
  taking_.push_back(request);
  serve();
  return std::make_unique<Ticket>(shared_from_this(), std::move(request));
}

int64_t Queue::available() const {
  const auto size = static_cast<int64_t>(elements_.size());
  if (def_.order != QueueOrder::kShuffled || closed_) return size;
  return std::max<int64_t>(size - def_.min_after_dequeue, 0);
}

void Queue::put(Tuple element) {
  auto at = elements_.end();
  if (def_.order == QueueOrder::kPriority) {
    const auto priority = [](const Tuple& t) { return t[0].data<const int64_t>()[0]; };
    at =
        std::upper_bound(elements_.begin(), elements_.end(), element,
                         [&](const Tuple& a, const Tuple& b) { return priority(a) < priority(b); });
  }
  elements_.insert(at, std::move(element));
}

Tuple Queue::take() {
  if (def_.order == QueueOrder::kShuffled) {
    std::uniform_int_distribution<size_t> pick(0, elements_.size() - 1);
    std::swap(elements_.front(), elements_[pick(random_)]);
  }
  Tuple out = std::move(elements_.front());
  elements_.pop_front();
  return out;
}

bool Queue::serve_enqueue() {
  if (putting_.empty()) return false;
  Request& request = *putting_.front();
  bool moved = false;
  while (!request.rows.empty() &&
         (def_.capacity < 0 || static_cast<int64_t>(elements_.size()) < def_.capacity)) {
    put(std::move(request.rows.back()));
    request.rows.pop_back();
    moved = true;
  }
  if (!request.rows.empty()) return moved;
  request.done = true;
  putting_.pop_front();
  return true;
}

void Queue::finish_dequeue(Request* request, Status status) {
  request->done = true;
  request->status = std::move(status);
  std::vector<Tuple> rows = std::move(request->rows);
  if (!request->status.ok()) {
    for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
      if (def_.order == QueueOrder::kPriority) {
        put(std::move(*row));
      } else {
        elements_.push_front(std::move(*row));
      }
    }
  } else if (!request->many) {
    request->result = std::move(rows.front());
  } else {
    for (size_t c = 0; c < def_.dtypes.size(); ++c) {
      if (!rows.empty()) {
        request->result.push_back(stack_rows(rows, c, def_.pad));
        continue;
      }
      Shape none{0};
      for (const int64_t extent : def_.shapes[c].dims()) none.append(std::max<int64_t>(extent, 0));
      request->result.push_back(Tensor::empty(def_.dtypes[c], none));
    }
  }
}

bool Queue::serve_dequeue() {
  if (taking_.empty()) return false;
  const RequestPtr request = taking_.front();
  const auto missing = [&] { return request->count - static_cast<int64_t>(request->rows.size()); };
  bool moved = false;
  while (missing() > 0 && available() > 0) {
    request->rows.push_back(take());
    moved = true;
  }
  const bool over = closed_ && putting_.empty();
  if (missing() > 0 && !over) return moved;
  taking_.pop_front();
  const bool enough = missing() == 0 || (request->up_to && !request->rows.empty());
  finish_dequeue(request.get(),
                 enough ? Status()
                        : base::out_of_range("queue '{}' is closed and has too few elements "
                                             "(requested {}, has {})",
                                             def_.name, request->count,
                                             request->rows.size() + elements_.size()));
  return true;
}

void Queue::serve() {
  // Short-circuiting would starve the second.
  while (static_cast<int>(serve_enqueue()) + static_cast<int>(serve_dequeue()) > 0) {
  }
}

void Queue::close(bool cancel_pending) {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (cancel_pending) {
    for (const RequestPtr& request : putting_) {
      request->done = true;
      request->rows.clear();
      request->status = base::cancelled("queue '{}' was closed", def_.name);
    }
    putting_.clear();
  }
  serve();
}

void Queue::cancel() {
  {
    const std::lock_guard lock(mutex_);
    for (const RequestPtr& request : taking_) {
      finish_dequeue(request.get(), base::cancelled("queue '{}' is gone", def_.name));
    }
    taking_.clear();
  }
  close(true);
}

bool Queue::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

int64_t Queue::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(elements_.size());
}

std::string Queue::describe() const {
  const std::lock_guard lock(mutex_);
  return fmt::format("queue '{}' ({} elements{}{})", def_.name, elements_.size(),
                     def_.capacity < 0 ? std::string() : fmt::format(" of {}", def_.capacity),
                     closed_ ? ", closed" : "");
}

bool Queue::poll(const Request& request) {
  const std::lock_guard lock(mutex_);
  return request.done;
}

void Queue::withdraw(const RequestPtr& request) {
  const std::lock_guard lock(mutex_);
  std::erase(putting_, request);
  if (std::erase(taking_, request) > 0) {
    finish_dequeue(request.get(), base::cancelled("given up"));
  }
  serve();
}

}  // namespace sidereal::resources
