#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/data/data_spec.h"

namespace sidereal::data {

/// What some rows say of a column. Value type.
struct ColumnStatistics {
  std::string name;
  int64_t rows = 0;
  /// Cells that are empty.
  int64_t missing = 0;
  /// Cells that are finite numbers, and what is known of these.
  int64_t numbers = 0;
  /// Of these, such as are integers.
  int64_t integers = 0;
  double min = 0;
  double max = 0;
  double mean = 0;
  double stddev = 0;
  /// Mean of the third powers of what kStandard makes of them: above 0 where a few are large.
  double skewness = 0;
  /// Mean and standard deviation of what kLog1p makes of them.
  double log_mean = 0;
  double log_stddev = 0;
  /// Some of them, ascending.
  std::vector<float> sample;
  /// Different texts, counted up to kDistinctMax.
  int64_t distinct = 0;
  /// Some of those, in the order of the rows.
  std::vector<std::string> examples;
  /// Of columns whose vocabulary is wanted: their tokens and how often each is there, the most
  /// frequent first, as StringLookup.adapt() has them.
  std::vector<std::pair<std::string, int64_t>> tokens;
  /// For each of kSeparators: the most values that it parts a cell into.
  std::vector<int64_t> parts;
  /// For each of kSeparators: the cells that it parts.
  std::vector<int64_t> parted;
};

/// Different texts of a column that are told apart.
inline constexpr int64_t kDistinctMax = 1'000'000;
/// What may stand between the values of a cell.
inline constexpr std::string_view kSeparators = "|;, ";
/// Rows that are looked at, and files they are the first rows of, evenly over all.
inline constexpr int64_t kSampleRows = 200'000;
inline constexpr int64_t kSampleFiles = 64;

/// What a sample of the rows of csv files says of each column, in the order of the first header.
/// The sample is the first rows of files, spread evenly over the list of them, `rows_max` in all:
/// the same for the same files. Rows and cells that cannot be understood are left out; whoever
/// reads the data says where they are.
Result<std::vector<ColumnStatistics>> column_statistics(const DataSpec& spec,
                                                        int64_t rows_max = kSampleRows);

/// Whether with_statistics() has something to do.
bool needs_statistics(const DataSpec& spec);

/// `spec` with its `transforms`, boundaries and vocabularies chosen by what a sample of its rows
/// says. What is there already stays. kInvalidArgument for a column without any number or token.
Result<DataSpec> with_statistics(DataSpec spec);

/// The numeric column that a model sees the largest numbers of, and the largest; "" without any.
/// Reads a sample. Of arrays, those of float32 are numeric.
Result<std::pair<std::string, double>> largest_scale(const DataSpec& spec);

}  // namespace sidereal::data
