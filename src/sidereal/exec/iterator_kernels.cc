#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/exec/iterator_resource.h"
#include "sidereal/exec/kernel_util.h"
#include "sidereal/exec/resource_util.h"

namespace sidereal::exec {
namespace {

using resources::Manager;
using tensor::DType;
using tensor::Tensor;

Result<std::unique_ptr<Kernel>> dataset_iterator(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  ports::Datasets* const datasets = bind.environment.datasets;
  if (datasets == nullptr) {
    return base::failed_precondition(
        "datasets are read by servers and in functions, not in the lanes of a cluster's training");
  }
  SR_ASSIGN_OR_RETURN(std::string name, key_of(bind));
  SR_ASSIGN_OR_RETURN(std::string definition,
                      ir::get_attr<std::string>(bind.instruction.attrs, "definition"));
  return make_kernel([=](KernelContext& c) -> Status {
    if (!manager->find<IteratorResource>(name).ok()) {
      std::vector<Tensor> values;
      for (int i = 0; i < c.num_inputs(); ++i) values.push_back(c.input(i));
      SR_ASSIGN_OR_RETURN(auto reading,
                          datasets->open(definition, values, [manager] { manager->changed(); }));
      auto made = std::make_shared<IteratorResource>(std::move(reading));
      SR_RETURN_IF_ERROR(
          manager->find_or_create<IteratorResource>(name, [&] { return made; }).status());
    }
    c.set_output(0, Tensor::strings({}, std::vector<std::string>{name}));
    return {};
  });
}

Result<std::unique_ptr<Kernel>> iterator_next(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  SR_ASSIGN_OR_RETURN(auto specs, output_components(bind));
  return make_kernel([manager, specs = std::move(specs)](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const auto iterator, find_resource<IteratorResource>(c, 0, *manager));
    SR_ASSIGN_OR_RETURN(auto element, iterator->reading().take());
    if (!element.has_value()) {
      SR_ASSIGN_OR_RETURN(const std::string_view name, handle_of(c, 0));
      return c.wait_for("an element of iterator '{}'", name);
    }
    if (element->size() != specs.size()) {
      return base::invalid_argument("an element has {} components; {} were declared",
                                    element->size(), specs.size());
    }
    for (size_t i = 0; i < specs.size(); ++i) {
      Tensor& value = (*element)[i];
      if (value.dtype() != specs[i].dtype || !specs[i].shape.accepts(value.shape())) {
        return base::invalid_argument("component {} is {}; {} was declared", i, value.to_string(),
                                      ir::to_string(specs[i]));
      }
      c.set_output(static_cast<int>(i), std::move(value));
    }
    return {};
  });
}

}  // namespace

void register_iterator_kernels(KernelTable* table) {
  table->add("DatasetIterator",
             with_arity(0, -1, 1, with_outputs({DType::kString}, dataset_iterator)));
  table->add("IteratorNext", with_arity(1, 1, -1, iterator_next));
}

}  // namespace sidereal::exec
