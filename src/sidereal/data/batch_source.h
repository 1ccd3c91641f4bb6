#pragma once

#include <memory>

#include "sidereal/base/status.h"
#include "sidereal/data/batch.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/data/random.h"
#include "sidereal/data/reader.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::data {

/// What a Reader reads from; one kind per way of storing data.
/// Thread: core-local.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// As Reader::next(), without filling Batch::epoch and Batch::stats.
  virtual Result<bool> next(Batch* batch) = 0;

  [[nodiscard]] const ReadStats& stats() const { return stats_; }

 protected:
  ReadStats stats_;
};

/// Makes `tensor` one of that dtype and shape with undefined elements, in its old memory when that
/// is large enough and nobody else holds it.
void reuse(tensor::Tensor* tensor, tensor::DType dtype, const tensor::Shape& shape);

/// The key of the shuffled order of one part and epoch.
inline uint64_t shuffle_key(const DataSpec& spec, const ReadOptions& options) {
  uint64_t key = mix64(spec.seed + kGoldenGamma);
  key = counter_random(key, static_cast<uint64_t>(options.epoch));
  key = counter_random(key, static_cast<uint64_t>(options.part.count));
  return counter_random(key, static_cast<uint64_t>(options.part.index));
}

Result<std::unique_ptr<BatchSource>> open_text(const DataSpec& spec, const ReadOptions& options);
Result<std::unique_ptr<BatchSource>> open_arrays(const DataSpec& spec, const ReadOptions& options);
Result<std::unique_ptr<BatchSource>> open_synthetic(const DataSpec& spec,
                                                    const ReadOptions& options);

/// inspect() for text formats and for arrays.
Result<Schema> inspect_text(const DataSpec& spec);
Result<Schema> inspect_arrays(const DataSpec& spec);

}  // namespace sidereal::data
