#include "sidereal/store/embedding_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "sidereal/kernels/optimizer.h"
#include "sidereal/kernels/sparse.h"
#include "sidereal/store/memory.h"

namespace sidereal::store {
namespace {

constexpr int64_t kDimMax = 65536;
// Rows drawn at once when the rows of the shard follow each other in the table.
constexpr int64_t kRowsPerDraw = 256;

}  // namespace

Result<std::unique_ptr<EmbeddingShard>> EmbeddingShard::create(EmbeddingOptions options) {
  const std::string context = "table '" + options.name + "'";
  SR_RETURN_IF_ERROR(base::with_context(options.initializer.validate(), context));
  if (options.dim < 1 || options.dim > kDimMax) {
    return base::invalid_argument("{}: dim is {}; it must be in [1, {}]", context, options.dim,
                                  kDimMax);
  }
  if (options.shard < 0 || options.shard >= options.layout.num_shards()) {
    return base::invalid_argument("{}: shard {} of {}", context, options.shard,
                                  options.layout.num_shards());
  }
  std::unique_ptr<EmbeddingShard> shard(new EmbeddingShard(std::move(options)));
  const EmbeddingOptions& o = shard->options_;
  shard->rows_ = o.layout.shard_rows(o.shard);
  shard->row_floats_ = o.rule.row_floats(o.dim);
  shard->stride_ = row_stride(shard->row_floats_);
  SR_ASSIGN_OR_RETURN(const int64_t floats, checked_product(o.name, shard->rows_, shard->stride_));
  SR_ASSIGN_OR_RETURN(shard->memory_, allocate_floats(o.name, floats, o.bytes_max));
  shard->initialise();
  return shard;
}

float* EmbeddingShard::row(int64_t index) const {
  return reinterpret_cast<float*>(memory_->data()) + index * stride_;
}

void EmbeddingShard::initialise() {
  const int64_t dim = options_.dim;
  const int slots = options_.rule.num_slots();
  bool zero = options_.initializer.is_zero();
  for (int s = 0; s < slots; ++s) zero = zero && options_.rule.initial_slot(s) == 0;
  if (zero) return;  // Fresh memory is zero, and stays untouched until used.
  const kernels::ShardLayout& layout = options_.layout;
  const tensor::Shape table_shape{layout.rows(), dim};
  const int32_t lanes = layout.num_lanes(layout.task_of(options_.shard));
  const int64_t per_draw = lanes == 1 ? kRowsPerDraw : 1;
  std::vector<float> drawn(static_cast<size_t>(per_draw * dim));
  for (int64_t from = 0; from < rows_; from += per_draw) {
    const int64_t count = std::min(per_draw, rows_ - from);
    options_.initializer.fill(table_shape, layout.global_row(options_.shard, from) * dim,
                              drawn.data(), count * dim);
    for (int64_t i = 0; i < count; ++i) {
      float* to = row(from + i);
      std::memcpy(to, drawn.data() + i * dim, dim * sizeof(float));
      to += dim;
      for (int s = 0; s < slots; ++s) {
        const bool is_one = options_.rule.slot(s).width == kernels::SlotWidth::kRow;
        to = std::fill_n(to, is_one ? 1 : dim, static_cast<float>(options_.rule.initial_slot(s)));
      }
    }
  }
}

Status EmbeddingShard::check_rows(std::span<const int64_t> rows) const {
  const int64_t bad = kernels::find_out_of_range(rows, rows_);
  if (bad < 0) [[likely]]
    return {};
  return base::out_of_range(
      "table '{}': row {} (number {} of the call) is outside shard {}, which "
      "has {} rows",
      name(), rows[bad], bad, options_.shard, rows_);
}

Status EmbeddingShard::check_range(int64_t from, int64_t count) const {
  if (from >= 0 && count >= 0 && from <= rows_ && count <= rows_ - from) return {};
  return base::out_of_range(
      "table '{}': {} rows from row {} on are outside shard {}, which has {} "
      "rows",
      name(), count, from, options_.shard, rows_);
}

Status EmbeddingShard::gather(std::span<const int64_t> rows, float* out) {
  SR_RETURN_IF_ERROR(check_rows(rows));
  kernels::gather_rows<float>(row(0), stride_, rows, options_.dim, out);
  ++counters_.gathers;
  counters_.rows_read += static_cast<int64_t>(rows.size());
  return {};
}

Status EmbeddingShard::apply(std::span<const int64_t> rows, const float* grads, int64_t step) {
  SR_RETURN_IF_ERROR(check_rows(rows));
  ++counters_.applies;
  const UpdateRule& rule = options_.rule;
  const kernels::RuleStep update = {
      .rule = &rule,
      .step = static_cast<double>(step > 0 ? step : counters_.applies),
      .learning_rate = rule.learning_rate() * rate_factor_};
  kernels::apply_rows<float>(update, kernels::arrays_of_rows(rule, row(0), stride_, options_.dim),
                             rows, {.data = grads}, options_.dim);
  counters_.rows_written += static_cast<int64_t>(rows.size());
  return {};
}

Status EmbeddingShard::read_rows(int64_t from, int64_t count, float* out) const {
  SR_RETURN_IF_ERROR(check_range(from, count));
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(out + i * options_.dim, row(from + i), options_.dim * sizeof(float));
  }
  return {};
}

tensor::Tensor EmbeddingShard::read_all() const {
  tensor::Tensor all = tensor::Tensor::empty(tensor::DType::kFloat32, {rows_, options_.dim});
  read_rows(0, rows_, all.data<float>().data()).IgnoreError();  // All rows are in range.
  return all;
}

Status EmbeddingShard::read_rows_with_slots(int64_t from, int64_t count, float* out) const {
  SR_RETURN_IF_ERROR(check_range(from, count));
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(out + i * row_floats_, row(from + i), row_floats_ * sizeof(float));
  }
  return {};
}

Status EmbeddingShard::assign_rows(std::span<const int64_t> rows, const float* values) {
  SR_RETURN_IF_ERROR(check_rows(rows));
  kernels::scatter_rows<float>(values, rows, options_.dim, row(0), stride_);
  counters_.rows_written += static_cast<int64_t>(rows.size());
  return {};
}

Status EmbeddingShard::assign_rows_with_slots(int64_t from, int64_t count, const float* values) {
  SR_RETURN_IF_ERROR(check_range(from, count));
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(row(from + i), values + i * row_floats_, row_floats_ * sizeof(float));
  }
  counters_.rows_written += count;
  return {};
}

size_t EmbeddingShard::bytes() const {
  return static_cast<size_t>(rows_ * stride_) * sizeof(float);
}

}  // namespace sidereal::store
