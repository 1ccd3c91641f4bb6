#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/resources/change_entry.h"
#include "sidereal/resources/changes_made.h"
#include "sidereal/resources/push_counts.h"
#include "sidereal/resources/snapshot.h"
#include "sidereal/resources/table.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::resources {

/// A copy of what lanes of a task have, kept current by the entries of their logs. Of each lane it
/// is what the lane was at a cut; between lanes there is no order. When the logs are opened anew,
/// as by a task that was started again, it stays what it was until all lanes are here from there.
/// Thread: one at a time, but for what says another thing.
class Replica {
 public:
  /// Row `row` of a variable, which becomes row `to` of what is looked up. Value type.
  struct Pick {
    int64_t row = 0;
    size_t to = 0;
  };

  /// `bytes_max`: of all values, and of those of snapshots that are arriving, together. It takes
  /// what is `wanted`, and leaves out the rest.
  explicit Replica(size_t bytes_max, WantedNames wanted = {})
      : bytes_max_(bytes_max), wanted_(std::move(wanted)) {}

  /// Takes the next entry or piece of a lane. What it has stays as it is when that fails, but for
  /// pieces before the one that was refused, which are forgotten.
  /// kDataLoss for bytes that are no entry, or do not fit what is here; kOutOfRange when something
  /// before it is missing, or is of another opening of the log: both want a snapshot.
  /// kResourceExhausted above `bytes_max`.
  Status apply(std::string_view bytes);
  /// What was pushed to its lanes, as far as it has that.
  [[nodiscard]] std::vector<PushedSoFar> pushed() const;
  /// A variable or table, given away. Value type.
  struct Taken {
    std::string name;
    int lane = 0;
    tensor::Tensor value = {};               ///< Of a variable, or
    std::shared_ptr<Table> table = nullptr;  ///< a table.
    ChangesMade made = {};
    int64_t stride = 0;  ///< Of `value`, as Variable::take() has it.
  };
  /// Gives away all that has a value, and has nothing any more.
  [[nodiscard]] std::vector<Taken> take_all();
  /// For one that take_all() ends: puts a variable whose rows change into a table with its slots,
  /// which are called as it is with "/..." behind. The first update by rows would do that on the
  /// lane that the variable is given to, for which nothing else would be done meanwhile. False:
  /// there is none, or none of up to `bytes_max`. Not beside look_up().
  bool lay_out_next(size_t bytes_max);
  /// Has nothing any more, and is no lane's copy.
  void forget();

  /// From where `lane` is to be read on; nothing before its first snapshot.
  [[nodiscard]] std::optional<LogPosition> position(int lane) const;
  /// Up to where `lane` is in the copy, which may be of the opening before.
  [[nodiscard]] std::optional<LogPosition> shown_position(int lane) const;
  /// Variables and tables that it has, in order.
  [[nodiscard]] std::vector<std::string> names() const;
  /// The value of a variable, until the next apply(). kNotFound.
  [[nodiscard]] Result<tensor::Tensor> value(std::string_view name) const;
  /// Copies rows of a variable of `dtype` and of rows of `row_bytes` to `to`, which has room for
  /// all that `picks` name. A row is as one entry left it; two rows may be as of two entries.
  /// kNotFound; kFailedPrecondition for a variable of another dtype or width; kInvalidArgument for
  /// numbers that are no rows. Thread: any, also beside apply(), for whose end it does not wait.
  Status look_up(std::string_view name, tensor::DType dtype, size_t row_bytes,
                 std::span<const Pick> picks, std::byte* to) const;
  /// Tells of each variable that look_up() finds; `tell` must not block.
  /// Thread: any, also beside apply().
  using Tell =
      std::function<void(const std::string& name, tensor::DType dtype, const tensor::Shape& shape)>;
  void each_variable(const Tell& tell) const;
  /// Another number whenever each_variable() may tell something else. Thread: any.
  [[nodiscard]] uint64_t variables_version() const {
    return version_.load(std::memory_order_acquire);
  }
  /// Of all values, and of those that are arriving.
  [[nodiscard]] size_t bytes() const;
  /// A lookup table, until the next apply(). kNotFound.
  [[nodiscard]] Result<std::shared_ptr<const Table>> table(std::string_view name) const;
  /// Which changes of closures a variable has. kNotFound.
  [[nodiscard]] Result<const ChangesMade*> changes_made(std::string_view name) const;

 private:
  friend class ReplicaPieces;
  struct Item {
    uint64_t home = 0;
    tensor::Tensor value = {};               ///< Of a variable, or
    std::shared_ptr<Table> table = nullptr;  ///< a table.
    ChangesMade made = {};
    bool is_going = false;  ///< It was gone before the snapshot had all of it, and is not shown.
    bool has_changed_rows = false;  ///< Of a variable: since the snapshot, and not all of them.
    int64_t stride = 0;             ///< As Taken has it.

    [[nodiscard]] Rows rows() const;
    /// The value, a copy where it is in a table.
    [[nodiscard]] tensor::Tensor get() const;
  };
  /// By name. A name may be on several lanes, when it goes from one to another: it is the item of
  /// the highest home then.
  using Items = std::map<std::string, Item, std::less<>>;
  /// What a lane has of one opening of its log; what is shown of lanes is of one opening of all.
  struct Content {
    std::optional<LogPosition> position = {};
    Items items = {};
    std::optional<PushedSoFar> pushed = {};
  };
  struct Lane {
    Content shown = {};
    /// Of a later opening, of which not all lanes are here yet.
    std::optional<Content> next = {};
    /// Of a snapshot that has not come as a whole yet.
    LogPosition arriving = {};
    uint64_t pieces = 0;
    Items arrived = {};
  };
  /// What is known of an item while an entry is looked through.
  struct Known;

  Status apply_changes(Lane* lane, const Entry& entry);
  Status apply_piece(Lane* lane, const Entry& entry);
  void show(uint64_t incarnation);
  Status check(const Entry& entry, const Items& items) const;
  /// Whether it is of a snapshot, and whether it is looked up meanwhile.
  struct Put {
    bool is_piece = false;
    bool is_shown = true;
  };
  void put(const Section& section, const Put& how, Items* items);
  /// With shown_mutex_.
  void changes_variables() { version_.fetch_add(1, std::memory_order_release); }
  [[nodiscard]] bool takes(const Section& section) const {
    return section.kind == SectionKind::kPushed || wants(wanted_, section.name);
  }
  [[nodiscard]] const Item* find(std::string_view name) const;

  /// Locks of rows that are looked up while they change: a row has that of its number.
  static constexpr size_t kRowLocks = 64;
  [[nodiscard]] std::mutex& lock_of(int64_t row) const {
    return row_locks_[static_cast<size_t>(row) % kRowLocks];
  }

  const size_t bytes_max_;
  const WantedNames wanted_;
  // Which items lanes show, where their values are, and `home` and `is_going`: apply() changes
  // that, and others read it. Never held for as long as an entry takes.
  mutable std::mutex shown_mutex_;
  mutable std::array<std::mutex, kRowLocks> row_locks_;  // Taken after no other one.
  std::map<int, Lane> lanes_;
  bool may_lay_out_ = false;  // Rows of a variable have changed for the first time.
  std::atomic<uint64_t> version_ = 0;
};

/// What a replica has, in pieces of the change log's format, which another replica takes by
/// apply(): of each lane what is a snapshot of it.
/// Thread: as the replica, which is borrowed and must not change meanwhile.
class ReplicaPieces {
 public:
  explicit ReplicaPieces(const Replica* replica)
      : replica_(*replica), lane_(replica->lanes_.begin()) {
    begin_lane();
  }
  /// The next piece, of about `bytes_max`; nothing after the last one.
  std::optional<std::string> next(size_t bytes_max);

 private:
  void begin_lane();
  bool add(const std::string& name, const Replica::Item& item, size_t bytes_max, EntryWriter* to);
  bool add_rows(const std::string& name, const Replica::Item& item, size_t bytes_max,
                EntryWriter* to);
  bool add_keys(const std::string& name, const Replica::Item& item, size_t bytes_max,
                EntryWriter* to);

  const Replica& replica_;
  std::map<int, Replica::Lane>::const_iterator lane_;
  Replica::Items::const_iterator item_;
  uint64_t piece_ = 0;
  int64_t row_ = 0;  // Rows or keys of the item before it are in pieces.
  std::pair<tensor::Tensor, tensor::Tensor> keys_;
};

}  // namespace sidereal::resources
