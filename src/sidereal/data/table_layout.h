#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/data/row_parser.h"
#include "sidereal/data/vocabulary.h"

namespace sidereal::data {

/// What becomes of the columns of a table: which fields, slots and ids they have. Parsers of rows
/// stand on it. Thread: core-local.
class TableLayout : public RowParser {
 public:
  explicit TableLayout(const DataSpec& spec);

  [[nodiscard]] bool has_header() const override { return true; }
  Status start_file(const std::vector<std::string>& found) override;
  [[nodiscard]] std::vector<std::string> wanted() const override { return wanted_; }
  void weigh(Row* row) const override;
  [[nodiscard]] NegativeSlot negative_slot() const override { return negative_slot_; }
  [[nodiscard]] Schema schema() const override;

 protected:
  enum class Kind : uint8_t {
    kUnused,
    kLabel,
    kNumber,
    kCategory,
    kSpecial,  ///< A category with more to it than its text's hash.
    kBuckets,  ///< A number that is nothing but bucketized.
    kWeight,
    kSequence,
    kTarget,
    kGroup,
  };
  struct Role {
    Kind kind = Kind::kUnused;
    uint32_t slot = 0;   ///< In `dense`, or the first one in `ids`.
    uint32_t field = 0;  ///< Of categories and sequences: which.
    int32_t bucketized = -1;
    int64_t shift = 0;  ///< Of kCategory: from category_id() to its id.
  };
  struct Category {
    size_t slot = 0;
    size_t length = 1;      ///< Slots it has.
    char separator = 0;     ///< 0: a cell is one value.
    std::string missing;    ///< What an empty cell counts as.
    int64_t crossed = -1;   ///< Its place among texts_, if a cross wants it.
    bool is_hashed = true;  ///< By category_id().
    [[nodiscard]] bool is_plain() const {
      return separator == 0 && missing.empty() && crossed < 0 && is_hashed;
    }
  };
  struct Buckets {
    size_t slot = 0;
    std::optional<float> missing;
    int64_t crossed = -1;
  };
  struct Cross {
    size_t slot = 0;
    size_t field = 0;
    std::vector<size_t> texts;
    std::vector<bool> are_numbers;
  };
  struct SequenceSlots {
    size_t slot = 0;
    size_t field = 0;  ///< Of its ids.
    std::string missing;
  };

  DataSpec spec_;
  std::vector<std::string> numeric_;
  std::vector<std::string> categorical_;
  std::vector<NumericTransform> numbers_;
  std::vector<std::pair<float, float>> class_weights_;
  std::vector<Category> categories_;
  std::vector<Buckets> buckets_;
  std::vector<Cross> crosses_;
  std::vector<FieldIds> ids_;  // Of each field.
  std::vector<SequenceSlots> sequences_;
  NegativeSlot negative_slot_;
  size_t width_ = 0;                // Slots of `ids`.
  size_t sequence_width_ = 0;       // Slots behind them.
  std::vector<std::string> texts_;  // Of the row, of columns that are crossed.
  std::vector<std::string> names_;  // For messages.
  std::vector<Role> roles_;         // Of each column of the file.
  std::vector<size_t> used_;        // Columns that have one.

 private:
  /// The first file decides; the others must have the same columns, in any order.
  void choose_categorical(const std::vector<std::string>& found);
  /// Gives each field its slots.
  Status lay_out();
  [[nodiscard]] bool is_bucketized(const std::string& name) const;
  /// Gives each field its ids, and sequences their slots.
  Status number_fields();
  Status place_negatives();
  Result<size_t> category_of(const std::string& name, const char* why) const;
  Result<int64_t*> crossed_of(const std::string& name);
  Status take_defaults();
  bool set_default_of_sequence(const std::string& name, const std::string& text);
  Result<Role*> role_of(const std::vector<std::string>& found, const std::string& name);

  std::vector<std::string> wanted_;
  bool started_ = false;
};

}  // namespace sidereal::data
