#include <algorithm>

#include "sidereal/resources/change_log.h"
#include "sidereal/resources/table.h"
#include "sidereal/resources/variable.h"

namespace sidereal::resources {

using tensor::Shape;
using tensor::Tensor;

struct ChangeSnapshot::Item {
  std::shared_ptr<Variable> variable;
  uint64_t home = 0;
  std::shared_ptr<Snapshot> of;
  int64_t next = 0;  ///< Rows before it are in pieces.
};

struct ChangeSnapshot::OfTable {
  std::string name;
  uint64_t home = 0;
  Tensor keys;
  Tensor values;
  int64_t next = 0;
};

ChangeSnapshot::ChangeSnapshot(int lane, const LogPosition& position)
    : lane_(lane), position_(position) {}

ChangeSnapshot::~ChangeSnapshot() = default;

Result<std::unique_ptr<ChangeSnapshot>> ChangeLog::snapshot(const WantedNames& wanted) {
  if (manager_ == nullptr) return base::failed_precondition("the log of lane {} is closed", lane());
  // Some may have come from a lane that had no log yet, or are about to be told of.
  watch_all(/*are_new=*/true);
  std::unique_ptr<ChangeSnapshot> out(new ChangeSnapshot(lane(), cut()));
  if (options_.counts != nullptr) out->pushed_ = options_.counts->read(lane());
  for (const Source& source : sources_) {
    const std::shared_ptr<Variable> variable = source.variable.lock();
    if (variable == nullptr || !variable->is_initialized()) continue;
    if (!wants(wanted, source.name)) continue;
    SR_ASSIGN_OR_RETURN(std::shared_ptr<Snapshot> of, variable->snapshot());
    out->items_.push_back({.variable = variable, .home = source.home, .of = std::move(of)});
  }
  for (const TableSource& source : tables_) {
    if (!wants(wanted, source.table->def().name)) continue;
    auto [keys, values] = source.table->contents();
    out->tables_.push_back({.name = source.table->def().name,
                            .home = source.home,
                            .keys = std::move(keys),
                            .values = std::move(values)});
  }
  return out;
}

Result<std::optional<std::string>> ChangeSnapshot::next(size_t bytes_max) {
  if (is_done_) return std::optional<std::string>();
  EntryWriter to({.kind = EntryKind::kPiece, .lane = lane_, .to = position_, .from = pieces_++});
  const size_t all = items_.size() + tables_.size();
  while (next_ < all && to.bytes() < bytes_max) {
    const size_t room = bytes_max - to.bytes();
    bool is_done = false;
    if (next_ < items_.size()) {
      SR_ASSIGN_OR_RETURN(is_done, add(&items_[next_], room, &to));
    } else {
      is_done = add(&tables_[next_ - items_.size()], room, &to);
    }
    if (is_done) ++next_;
  }
  is_done_ = next_ == all;
  if (is_done_) {
    to.set_kind(EntryKind::kLastPiece);
    if (pushed_.has_value()) to.put_pushed(*pushed_);
  }
  return std::optional(std::move(to).finish());
}

/// Adds what has room; whether that was the rest of it.
Result<bool> ChangeSnapshot::add(Item* item, size_t bytes_max, EntryWriter* to) {
  const std::string& name = item->variable->def().name;
  Snapshot& of = *item->of;
  if (of.whole().defined()) {
    to->put_value(name, item->home, of.whole());
    if (!of.changes_made().empty()) to->put_all_made(name, item->home, of.changes_made());
    return true;
  }
  // It is being destroyed, or on another lane, whose log has all of it then. Entries after the
  // snapshot may have rows of it yet, which the reader is told here to leave out.
  const auto gone = [&] {
    to->put_gone(name, item->home);
    return true;
  };
  if (item->variable->owner()->lane() != lane_) return gone();
  const int64_t rows_max = std::clamp<int64_t>(static_cast<int64_t>(bytes_max) / of.row_bytes(), 1,
                                               of.rows() - item->next);
  memory_.resize(static_cast<size_t>(rows_max * of.row_bytes()));
  const Result<int64_t> read = item->variable->read_on(&of, rows_max, memory_.data(), nullptr);
  if (read.status().code() == StatusCode::kAborted) return gone();
  SR_RETURN_IF_ERROR(read.status());
  numbers_.resize(static_cast<size_t>(*read));
  for (int64_t& row : numbers_) row = item->next++;
  to->put_rows(name, item->home, of.dtype(), of.shape(), numbers_,
               [&](size_t i) { return memory_.data() + i * static_cast<size_t>(of.row_bytes()); });
  if (item->next < of.rows()) return false;
  if (!of.changes_made().empty()) to->put_all_made(name, item->home, of.changes_made());
  item->of.reset();
  return true;
}

bool ChangeSnapshot::add(OfTable* table, size_t bytes_max, EntryWriter* to) {
  const Tensor no_keys = Tensor::empty(table->keys.dtype(), Shape{0});
  const int64_t count = table->keys.num_elements();
  constexpr size_t kKeyBytes = 8;
  const size_t row_bytes =
      count == 0 ? 0 : table->values.nbytes() / static_cast<size_t>(count) + kKeyBytes;
  const int64_t left = count - table->next;
  const int64_t some =
      left == 0 ? 0 : std::clamp<int64_t>(static_cast<int64_t>(bytes_max / row_bytes), 1, left);
  to->put_keys(table->name, table->home, table->keys.rows(table->next, some),
               table->values.rows(table->next, some), no_keys);
  table->next += some;
  return table->next == count;
}

}  // namespace sidereal::resources
