#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "sidereal/eager/engine.h"

namespace sidereal::eager {

/// What was run on values that are watched, in order, to be gone back through. An op is recorded
/// when one of its inputs is watched or came out of an op that was recorded.
/// Thread: core-local. Must be removed from its engine before it dies.
class Tape {
 public:
  /// From now on what is made of `value` is recorded.
  void watch(const Value& value);

  [[nodiscard]] bool tracks(std::span<const Value* const> inputs) const;

  void record_op(Engine& engine, const ir::OpSchema& schema, const ir::AttrMap& attrs,
                 std::span<const Value* const> inputs, std::span<const Value> outputs,
                 uint64_t step);
  void record_function(std::string_view what, std::span<const Value* const> inputs,
                       std::span<const Value> outputs, const std::shared_ptr<Backward>& backward);

  /// Gradients of the targets' sum, each weighted by its `seeds` value (undefined: ones), by the
  /// values whose numbers are `sources`; undefined where none flows. What this runs is recorded by
  /// the tapes that listen, this one too if it does.
  /// kInvalidArgument for a target that is not a float; kUnimplemented naming an op without
  /// gradient on the way.
  Result<std::vector<Gradient>> gradient(Engine& engine, std::span<const Value> targets,
                                         std::span<const Value> seeds,
                                         std::span<const uint64_t> sources) const;

  /// Forgets everything recorded and watched.
  void clear();

  /// Calls recorded.
  [[nodiscard]] size_t size() const { return entries_.size(); }

 private:
  class Reverse;

  /// One op, or a function with its own backward.
  struct Entry {
    const ir::OpSchema* schema = nullptr;
    std::shared_ptr<Backward> backward;
    ir::AttrMap attrs;
    std::vector<Value> inputs;
    std::vector<Value> outputs;
    uint64_t step = 0;
    std::string name;  ///< Of a function; of an op without gradient: the line that ran it.
  };

  void add(Entry entry);

  std::vector<std::shared_ptr<const Entry>> entries_;
  absl::flat_hash_set<uint64_t> tracked_;
};

}  // namespace sidereal::eager
