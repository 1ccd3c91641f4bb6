#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"

namespace sidereal::dataset {

using tensor::Tensor;

/// What a component of an element is: a tensor, or a list of tensors (a window), each of `spec`.
/// Value type.
struct ComponentSpec {
  ir::TensorSpec spec;
  bool is_list = false;
  friend bool operator==(const ComponentSpec&, const ComponentSpec&) = default;
};

/// "float32[?,8]", or "list of float32[?,8]".
std::string to_string(const ComponentSpec& spec);
std::string to_string(const std::vector<ComponentSpec>& specs);

/// One component of an element. Value type; copies share their bytes.
struct Component {
  Tensor tensor;
  std::shared_ptr<const std::vector<Tensor>> list;  ///< In the place of `tensor`, where not null.
};

/// What a dataset gives out at a time. Value type.
using Element = std::vector<Component>;

/// Ok when `element` is what `specs` say. kInvalidArgument names the component that is not.
Status check_element(const Element& element, const std::vector<ComponentSpec>& specs);

}  // namespace sidereal::dataset
