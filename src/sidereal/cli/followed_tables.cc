#include "sidereal/cli/followed_tables.h"

#include <cstring>
#include <memory>
#include <utility>

#include "sidereal/ckpt/safetensors.h"
#include "sidereal/ckpt/slice.h"

namespace sidereal::cli {

using service::Parts;
using service::TableLayout;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// One table of its parts.
Tensor put_together(const TableLayout& layout, const std::map<std::string, Tensor>& values) {
  if (layout.variables.size() == 1) return values.at(layout.variables.front());
  Tensor out = Tensor::empty(layout.dtype, Shape{layout.rows, layout.dim});
  const size_t row_bytes = layout.row_bytes();
  if (row_bytes == 0 || layout.rows == 0) return out;
  std::vector<const std::byte*> parts;
  for (const std::string& name : layout.variables) parts.push_back(values.at(name).raw());
  for (int64_t row = 0; row < layout.rows; ++row) {
    const TableLayout::Place place = layout.place(row);
    std::memcpy(out.raw() + static_cast<size_t>(row) * row_bytes,
                parts[place.part] + static_cast<size_t>(place.row) * row_bytes, row_bytes);
  }
  return out;
}

}  // namespace

Result<Tables> tables_of(const std::map<std::string, Tensor>& values, Parts parts,
                         const std::vector<std::string>& wanted, service::PartsSeen* seen) {
  std::map<std::string, service::VariableForm> forms;
  for (const auto& [name, value] : values) forms[name] = {value.dtype(), value.shape()};
  const service::TableLayouts layouts = service::layouts_of(forms, parts, seen);
  std::vector<std::string> names = wanted;
  if (names.empty()) {
    for (const auto& [name, layout] : layouts.tables) names.push_back(name);
  }
  Tables out;
  for (const std::string& name : names) {
    const auto found = layouts.tables.find(name);
    if (found == layouts.tables.end()) {
      if (layouts.others.contains(name)) {
        return base::invalid_argument("'{}' is no table: that is numbers [rows, dim]", name);
      }
      return base::unavailable("there is no table '{}'", name);
    }
    SR_RETURN_IF_ERROR(found->second.status());
    out[name] = put_together(*found->second, values);
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
