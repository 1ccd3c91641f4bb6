#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "sidereal/resources/manager.h"
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
/// Thread: any; a change holds a lock from its read to its write.
class Variable final : public Resource {
 public:
  static constexpr std::string_view kKind = "variable";

  /// kInvalidArgument for a dtype that no tensor has.
  static Result<std::shared_ptr<Variable>> make(VariableDef def);

  [[nodiscard]] std::string_view kind() const override { return kKind; }
  [[nodiscard]] int64_t bytes() const override;
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

  /// Calls `change(values)`, with the values of `variables` locked; they may be written to once
  /// own() was called for them. kFailedPrecondition when one has no value yet, kInvalidArgument
  /// when one is there twice.
  static Status change(std::span<const std::shared_ptr<Variable>> variables,
                       absl::FunctionRef<Status(std::span<tensor::Tensor* const>)> change);
  /// Makes `value` the only holder of its memory: a copy, when somebody else holds it.
  static void own(tensor::Tensor* value);

 private:
  explicit Variable(VariableDef def) : def_(std::move(def)) {}

  [[nodiscard]] Status uninitialized() const;

  const VariableDef def_;
  mutable std::mutex mutex_;
  tensor::Tensor value_;
};

}  // namespace sidereal::resources
