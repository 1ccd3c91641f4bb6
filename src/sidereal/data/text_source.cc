#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sidereal/data/batch_source.h"
#include "sidereal/data/byte_source.h"
#include "sidereal/data/file_rows.h"
#include "sidereal/data/negative_sampler.h"
#include "sidereal/data/row_parser.h"
#include "sidereal/data/shuffle_buffer.h"
#include "sidereal/data/statistics.h"

namespace sidereal::data {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;

// Rows between two looks at the stop flag.
constexpr int64_t kStopCheckRows = 1024;

// Opens a file of the spec, and gives its header to the parser. Of tables that are no text the
// cells that the parser wants are read, or with `header_only` none.
Result<std::unique_ptr<FileRows>> start_file(const DataSpec& spec, const std::string& file,
                                             RowParser* parser, bool header_only,
                                             const std::atomic<bool>* stop = nullptr) {
  const auto wanted = header_only ? std::vector<std::string>() : parser->wanted();
  SR_ASSIGN_OR_RETURN(auto rows, open_rows(spec, file, &wanted, stop));
  if (!parser->has_header()) return rows;
  std::vector<std::string> names;
  SR_ASSIGN_OR_RETURN(const bool some, rows->header(&names));
  if (!some) {
    return invalid_argument("{}: is empty; its first line must name the columns", file);
  }
  SR_RETURN_IF_ERROR(base::with_context(parser->start_file(names), rows->place()));
  return rows;
}

// Makes the parser and lets it see the first file's header, which fixes the order of the fields
// for every part.
Result<std::unique_ptr<RowParser>> open_format(const DataSpec& spec,
                                               const std::atomic<bool>* stop = nullptr) {
  if (spec.files.empty()) return invalid_argument("no data files are named");
  SR_ASSIGN_OR_RETURN(auto parser, make_parser(spec));
  if (parser->has_header()) {
    SR_RETURN_IF_ERROR(
        start_file(spec, spec.files.front(), parser.get(), /*header_only=*/true, stop).status());
  }
  return parser;
}

class TextSource final : public BatchSource {
 public:
  TextSource(const DataSpec& spec, const ReadOptions& options, std::unique_ptr<RowParser> parser)
      : options_(options),
        spec_(spec),
        bad_rows_(spec.bad_rows),
        parser_(std::move(parser)),
        schema_(parser_->schema()) {
    const auto files = static_cast<int64_t>(spec.files.size());
    const bool whole_files = files >= options.part.count;
    for (int64_t i = 0; i < files; ++i) {
      if (!whole_files || i % options.part.count == options.part.index) {
        files_.push_back(spec.files[i]);
      }
    }
    if (!whole_files) {
      stride_ = options.part.count;
      until_mine_ = options.part.index;
    }
    if (spec.shuffle_rows > 0) shuffle_.emplace(spec.shuffle_rows, shuffle_key(spec, options));
    if (schema_.has_negatives) {
      negatives_.emplace(spec.negatives, parser_->negative_slot(), schema_.targets.size(),
                         shuffle_key(spec, options) + kGoldenGamma);
    }
    rows_to_pass_ = options.rows_before;
    if (!shuffle_ && !negatives_ && bad_rows_ == BadRows::kFail) {
      // They were all good, and need not be understood again.
      until_mine_ += rows_to_pass_ * stride_;
      stats_.rows_read = std::exchange(rows_to_pass_, 0);
      stats_.rows_before = stats_.rows_read;
    }
  }

  Status start() {
    for (const std::string& file : files_) {
      SR_ASSIGN_OR_RETURN(const int64_t bytes, file_bytes(file, options_.stop));
      total_bytes_ += bytes;
    }
    return {};
  }

  Result<bool> next(Batch* batch) override {
    if (rows_to_pass_ > 0) SR_RETURN_IF_ERROR(pass_rows());
    return schema_.weighted ? next_weighted(batch) : next_fixed(batch);
  }

 private:
  /// Passes over rows that were given out before; of bad ones among them it was told then.
  Status pass_rows() {
    const int64_t rows = std::exchange(rows_to_pass_, 0);
    for (; stats_.rows_before < rows; ++stats_.rows_before) {
      SR_ASSIGN_OR_RETURN(const bool more, next_shuffled());
      if (!more) break;
    }
    stats_.rows_skipped = 0;
    stats_.first_skipped.clear();
    return {};
  }

  Result<bool> next_fixed(Batch* batch) {
    const int64_t size = options_.batch_size;
    const int64_t width = schema_.dense_width;
    const int64_t fields = schema_.fields;
    const bool has_label = schema_.has_label;
    if (has_label) reuse(&batch->label, DType::kFloat32, Shape{size});
    const bool has_weight = schema_.has_sample_weight;
    if (has_weight) reuse(&batch->sample_weight, DType::kFloat32, Shape{size});
    if (width > 0) reuse(&batch->dense, DType::kFloat32, Shape{size, width});
    if (fields > 0) reuse(&batch->ids, DType::kInt64, Shape{size, fields});
    reuse_columns(batch);
    float* label = has_label ? batch->label.data<float>().data() : nullptr;
    float* dense = width > 0 ? batch->dense.data<float>().data() : nullptr;
    float* weight = has_weight ? batch->sample_weight.data<float>().data() : nullptr;
    int64_t* ids = fields > 0 ? batch->ids.data<int64_t>().data() : nullptr;
    int64_t rows = 0;
    for (; rows < size; ++rows) {
      SR_ASSIGN_OR_RETURN(const bool more, next_shuffled());
      if (!more) break;
      if (has_label) label[rows] = row_.label;
      if (has_weight) weight[rows] = row_.sample_weight;
      if (width > 0) dense = std::copy_n(row_.dense.begin(), width, dense);
      if (fields > 0) ids = std::copy_n(row_.ids.begin(), fields, ids);
      if (!batch->columns.empty()) copy_columns(rows);
    }
    batch->rows = rows;
    if (rows == size) return true;
    if (has_label) batch->label = batch->label.rows(0, rows);
    if (has_weight) batch->sample_weight = batch->sample_weight.rows(0, rows);
    if (width > 0) batch->dense = batch->dense.rows(0, rows);
    if (fields > 0) batch->ids = batch->ids.rows(0, rows);
    for (auto& [name, column] : batch->columns) column = column.rows(0, rows);
    return rows > 0;
  }

  /// The columns of a batch that have names: sequences, more labels, the group.
  void reuse_columns(Batch* batch) {
    const int64_t size = options_.batch_size;
    batch->columns.resize(schema_.sequences.size() + schema_.targets.size() +
                          (schema_.has_group ? 1 : 0));
    id_columns_.clear();
    targets_.clear();
    auto column = batch->columns.begin();
    for (const auto& [name, length] : schema_.sequences) {
      column->first = name;
      reuse(&column->second, DType::kInt64, Shape{size, length});
      id_columns_.emplace_back((column++)->second.data<int64_t>().data(), length);
    }
    for (const std::string& name : schema_.targets) {
      column->first = name;
      reuse(&column->second, DType::kFloat32, Shape{size});
      targets_.push_back((column++)->second.data<float>().data());
    }
    if (!schema_.has_group) return;
    column->first = kGroup;
    reuse(&column->second, DType::kInt64, Shape{size});
    id_columns_.emplace_back(column->second.data<int64_t>().data(), 1);
  }

  /// They stand behind the ids of the fields, and behind the numbers.
  void copy_columns(int64_t row) {
    const int64_t* at = row_.ids.data() + schema_.fields;
    for (const auto& [to, length] : id_columns_) {
      std::copy_n(at, length, to + row * length);
      at += length;
    }
    const float* target = row_.dense.data() + schema_.dense_width;
    for (float* const to : targets_) to[row] = *target++;
  }

  Result<bool> next_weighted(Batch* batch) {
    labels_.clear();
    flat_ids_.clear();
    flat_weights_.clear();
    ends_.clear();
    size_t longest = 1;
    while (static_cast<int64_t>(labels_.size()) < options_.batch_size) {
      SR_ASSIGN_OR_RETURN(const bool more, next_shuffled());
      if (!more) break;
      labels_.push_back(row_.label);
      flat_ids_.insert(flat_ids_.end(), row_.ids.begin(), row_.ids.end());
      flat_weights_.insert(flat_weights_.end(), row_.weights.begin(), row_.weights.end());
      ends_.push_back(flat_ids_.size());
      longest = std::max(longest, row_.ids.size());
    }
    const auto rows = static_cast<int64_t>(labels_.size());
    const auto width = static_cast<int64_t>(longest);
    batch->rows = rows;
    reuse(&batch->label, DType::kFloat32, Shape{rows});
    reuse(&batch->ids, DType::kInt64, Shape{rows, width});
    reuse(&batch->weights, DType::kFloat32, Shape{rows, width});
    std::copy(labels_.begin(), labels_.end(), batch->label.data<float>().begin());
    auto ids = batch->ids.data<int64_t>();
    auto weights = batch->weights.data<float>();
    std::fill(ids.begin(), ids.end(), int64_t{-1});
    std::fill(weights.begin(), weights.end(), 0.0F);
    size_t from = 0;
    for (int64_t r = 0; r < rows; ++r) {
      std::copy(flat_ids_.begin() + from, flat_ids_.begin() + ends_[r], ids.begin() + r * width);
      std::copy(flat_weights_.begin() + from, flat_weights_.begin() + ends_[r],
                weights.begin() + r * width);
      from = ends_[r];
    }
    return rows > 0;
  }

  // The next row into row_, shuffled if asked for.
  Result<bool> next_shuffled() {
    if (!shuffle_) return next_row(&row_);
    while (!ended_) {
      SR_ASSIGN_OR_RETURN(const bool more, next_row(&parsed_));
      if (!more) {
        ended_ = true;
      } else if (shuffle_->full()) {
        shuffle_->swap(parsed_, &row_);
        return true;
      } else {
        shuffle_->add(parsed_);
      }
    }
    if (shuffle_->empty()) return false;
    shuffle_->take(&row_);
    return true;
  }

  // The next row of this part in the order of the files, with the negatives of each behind it.
  Result<bool> next_row(Row* row) {
    bool more = negatives_ && negatives_->next(row);
    if (more) {
      ++stats_.rows_read;
    } else {
      SR_ASSIGN_OR_RETURN(more, next_good(row));
      if (more && negatives_) negatives_->see(*row);
    }
    if (more) parser_->weigh(row);
    return more;
  }

  Result<bool> next_good(Row* row) {
    while (true) {
      SR_ASSIGN_OR_RETURN(const bool more, next_in_files());
      if (!more) break;
      if (until_mine_ > 0) {
        --until_mine_;
        continue;
      }
      until_mine_ = stride_ - 1;
      Status status = rows_->parse(parser_.get(), row);
      if (status.ok()) [[likely]] {
        ++stats_.rows_read;
        return true;
      }
      status = base::with_context(status, rows_->place());
      if (bad_rows_ == BadRows::kFail) return status;
      if (stats_.rows_skipped++ == 0) stats_.first_skipped = base::message_of(status);
    }
    if (stats_.rows_read == 0 && stats_.rows_skipped > 0) {
      return invalid_argument("not one of {} rows could be read; the first: {}",
                              stats_.rows_skipped, stats_.first_skipped);
    }
    return false;
  }

  // Goes to the next row, of whatever part, opening files as needed.
  Result<bool> next_in_files() {
    if (++rows_seen_ % kStopCheckRows == 0) SR_RETURN_IF_ERROR(look_around());
    while (true) {
      if (rows_ == nullptr) {
        if (next_file_ == files_.size()) {
          stats_.progress = 1;
          return false;
        }
        SR_ASSIGN_OR_RETURN(rows_, start_file(spec_, files_[next_file_++], parser_.get(),
                                              /*header_only=*/false, options_.stop));
      }
      SR_ASSIGN_OR_RETURN(const bool more, rows_->next());
      if (more) return true;
      finished_bytes_ += rows_->position();
      stats_.bytes_read = finished_bytes_;
      rows_.reset();
    }
  }

  Status look_around() {
    // Relaxed: nothing but the wish to stop travels with the flag.
    if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) {
      return base::cancelled("reading was stopped");
    }
    if (rows_ != nullptr) {
      stats_.bytes_read = finished_bytes_ + rows_->position();
      if (total_bytes_ > 0) {
        stats_.progress = std::min(
            1.0, static_cast<double>(stats_.bytes_read) / static_cast<double>(total_bytes_));
      }
    }
    return {};
  }

  ReadOptions options_;
  DataSpec spec_;
  BadRows bad_rows_;
  std::unique_ptr<RowParser> parser_;
  Schema schema_;
  std::vector<std::string> files_;
  size_t next_file_ = 0;
  std::unique_ptr<FileRows> rows_;
  // Rows to pass over before the next one of this part, and the distance between two of them.
  int64_t until_mine_ = 0;
  int64_t stride_ = 1;
  int64_t rows_seen_ = 0;
  int64_t rows_to_pass_ = 0;
  int64_t finished_bytes_ = 0;
  int64_t total_bytes_ = 0;
  bool ended_ = false;
  Row row_;
  Row parsed_;
  std::optional<ShuffleBuffer> shuffle_;
  std::optional<NegativeSampler> negatives_;
  // Of the batch that is filled.
  std::vector<std::pair<int64_t*, int64_t>> id_columns_;
  std::vector<float*> targets_;
  std::vector<float> labels_;
  std::vector<int64_t> flat_ids_;
  std::vector<float> flat_weights_;
  std::vector<size_t> ends_;
};

}  // namespace

Result<std::unique_ptr<BatchSource>> open_text(const DataSpec& spec, const ReadOptions& options) {
  if (needs_statistics(spec)) {
    return invalid_argument(
        "what columns are scaled or numbered by is not known yet; with_statistics() finds it out");
  }
  SR_ASSIGN_OR_RETURN(auto parser, open_format(spec, options.stop));
  auto source = std::make_unique<TextSource>(spec, options, std::move(parser));
  SR_RETURN_IF_ERROR(source->start());
  return source;
}

Result<Schema> inspect_text(const DataSpec& spec) {
  SR_ASSIGN_OR_RETURN(const auto parser, open_format(spec));
  for (const std::string& file : spec.files) {
    SR_RETURN_IF_ERROR(start_file(spec, file, parser.get(), /*header_only=*/true).status());
  }
  return parser->schema();
}

}  // namespace sidereal::data
