#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/category_id.h"
#include "sidereal/base/status.h"
#include "sidereal/data/data_spec.h"

namespace sidereal::data {

/// One parsed row. The vectors keep their memory from row to row. Value type.
struct Row {
  float label = 0;
  float sample_weight = 1;
  std::vector<float> dense;
  std::vector<int64_t> ids;
  /// As long as `ids` for libsvm, else empty.
  std::vector<float> weights;
};

/// The id of a category in its field.
using base::category_id;

/// Where the values of DataSpec::negatives stand, and which there are. Value type.
struct NegativeSlot {
  size_t slot = 0;    ///< In Row::ids.
  int64_t first = 0;  ///< The first id of a token, and how many tokens there are; 0: no vocabulary.
  int64_t size = 0;
};

/// Turns rows of text into numbers and ids. Messages do not say where: the caller knows.
/// Thread: core-local.
class RowParser {
 public:
  virtual ~RowParser() = default;

  /// True when each file begins with a header row, which is given to start_file().
  [[nodiscard]] virtual bool has_header() const { return false; }
  /// Takes in the header of a file. kInvalidArgument when a column is missing, listing those found.
  virtual Status start_file(std::string_view /*header*/) { return {}; }
  /// Parses one row. kInvalidArgument says which field is wrong and what was expected.
  virtual Status parse(std::string_view text, Row* row) = 0;
  /// What rows look like; complete after the first start_file() where there are headers.
  [[nodiscard]] virtual Schema schema() const = 0;
  /// Multiplies the weight of a row by what its label counts (DataSpec::class_weights).
  virtual void weigh(Row* /*row*/) const {}
  /// Of DataSpec::negatives; complete as schema() is.
  [[nodiscard]] virtual NegativeSlot negative_slot() const { return {}; }
};

/// Parses a label. With `binary`, only 0 and 1 (and -1 for 0 when `minus_one`) are labels.
Status parse_label(std::string_view text, bool binary, bool minus_one, float* out);

/// As parse_label(), or 0 or 1 as the rule says.
Status parse_label_by(const LabelRule& rule, std::string_view text, bool binary, float* out);
/// kInvalidArgument for an op that there is not, or a value that it cannot compare.
Status check_label_rule(const LabelRule& rule);

/// The parser of a text format. kInvalidArgument when the spec's numbers make no sense, or the
/// format is not text.
Result<std::unique_ptr<RowParser>> make_parser(const DataSpec& spec);

}  // namespace sidereal::data
