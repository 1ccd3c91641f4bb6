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
  if (!is_piece && (known == lanes_.end() || !known->second.position.has_value())) {
    return out_of_range("changes of lane {} come before its snapshot", number);
  }
  Lane& lane = lanes_[number];
  return base::with_context(is_piece ? apply_piece(&lane, entry) : apply_changes(&lane, entry),
                            fmt::format("lane {}", number));
}

Status Replica::apply_changes(Lane* lane, const Entry& entry) const {
  const EntryHead& head = entry.head;
  LogPosition& position = *lane->position;
  if (head.to.incarnation != position.incarnation) {
    return out_of_range("its log was opened anew: take a snapshot");
  }
  if (head.to.cut <= position.cut) return {};
  if (head.from != position.cut) {
    return out_of_range("changes from cut {} to {} come where those from cut {} are next",
                        head.from, head.to.cut, position.cut);
  }
  SR_RETURN_IF_ERROR(check(entry, lane->items));
  for (const Section& section : entry.sections) put(section, /*is_piece=*/false, &lane->items);
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
  for (const Section& section : entry.sections) put(section, /*is_piece=*/true, &lane->arrived);
  if (head.kind != EntryKind::kLastPiece) return {};
  lane->items = std::exchange(lane->arrived, {});
  lane->position = std::exchange(lane->arriving, {});
  lane->opening = openings_.try_emplace(head.to.incarnation, openings_.size()).first->second;
  lane->pieces = 0;
  return {};
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
    }
    if (bytes > bytes_max_) break;
  }
  if (bytes == 0) return {};
  const size_t has = this->bytes();
  if (bytes <= bytes_max_ && has <= bytes_max_ - bytes) return {};
  return base::resource_exhausted("{} bytes are added to {}, and the replica may have {}", bytes,
                                  has, bytes_max_);
}

/// What check() has found to be good.
void Replica::put(const Section& section, bool is_piece, Items* items) {
  const std::string name(section.name);
  const auto found = items->find(name);
  if (section.kind == SectionKind::kGone && !is_piece) {
    if (found != items->end() && found->second.home == section.home) items->erase(found);
    return;
  }
  Item& item = found == items->end() ? (*items)[name] : found->second;
  if (item.home != section.home) item = {.home = section.home};
  if (item.is_going && is_of_parts(section.kind)) return;
  switch (section.kind) {
    case SectionKind::kValue:
      item.made = {};
      item.is_going = false;
      if (section.dtype != DType::kString && item.value.defined() &&
          item.value.dtype() == section.dtype && item.value.shape() == section.shape) {
        if (!section.bytes.empty()) {
          std::memcpy(item.value.raw(), section.bytes.data(), section.bytes.size());
        }
      } else {
        item.value = *value_of(section);
      }
      return;
    case SectionKind::kRows: {
      if (!item.value.defined()) item.value = Tensor::zeros(section.dtype, section.shape);
      const Rows to = Rows::of(item.value);
      const size_t row_bytes =
          section.rows.empty() ? 0 : section.bytes.size() / section.rows.size();
      const char* from = section.bytes.data();
      for (const int64_t row : section.rows) {
        std::memcpy(to.at + row * to.stride, from, row_bytes);
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
      item = {.home = section.home, .is_going = true};
      return;
  }
}

size_t Replica::bytes() const {
  size_t out = 0;
  for (const auto& [number, lane] : lanes_) {
    for (const Items* const items : {&lane.items, &lane.arrived}) {
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
  uint64_t opening = 0;
  for (const auto& [number, lane] : lanes_) {
    const auto it = lane.items.find(name);
    if (it == lane.items.end() || it->second.is_going) continue;
    if (out != nullptr &&
        std::pair(lane.opening, it->second.home) < std::pair(opening, out->home)) {
      continue;
    }
    out = &it->second;
    opening = lane.opening;
  }
  return out;
}

std::optional<LogPosition> Replica::position(int lane) const {
  const auto it = lanes_.find(lane);
  return it == lanes_.end() ? std::nullopt : it->second.position;
}

std::vector<std::string> Replica::names() const {
  std::set<std::string> out;
  for (const auto& [number, lane] : lanes_) {
    for (const auto& [name, item] : lane.items) {
      if (!item.is_going) out.insert(name);
    }
  }
  return {out.begin(), out.end()};
}

Result<Tensor> Replica::value(std::string_view name) const {
  const Item* const item = find(name);
  if (item != nullptr && item->table == nullptr) return item->value;
  return not_found("the replica has no variable '{}'", name);
}

Status Replica::look_up(std::string_view name, std::span<const int64_t> rows,
                        std::span<std::byte> to) const {
  SR_ASSIGN_OR_RETURN(const Tensor all, value(name));
  if (all.dtype() == DType::kString) return base::invalid_argument("'{}' has strings", name);
  const Rows from = Rows::of(all);
  const size_t row_bytes = static_cast<size_t>(from.width) * tensor::size_of(all.dtype());
  if (to.size() != rows.size() * row_bytes) {
    return base::invalid_argument("{} rows of '{}' have {} bytes, and there is room for {}",
                                  rows.size(), name, rows.size() * row_bytes, to.size());
  }
  std::byte* at = to.data();
  for (const int64_t row : rows) {
    if (row < 0 || row >= from.count) {
      return base::invalid_argument("row {} of '{}', which has 0 to {}", row, name, from.count - 1);
    }
    if (row_bytes > 0) std::memcpy(at, from.at + row * from.stride, row_bytes);
    at += row_bytes;
  }
  return {};
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
