#include "sidereal/service/hot_rows_message.h"

#include <optional>
#include <utility>

#include "sidereal/service/session.pb.h"

namespace sidereal::service {

namespace v1 = session::v1;
using resources::RowCount;
using resources::RowCounts;
using task::HotVariable;

namespace {

/// Variables of a task that are looked at.
constexpr size_t kVariablesMax = 65'536;

void to_proto(const RowCounts& counts, v1::RowCounts* to) {
  to->set_total(counts.total);
  for (const RowCount& one : counts.rows) {
    to->add_rows(one.row);
    to->add_counts(one.count);
    to->add_errors(one.error);
  }
}

/// nullopt for counts that no task can have.
std::optional<RowCounts> from_proto(const v1::RowCounts& from) {
  const int size = from.rows_size();
  if (from.total() < 0 || from.counts_size() != size || from.errors_size() != size) {
    return std::nullopt;
  }
  if (static_cast<size_t>(size) > task::kHotRowsMax) return std::nullopt;
  RowCounts out{.total = from.total(), .rows = {}};
  for (int i = 0; i < size; ++i) {
    const RowCount one = {.row = from.rows(i), .count = from.counts(i), .error = from.errors(i)};
    if (one.row < 0 || one.error < 0 || one.error > one.count) return std::nullopt;
    out.rows.push_back(one);
  }
  return out;
}

}  // namespace

void write_hot_variables(const std::vector<HotVariable>& variables, v1::TaskStatus* status) {
  for (const HotVariable& one : variables) {
    v1::HotVariable* const to = status->add_hot_variables();
    to->set_group(one.group);
    to->set_name(one.name);
    to->set_lane(one.lane);
    to->set_rows(one.rows);
    to_proto(one.pulls, to->mutable_pulls());
    to_proto(one.pushes, to->mutable_pushes());
  }
}

std::vector<HotVariable> hot_variables_of(const v1::TaskStatus& status) {
  std::vector<HotVariable> out;
  for (const v1::HotVariable& from : status.hot_variables()) {
    if (out.size() >= kVariablesMax) break;
    std::optional<RowCounts> pulls = from_proto(from.pulls());
    std::optional<RowCounts> pushes = from_proto(from.pushes());
    if (!pulls || !pushes || from.lane() < 0 || from.rows() < -1) continue;
    out.push_back({.group = from.group(),
                   .name = from.name(),
                   .lane = from.lane(),
                   .rows = from.rows(),
                   .pulls = *std::move(pulls),
                   .pushes = *std::move(pushes)});
  }
  return out;
}

}  // namespace sidereal::service
