#include <algorithm>
#include <memory>
#include <utility>

#include "sidereal/data/batch_source.h"
#include "sidereal/data/synthetic.h"

namespace sidereal::data {
namespace {

using tensor::DType;
using tensor::Shape;

class SyntheticSource final : public BatchSource {
 public:
  SyntheticSource(const SyntheticSpec& spec, const ReadOptions& options)
      : stream_(spec),
        next_row_(spec.first_row + options.part.index),
        end_row_(spec.first_row + spec.rows),
        first_row_(spec.first_row),
        stride_(options.part.count),
        batch_size_(options.batch_size) {
    const int64_t mine = next_row_ < end_row_ ? (end_row_ - next_row_ - 1) / stride_ + 1 : 0;
    const int64_t before = std::min(options.rows_before, mine);
    next_row_ += before * stride_;
    stats_.rows_read = before;
    stats_.rows_before = before;
  }

  Result<bool> next(Batch* batch) override {
    constexpr int kNumeric = SyntheticStream::kNumeric;
    constexpr int kFields = SyntheticStream::kFields;
    const int64_t left = next_row_ < end_row_ ? (end_row_ - next_row_ - 1) / stride_ + 1 : 0;
    const int64_t rows = left < batch_size_ ? left : batch_size_;
    reuse(&batch->label, DType::kFloat32, Shape{rows});
    reuse(&batch->truth, DType::kFloat32, Shape{rows});
    reuse(&batch->dense, DType::kFloat32, Shape{rows, kNumeric});
    reuse(&batch->ids, DType::kInt64, Shape{rows, kFields});
    batch->columns.clear();
    float* label = batch->label.data<float>().data();
    float* truth = batch->truth.data<float>().data();
    float* dense = batch->dense.data<float>().data();
    int64_t* ids = batch->ids.data<int64_t>().data();
    for (int64_t r = 0; r < rows; ++r) {
      stream_.generate(next_row_, {label + r, truth + r, dense + r * kNumeric, ids + r * kFields});
      next_row_ += stride_;
    }
    batch->rows = rows;
    stats_.rows_read += rows;
    stats_.progress = left == rows ? 1.0
                                   : static_cast<double>(next_row_ - first_row_) /
                                         static_cast<double>(end_row_ - first_row_);
    return rows > 0;
  }

 private:
  SyntheticStream stream_;
  int64_t next_row_;
  int64_t end_row_;
  int64_t first_row_;
  int64_t stride_;
  int64_t batch_size_;
};

}  // namespace

Result<std::unique_ptr<BatchSource>> open_synthetic(const DataSpec& spec,
                                                    const ReadOptions& options) {
  constexpr int64_t kRowMax = int64_t{1} << 60;
  const SyntheticSpec& s = spec.synthetic;
  if (s.rows < 0 || s.first_row < 0 || s.rows > kRowMax || s.first_row > kRowMax) {
    return base::invalid_argument("synthetic rows {}+{} are outside [0, 2^61)", s.first_row,
                                  s.rows);
  }
  return std::make_unique<SyntheticSource>(s, options);
}

}  // namespace sidereal::data
