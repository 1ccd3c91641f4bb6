#pragma once

#include <memory>
#include <string>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/resources/variable.h"

/// Helpers for kernels of what steps share by name. Internal to exec.
namespace sidereal::exec {

/// Where the resources of this place are; kFailedPrecondition where it has none.
Result<resources::Manager*> manager_of(const BindContext& bind);

/// The key in a resources::Manager that the attributes "container" and "shared_name" say.
Result<std::string> key_of(const BindContext& bind);

/// The resource whose handle is input `i`.
template <class T>
Result<std::shared_ptr<T>> find_resource(const KernelContext& c, int i,
                                         const resources::Manager& manager) {
  SR_RETURN_IF_ERROR(check_dtype(c, i, tensor::DType::kString));
  SR_RETURN_IF_ERROR(check_rank(c, i, 0));
  return manager.find<T>(c.in<std::string_view>(i)[0]);
}

/// The variable whose handle is input `i`.
inline Result<std::shared_ptr<resources::Variable>> find_variable(
    const KernelContext& c, int i, const resources::Manager& manager) {
  return find_resource<resources::Variable>(c, i, manager);
}

}  // namespace sidereal::exec
