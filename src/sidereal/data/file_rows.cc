#include "sidereal/data/file_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sidereal/data/byte_source.h"
#include "sidereal/data/columns.h"
#include "sidereal/data/feeder.h"
#include "sidereal/data/line_reader.h"
#include "sidereal/data/table_formats.h"
#include "sidereal/parse/csv.h"
#include "sidereal/parse/text.h"

namespace sidereal::data {
namespace {

class TextRows final : public FileRows {
 public:
  TextRows(const DataSpec& spec, std::unique_ptr<LineReader> lines)
      : style_{.delimiter = spec.delimiter}, lines_(std::move(lines)) {}

  Result<bool> header(std::vector<std::string>* names) override {
    SR_ASSIGN_OR_RETURN(const bool some, lines_->next(&text_));
    if (!some) return false;
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
    std::vector<std::string_view> cells;
    SR_RETURN_IF_ERROR(base::with_context(texts(&cells), place()));
    names->clear();
    for (const std::string_view name : cells) names->emplace_back(parse::trim_blanks(name));
    return true;
  }
  Result<bool> next() override { return lines_->next(&text_); }
  Status parse(RowParser* parser, Row* row) override { return parser->parse(text_, row); }
  Status texts(std::vector<std::string_view>* cells) override {
    return parse::split_csv(text_, style_, cells, &scratch_);
  }
  [[nodiscard]] std::string place() const override { return lines_->place(); }
  [[nodiscard]] int64_t position() const override { return lines_->position(); }

 private:
  parse::CsvStyle style_;
  std::unique_ptr<LineReader> lines_;
  std::string_view text_;
  std::string scratch_;
};

class ColumnRows final : public FileRows {
 public:
  ColumnRows(std::string file, std::unique_ptr<ColumnSource> source)
      : file_(std::move(file)), source_(std::move(source)) {}

  Result<bool> header(std::vector<std::string>* names) override {
    SR_ASSIGN_OR_RETURN(const bool some, source_->next(&frame_));
    if (!some) return false;
    names->clear();
    for (const NamedCells& column : frame_.columns) {
      names->emplace_back(parse::trim_blanks(column.name));
      names_.push_back(column.name);
    }
    return true;
  }
  Result<bool> next() override {
    ++at_;
    while (at_ >= frame_.rows) {
      SR_ASSIGN_OR_RETURN(const bool more, source_->next(&frame_));
      if (!more) return false;
      const bool are_same = std::equal(
          names_.begin(), names_.end(), frame_.columns.begin(), frame_.columns.end(),
          [](const std::string& name, const NamedCells& column) { return name == column.name; });
      if (!are_same) {
        return base::internal("{}: what reads it gives other columns behind row {}", file_, rows_);
      }
      at_ = 0;
    }
    ++rows_;
    return true;
  }
  Status parse(RowParser* parser, Row* row) override {
    return parser->parse_columns(frame_, at_, row);
  }
  Status texts(std::vector<std::string_view>* cells) override {
    scratch_.resize(frame_.columns.size());
    cells->clear();
    for (size_t i = 0; i < scratch_.size(); ++i) {
      cells->push_back(frame_.columns[i].cells.text(at_, &scratch_[i]));
    }
    return {};
  }
  [[nodiscard]] std::string place() const override {
    return rows_ > 0 ? fmt::format("{}: row {}", file_, rows_) : file_;
  }
  [[nodiscard]] int64_t position() const override { return source_->position(); }

 private:
  std::string file_;
  std::unique_ptr<ColumnSource> source_;
  ColumnFrame frame_;
  std::vector<std::string> names_;
  int64_t at_ = -1;  // Of the row in the frame.
  int64_t rows_ = 0;
  std::vector<std::string> scratch_;
};

}  // namespace

Result<std::unique_ptr<FileRows>> open_rows(const DataSpec& spec, const std::string& file,
                                            const std::vector<std::string>* columns,
                                            const std::atomic<bool>* stop) {
  const bool is_table = spec.format == Format::kCsv;
  const TableFile table = is_table ? table_file(file) : TableFile{.path = file};
  if (!is_table || table.format->is_text) {
    SR_ASSIGN_OR_RETURN(auto bytes, open_bytes(table.path, stop));
    return std::make_unique<TextRows>(
        spec, std::make_unique<LineReader>(file, std::move(bytes), /*quoted=*/is_table));
  }
  // What is missing here is told as of any other file.
  if (!is_remote(table.path)) SR_RETURN_IF_ERROR(file_bytes(table.path).status());
  Feed feed{.path = table.path, .format = std::string(table.format->name)};
  if (columns != nullptr) feed.columns = *columns;
  SR_ASSIGN_OR_RETURN(auto source, fed_columns(feed, stop));
  return std::make_unique<ColumnRows>(file, std::move(source));
}

}  // namespace sidereal::data
