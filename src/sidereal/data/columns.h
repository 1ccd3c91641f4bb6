#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"

namespace sidereal::data {

/// How the cells of a column are written. The numbers are those of docs/formats/columns.md.
enum class CellKind : uint8_t {
  kNone,  ///< The table has the column; its cells were not asked for.
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kFloat32,
  kFloat64,
  kText,
  kDictionary,  ///< Texts, of which each cell says which one it is.
  kList,        ///< Each cell is some numbers or texts.
};

/// Some cells of one kind, which were checked when they were read. Borrows the bytes of its frame.
/// Value type.
class Cells {
 public:
  [[nodiscard]] CellKind kind() const { return kind_; }
  [[nodiscard]] int64_t size() const { return size_; }

  /// Whether a cell is empty: missing, or no number where numbers are.
  [[nodiscard]] bool is_missing(int64_t at) const;
  /// The cell as a finite float, the one that its text would be read as. False of what is no
  /// number, and of numbers whose text has to be looked at for that: see text().
  bool number(int64_t at, float* out) const;
  /// The cell as an integer; false of what is none, or does not fit.
  bool integer(int64_t at, int64_t* out) const;
  /// The cell as csv has it: an empty one is no text, the values of lists have '|' between them. It
  /// is valid as long as the bytes and `scratch` are.
  std::string_view text(int64_t at, std::string* scratch) const;

 private:
  friend class CellReader;

  template <class T>
  static T read(const char* values, int64_t at) {
    T value;
    std::memcpy(&value, values + at * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  [[nodiscard]] std::string_view nth_text(int64_t n) const {
    const auto begin = read<uint32_t>(offsets_, n);
    return {values_ + begin, read<uint32_t>(offsets_, n + 1) - begin};
  }
  void append_text(int64_t at, std::string* out) const;

  CellKind kind_ = CellKind::kNone;
  int64_t size_ = 0;
  const char* validity_ = nullptr;  // A bit for each cell; null: none is missing.
  const char* values_ = nullptr;    // Numbers, or the bytes of texts.
  const char* offsets_ = nullptr;   // Of texts in their bytes, of lists in their values.
  const char* places_ = nullptr;    // Of kDictionary: which text a cell is.
  std::vector<Cells> items_;        // Of kList, one.
};

/// A column of a frame. Value type.
struct NamedCells {
  std::string name;
  Cells cells;
};

/// Some rows of a table as a feeder sends them. Borrows the bytes. Value type.
struct ColumnFrame {
  int64_t rows = 0;
  std::vector<NamedCells> columns;
};

/// Reads a frame. All that it says of places and lengths is looked at before it is used: kDataLoss
/// where it is wrong.
Result<ColumnFrame> read_columns(std::string_view bytes);

}  // namespace sidereal::data
