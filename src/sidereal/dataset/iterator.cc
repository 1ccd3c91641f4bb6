#include "sidereal/dataset/iterator.h"

#include <utility>

#include "sidereal/base/bytes.h"
#include "sidereal/base/hash.h"
#include "sidereal/dataset/internal/stage.h"

namespace sidereal::dataset {
namespace {

constexpr uint32_t kPositionMagic = 0x31706473;  // "sdp1"

/// What tells datasets apart: ops and elements, not the values they are made with.
void describe(const Dataset& dataset, std::string* out) {
  *out += dataset.op() + to_string(dataset.outputs()) + "[";
  for (const DatasetPtr& input : dataset.def().inputs) describe(*input, out);
  if (dataset.def().inner != nullptr) describe(*dataset.def().inner, out);
  *out += "]";
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

Result<bool> Iterator::next(Element* out) {
  const std::lock_guard lock(mutex_);
  if (runtime_->stopped()) return base::cancelled("the iterator was ended");
  return with_memory([&] { return stage_->next(out); });
}

void Iterator::cancel() { runtime_->stop(); }

Result<std::string> Iterator::save() {
  const std::lock_guard lock(mutex_);
  PositionWriter out;
  out.put(kPositionMagic);
  out.put(fingerprint(*dataset_));
  SR_RETURN_IF_ERROR(with_memory([&] { return stage_->save(&out); }));
  return out.take();
}

Status Iterator::restore(std::string_view position) {
  const std::lock_guard lock(mutex_);
  PositionReader in(position);
  uint32_t magic = 0;
  uint64_t of = 0;
  SR_RETURN_IF_ERROR(in.get(&magic));
  SR_RETURN_IF_ERROR(in.get(&of));
  if (magic != kPositionMagic) return base::data_loss("these bytes are no position of a dataset");
  if (of != fingerprint(*dataset_)) {
    return base::invalid_argument(
        "the position is of another dataset; restore it into an iterator of an equal one");
  }
  stage_ = nullptr;
  SR_RETURN_IF_ERROR(begin());
  SR_RETURN_IF_ERROR(with_memory([&] { return stage_->restore(&in); }));
  if (in.remaining() == 0) return {};
  return base::data_loss("{} bytes too many follow a position", in.remaining());
}

}  // namespace sidereal::dataset
