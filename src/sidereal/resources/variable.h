#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "sidereal/resources/changes_made.h"
#include "sidereal/resources/hot_rows.h"
#include "sidereal/resources/manager.h"
#include "sidereal/resources/owner.h"
#include "sidereal/resources/snapshot.h"
#include "sidereal/resources/staleness.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::resources {

/// What is known of a variable when it is made. Value type.
struct VariableDef {
  std::string name = {};
  tensor::DType dtype = tensor::DType::kFloat32;
  tensor::Shape shape =
      tensor::Shape::unknown_rank();  ///< Of its values; may have unknown extents.
};

/// True when a value of `shape` has what is known of `wanted`: its rank, its extents.
bool fits(const tensor::Shape& wanted, const tensor::Shape& shape);

/// Memory for a tensor.
using Allocate = absl::FunctionRef<tensor::Tensor(tensor::DType, const tensor::Shape&)>;

/// A tensor that steps read and change (TensorFlow: core/framework/resource_var.h, Var). It has
/// memory of its own, or columns of a table whose rows hold weights and slots side by side
/// (RowLayout).
/// Takes no memory but for large values that somebody holds while they are changed.
/// Thread: of one that has an owner, the lane that it belongs to, which locks nothing, but for what
/// does not touch its value: def(), check_same(), bytes(), cancel(). Of another one, any; a change
/// holds a lock from its read to its write.
class Variable final : public Resource, public std::enable_shared_from_this<Variable> {
 public:
  static constexpr std::string_view kKind = "variable";

  /// The value of a variable that nobody else uses meanwhile.
  class Value {
   public:
    [[nodiscard]] tensor::DType dtype() const { return now_.dtype(); }
    [[nodiscard]] const tensor::Shape& shape() const { return now_.shape(); }
    /// "float32[2,3]".
    [[nodiscard]] std::string to_string() const { return now_.to_string(); }
    /// Whether it has columns of a table, and no memory of its own.
    [[nodiscard]] bool is_in_table() const { return stride_ != 0; }

    /// The value as a tensor that does not change with the variable: it shares the variable's
    /// memory, or, of one in a table, is a copy in what `allocate` gives.
    [[nodiscard]] tensor::Tensor get(Allocate allocate) const;
    /// Its rows, to be read before the value is let go of. Not of strings.
    [[nodiscard]] Rows rows() const;
    /// The same, to be written to: those of a copy, when somebody else holds the memory. Any of
    /// them may change, or only `changed`.
    Rows own();
    Rows own(std::span<const int64_t> changed);

   private:
    friend class Variable;
    friend class RowLayout;
    /// Memory for another value of this dtype and shape that nobody else holds.
    void renew();
    /// Copies `value`, which has the same dtype and shape and holds no strings.
    void copy_from(const tensor::Tensor& value);
    Rows own_memory();
    /// To be called before any of it changes.
    void all_will_change();

    tensor::Tensor now_;       // In a table, its first element is that of the first row.
    tensor::Tensor spare_;     // Maybe: what now_ was before, for which others may hold it yet.
    int64_t stride_ = 0;       // Bytes from row to row of the table it is in; 0: it is in none.
    bool has_layout_ = false;  // It will not go into a table any more.
    std::unique_ptr<ValueWatch> watch_;  // Once there was a snapshot.
  };

  /// One that belongs to a lane, or, without an owner, one that threads share. kInvalidArgument for
  /// a dtype that no tensor has.
  static Result<std::shared_ptr<Variable>> make(VariableDef def,
                                                std::shared_ptr<Owner> owner = nullptr);

  [[nodiscard]] std::string_view kind() const override { return kKind; }
  [[nodiscard]] int64_t bytes() const override { return bytes_.load(std::memory_order_relaxed); }
  /// It has no value any more, or, of one that belongs to a lane, soon: programs may know it for
  /// longer than its manager does.
  void cancel() override;
  [[nodiscard]] const VariableDef& def() const { return def_; }
  /// Says whose it is; nullptr: threads share it.
  [[nodiscard]] const std::shared_ptr<Owner>& owner() const { return owner_; }

  /// kInvalidArgument when a variable of `other` cannot be this one.
  [[nodiscard]] Status check_same(const VariableDef& other) const;

  /// Value::get() of the value now. kFailedPrecondition before the first assign().
  [[nodiscard]] Result<tensor::Tensor> read(Allocate allocate = tensor::Tensor::empty) const;
  [[nodiscard]] bool is_initialized() const;

  /// Gives it a copy of `value`: into the memory it has where nobody else holds that. The dtype
  /// must be its own; the shape as well, if `checks_shape`. Calls `then` with the new value.
  Status assign(
      const tensor::Tensor& value, bool checks_shape = true,
      absl::FunctionRef<void(const Value&)> then = [](const Value&) {});

  /// As assign() of a value of its own shape; takes the memory of `value` over where nobody else
  /// holds it. `stride`: bytes from row to row of the table that `value` has columns of, as
  /// RowLayout puts it there, and it stays there; 0: it is in none.
  Status take(tensor::Tensor value, int64_t stride = 0);

  /// What the variable is now, to be read while it changes: all of it, or, of one of whose
  /// snapshots one said `cut` as one of `bases` does, the rows that have changed since. `cut`: not
  /// 0, if a later snapshot is going to ask for that. kFailedPrecondition before the first
  /// assign().
  Result<std::shared_ptr<Snapshot>> snapshot(std::span<const uint64_t> bases = {},
                                             uint64_t cut = 0);
  /// Copies the next rows of a snapshot of this variable, at most `rows_max`, to `to`; of an
  /// increment, which rows they are to `which`. How many; 0 at the end. kAborted when the variable
  /// has been destroyed meanwhile, kResourceExhausted when there was no memory for what has
  /// changed.
  Result<int64_t> read_on(Snapshot* snapshot, int64_t rows_max, std::byte* to, int64_t* which);

  /// Calls `look` with the value. kFailedPrecondition before the first assign().
  Status look(absl::FunctionRef<Status(const Value&)> look) const;
  /// Calls `change(values)` with the values of `variables`, which threads share or which belong to
  /// one lane. kFailedPrecondition when one has no value yet, kInvalidArgument when one is there
  /// twice.
  static Status change(std::span<Variable* const> variables,
                       absl::FunctionRef<Status(std::span<Value* const>)> change);

  /// Thread: as the value, but for what says otherwise.
  [[nodiscard]] Staleness* staleness() { return &staleness_; }
  [[nodiscard]] HotRowsOfCalls* hot_rows() { return &hot_rows_; }
  /// Of closures that may be run again. Thread: as the value, of a variable that has an owner.
  [[nodiscard]] ChangesMade* changes_made() { return &changes_made_; }
  /// As changes_made()->note(), which the change log of its lane has as well.
  void note_made(const ClosureKey& closure, uint64_t change);

 private:
  friend class ChangeLog;

  Variable(VariableDef def, std::shared_ptr<Owner> owner);

  [[nodiscard]] Status uninitialized() const;
  /// Keeps other threads away from the value; there are none of one that has an owner.
  [[nodiscard]] std::unique_lock<std::mutex> lock() const;
  void forget_value();
  /// Where its changes are noted; nullptr: nowhere.
  void log_to(std::shared_ptr<ChangeLog> log, size_t source);
  [[nodiscard]] const ChangeLog* log() const;
  void renew_with(tensor::Tensor value, int64_t stride = 0);

  const VariableDef def_;
  const std::shared_ptr<Owner> owner_;
  const std::unique_ptr<std::mutex> mutex_;  // nullptr: it has an owner.
  Value value_;
  ChangesMade changes_made_;
  Staleness staleness_;
  HotRowsOfCalls hot_rows_;
  std::atomic<int64_t> bytes_ = 0;  // Of the value; changes with it.
};

}  // namespace sidereal::resources
