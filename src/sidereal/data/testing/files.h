#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/data/batch.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/data/reader.h"

namespace sidereal::data {

/// A folder for one test, removed at its end.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  /// The path of `name` in the folder.
  [[nodiscard]] std::string path(const std::string& name) const;
  /// Writes a file and returns its path.
  [[nodiscard]] std::string write(const std::string& name, std::string_view bytes) const;
  [[nodiscard]] std::string write_gzip(const std::string& name, std::string_view bytes) const;

 private:
  std::string folder_;
};

/// `bytes` as one gzip member.
std::string gzip(std::string_view bytes);

/// The bytes of a version-1 .npy file.
std::string npy(const std::string& descr, const std::string& shape, std::string_view data,
                const std::string& fortran_order = "False");

/// All rows of a part, in order, as text "label|dense...|ids...|weights..." without padding.
Result<std::vector<std::string>> rows_of(const DataSpec& spec, const ReadOptions& options);
Result<std::vector<std::string>> rows_of(const DataSpec& spec);

/// The rows of one batch in that form.
std::vector<std::string> rows_of(const Batch& batch);

/// A Criteo row: integers 1 to 13 and categories a to z, with `label`.
std::string criteo_row(const std::string& label);

}  // namespace sidereal::data
