#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
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
  /// Of keys and values.
  [[nodiscard]] int64_t bytes() const override { return bytes_.load(std::memory_order_relaxed); }

  /// Sets the values of `keys`; values are keys.shape + row. A key that repeats keeps the last.
  Status insert(const tensor::Tensor& keys, const tensor::Tensor& values);
  /// The values of `keys` (keys.shape + row); `missing` (row) for those that are not there.
  Result<tensor::Tensor> find(const tensor::Tensor& keys, const tensor::Tensor& missing) const;
  /// Forgets `keys`, those that are there.
  Status remove(const tensor::Tensor& keys);
  [[nodiscard]] int64_t size() const;
  /// All keys and their values, in the order of the keys' bytes.
  [[nodiscard]] std::pair<tensor::Tensor, tensor::Tensor> contents() const;

  /// What has changed since something was last taken: keys that are there, with their values, and
  /// keys that are not, each in the order of their bytes.
  struct Noted {
    tensor::Tensor keys;
    tensor::Tensor values;
    tensor::Tensor removed;
  };
  /// For a change log: notes from here on which keys change.
  void start_noting();
  void stop_noting();
  /// Nothing, when no key has changed.
  std::optional<Noted> take_noted();

 private:
  explicit Table(TableDef def) : def_(std::move(def)) {}

  [[nodiscard]] Status check_keys(const tensor::Tensor& keys) const;

  const TableDef def_;
  mutable std::mutex mutex_;
  absl::flat_hash_map<std::string, std::string> rows_;  // Bytes of the key to bytes of the value.
  std::atomic<int64_t> bytes_ = 0;                      // Of these; changes with them.
  std::optional<absl::flat_hash_set<std::string>> noted_;  // Bytes of keys.
};

}  // namespace sidereal::resources
