#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/resources/change_entry.h"
#include "sidereal/resources/manager.h"
#include "sidereal/resources/push_counts.h"
#include "sidereal/resources/snapshot.h"

/// What changes on a lane, for its replicas: docs/design/0005-replication.md.
namespace sidereal::resources {

class ChangeSnapshot;
class Owner;
class Table;
class Variable;

/// What the logs of a task's lanes share. Thread: any.
class LogGroup {
 public:
  /// `incarnation`: random, of this opening.
  explicit LogGroup(uint64_t incarnation) : incarnation_(incarnation) {}
  [[nodiscard]] uint64_t incarnation() const { return incarnation_; }
  /// Tells a variable or table that comes to a log from what had its name before, elsewhere too.
  uint64_t next_home() { return homes_.fetch_add(1, std::memory_order_relaxed) + 1; }

 private:
  const uint64_t incarnation_;
  std::atomic<uint64_t> homes_ = 0;
};

struct ChangeLogOptions {
  int lane = 0;
  /// Entries that are kept, together; of these the latest.
  size_t bytes_max = size_t{64} << 20;
  /// What counts the pushes to the lane, of which entries say how many they have; or nothing.
  std::shared_ptr<const PushCounts> counts = nullptr;
};

/// What has changed on a lane, in entries from cut to cut: variables that belong to the lane, and
/// on lane 0 lookup tables. Rows that change are noted by number; their values are copied at the
/// cut.
/// Lifecycle: open() on every lane of a task before any takes a snapshot; close().
/// Thread: the lane.
class ChangeLog final : public std::enable_shared_from_this<ChangeLog> {
 public:
  /// Notes from here on what changes of `manager`, which is borrowed until close().
  static std::shared_ptr<ChangeLog> open(ChangeLogOptions options, std::shared_ptr<LogGroup> group,
                                         Manager* manager);
  ~ChangeLog();
  ChangeLog(const ChangeLog&) = delete;
  ChangeLog& operator=(const ChangeLog&) = delete;

  /// Nothing is noted any more, and nothing is kept.
  void close();
  [[nodiscard]] int lane() const { return options_.lane; }

  /// Ends an entry, if anything has changed since the last cut; the cut that this is. To be called
  /// between two steps.
  LogPosition cut();
  /// As cut(), where nothing reads the log: what has changed since the last one, which may be much,
  /// is in no entry, and readers that come back take a snapshot.
  void skip();
  /// From here on it keeps so many bytes of entries, if these are more.
  void keep_up_to(size_t bytes_max) {
    options_.bytes_max = std::max(options_.bytes_max, bytes_max);
  }
  /// Behind the last cut.
  [[nodiscard]] LogPosition end() const;
  /// Grows with each change that is noted: who compares it knows whether there was one.
  [[nodiscard]] uint64_t noted() const { return noted_; }
  /// The cut that has all changes of variables that were noted: end(), or the next one.
  [[nodiscard]] uint64_t cut_of_all() const { return pending_.empty() ? cut_ : cut_ + 1; }
  /// Bytes of the values that the next entry has, about.
  [[nodiscard]] size_t pending_bytes() const { return pending_bytes_; }
  /// Bytes of the entries that are kept.
  [[nodiscard]] size_t kept_bytes() const { return kept_bytes_; }

  using Bytes = std::shared_ptr<const std::string>;
  /// The entries after `after`, in order: at least one if there is any, and no more than
  /// `bytes_max` together where that is more than one. kOutOfRange when they are not kept: then a
  /// snapshot is needed.
  [[nodiscard]] Result<std::vector<Bytes>> read(const LogPosition& after, size_t bytes_max) const;

  /// Notes what changes of `variable`, which belongs to the lane; the next entry has all of it, if
  /// `is_new`. Does nothing where it does that already, and for one that `manager` has not.
  void watch(const std::shared_ptr<Variable>& variable, bool is_new);

  /// Makes a cut; what is on the lane of these names, as of that.
  Result<std::unique_ptr<ChangeSnapshot>> snapshot(const WantedNames& wanted = {});

 private:
  friend class ChangeSnapshot;
  friend class Owner;
  friend class ValueWatch;
  friend class Variable;

  /// A variable, and what of it the next entry has.
  struct Source {
    std::weak_ptr<Variable> variable;
    std::string name;
    uint64_t home = 0;
    bool is_pending = false;
    bool is_all = false;
    bool is_gone = false;
    std::vector<int64_t> rows = {};  ///< In any order, maybe more than once; or
    std::optional<RowSet> set = {};  ///< the same, of many.
    std::vector<NotedChange> made = {};
  };
  struct TableSource {
    std::shared_ptr<Table> table;
    uint64_t home = 0;
    bool is_new = false;
    bool is_gone = false;
  };
  struct Kept {
    uint64_t from = 0;
    Bytes bytes;
  };

  ChangeLog(ChangeLogOptions options, std::shared_ptr<LogGroup> group, Manager* manager)
      : options_(std::move(options)), group_(std::move(group)), manager_(manager) {}

  void watch_all(bool are_new);
  void find_tables(bool are_new);
  /// Those of a value with `count` rows, of `row_bytes` each, are going to change.
  void note_rows(size_t source, std::span<const int64_t> rows, int64_t count, size_t row_bytes);
  void note_all(size_t source);
  void note_made(size_t source, const NotedChange& made);
  void note_gone(size_t source);
  /// The group of `owner` goes to another lane, whose log is to watch() what this gives.
  std::vector<std::weak_ptr<Variable>> let_go(const Owner& owner);

  void pend(size_t source);
  bool write(Source* source, EntryWriter* to) const;
  LogPosition cut(bool is_read);
  static void put_in_order(Source* source);
  void write_tables(EntryWriter* to);
  void keep(std::string entry);

  ChangeLogOptions options_;
  const std::shared_ptr<LogGroup> group_;
  Manager* manager_;  // nullptr: it is closed.
  std::vector<Source> sources_;
  std::vector<size_t> free_;     // Of these, those that are not in use.
  std::vector<size_t> pending_;  // And those that the next entry has something of.
  size_t pending_bytes_ = 0;
  std::vector<TableSource> tables_;
  uint64_t made_seen_ = 0;  // Of the manager, when tables were last looked for.
  uint64_t forgotten_seen_ = 0;
  uint64_t cut_ = 0;
  uint64_t noted_ = 0;
  std::deque<Kept> kept_;
  size_t kept_bytes_ = 0;
};

/// Everything on a lane as of a cut, in pieces. What changes meanwhile is copied out first.
/// Thread: the lane.
class ChangeSnapshot {
 public:
  ~ChangeSnapshot();
  ChangeSnapshot(const ChangeSnapshot&) = delete;
  ChangeSnapshot& operator=(const ChangeSnapshot&) = delete;

  /// What it is of: entries after that go on top of it.
  [[nodiscard]] const LogPosition& position() const { return position_; }
  /// The next piece, of about `bytes_max`; nothing after the last one. kResourceExhausted when
  /// there was no memory for what has changed meanwhile.
  Result<std::optional<std::string>> next(size_t bytes_max);

 private:
  friend class ChangeLog;
  struct Item;
  struct OfTable;
  ChangeSnapshot(int lane, const LogPosition& position);

  Result<bool> add(Item* item, size_t bytes_max, EntryWriter* to);
  static bool add(OfTable* table, size_t bytes_max, EntryWriter* to);

  const int lane_;
  const LogPosition position_;
  std::vector<Item> items_;
  std::vector<OfTable> tables_;
  std::optional<PushedSoFar> pushed_;
  size_t next_ = 0;  // Of the items, then of the tables.
  uint64_t pieces_ = 0;
  bool is_done_ = false;
  std::vector<std::byte> memory_;  // Of rows, on their way.
  std::vector<int64_t> numbers_;
};

}  // namespace sidereal::resources
