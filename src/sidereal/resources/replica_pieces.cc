#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/resources/replica.h"
#include "sidereal/resources/row_layout.h"
#include "sidereal/resources/snapshot.h"

namespace sidereal::resources {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

std::vector<PushedSoFar> Replica::pushed() const {
  std::vector<PushedSoFar> out;
  for (const auto& [number, lane] : lanes_) {
    if (lane.shown.pushed.has_value()) out.push_back(*lane.shown.pushed);
  }
  return out;
}

std::vector<Replica::Taken> Replica::take_all() {
  std::vector<Taken> out;
  for (auto& [number, lane] : lanes_) {
    for (auto& [name, item] : lane.shown.items) {
      const bool has_value = item.table != nullptr || item.value.defined();
      if (!has_value || find(name) != &item) continue;
      out.push_back({.name = name, .lane = number, .table = item.table, .made = item.made});
    }
  }
  // What is shown was found; its memory becomes that of what takes it.
  for (Taken& taken : out) {
    Item& item = lanes_.at(taken.lane).shown.items.find(taken.name)->second;
    taken.value = std::move(item.value);
    taken.stride = item.stride;
  }
  forget();
  return out;
}

bool Replica::lay_out_next(size_t bytes_max) {
  if (!may_lay_out_) return false;
  bool has_larger = false;
  const auto takes_part = [](const Item& item) {
    return item.has_changed_rows && item.stride == 0 && item.value.defined() && !item.is_going;
  };
  for (auto& [number, lane] : lanes_) {
    Items& items = lane.shown.items;
    for (auto& [name, weights] : items) {
      if (!takes_part(weights)) continue;
      std::vector<Item*> group = {&weights};
      const std::string slots = name + "/";
      for (auto it = items.lower_bound(slots); it != items.end(); ++it) {
        if (!it->first.starts_with(slots)) break;
        if (takes_part(it->second)) group.push_back(&it->second);
      }
      std::vector<Tensor*> values;
      size_t bytes = 0;
      for (Item* const item : group) {
        values.push_back(&item->value);
        bytes += item->value.nbytes();
      }
      if (bytes > bytes_max) {
        has_larger = true;
        continue;
      }
      std::optional<RowLayout> layout = RowLayout::plan(values);
      if (!layout.has_value()) continue;
      layout->move(0, layout->rows());
      layout->finish();
      for (Item* const item : group) {
        if (layout->takes(&item->value)) item->stride = layout->stride();
      }
      return true;
    }
  }
  may_lay_out_ = has_larger;
  return false;
}

void ReplicaPieces::begin_lane() {
  piece_ = 0;
  row_ = 0;
  if (lane_ != replica_.lanes_.end()) item_ = lane_->second.shown.items.begin();
}

std::optional<std::string> ReplicaPieces::next(size_t bytes_max) {
  while (lane_ != replica_.lanes_.end() && !lane_->second.shown.position.has_value()) {
    ++lane_;
    begin_lane();
  }
  if (lane_ == replica_.lanes_.end()) return std::nullopt;
  const Replica::Content& lane = lane_->second.shown;
  EntryWriter to(
      {.kind = EntryKind::kPiece, .lane = lane_->first, .to = *lane.position, .from = piece_++});
  while (item_ != lane.items.end() && to.bytes() < bytes_max) {
    const auto& [name, item] = *item_;
    const bool has_value = item.table != nullptr || item.value.defined();
    const bool is_shown = has_value && replica_.find(name) == &item;
    if (!is_shown || add(name, item, bytes_max - to.bytes(), &to)) {
      ++item_;
      row_ = 0;
    }
  }
  if (item_ == lane.items.end()) {
    to.set_kind(EntryKind::kLastPiece);
    if (lane.pushed.has_value()) to.put_pushed(*lane.pushed);
    ++lane_;
    begin_lane();
  }
  return std::move(to).finish();
}

/// Adds what has room; whether that was the rest of it.
bool ReplicaPieces::add(const std::string& name, const Replica::Item& item, size_t bytes_max,
                        EntryWriter* to) {
  if (item.table != nullptr) return add_keys(name, item, bytes_max, to);
  const Tensor value = item.get();
  const bool has_rows =
      value.dtype() != DType::kString && value.shape().rank() > 0 && value.nbytes() > bytes_max;
  if (row_ == 0 && !has_rows) {
    to->put_value(name, item.home, value);
  } else if (!add_rows(name, item, bytes_max, to)) {
    return false;
  }
  const std::string made = item.made.encode();
  if (!made.empty()) to->put_all_made(name, item.home, made);
  return true;
}

bool ReplicaPieces::add_rows(const std::string& name, const Replica::Item& item, size_t bytes_max,
                             EntryWriter* to) {
  const Rows from = item.rows();
  const size_t row_bytes = item.value.nbytes() / static_cast<size_t>(from.count);
  const int64_t some = std::clamp<int64_t>(
      static_cast<int64_t>(bytes_max / std::max<size_t>(row_bytes, 1)), 1, from.count - row_);
  std::vector<int64_t> rows(static_cast<size_t>(some));
  std::iota(rows.begin(), rows.end(), row_);
  to->put_rows(name, item.home, item.value.dtype(), item.value.shape(), rows,
               [&](size_t i) { return from.at + rows[i] * from.stride; });
  row_ += some;
  return row_ == from.count;
}

bool ReplicaPieces::add_keys(const std::string& name, const Replica::Item& item, size_t bytes_max,
                             EntryWriter* to) {
  if (row_ == 0) keys_ = item.table->contents();
  const auto& [keys, values] = keys_;
  const int64_t count = keys.num_elements();
  constexpr size_t kKeyBytes = 8;
  const size_t row_bytes =
      kKeyBytes + (count == 0 ? 0 : values.nbytes() / static_cast<size_t>(count));
  const int64_t left = count - row_;
  const int64_t some =
      left == 0 ? 0 : std::clamp<int64_t>(static_cast<int64_t>(bytes_max / row_bytes), 1, left);
  to->put_keys(name, item.home, keys.rows(row_, some), values.rows(row_, some),
               Tensor::empty(keys.dtype(), Shape{0}));
  row_ += some;
  return row_ == count;
}

}  // namespace sidereal::resources
