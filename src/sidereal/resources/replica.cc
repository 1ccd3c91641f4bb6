#include "sidereal/resources/replica.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "sidereal/base/check.h"

namespace sidereal::resources {

using base::data_loss;
using base::not_found;
using base::out_of_range;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// Whether a section says something of what is here, and not what it is.
bool is_of_parts(SectionKind kind) {
  return kind == SectionKind::kRows || kind == SectionKind::kMade || kind == SectionKind::kAllMade;
}

}  // namespace

Rows Replica::Item::rows() const {
  Rows out = Rows::of(value);
  if (stride != 0) out.stride = stride;
  return out;
}

Tensor Replica::Item::get() const {
  if (stride == 0) return value;
  const Rows from = rows();
  Tensor out = Tensor::empty(value.dtype(), value.shape());
  const size_t row_bytes = static_cast<size_t>(from.width) * tensor::size_of(value.dtype());
  for (int64_t row = 0; row < from.count; ++row) {
    std::memcpy(out.raw() + static_cast<size_t>(row) * row_bytes, from.at + row * from.stride,
                row_bytes);
  }
  return out;
}

struct Replica::Known {
  uint64_t home = 0;
  bool is_here = false;
  bool is_table = false;
  bool is_going = false;
  DType key = DType::kInvalid;
  DType dtype = DType::kInvalid;
  Shape shape = {};
};

Status Replica::apply(std::string_view bytes) {
  SR_ASSIGN_OR_RETURN(const Entry entry, decode_entry(bytes));
  const int number = entry.head.lane;
  const bool is_piece = entry.head.kind != EntryKind::kChanges;
  const auto known = lanes_.find(number);
  if (!is_piece && !position(number).has_value()) {
    return out_of_range("changes of lane {} come before its snapshot", number);
  }
  if (known == lanes_.end()) {
    const std::lock_guard lock(shown_mutex_);
    lanes_.try_emplace(number);
  }
  Lane& lane = lanes_.at(number);
  return base::with_context(is_piece ? apply_piece(&lane, entry) : apply_changes(&lane, entry),
                            fmt::format("lane {}", number));
}

void Replica::forget() {
  std::map<int, Lane> old;  // Its memory is given back without the lock.
  const std::lock_guard lock(shown_mutex_);
  old.swap(lanes_);
  changes_variables();
}

Status Replica::apply_changes(Lane* lane, const Entry& entry) {
  const EntryHead& head = entry.head;
  const bool is_shown = !lane->next.has_value();
  Content& of = is_shown ? lane->shown : *lane->next;
  LogPosition& position = *of.position;
  if (head.to.incarnation != position.incarnation) {
    return out_of_range("its log was opened anew: take a snapshot");
  }
  if (head.to.cut <= position.cut) return {};
  if (head.from != position.cut) {
    return out_of_range("changes from cut {} to {} come where those from cut {} are next",
                        head.from, head.to.cut, position.cut);
  }
  SR_RETURN_IF_ERROR(check(entry, of.items));
  for (const Section& section : entry.sections) {
    if (section.kind == SectionKind::kPushed) of.pushed = section.pushed;
    put(section, {.is_shown = is_shown}, &of.items);
  }
  position = head.to;
  return {};
}

Status Replica::apply_piece(Lane* lane, const Entry& entry) {
  const EntryHead& head = entry.head;
  if (head.from == 0) {
    lane->arrived.clear();
    lane->arriving = head.to;
    lane->pieces = 0;
  }
  Status status;
  if (!(lane->arriving == head.to) || lane->pieces != head.from) {
    status =
        out_of_range("piece {} of a snapshot of cut {} comes where piece {} of one of {} is next",
                     head.from, head.to.cut, lane->pieces, lane->arriving.cut);
  } else {
    status = check(entry, lane->arrived);
  }
  if (!status.ok()) {
    lane->arrived.clear();
    lane->arriving = {};
    lane->pieces = 0;
    return status;
  }
  ++lane->pieces;
  for (const Section& section : entry.sections) {
    put(section, {.is_piece = true, .is_shown = false}, &lane->arrived);
  }
  if (head.kind != EntryKind::kLastPiece) return {};
  Content made{.position = std::exchange(lane->arriving, {}), .items = std::move(lane->arrived)};
  lane->arrived.clear();
  lane->pieces = 0;
  for (const Section& section : entry.sections) {
    if (section.kind == SectionKind::kPushed) made.pushed = section.pushed;
  }
  lane->next = std::move(made);
  show(head.to.incarnation);
  return {};
}

/// Shows what lanes have of that opening, if no lane shows something and has not come so far.
void Replica::show(uint64_t incarnation) {
  const auto is_of = [incarnation](const Content& one) {
    return one.position.has_value() && one.position->incarnation == incarnation;
  };
  for (const auto& [number, lane] : lanes_) {
    const bool is_here = lane.next.has_value() ? is_of(*lane.next) : is_of(lane.shown);
    if (!is_here && lane.shown.position.has_value()) return;
  }
  std::vector<Content> old;  // Its memory is given back without the lock.
  const std::lock_guard lock(shown_mutex_);
  for (auto& [number, lane] : lanes_) {
    if (!lane.next.has_value() || !is_of(*lane.next)) continue;
    old.push_back(std::exchange(lane.shown, *std::move(lane.next)));
    lane.next.reset();
  }
  changes_variables();
}

/// Whether all of an entry can be put on `items`.
Status Replica::check(const Entry& entry, const Items& items) const {
  const bool is_piece = entry.head.kind != EntryKind::kChanges;
  std::map<std::string_view, Known> seen;
  size_t bytes = 0;  // That it adds.
  const auto known_of = [&](std::string_view name) -> Known& {
    const auto [it, is_new] = seen.try_emplace(name);
    const auto item = items.find(name);
    if (!is_new || item == items.end()) return it->second;
    const Item& is = item->second;
    it->second = {
        .home = is.home, .is_here = true, .is_table = is.table != nullptr, .is_going = is.is_going};
    if (is.table != nullptr) {
      it->second.key = is.table->def().key;
      it->second.dtype = is.table->def().value;
      it->second.shape = is.table->def().row;
    } else {
      it->second.dtype = is.value.dtype();
      it->second.shape = is.value.shape();
    }
    return it->second;
  };
  for (const Section& section : entry.sections) {
    if (section.kind == SectionKind::kPushed || !takes(section)) continue;
    Known& known = known_of(section.name);
    const auto refused = [&](std::string_view why) {
      return data_loss("'{}' of home {}: {}", section.name, section.home, why);
    };
    const bool is_it = known.is_here && known.home == section.home;
    const bool is_same = known.dtype == section.dtype && known.shape == section.shape;
    if (section.kind != SectionKind::kGone && known.is_here && section.home < known.home) {
      return refused("a later one is here");
    }
    if (is_it && known.is_going && is_of_parts(section.kind)) continue;
    switch (section.kind) {
      case SectionKind::kRows:
        if (is_it) {
          if (known.is_table || !is_same) return refused("its rows are those of another value");
          break;
        }
        if (!is_piece) return refused("rows of what is not here");
        [[fallthrough]];
      case SectionKind::kValue:
        if (is_it && known.is_table) return refused("it is a table");
        if (section.kind == SectionKind::kValue && section.dtype == DType::kString) {
          SR_RETURN_IF_ERROR(value_of(section).status());
          bytes += section.bytes.size();
        } else if (!is_it || !is_same) {
          bytes +=
              static_cast<size_t>(section.shape.num_elements()) * tensor::size_of(section.dtype);
        }
        known = {
            .home = section.home, .is_here = true, .dtype = section.dtype, .shape = section.shape};
        break;
      case SectionKind::kGone:
        if (is_piece) {
          known = {.home = section.home, .is_here = true, .is_going = true};
        } else if (is_it) {
          known = {};
        }
        break;
      case SectionKind::kKeys:
        if (is_it && (!known.is_table || !is_same || known.key != section.keys.dtype())) {
          return refused("its keys are those of another table");
        }
        bytes += section.keys.nbytes() + section.values.nbytes();
        known = {.home = section.home,
                 .is_here = true,
                 .is_table = true,
                 .key = section.keys.dtype(),
                 .dtype = section.dtype,
                 .shape = section.shape};
        break;
      case SectionKind::kMade:
      case SectionKind::kAllMade:
        if (!is_it || known.is_table) return refused("changes of closures of what is not here");
        if (section.kind == SectionKind::kAllMade) {
          SR_RETURN_IF_ERROR(ChangesMade::decode(section.bytes).status());
        }
        break;
      case SectionKind::kPushed:
        break;
    }
    if (bytes > bytes_max_) break;
  }
  if (bytes == 0) return {};
  const size_t has = this->bytes();
  if (bytes <= bytes_max_ && has <= bytes_max_ - bytes) return {};
  return base::resource_exhausted("{} bytes are added to {}, and the replica may have {}", bytes,
                                  has, bytes_max_);
}

/// What check() has found to be good. `items` of a snapshot that has not come as a whole are not
/// looked up.
void Replica::put(const Section& section, const Put& how, Items* items) {
  if (section.kind == SectionKind::kPushed || !takes(section)) return;
  const auto found = items->find(section.name);
  const bool is_new = found == items->end() || found->second.home != section.home;
  // Made, and given back with the item that was there, without the lock.
  std::optional<Tensor> made;
  Item old;
  if (section.kind == SectionKind::kValue) {
    const Tensor has = is_new ? Tensor() : found->second.value;
    const bool is_same = section.dtype != DType::kString && has.defined() &&
                         has.dtype() == section.dtype && has.shape() == section.shape;
    if (!is_same) made = *value_of(section);
  }
  std::unique_lock lock(shown_mutex_, std::defer_lock);
  const auto shown = [&](bool has_changed) {
    if (!how.is_shown) return;
    if (has_changed) changes_variables();
    lock.unlock();
  };
  if (how.is_shown) lock.lock();
  const std::string name(section.name);
  if (section.kind == SectionKind::kGone && !how.is_piece) {
    if (is_new) return;
    old = std::move(found->second);
    items->erase(found);
    return shown(true);
  }
  Item& item = found == items->end() ? (*items)[name] : found->second;
  if (is_new) old = std::exchange(item, {.home = section.home});
  if (item.is_going && is_of_parts(section.kind)) return;
  const auto put_row = [&](const Rows& to, int64_t row, const char* from, size_t bytes) {
    std::unique_lock row_lock(lock_of(row), std::defer_lock);
    if (how.is_shown) row_lock.lock();
    std::memcpy(to.at + row * to.stride, from, bytes);
  };
  switch (section.kind) {
    case SectionKind::kValue:
      item.made = {};
      if (!made.has_value()) {
        shown(false);
        const Rows to = item.rows();
        const size_t row_bytes = static_cast<size_t>(to.width) * tensor::size_of(section.dtype);
        for (int64_t row = 0; row < to.count && row_bytes > 0; ++row) {
          put_row(to, row, section.bytes.data() + static_cast<size_t>(row) * row_bytes, row_bytes);
        }
        return;
      }
      std::swap(item.value, *made);
      item.stride = 0;
      item.is_going = false;
      return shown(true);
    case SectionKind::kRows: {
      if (!item.value.defined()) item.value = Tensor::zeros(section.dtype, section.shape);
      if (!how.is_piece && !std::exchange(item.has_changed_rows, true)) may_lay_out_ = true;
      shown(is_new);
      const Rows to = item.rows();
      const size_t row_bytes =
          section.rows.empty() ? 0 : section.bytes.size() / section.rows.size();
      const char* from = section.bytes.data();
      for (const int64_t row : section.rows) {
        put_row(to, row, from, row_bytes);
        from += row_bytes;
      }
      return;
    }
    case SectionKind::kKeys:
      if (item.table == nullptr) {
        item.table = *Table::make({.name = name,
                                   .key = section.keys.dtype(),
                                   .value = section.dtype,
                                   .row = section.shape});
      }
      shown(is_new);
      SR_CHECK(item.table->insert(section.keys, section.values).ok(), "keys were not checked");
      SR_CHECK(item.table->remove(section.removed).ok(), "keys were not checked");
      return;
    case SectionKind::kMade:
      for (const NotedChange& one : section.made) item.made.note(one.closure, one.change);
      return;
    case SectionKind::kAllMade:
      item.made = *ChangesMade::decode(section.bytes);
      return;
    case SectionKind::kGone:
      old = std::exchange(item, {.home = section.home, .is_going = true});
      return;
    case SectionKind::kPushed:
      return;
  }
}

size_t Replica::bytes() const {
  size_t out = 0;
  for (const auto& [number, lane] : lanes_) {
    std::vector<const Items*> all = {&lane.shown.items, &lane.arrived};
    if (lane.next.has_value()) all.push_back(&lane.next->items);
    for (const Items* const items : all) {
      for (const auto& [name, item] : *items) {
        out +=
            item.table != nullptr ? static_cast<size_t>(item.table->bytes()) : item.value.nbytes();
      }
    }
  }
  return out;
}

const Replica::Item* Replica::find(std::string_view name) const {
  const Item* out = nullptr;
  for (const auto& [number, lane] : lanes_) {
    const Content& of = lane.shown;
    const auto it = of.items.find(name);
    if (it == of.items.end() || it->second.is_going) continue;
    if (out == nullptr || it->second.home > out->home) out = &it->second;
  }
  return out;
}

std::optional<LogPosition> Replica::position(int lane) const {
  const auto it = lanes_.find(lane);
  if (it == lanes_.end()) return std::nullopt;
  return it->second.next.has_value() ? it->second.next->position : it->second.shown.position;
}

std::optional<LogPosition> Replica::shown_position(int lane) const {
  const auto it = lanes_.find(lane);
  return it == lanes_.end() ? std::nullopt : it->second.shown.position;
}

std::vector<std::string> Replica::names() const {
  std::set<std::string> out;
  for (const auto& [number, lane] : lanes_) {
    for (const auto& [name, item] : lane.shown.items) {
      if (!item.is_going) out.insert(name);
    }
  }
  return {out.begin(), out.end()};
}

Result<Tensor> Replica::value(std::string_view name) const {
  const Item* const item = find(name);
  if (item != nullptr && item->table == nullptr) return item->get();
  return not_found("the replica has no variable '{}'", name);
}

Status Replica::look_up(std::string_view name, DType dtype, size_t row_bytes,
                        std::span<const Pick> picks, std::byte* to) const {
  Tensor all;
  {
    const std::lock_guard lock(shown_mutex_);
    SR_ASSIGN_OR_RETURN(all, value(name));
  }
  if (!all.defined()) return not_found("the replica has no value of '{}'", name);
  const bool is_it = all.dtype() == dtype && dtype != DType::kString;
  if (!is_it || static_cast<size_t>(Rows::of(all).stride) != row_bytes) {
    return base::failed_precondition("'{}' is {}, without rows of {} bytes of {}", name,
                                     all.to_string(), row_bytes, tensor::name_of(dtype));
  }
  const Rows from = Rows::of(all);
  for (const Pick& pick : picks) {
    if (pick.row < 0 || pick.row >= from.count) {
      return base::invalid_argument("row {} of '{}', which has 0 to {}", pick.row, name,
                                    from.count - 1);
    }
    if (row_bytes == 0) continue;
    const std::lock_guard lock(lock_of(pick.row));
    std::memcpy(to + pick.to * row_bytes, from.at + pick.row * from.stride, row_bytes);
  }
  return {};
}

void Replica::each_variable(const Tell& tell) const {
  const std::lock_guard lock(shown_mutex_);
  for (const std::string& name : names()) {
    const Item* const item = find(name);
    if (item->table != nullptr || !item->value.defined()) continue;
    tell(name, item->value.dtype(), item->value.shape());
  }
}

Result<std::shared_ptr<const Table>> Replica::table(std::string_view name) const {
  const Item* const item = find(name);
  if (item != nullptr && item->table != nullptr) return std::shared_ptr<const Table>(item->table);
  return not_found("the replica has no lookup table '{}'", name);
}

Result<const ChangesMade*> Replica::changes_made(std::string_view name) const {
  const Item* const item = find(name);
  if (item != nullptr && item->table == nullptr) return &item->made;
  return not_found("the replica has no variable '{}'", name);
}

}  // namespace sidereal::resources
