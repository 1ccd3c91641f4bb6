#include "sidereal/resources/change_log.h"

#include <algorithm>

#include "sidereal/resources/table.h"
#include "sidereal/resources/variable.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::resources {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// Bits of the number of a row. Rows are noted as bits once their numbers take more memory.
constexpr size_t kRowBits = 64;

/// Of all elements.
size_t bytes_of(const Variable::Value& value) {
  if (value.dtype() == DType::kString) return tensor::string_bytes(value.get(Tensor::empty));
  return static_cast<size_t>(value.shape().num_elements()) * tensor::size_of(value.dtype());
}

}  // namespace

std::shared_ptr<ChangeLog> ChangeLog::open(ChangeLogOptions options,
                                           std::shared_ptr<LogGroup> group, Manager* manager) {
  std::shared_ptr<ChangeLog> out(new ChangeLog(std::move(options), std::move(group), manager));
  out->watch_all(/*are_new=*/false);
  if (out->lane() == 0) out->find_tables(/*are_new=*/false);
  return out;
}

ChangeLog::~ChangeLog() { close(); }

void ChangeLog::close() {
  if (manager_ == nullptr) return;
  manager_ = nullptr;
  for (const TableSource& source : tables_) source.table->stop_noting();
  tables_.clear();
  for (const Source& source : sources_) {
    const std::shared_ptr<Variable> variable = source.variable.lock();
    if (variable != nullptr && variable->log() == this) variable->log_to(nullptr, 0);
  }
  sources_.clear();
  free_.clear();
  pending_.clear();
  pending_bytes_ = 0;
  kept_.clear();
  kept_bytes_ = 0;
}

/// `are_new`: the next entry has all of those that are not known.
void ChangeLog::watch_all(bool are_new) {
  for (const std::string& name : manager_->names()) {
    const Result<std::shared_ptr<Variable>> found = manager_->find<Variable>(name);
    if (!found.ok()) continue;
    const std::shared_ptr<Owner>& owner = (*found)->owner();
    const bool is_here = owner != nullptr && owner->lane() == lane();
    if (is_here && (*found)->is_initialized()) watch(*found, are_new);
  }
}

void ChangeLog::watch(const std::shared_ptr<Variable>& variable, bool is_new) {
  if (manager_ == nullptr || variable->log() == this) return;
  // One that has been destroyed may be in use yet, when its name is that of another one.
  const Result<std::shared_ptr<Variable>> named = manager_->find<Variable>(variable->def().name);
  if (!named.ok() || *named != variable) return;
  if (free_.empty()) {
    free_.push_back(sources_.size());
    sources_.emplace_back();
  }
  const size_t source = free_.back();
  free_.pop_back();
  sources_[source] = {
      .variable = variable, .name = variable->def().name, .home = group_->next_home()};
  variable->log_to(shared_from_this(), source);
  if (is_new) note_all(source);
}

void ChangeLog::pend(size_t source) {
  ++noted_;
  if (std::exchange(sources_[source].is_pending, true)) return;
  pending_.push_back(source);
}

void ChangeLog::note_rows(size_t source, std::span<const int64_t> rows, int64_t count,
                          size_t row_bytes) {
  if (manager_ == nullptr || rows.empty()) return;
  pend(source);
  Source& noted = sources_[source];
  if (noted.is_all) return;
  pending_bytes_ += rows.size() * row_bytes;
  if (!noted.set.has_value()) {
    noted.rows.insert(noted.rows.end(), rows.begin(), rows.end());
    if (noted.rows.size() * kRowBits <= static_cast<size_t>(count)) return;
    noted.set.emplace(count);
    for (const int64_t row : noted.rows) noted.set->add(row);
    noted.rows = {};
    return;
  }
  for (const int64_t row : rows) noted.set->add(row);
}

void ChangeLog::note_all(size_t source) {
  if (manager_ == nullptr) return;
  pend(source);
  Source& noted = sources_[source];
  if (std::exchange(noted.is_all, true)) return;
  const std::shared_ptr<Variable> variable = noted.variable.lock();
  if (variable != nullptr) pending_bytes_ += static_cast<size_t>(variable->bytes());
  noted.rows = {};
  noted.set.reset();
  noted.made.clear();
}

void ChangeLog::note_made(size_t source, const NotedChange& made) {
  if (manager_ == nullptr) return;
  pend(source);
  if (!sources_[source].is_all) sources_[source].made.push_back(made);
}

void ChangeLog::note_gone(size_t source) {
  if (manager_ == nullptr) return;
  pend(source);
  sources_[source].is_gone = true;
}

std::vector<std::weak_ptr<Variable>> ChangeLog::let_go(const Owner& owner) {
  std::vector<std::weak_ptr<Variable>> out;
  if (manager_ == nullptr) return out;
  cut();
  for (size_t i = 0; i < sources_.size(); ++i) {
    const std::shared_ptr<Variable> variable = sources_[i].variable.lock();
    if (variable == nullptr || sources_[i].is_gone) continue;
    if (!variable->owner()->is_one_with(owner)) continue;
    variable->log_to(nullptr, 0);
    note_gone(i);
    out.push_back(variable);
  }
  return out;
}

LogPosition ChangeLog::cut() { return cut(/*is_read=*/true); }

void ChangeLog::skip() { static_cast<void>(cut(/*is_read=*/false)); }

LogPosition ChangeLog::cut(bool is_read) {
  if (manager_ == nullptr) return end();
  EntryWriter to({.lane = lane(),
                  .to = {.incarnation = group_->incarnation(), .cut = cut_ + 1},
                  .from = cut_});
  // Without an entry readers take a snapshot.
  bool fits = is_read || pending_.empty();
  for (const size_t i : std::exchange(pending_, {})) {
    Source& source = sources_[i];
    // An entry that is too large is not even copied.
    fits = fits && write(&source, &to);
    if (source.is_gone || source.variable.expired()) {
      source = {};
      free_.push_back(i);
      continue;
    }
    source.is_pending = false;
    source.is_all = false;
    source.rows.clear();
    source.set.reset();
    source.made.clear();
  }
  pending_bytes_ = 0;
  if (lane() == 0) write_tables(&to);
  if (fits && to.bytes() == 0) return end();
  if (options_.counts != nullptr) to.put_pushed(options_.counts->read(lane()));
  ++cut_;
  if (fits && to.bytes() <= options_.bytes_max) {
    keep(std::move(to).finish());
  } else {
    kept_.clear();
    kept_bytes_ = 0;
  }
  return end();
}

/// False: it is too much for one entry.
bool ChangeLog::write(Source* source, EntryWriter* to) const {
  const std::shared_ptr<Variable> variable = source->variable.lock();
  if (source->is_gone || variable == nullptr) {
    to->put_gone(source->name, source->home);
    return true;
  }
  bool fits = true;
  const auto has_room = [&](size_t bytes) {
    fits = bytes <= options_.bytes_max && to->bytes() <= options_.bytes_max - bytes;
    return fits;
  };
  // One that has no value has been destroyed, and says so next.
  static_cast<void>(variable->look([&](const Variable::Value& value) -> Status {
    const bool is_whole = source->is_all || value.dtype() == DType::kString;
    if (is_whole) {
      if (!has_room(bytes_of(value))) return {};
      to->put_value(source->name, source->home, value.get(Tensor::empty));
      return {};
    }
    put_in_order(source);
    if (source->rows.empty()) return {};
    const Rows from = value.rows();
    const size_t row_bytes = static_cast<size_t>(from.width) * tensor::size_of(value.dtype());
    if (row_bytes == 0 || !has_room(source->rows.size() * row_bytes)) return {};
    to->put_rows(source->name, source->home, value.dtype(), value.shape(), source->rows,
                 [&](size_t i) { return from.at + source->rows[i] * from.stride; });
    return {};
  }));
  if (source->is_all) {
    const std::string made = variable->changes_made()->encode();
    if (!made.empty()) to->put_all_made(source->name, source->home, made);
  } else if (!source->made.empty()) {
    to->put_made(source->name, source->home, source->made);
  }
  return fits;
}

/// The rows that have changed, in order, each once.
void ChangeLog::put_in_order(Source* source) {
  std::vector<int64_t>& rows = source->rows;
  if (!source->set.has_value()) {
    std::ranges::sort(rows);
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return;
  }
  const RowSet& set = *source->set;
  for (int64_t r = set.next(0); r < set.rows(); r = set.next(r + 1)) rows.push_back(r);
}

/// Which tables there are. `are_new`: the next entry has all of those that are found.
void ChangeLog::find_tables(bool are_new) {
  const uint64_t made = manager_->made();
  const uint64_t forgotten = manager_->forgotten();
  if (are_new && made == made_seen_ && forgotten == forgotten_seen_) return;
  made_seen_ = made;
  forgotten_seen_ = forgotten;
  for (TableSource& source : tables_) {
    const Result<std::shared_ptr<Table>> found = manager_->find<Table>(source.table->def().name);
    source.is_gone = !found.ok() || *found != source.table;
  }
  for (const std::string& name : manager_->names()) {
    const Result<std::shared_ptr<Table>> found = manager_->find<Table>(name);
    if (!found.ok()) continue;
    const auto is_it = [&](const TableSource& source) { return source.table == *found; };
    if (std::ranges::any_of(tables_, is_it)) continue;
    (*found)->start_noting();
    tables_.push_back({.table = *found, .home = group_->next_home(), .is_new = are_new});
  }
}

void ChangeLog::write_tables(EntryWriter* to) {
  find_tables(/*are_new=*/true);
  for (TableSource& source : tables_) {
    const std::string& name = source.table->def().name;
    if (source.is_gone) {
      source.table->stop_noting();
      to->put_gone(name, source.home);
      continue;
    }
    const std::optional<Table::Noted> noted = source.table->take_noted();
    if (std::exchange(source.is_new, false)) {
      const auto [keys, values] = source.table->contents();
      to->put_keys(name, source.home, keys, values, Tensor::empty(keys.dtype(), Shape{0}));
    } else if (noted.has_value()) {
      to->put_keys(name, source.home, noted->keys, noted->values, noted->removed);
    }
  }
  std::erase_if(tables_, [](const TableSource& source) { return source.is_gone; });
}

void ChangeLog::keep(std::string entry) {
  kept_bytes_ += entry.size();
  kept_.push_back(
      {.from = cut_ - 1, .bytes = std::make_shared<const std::string>(std::move(entry))});
  while (kept_bytes_ > options_.bytes_max && kept_.size() > 1) {
    kept_bytes_ -= kept_.front().bytes->size();
    kept_.pop_front();
  }
}

LogPosition ChangeLog::end() const { return {.incarnation = group_->incarnation(), .cut = cut_}; }

Result<std::vector<ChangeLog::Bytes>> ChangeLog::read(const LogPosition& after,
                                                      size_t bytes_max) const {
  if (manager_ == nullptr) return base::out_of_range("the log of lane {} is closed", lane());
  if (after.incarnation != group_->incarnation()) {
    return base::out_of_range("cut {} of lane {} is of another opening of its log: take a snapshot",
                              after.cut, lane());
  }
  std::vector<Bytes> out;
  if (after.cut == cut_) return out;
  const uint64_t first = kept_.empty() ? cut_ : kept_.front().from;
  if (after.cut < first || after.cut > cut_) {
    return base::out_of_range(
        "cut {} of lane {} is asked for, and its log has {} to {}: take a snapshot", after.cut,
        lane(), first, cut_);
  }
  size_t bytes = 0;
  for (size_t i = after.cut - first; i < kept_.size(); ++i) {
    bytes += kept_[i].bytes->size();
    if (bytes > bytes_max && !out.empty()) break;
    out.push_back(kept_[i].bytes);
  }
  return out;
}

}  // namespace sidereal::resources
