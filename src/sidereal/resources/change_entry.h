#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/bytes.h"
#include "sidereal/base/status.h"
#include "sidereal/resources/changes_made.h"
#include "sidereal/resources/push_counts.h"
#include "sidereal/resources/snapshot.h"
#include "sidereal/tensor/tensor.h"

/// Bytes of the change log of a lane: docs/formats/change_log.md.
namespace sidereal::resources {

/// Where one is in the log of a lane: behind everything up to a cut. Value type.
struct LogPosition {
  uint64_t incarnation = 0;  ///< Random, of an opening of the log.
  uint64_t cut = 0;

  friend bool operator==(const LogPosition&, const LogPosition&) = default;
};

/// Of variables and tables that a reader of a log wants; empty: all.
using WantedNames = std::set<std::string, std::less<>>;
inline bool wants(const WantedNames& wanted, std::string_view name) {
  return wanted.empty() || wanted.contains(name);
}

enum class EntryKind : uint8_t { kChanges = 0, kPiece = 1, kLastPiece = 2 };

/// What an entry says of itself. Value type.
struct EntryHead {
  EntryKind kind = EntryKind::kChanges;
  int lane = 0;
  LogPosition to = {};  ///< The cut that changes end at; that a snapshot is of.
  uint64_t from = 0;    ///< The cut that changes begin at; of a piece: its number, from 0.

  friend bool operator==(const EntryHead&, const EntryHead&) = default;
};

enum class SectionKind : uint8_t {
  kValue = 1,
  kRows = 2,
  kGone = 3,
  kKeys = 4,
  kMade = 5,
  kAllMade = 6,
  kPushed = 7,
};

/// A change of a closure, as ChangesMade::note() takes it. Value type.
struct NotedChange {
  ClosureKey closure;
  uint64_t change = 0;
};

/// What an entry says of one variable or table. Value type; borrows the bytes of its entry.
struct Section {
  SectionKind kind = SectionKind::kGone;
  std::string_view name;
  uint64_t home = 0;
  tensor::DType dtype = tensor::DType::kInvalid;  ///< Of a value, or of the values of keys.
  tensor::Shape shape;                            ///< Of all of the value; of the value of one key.
  std::vector<int64_t> rows = {};                 ///< In order, each once.
  std::string_view bytes = {};  ///< Of the value, of those rows, or all changes of closures.
  tensor::Tensor keys = {};     ///< Keys that were set,
  tensor::Tensor values = {};   ///< their values: [keys] + shape,
  tensor::Tensor removed = {};  ///< and keys that were removed.
  std::vector<NotedChange> made = {};
  PushedSoFar pushed = {};  ///< To the lane, whatever was changed; without a name.
};

/// Value type; borrows what it was decoded from.
struct Entry {
  EntryHead head;
  std::vector<Section> sections;
};

/// An entry from bytes of anyone: kDataLoss unless it is one, whole, as EntryWriter writes it.
Result<Entry> decode_entry(std::string_view bytes);

/// The value in a section that has all of it.
Result<tensor::Tensor> value_of(const Section& section);

/// Writes an entry, section by section. Value type.
class EntryWriter {
 public:
  explicit EntryWriter(const EntryHead& head) : head_(head) {}

  void put_value(std::string_view name, uint64_t home, const tensor::Tensor& value);
  /// `rows` of a value of `dtype`, not strings, and `shape`; `row_at(i)` shows the bytes of the
  /// i-th of them. `rows` are in order, each once, and those of the shape.
  template <class RowAt>
  void put_rows(std::string_view name, uint64_t home, tensor::DType dtype,
                const tensor::Shape& shape, std::span<const int64_t> rows, const RowAt& row_at) {
    const size_t row_bytes = begin_rows(name, home, dtype, shape, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      out_.put_bytes({reinterpret_cast<const char*>(row_at(i)), row_bytes});
    }
  }
  void put_gone(std::string_view name, uint64_t home) { begin(SectionKind::kGone, name, home); }
  /// `values` are keys.shape + the shape of a row; `removed` has the dtype of `keys`.
  void put_keys(std::string_view name, uint64_t home, const tensor::Tensor& keys,
                const tensor::Tensor& values, const tensor::Tensor& removed);
  void put_made(std::string_view name, uint64_t home, std::span<const NotedChange> made);
  void put_all_made(std::string_view name, uint64_t home, std::string_view encoded);
  void put_pushed(const PushedSoFar& pushed);
  /// As decoded.
  void put(const Section& section);

  /// Of the sections so far.
  [[nodiscard]] size_t bytes() const { return out_.bytes().size(); }
  void set_kind(EntryKind kind) { head_.kind = kind; }
  /// All of it, with its end.
  [[nodiscard]] std::string finish() &&;

 private:
  void begin(SectionKind kind, std::string_view name, uint64_t home);
  size_t begin_rows(std::string_view name, uint64_t home, tensor::DType dtype,
                    const tensor::Shape& shape, std::span<const int64_t> rows);
  void put_type(tensor::DType dtype, const tensor::Shape& shape);
  void put_elements(const tensor::Tensor& value);

  EntryHead head_;
  base::ByteWriter out_;  // Sections.
  std::vector<int64_t> last_rows_;
  bool has_rows_ = false;
};

}  // namespace sidereal::resources
