#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/data/row_parser.h"

namespace sidereal::data {

/// The rows of one file, one after another: lines of text, or those of a table that a feeder reads.
/// Thread: core-local.
class FileRows {
 public:
  virtual ~FileRows() = default;

  /// What the columns of a csv file are called, before the first row; false of a file without even
  /// that.
  virtual Result<bool> header(std::vector<std::string>* names) = 0;
  /// Goes to the next row; false at the end. Errors name the file.
  virtual Result<bool> next() = 0;
  /// Understands the row; errors as of RowParser::parse().
  virtual Status parse(RowParser* parser, Row* row) = 0;
  /// The row's cells as texts, valid until the next call.
  virtual Status texts(std::vector<std::string_view>* cells) = 0;

  /// Where the row is, for messages: "path:line" of text, else "path: row 3"; of the header of a
  /// table that is no text "path".
  [[nodiscard]] virtual std::string place() const = 0;
  /// Bytes of the file used so far, before decompression.
  [[nodiscard]] virtual int64_t position() const = 0;
};

/// Opens a file of the spec. `columns`, of tables that are no text: those whose cells are wanted;
/// null: all. kNotFound and others as of open_bytes() and fed_columns().
Result<std::unique_ptr<FileRows>> open_rows(const DataSpec& spec, const std::string& file,
                                            const std::vector<std::string>* columns,
                                            const std::atomic<bool>* stop = nullptr);

}  // namespace sidereal::data
