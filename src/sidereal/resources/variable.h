#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "sidereal/resources/manager.h"
#include "sidereal/sys/posix/biased_mutex.h"
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

/// A tensor that steps read and change (TensorFlow: core/framework/resource_var.h, Var).
/// Thread: any; a change holds a lock from its read to its write, which is none for a lane that has
/// the variable to itself (sys::posix::BiasedMutex). Takes no memory but for large values that
/// somebody holds while they are changed.
class Variable final : public Resource {
 public:
  static constexpr std::string_view kKind = "variable";

  /// The value of a variable that is locked.
  class Value {
   public:
    [[nodiscard]] const tensor::Tensor& get() const { return now_; }
    /// The same, to be written to: a copy, when somebody else holds its memory.
    tensor::Tensor& own();

   private:
    friend class Variable;
    /// Memory for another value of this dtype and shape that nobody else holds.
    void renew();

    tensor::Tensor now_;
    tensor::Tensor spare_;  // Maybe: what now_ was before, for which others may hold it yet.
  };

  /// kInvalidArgument for a dtype that no tensor has.
  static Result<std::shared_ptr<Variable>> make(VariableDef def);

  [[nodiscard]] std::string_view kind() const override { return kKind; }
  [[nodiscard]] int64_t bytes() const override { return bytes_.load(std::memory_order_relaxed); }
  /// It has no value any more: programs may know it for longer than its manager does.
  void cancel() override;
  [[nodiscard]] const VariableDef& def() const { return def_; }

  /// kInvalidArgument when a variable of `other` cannot be this one.
  [[nodiscard]] Status check_same(const VariableDef& other) const;

  /// The value now, which shares its memory and does not change with the variable.
  /// kFailedPrecondition before the first assign().
  [[nodiscard]] Result<tensor::Tensor> read() const;
  [[nodiscard]] bool is_initialized() const;

  /// Gives it a copy of `value`: into the memory it has where nobody else holds that. The dtype
  /// must be its own; the shape as well, if `checks_shape`. Returns the new value.
  Result<tensor::Tensor> assign(const tensor::Tensor& value, bool checks_shape = true);

  /// Calls `change(values)`, with the values of `variables` locked. kFailedPrecondition when one
  /// has no value yet, kInvalidArgument when one is there twice.
  static Status change(std::span<Variable* const> variables,
                       absl::FunctionRef<Status(std::span<Value* const>)> change);

 private:
  explicit Variable(VariableDef def) : def_(std::move(def)) {}

  [[nodiscard]] Status uninitialized() const;

  const VariableDef def_;
  mutable sys::posix::BiasedMutex mutex_;
  Value value_;
  std::atomic<int64_t> bytes_ = 0;  // Of the value. Changed with mutex_.
};

}  // namespace sidereal::resources
