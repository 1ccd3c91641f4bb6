#include "sidereal/resources/table.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "sidereal/tensor/strings.h"

namespace sidereal::resources {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// The bytes that stand for element, or row, `i` of `t`.
std::string_view bytes_at(const Tensor& t, int64_t i, size_t row_bytes) {
  if (t.dtype() == DType::kString) return t.data<const std::string_view>()[i];
  return {reinterpret_cast<const char*>(t.raw()) + static_cast<size_t>(i) * row_bytes, row_bytes};
}

/// A tensor of `rows`, each the bytes of one.
Tensor from_bytes(DType dtype, const Shape& shape, const std::vector<std::string_view>& rows) {
  if (dtype == DType::kString) return Tensor::strings(shape, rows);
  Tensor out = Tensor::empty(dtype, shape);
  std::byte* to = out.raw();
  for (const std::string_view row : rows) {
    std::memcpy(to, row.data(), row.size());
    to += row.size();
  }
  return out;
}

Shape joined(const Shape& a, const Shape& b) {
  Shape out = a;
  for (const int64_t extent : b.dims()) out.append(extent);
  return out;
}

}  // namespace

Result<std::shared_ptr<Table>> Table::make(TableDef def) {
  const bool good_key =
      def.key == DType::kInt64 || def.key == DType::kInt32 || def.key == DType::kString;
  if (!good_key) {
    return invalid_argument("table '{}' has keys of {}; they must be int32, int64 or string",
                            def.name, tensor::name_of(def.key));
  }
  if (!tensor::is_valid(def.value) || !def.row.is_fully_defined() ||
      (def.value == DType::kString && def.row.rank() > 0)) {
    return invalid_argument("table '{}' cannot have values {}{}", def.name,
                            tensor::name_of(def.value), def.row.to_string());
  }
  return std::shared_ptr<Table>(new Table(std::move(def)));
}

Status Table::check_keys(const Tensor& keys) const {
  if (keys.dtype() == def_.key) return {};
  return invalid_argument("table '{}' has keys of {}; {} are given", def_.name,
                          tensor::name_of(def_.key), keys.to_string());
}

Status Table::insert(const Tensor& keys, const Tensor& values) {
  SR_RETURN_IF_ERROR(check_keys(keys));
  if (values.dtype() != def_.value || !(values.shape() == joined(keys.shape(), def_.row))) {
    return invalid_argument("{} for keys {} of table '{}', whose values are {}{}",
                            values.to_string(), keys.to_string(), def_.name,
                            tensor::name_of(def_.value), def_.row.to_string());
  }
  const size_t key_bytes = tensor::size_of(def_.key);
  const size_t row_bytes =
      tensor::size_of(def_.value) * static_cast<size_t>(def_.row.num_elements());
  const std::lock_guard lock(mutex_);
  for (int64_t i = 0; i < keys.num_elements(); ++i) {
    std::string key(bytes_at(keys, i, key_bytes));
    if (noted_.has_value()) noted_->insert(key);
    const std::string_view value = bytes_at(values, i, row_bytes);
    const auto [it, is_new] = rows_.try_emplace(std::move(key));
    const size_t before = is_new ? 0 : it->first.size() + it->second.size();
    it->second = value;
    bytes_ += static_cast<int64_t>(it->first.size() + value.size()) - static_cast<int64_t>(before);
  }
  return {};
}

Result<Tensor> Table::find(const Tensor& keys, const Tensor& missing) const {
  SR_RETURN_IF_ERROR(check_keys(keys));
  if (missing.dtype() != def_.value || !(missing.shape() == def_.row)) {
    return invalid_argument("default {} for table '{}', whose values are {}{}", missing.to_string(),
                            def_.name, tensor::name_of(def_.value), def_.row.to_string());
  }
  const size_t key_bytes = tensor::size_of(def_.key);
  const std::string_view other = bytes_at(missing, 0, missing.nbytes());
  std::vector<std::string_view> found;
  found.reserve(static_cast<size_t>(keys.num_elements()));
  const std::lock_guard lock(mutex_);
  for (int64_t i = 0; i < keys.num_elements(); ++i) {
    const auto it = rows_.find(std::string(bytes_at(keys, i, key_bytes)));
    found.push_back(it == rows_.end() ? other : std::string_view(it->second));
  }
  return from_bytes(def_.value, joined(keys.shape(), def_.row), found);
}

Status Table::remove(const Tensor& keys) {
  SR_RETURN_IF_ERROR(check_keys(keys));
  const size_t key_bytes = tensor::size_of(def_.key);
  const std::lock_guard lock(mutex_);
  for (int64_t i = 0; i < keys.num_elements(); ++i) {
    std::string key(bytes_at(keys, i, key_bytes));
    const auto it = rows_.find(key);
    if (it == rows_.end()) continue;
    bytes_ -= static_cast<int64_t>(it->first.size() + it->second.size());
    rows_.erase(it);
    if (noted_.has_value()) noted_->insert(std::move(key));
  }
  return {};
}

int64_t Table::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(rows_.size());
}

std::pair<Tensor, Tensor> Table::contents() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string_view, std::string_view>> all(rows_.begin(), rows_.end());
  std::sort(all.begin(), all.end());
  std::vector<std::string_view> keys;
  std::vector<std::string_view> values;
  for (const auto& [key, value] : all) {
    keys.push_back(key);
    values.push_back(value);
  }
  const Shape count{static_cast<int64_t>(all.size())};
  return {from_bytes(def_.key, count, keys),
          from_bytes(def_.value, joined(count, def_.row), values)};
}

void Table::start_noting() {
  const std::lock_guard lock(mutex_);
  noted_.emplace();
}

void Table::stop_noting() {
  const std::lock_guard lock(mutex_);
  noted_.reset();
}

std::optional<Table::Noted> Table::take_noted() {
  const std::lock_guard lock(mutex_);
  if (!noted_.has_value() || noted_->empty()) return std::nullopt;
  std::vector<std::string_view> changed(noted_->begin(), noted_->end());
  std::sort(changed.begin(), changed.end());
  std::vector<std::string_view> keys;
  std::vector<std::string_view> values;
  std::vector<std::string_view> removed;
  for (const std::string_view key : changed) {
    const auto it = rows_.find(std::string(key));
    if (it == rows_.end()) {
      removed.push_back(key);
      continue;
    }
    keys.push_back(key);
    values.push_back(it->second);
  }
  const Shape count{static_cast<int64_t>(keys.size())};
  Noted out{.keys = from_bytes(def_.key, count, keys),
            .values = from_bytes(def_.value, joined(count, def_.row), values),
            .removed = from_bytes(def_.key, Shape{static_cast<int64_t>(removed.size())}, removed)};
  noted_->clear();
  return out;
}

}  // namespace sidereal::resources
