#include "sidereal/dataset/element.h"

#include "sidereal/base/strings.h"

namespace sidereal::dataset {
namespace {

bool fits(const Tensor& tensor, const ir::TensorSpec& spec) {
  return tensor.defined() && tensor.dtype() == spec.dtype && spec.shape.accepts(tensor.shape());
}

}  // namespace

std::string to_string(const ComponentSpec& spec) {
  return (spec.is_list ? "list of " : "") + ir::to_string(spec.spec);
}

std::string to_string(const std::vector<ComponentSpec>& specs) {
  std::vector<std::string> texts;
  for (const ComponentSpec& spec : specs) texts.push_back(to_string(spec));
  return "(" + base::join(texts, ", ") + ")";
}

Status check_element(const Element& element, const std::vector<ComponentSpec>& specs) {
  if (element.size() != specs.size()) {
    return base::invalid_argument("an element has {} components where {} are expected",
                                  element.size(), to_string(specs));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    const Component& component = element[i];
    if (specs[i].is_list != (component.list != nullptr)) {
      return base::invalid_argument("component {} is not a {}", i, to_string(specs[i]));
    }
    if (component.list == nullptr) {
      if (fits(component.tensor, specs[i].spec)) continue;
      return base::invalid_argument(
          "component {} is {} where {} is expected", i,
          component.tensor.defined() ? component.tensor.to_string() : "nothing",
          to_string(specs[i]));
    }
    for (const Tensor& tensor : *component.list) {
      if (fits(tensor, specs[i].spec)) continue;
      return base::invalid_argument("component {} has {} in a {}", i,
                                    tensor.defined() ? tensor.to_string() : "nothing",
                                    to_string(specs[i]));
    }
  }
  return {};
}

}  // namespace sidereal::dataset
