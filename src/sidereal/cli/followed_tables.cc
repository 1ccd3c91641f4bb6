#include "sidereal/cli/followed_tables.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "sidereal/ckpt/safetensors.h"
#include "sidereal/ckpt/slice.h"

namespace sidereal::cli {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

constexpr std::string_view kPart = "/part_";

struct PartName {
  std::string table;
  size_t part = 0;
};

/// "emb/part_3": part 3 of emb.
std::optional<PartName> part_of(std::string_view name) {
  const size_t at = name.rfind(kPart);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const std::string_view digits = name.substr(at + kPart.size());
  PartName out{.table = std::string(name.substr(0, at))};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out.part);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return out;
}

bool is_table(const Tensor& value) {
  if (value.shape().rank() != 2) return false;
  switch (value.dtype()) {
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

/// One table of its parts.
Result<Tensor> put_together(const std::string& name, const std::map<size_t, Tensor>& parts,
                            Parts how) {
  const size_t count = parts.rbegin()->first + 1;
  const Tensor& first = parts.begin()->second;
  int64_t rows = 0;
  for (size_t k = 0; k < count; ++k) {
    const auto part = parts.find(k);
    if (part == parts.end()) {
      return base::unavailable("table '{}' lacks its part {}", name, k);
    }
    const Tensor& value = part->second;
    if (value.dtype() != first.dtype() || value.shape().dim(1) != first.shape().dim(1)) {
      return base::invalid_argument("parts of table '{}' are {} and {}", name, first.to_string(),
                                    value.to_string());
    }
    rows += value.shape().dim(0);
  }
  const int64_t dim = first.shape().dim(1);
  Tensor out = Tensor::empty(first.dtype(), Shape{rows, dim});
  const size_t row_bytes = static_cast<size_t>(dim) * tensor::size_of(first.dtype());
  if (row_bytes == 0) return out;
  auto* to = reinterpret_cast<std::byte*>(out.raw());
  if (how == Parts::kBlocks) {
    for (const auto& [k, value] : parts) {
      if (value.nbytes() == 0) continue;
      std::memcpy(to, value.raw(), value.nbytes());
      to += value.nbytes();
    }
    return out;
  }
  for (const auto& [k, value] : parts) {
    const auto* from = reinterpret_cast<const std::byte*>(value.raw());
    for (int64_t i = 0; i < value.shape().dim(0); ++i) {
      const size_t row = static_cast<size_t>(i) * count + k;
      if (row >= static_cast<size_t>(rows)) {
        return base::invalid_argument(
            "table '{}' has {} rows in {} parts, of which part {} has {}: its rows do not take "
            "turns; see --parts",
            name, rows, count, k, value.shape().dim(0));
      }
      std::memcpy(to + row * row_bytes, from + static_cast<size_t>(i) * row_bytes, row_bytes);
    }
  }
  return out;
}

}  // namespace

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

Result<Tables> tables_of(const std::map<std::string, Tensor>& values, Parts parts,
                         const std::vector<std::string>& wanted) {
  Tables out;
  std::map<std::string, std::map<size_t, Tensor>> in_parts;
  std::set<std::string> others;
  for (const auto& [name, value] : values) {
    const std::optional<PartName> part = parts == Parts::kApart ? std::nullopt : part_of(name);
    if (!is_table(value)) {
      others.insert(name);
    } else if (part.has_value()) {
      in_parts[part->table][part->part] = value;
    } else {
      out[name] = value;
    }
  }
  const auto is_wanted = [&](const std::string& name) {
    return wanted.empty() || std::ranges::find(wanted, name) != wanted.end();
  };
  std::erase_if(out, [&](const auto& one) { return !is_wanted(one.first); });
  for (const auto& [name, its] : in_parts) {
    if (!is_wanted(name)) continue;
    SR_ASSIGN_OR_RETURN(out[name], put_together(name, its, parts));
  }
  for (const std::string& name : wanted) {
    if (out.contains(name)) continue;
    if (others.contains(name)) {
      return base::invalid_argument("'{}' is no table: that is numbers [rows, dim]", name);
    }
    return base::unavailable("there is no table '{}'", name);
  }
  return out;
}

Status write_tables(const std::string& path, const Tables& tables) {
  std::vector<ckpt::StoredTensor> stored;
  for (const auto& [name, value] : tables) {
    stored.push_back({.name = name, .dtype = value.dtype(), .shape = value.shape()});
  }
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::TensorWriter> writer,
                      ckpt::create_safetensors(path, stored));
  for (const ckpt::StoredTensor& one : stored) {
    SR_RETURN_IF_ERROR(writer->add(one, ckpt::whole_slice(one.shape), tables.at(one.name)));
  }
  return writer->finish();
}

}  // namespace sidereal::cli
