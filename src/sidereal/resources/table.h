#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sidereal/resources/manager.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::resources {

/// What is known of a table when it is made. Value type.
struct TableDef {
  std::string name = {};
  tensor::DType key = tensor::DType::kInt64;    ///< int32, int64 or string.
  tensor::DType value = tensor::DType::kInt64;  ///< Anything.
  tensor::Shape row = {};                       ///< Of a value; () for strings.
};

/// Values by key, which change while steps run (tf.lookup.experimental.MutableHashTable).
/// Thread: any.
class Table final : public Resource {
 public:
  static constexpr std::string_view kKind = "table";

  /// kInvalidArgument for dtypes or shapes that a table cannot have.
  static Result<std::shared_ptr<Table>> make(TableDef def);

  [[nodiscard]] std::string_view kind() const override { return kKind; }
  [[nodiscard]] const TableDef& def() const { return def_; }

  /// Sets the values of `keys`; values are keys.shape + row. A key that repeats keeps the last.
  Status insert(const tensor::Tensor& keys, const tensor::Tensor& values);
  /// The values of `keys` (keys.shape + row); `missing` (row) for those that are not there.
  Result<tensor::Tensor> find(const tensor::Tensor& keys, const tensor::Tensor& missing) const;
  /// Forgets `keys`, those that are there.
  Status remove(const tensor::Tensor& keys);
  [[nodiscard]] int64_t size() const;
  /// All keys and their values, in the order of the keys' bytes.
  [[nodiscard]] std::pair<tensor::Tensor, tensor::Tensor> contents() const;

 private:
  explicit Table(TableDef def) : def_(std::move(def)) {}

  [[nodiscard]] Status check_keys(const tensor::Tensor& keys) const;

  const TableDef def_;
  mutable std::mutex mutex_;
  absl::flat_hash_map<std::string, std::string> rows_;  // Bytes of the key to bytes of the value.
};

}  // namespace sidereal::resources
