#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/resources/variable.h"

/// Helpers for kernels of what steps share by name. Internal to exec.
namespace sidereal::exec {

/// Where the resources of this place are; kFailedPrecondition where it has none.
Result<resources::Manager*> manager_of(const BindContext& bind);

/// The key in a resources::Manager that the attributes "container" and "shared_name" say.
Result<std::string> key_of(const BindContext& bind);

/// The key in a resources::Manager of the resource whose handle is input `i`; lasts as long as
/// that.
inline Result<std::string_view> handle_of(const KernelContext& c, int i) {
  SR_RETURN_IF_ERROR(check_dtype(c, i, tensor::DType::kString));
  SR_RETURN_IF_ERROR(check_rank(c, i, 0));
  return c.in<std::string_view>(i)[0];
}

/// The resource whose handle is input `i`.
template <class T>
Result<std::shared_ptr<T>> find_resource(const KernelContext& c, int i,
                                         const resources::Manager& manager) {
  SR_ASSIGN_OR_RETURN(const std::string_view key, handle_of(c, i));
  SR_ASSIGN_OR_RETURN(std::shared_ptr<T> found, manager.find<T>(key));
  found->note_use();
  return found;
}

/// Whose a variable is going to be that a program of `lane` makes: "w/Adagrad" belongs to the lane
/// that has "w", if there is that, and others go round; but where lanes are planned, to `lane`.
/// nullptr without lanes.
std::shared_ptr<resources::Owner> owner_of_new(std::string_view name,
                                               const resources::Manager& manager,
                                               VariableLanes* lanes, int lane);

/// A variable that a kernel uses, which it looks for by name once: a step that it runs again takes
/// neither a lock nor memory for it. It may be known here for longer than its manager does, and has
/// no value then.
/// Thread: core-local, as kernels are.
class KnownVariable {
 public:
  /// The variable whose handle is input `i`.
  Result<resources::Variable*> of_input(const KernelContext& c, int i,
                                        const resources::Manager& manager) {
    SR_ASSIGN_OR_RETURN(const std::string_view name, handle_of(c, i));
    return named(name, manager);
  }
  /// The variable whose handle says `name`.
  Result<resources::Variable*> named(std::string_view name, const resources::Manager& manager) {
    return find(name, manager.forgotten(), [&] { return manager.find<resources::Variable>(name); });
  }
  /// The variable `def`, which is made when there is none: for `lane` where lanes are planned, else
  /// beside the one that it is a slot of. kInvalidArgument when there is another one of its name.
  Result<resources::Variable*> made(const resources::VariableDef& def, resources::Manager* manager,
                                    VariableLanes* lanes, int lane) {
    return find(def.name, manager->forgotten(), [&] {
      return made_for(owner_of_new(def.name, *manager, lanes, lane), def, manager);
    });
  }
  /// Likewise, for `lane` in any case.
  Result<resources::Variable*> made_for_lane(const resources::VariableDef& def,
                                             resources::Manager* manager, VariableLanes* lanes,
                                             int lane) {
    return find(def.name, manager->forgotten(), [&] {
      auto owner = lanes == nullptr ? nullptr : std::make_shared<resources::Owner>(lanes, lane);
      return made_for(std::move(owner), def, manager);
    });
  }

 private:
  static Result<std::shared_ptr<resources::Variable>> made_for(
      std::shared_ptr<resources::Owner> owner, const resources::VariableDef& def,
      resources::Manager* manager) {
    return manager->find_or_create<resources::Variable>(
        def.name, [&] { return *resources::Variable::make(def, std::move(owner)); });
  }

  template <class Find>
  Result<resources::Variable*> find(std::string_view name, uint64_t forgotten, Find look) {
    if (found_ == nullptr || forgotten != forgotten_ || name != found_->def().name) {
      SR_ASSIGN_OR_RETURN(found_, look());
      found_->note_use();
      forgotten_ = forgotten;
    }
    return found_.get();
  }

  std::shared_ptr<resources::Variable> found_;
  uint64_t forgotten_ = 0;
};

/// What a kernel gives out of a variable.
class GivenOut {
 public:
  /// `bind`: of the kernel, whose output 0 it is.
  explicit GivenOut(const BindContext& bind) : is_read_(is_read(bind, 0)) {}

  /// Gives `value` out, if somebody reads it and it has the dtype that the program declares.
  Status operator()(KernelContext& c, const resources::Variable::Value& value) const {
    if (value.dtype() != c.output_dtype(0)) {
      return base::invalid_argument("the variable holds {}; {} was declared", value.to_string(),
                                    tensor::name_of(c.output_dtype(0)));
    }
    if (is_read_)
      c.set_output(0, value.get([&c](tensor::DType dtype, const tensor::Shape& shape) {
        return c.temporary(dtype, shape);
      }));
    return {};
  }

 private:
  bool is_read_;
};

}  // namespace sidereal::exec
