#include "sidereal/service/table_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "sidereal/base/part_name.h"

namespace sidereal::service {

using tensor::DType;

namespace {

bool is_table(const VariableForm& variable) {
  if (variable.shape.rank() != 2) return false;
  switch (variable.dtype) {
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt8:
      return true;
    default:
      return false;
  }
}

/// A part of a table: its variable, and what is known of it.
using Part = std::pair<std::string, VariableForm>;

/// Of a table that has `count` parts, or more.
Result<TableLayout> layout_of(const std::string& name, const std::map<size_t, Part>& its,
                              Parts parts, size_t count_min) {
  const VariableForm& first = its.begin()->second.second;
  TableLayout out{.dtype = first.dtype, .dim = first.shape.dim(1), .parts = parts};
  for (const auto& [k, part] : its) {
    const auto& [variable, form] = part;
    if (k != out.variables.size()) {
      return base::unavailable("table '{}' lacks its part {}", name, out.variables.size());
    }
    if (form.dtype != out.dtype || form.shape.dim(1) != out.dim) {
      return base::invalid_argument("parts of table '{}' are {} {} and {} {}", name,
                                    tensor::name_of(first.dtype), first.shape.to_string(),
                                    tensor::name_of(form.dtype), form.shape.to_string());
    }
    out.variables.push_back(variable);
    out.begins.push_back(out.rows);
    out.rows += form.shape.dim(0);
  }
  if (its.size() < count_min) {
    return base::unavailable("table '{}' lacks its part {}", name, its.size());
  }
  if (parts != Parts::kModulo) return out;
  const auto count = static_cast<int64_t>(its.size());
  for (const auto& [k, part] : its) {
    const int64_t has = part.second.shape.dim(0);
    const int64_t turns = (out.rows - static_cast<int64_t>(k) + count - 1) / count;
    if (has != turns) {
      return base::invalid_argument(
          "table '{}' has {} rows in {} parts, of which part {} has {}: its rows do not take "
          "turns, as parts of kind 'modulo' do; they may be 'blocks'",
          name, out.rows, count, k, has);
    }
  }
  return out;
}

}  // namespace

Result<Parts> parts_of(std::string_view name) {
  std::string names;
  for (const auto& [one, parts] : kPartsNames) {
    if (one == name) return parts;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", one);
  }
  return base::invalid_argument("parts are one of {}, and not '{}'", names, name);
}

TableLayout::Place TableLayout::place(int64_t row) const {
  if (variables.size() == 1) return {.row = row};
  if (parts == Parts::kModulo) {
    const auto count = static_cast<int64_t>(variables.size());
    return {.part = static_cast<size_t>(row % count), .row = row / count};
  }
  // The last one that begins there: parts may be empty.
  const auto part = std::prev(std::ranges::upper_bound(begins, row));
  return {.part = static_cast<size_t>(part - begins.begin()), .row = row - *part};
}

TableLayouts layouts_of(const std::map<std::string, VariableForm>& variables, Parts parts,
                        PartsSeen* seen) {
  TableLayouts out;
  std::map<std::string, std::map<size_t, Part>> of_tables;
  for (const auto& [name, form] : variables) {
    const std::optional<base::Part> part =
        parts == Parts::kApart ? std::nullopt : base::find_part(name);
    // A slot is of the rows of its part; what a strategy calls again is a table of its own.
    const bool is_part = part.has_value() && !part->is_again && part->slot.empty();
    if (!is_table(form)) {
      out.others.insert(name);
    } else if (is_part) {
      of_tables[std::string(part->table)][static_cast<size_t>(part->number)] = {name, form};
    } else {
      out.tables.emplace(name, layout_of(name, {{0, {name, form}}}, Parts::kApart, 1));
    }
  }
  std::erase_if(*seen, [&](const auto& one) { return !of_tables.contains(one.first); });
  for (const auto& [name, its] : of_tables) {
    size_t& count = (*seen)[name];
    count = std::max(count, its.size());
    out.tables.insert_or_assign(name, layout_of(name, its, parts, count));
  }
  return out;
}

std::vector<std::string> without_slots(const std::vector<std::string>& names) {
  const std::set<std::string, std::less<>> all(names.begin(), names.end());
  std::vector<std::string> out;
  for (const std::string& name : names) {
    std::string_view above = name;
    bool is_slot = false;
    for (size_t end = above.rfind('/'); end != std::string_view::npos && !is_slot;
         end = above.rfind('/')) {
      above = above.substr(0, end);
      is_slot = all.contains(above);
    }
    if (!is_slot) out.push_back(name);
  }
  return out;
}

}  // namespace sidereal::service
