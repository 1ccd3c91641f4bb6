#include "sidereal/data/reader.h"

#include <utility>

#include "sidereal/data/batch_source.h"

namespace sidereal::data {

using base::invalid_argument;

void reuse(tensor::Tensor* tensor, tensor::DType dtype, const tensor::Shape& shape) {
  const size_t bytes = static_cast<size_t>(shape.num_elements()) * tensor::size_of(dtype);
  const tensor::Buffer::Ptr old = tensor->defined() ? tensor->buffer() : nullptr;
  *tensor = tensor::Tensor();
  const bool mine = old != nullptr && old->has_one_holder() && old->bytes() >= bytes;
  *tensor = mine ? tensor::Tensor(dtype, shape, old) : tensor::Tensor::empty(dtype, shape);
}

Reader::Reader(std::unique_ptr<BatchSource> source) : source_(std::move(source)) {}
Reader::~Reader() = default;

Result<std::unique_ptr<Reader>> Reader::open(const DataSpec& spec, const ReadOptions& options) {
  const Part part = options.part;
  if (part.count < 1 || part.index < 0 || part.index >= part.count) {
    return invalid_argument("part {} of {} does not exist", part.index, part.count);
  }
  if (options.batch_size < 1) {
    return invalid_argument("batch_size is {}; it must be at least 1", options.batch_size);
  }
  if (options.epoch < 0) return invalid_argument("epoch is {}; it counts from 0", options.epoch);
  if (options.rows_before < 0) {
    return invalid_argument("rows_before is {}; it must not be negative", options.rows_before);
  }
  if (spec.shuffle_rows < 0) {
    return invalid_argument("shuffle_rows is {}; it must not be negative", spec.shuffle_rows);
  }
  Result<std::unique_ptr<BatchSource>> source = [&] {
    switch (spec.format) {
      case Format::kArrays:
        return open_arrays(spec, options);
      case Format::kSynthetic:
        return open_synthetic(spec, options);
      default:
        return open_text(spec, options);
    }
  }();
  SR_RETURN_IF_ERROR(source.status());
  auto reader = std::unique_ptr<Reader>(new Reader(std::move(source).value()));
  reader->options_ = options;
  reader->given_ = options.rows_before;
  return reader;
}

Result<bool> Reader::next(Batch* batch) {
  const std::atomic<bool>* stop = options_.stop;
  // Relaxed: nothing but the wish to stop travels with the flag.
  if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
    return base::cancelled("reading was stopped");
  }
  SR_ASSIGN_OR_RETURN(const bool more, source_->next(batch));
  if (!more || (options_.drop_partial && batch->rows < options_.batch_size)) return false;
  given_ += batch->rows;
  batch->epoch = options_.epoch;
  batch->pass = 0;
  batch->pass_rows = given_;
  batch->stats = source_->stats();
  return true;
}

const ReadStats& Reader::stats() const { return source_->stats(); }

}  // namespace sidereal::data
