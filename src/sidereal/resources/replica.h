#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/resources/change_entry.h"
#include "sidereal/resources/changes_made.h"
#include "sidereal/resources/table.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::resources {

/// A copy of what lanes of a task have, kept current by the entries of their logs. Of each lane it
/// is what the lane was at a cut; between lanes there is no order.
/// Thread: one at a time.
class Replica {
 public:
  /// `bytes_max`: of all values, and of those of snapshots that are arriving, together.
  explicit Replica(size_t bytes_max) : bytes_max_(bytes_max) {}

  /// Takes the next entry or piece of a lane. What it has stays as it is when that fails, but for
  /// pieces before the one that was refused, which are forgotten.
  /// kDataLoss for bytes that are no entry, or do not fit what is here; kOutOfRange when something
  /// before it is missing, or is of another opening of the log: both want a snapshot.
  /// kResourceExhausted above `bytes_max`.
  Status apply(std::string_view bytes);

  /// Up to where `lane` is known; nothing before its first snapshot.
  [[nodiscard]] std::optional<LogPosition> position(int lane) const;
  /// Variables and tables that it has, in order.
  [[nodiscard]] std::vector<std::string> names() const;
  /// The value of a variable, until the next apply(). kNotFound.
  [[nodiscard]] Result<tensor::Tensor> value(std::string_view name) const;
  /// Copies rows of a variable, one behind the other, to `to`, which is as large as they are.
  /// kNotFound; kInvalidArgument for numbers that are no rows, strings, and another size.
  Status look_up(std::string_view name, std::span<const int64_t> rows,
                 std::span<std::byte> to) const;
  /// A lookup table, until the next apply(). kNotFound.
  [[nodiscard]] Result<std::shared_ptr<const Table>> table(std::string_view name) const;
  /// Which changes of closures a variable has. kNotFound.
  [[nodiscard]] Result<const ChangesMade*> changes_made(std::string_view name) const;

 private:
  struct Item {
    uint64_t home = 0;
    tensor::Tensor value = {};               ///< Of a variable, or
    std::shared_ptr<Table> table = nullptr;  ///< a table.
    ChangesMade made = {};
    bool is_going = false;  ///< It was gone before the snapshot had all of it, and is not shown.
  };
  /// By name. A name may be on several lanes, when it goes from one to another: it is the item of
  /// the highest home then.
  using Items = std::map<std::string, Item, std::less<>>;
  struct Lane {
    std::optional<LogPosition> position = {};
    uint64_t opening = 0;  ///< How many snapshots had begun before that of this incarnation.
    Items items = {};
    /// Of a snapshot that has not come as a whole yet.
    LogPosition arriving = {};
    uint64_t pieces = 0;
    Items arrived = {};
  };
  /// What is known of an item while an entry is looked through.
  struct Known;

  Status apply_changes(Lane* lane, const Entry& entry) const;
  Status apply_piece(Lane* lane, const Entry& entry);
  Status check(const Entry& entry, const Items& items) const;
  static void put(const Section& section, bool is_piece, Items* items);
  [[nodiscard]] size_t bytes() const;
  [[nodiscard]] const Item* find(std::string_view name) const;

  const size_t bytes_max_;
  std::map<int, Lane> lanes_;
  std::map<uint64_t, uint64_t> openings_;  // By incarnation.
};

}  // namespace sidereal::resources
