#include "sidereal/dataset/iterator.h"

#include <utility>

#include "sidereal/base/bytes.h"
#include "sidereal/base/hash.h"
#include "sidereal/dataset/internal/stage.h"

namespace sidereal::dataset {
namespace {

/// Elements that read_ahead() makes ahead.
constexpr int64_t kAhead = 2;
constexpr uint32_t kPositionMagic = 0x31706473;  // "sdp1"

/// What tells datasets apart: ops and elements, not the values they are made with.
void describe(const Dataset& dataset, std::string* out) {
  *out += dataset.op() + to_string(dataset.outputs()) + "[";
  for (const DatasetPtr& input : dataset.def().inputs) describe(*input, out);
  if (dataset.def().inner != nullptr) describe(*dataset.def().inner, out);
  *out += ']';
}

uint64_t fingerprint(const Dataset& dataset) {
  std::string text;
  describe(dataset, &text);
  return base::hash64(text, 0);
}

}  // namespace

ElementSource::~ElementSource() = default;

Iterator::Iterator(DatasetPtr dataset, std::unique_ptr<Runtime> runtime)
    : dataset_(std::move(dataset)), runtime_(std::move(runtime)) {}

Iterator::~Iterator() {
  runtime_->stop();
  ahead_ = nullptr;
  stage_ = nullptr;
}

Result<std::unique_ptr<Iterator>> Iterator::make(DatasetPtr dataset, IteratorOptions options) {
  if (dataset->has_slots()) {
    return base::failed_precondition(
        "the dataset is made inside of a function, of values that are not there yet; return it "
        "from the function of flat_map() or interleave()");
  }
  if (!dataset->local_reason().empty() && options.host_functions == nullptr) {
    return base::failed_precondition("the dataset cannot be read here: {}",
                                     dataset->local_reason());
  }
  std::unique_ptr<Iterator> made(
      new Iterator(std::move(dataset), std::make_unique<Runtime>(std::move(options))));
  SR_RETURN_IF_ERROR(made->begin());
  return made;
}

Status Iterator::begin() {
  SR_ASSIGN_OR_RETURN(stage_, make_stage(dataset_, runtime_.get()));
  return {};
}

std::shared_ptr<Stage> Iterator::ahead() {
  const std::lock_guard lock(ahead_mutex_);
  return ahead_;
}

void Iterator::set_ahead(std::shared_ptr<Stage> stage) {
  // The one before may have threads to end, which takes a while.
  const std::lock_guard lock(ahead_mutex_);
  ahead_.swap(stage);
}

Result<bool> Iterator::next(Element* out) {
  if (runtime_->stopped()) return base::cancelled("the iterator was ended");
  if (const std::shared_ptr<Stage> ahead = this->ahead()) {
    return with_memory([&] { return ahead->next(out); });
  }
  const std::lock_guard lock(mutex_);
  if (stage_ == nullptr) return base::aborted("the iterator began to read ahead meanwhile");
  return with_memory([&] { return stage_->next(out); });
}

Result<Poll> Iterator::poll(Element* out) {
  if (runtime_->stopped()) return base::cancelled("the iterator was ended");
  if (const std::shared_ptr<Stage> ahead = this->ahead()) {
    return with_memory([&] { return ahead->poll(out); });
  }
  SR_ASSIGN_OR_RETURN(const bool some, next(out));
  return some ? Poll::kElement : Poll::kEnd;
}

void Iterator::read_ahead(std::function<void()> changed) {
  const std::lock_guard lock(mutex_);
  if (ahead() != nullptr) return;
  changed_ = std::move(changed);
  set_ahead(make_ahead(dataset_, std::move(stage_), kAhead, runtime_.get(), changed_));
}

void Iterator::cancel() { runtime_->stop(); }

Result<std::string> Iterator::save() {
  const std::lock_guard lock(mutex_);
  PositionWriter out;
  out.put(kPositionMagic);
  out.put(fingerprint(*dataset_));
  const std::shared_ptr<Stage> ahead = this->ahead();
  out.put(ahead != nullptr);
  Stage* const stage = ahead != nullptr ? ahead.get() : stage_.get();
  SR_RETURN_IF_ERROR(with_memory([&] { return stage->save(&out); }));
  return out.take();
}

Status Iterator::restore(std::string_view position) {
  const std::lock_guard lock(mutex_);
  PositionReader in(position);
  uint32_t magic = 0;
  uint64_t of = 0;
  bool is_ahead = false;
  SR_RETURN_IF_ERROR(in.get(&magic));
  SR_RETURN_IF_ERROR(in.get(&of));
  SR_RETURN_IF_ERROR(in.get(&is_ahead));
  if (magic != kPositionMagic) return base::data_loss("these bytes are no position of a dataset");
  if (of != fingerprint(*dataset_)) {
    return base::invalid_argument(
        "the position is of another dataset; restore it into an iterator of an equal one");
  }
  std::unique_ptr<Stage> stage;
  SR_ASSIGN_OR_RETURN(stage, make_stage(dataset_, runtime_.get()));
  const auto wrap = [&] {
    stage = make_ahead(dataset_, std::move(stage), kAhead, runtime_.get(), changed_);
  };
  if (is_ahead) wrap();
  SR_RETURN_IF_ERROR(with_memory([&] { return stage->restore(&in); }));
  if (in.remaining() != 0) {
    return base::data_loss("{} bytes too many follow a position", in.remaining());
  }
  const bool was_ahead = ahead() != nullptr;
  if (was_ahead && !is_ahead) wrap();
  if (is_ahead || was_ahead) {
    stage_ = nullptr;
    set_ahead(std::move(stage));
  } else {
    stage_ = std::move(stage);
  }
  return {};
}

}  // namespace sidereal::dataset
