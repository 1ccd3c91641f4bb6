#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/exec/iterator_resource.h"
#include "sidereal/exec/kernel_util.h"
#include "sidereal/exec/resource_util.h"
#include "sidereal/ir/component_specs.h"

namespace sidereal::exec {
namespace {

using resources::Manager;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// Where kernels of datasets read these.
struct Source {
  Manager* manager;
  ports::Datasets* datasets;
  std::string name;
  std::string definition;

  [[nodiscard]] Result<std::shared_ptr<IteratorResource>> open(KernelContext& c) const {
    std::vector<Tensor> values;
    for (int i = 0; i < c.num_inputs(); ++i) values.push_back(c.input(i));
    SR_ASSIGN_OR_RETURN(auto reading, datasets->open(definition, values,
                                                     [manager = manager] { manager->changed(); }));
    return std::make_shared<IteratorResource>(std::move(reading));
  }
};

/// Ends an iterator with the last holder of its handle.
class EndsWithHandle {
 public:
  explicit EndsWithHandle(std::weak_ptr<IteratorResource> iterator)
      : iterator_(std::move(iterator)) {}
  ~EndsWithHandle() {
    if (const auto iterator = iterator_.lock()) iterator->end();
  }
  EndsWithHandle(const EndsWithHandle&) = delete;
  EndsWithHandle& operator=(const EndsWithHandle&) = delete;

 private:
  std::weak_ptr<IteratorResource> iterator_;
};

/// A new iterator each time, whose name nobody else knows.
Status make_for_call(const Source& source, std::vector<std::string>* made, KernelContext& c) {
  static std::atomic<uint64_t> numbers{0};
  std::erase_if(*made, [&](const std::string& name) {
    const auto known = source.manager->find<IteratorResource>(name);
    if (known.ok() && !(*known)->is_over()) return false;
    source.manager->erase(name);
    return true;
  });
  SR_ASSIGN_OR_RETURN(auto iterator, source.open(c));
  std::string name = fmt::format("{}/call_{}", source.name, numbers++);
  SR_RETURN_IF_ERROR(
      source.manager->find_or_create<IteratorResource>(name, [&] { return iterator; }).status());
  Tensor handle = Tensor::strings(Shape(), std::vector<std::string>{name});
  handle.buffer()->keep(std::make_shared<const EndsWithHandle>(iterator));
  made->push_back(std::move(name));
  c.set_output(0, std::move(handle));
  return {};
}

Result<std::unique_ptr<Kernel>> dataset_iterator(const BindContext& bind) {
  Source source;
  SR_ASSIGN_OR_RETURN(source.manager, manager_of(bind));
  source.datasets = bind.environment.datasets;
  if (source.datasets == nullptr) {
    return base::failed_precondition(
        "datasets are read by servers and in functions, not in the lanes of a cluster's training");
  }
  SR_ASSIGN_OR_RETURN(source.name, key_of(bind));
  SR_ASSIGN_OR_RETURN(source.definition,
                      ir::get_attr<std::string>(bind.instruction.attrs, "definition"));
  if (ir::attr_or(bind.instruction.attrs, "of_call", false)) {
    return make_kernel([source = std::move(source),
                        made = std::vector<std::string>()](KernelContext& c) mutable -> Status {
      return make_for_call(source, &made, c);
    });
  }
  return make_kernel([source = std::move(source)](KernelContext& c) -> Status {
    if (!source.manager->find<IteratorResource>(source.name).ok()) {
      SR_ASSIGN_OR_RETURN(auto made, source.open(c));
      SR_RETURN_IF_ERROR(
          source.manager->find_or_create<IteratorResource>(source.name, [&] { return made; })
              .status());
    }
    c.set_output(0, Tensor::strings(Shape(), std::vector<std::string>{source.name}));
    return {};
  });
}

Result<std::shared_ptr<ports::ElementReading>> reading_of(const KernelContext& c,
                                                          const Manager& manager) {
  SR_ASSIGN_OR_RETURN(const auto iterator, find_resource<IteratorResource>(c, 0, manager));
  return iterator->reading();
}

/// Sets the outputs from number `first` on to the components of an element.
Status give_out(std::vector<Tensor>* element, const std::vector<ir::TensorSpec>& specs, int first,
                KernelContext& c) {
  if (element->size() != specs.size()) {
    return base::invalid_argument("an element has {} components; {} were declared", element->size(),
                                  specs.size());
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    Tensor& value = (*element)[i];
    if (value.dtype() != specs[i].dtype || !specs[i].shape.accepts(value.shape())) {
      return base::invalid_argument("component {} is {}; {} was declared", i, value.to_string(),
                                    ir::to_string(specs[i]));
    }
    c.set_output(first + static_cast<int>(i), std::move(value));
  }
  return {};
}

Result<std::unique_ptr<Kernel>> iterator_next(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  SR_ASSIGN_OR_RETURN(auto specs, output_components(bind));
  return make_kernel([manager, specs = std::move(specs)](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const auto reading, reading_of(c, *manager));
    SR_ASSIGN_OR_RETURN(auto element, reading->take());
    if (element.has_value()) return give_out(&*element, specs, 0, c);
    SR_ASSIGN_OR_RETURN(const std::string_view name, handle_of(c, 0));
    return c.wait_for("an element of iterator '{}'", name);
  });
}

/// What stands for an element behind the last one: nothing, as far as the shape is open.
std::vector<Tensor> no_element(const std::vector<ir::TensorSpec>& specs) {
  std::vector<Tensor> out;
  for (const ir::TensorSpec& spec : specs) {
    Shape shape;
    if (spec.shape.has_rank()) {
      for (const int64_t extent : spec.shape.dims()) shape.append(std::max<int64_t>(extent, 0));
    }
    out.push_back(Tensor::zeros(spec.dtype, shape));
  }
  return out;
}

Result<std::unique_ptr<Kernel>> iterator_next_or_end(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  SR_ASSIGN_OR_RETURN(auto specs, ir::component_specs(bind.instruction.attrs));
  if (bind.instruction.outputs.size() != specs.size() + 1) {
    return base::invalid_argument(
        "{} outputs for an element of {} components and whether there is "
        "one",
        bind.instruction.outputs.size(), specs.size());
  }
  return make_kernel([manager, specs = std::move(specs)](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const auto reading, reading_of(c, *manager));
    auto element = reading->take();
    if (element.ok() && !element->has_value()) {
      SR_ASSIGN_OR_RETURN(const std::string_view name, handle_of(c, 0));
      return c.wait_for("an element of iterator '{}'", name);
    }
    const bool is_end = element.status().code() == StatusCode::kOutOfRange;
    if (!is_end) SR_RETURN_IF_ERROR(element.status());
    c.set_output(0, Tensor::scalar(!is_end));
    std::vector<Tensor> values = is_end ? no_element(specs) : **std::move(element);
    return give_out(&values, specs, 1, c);
  });
}

/// Goes on with what a reading does on another thread: begins it in the first run.
template <class Begin>
Result<std::optional<std::string>> run_work(KernelContext& c, Begin begin) {
  std::shared_ptr<void>& state = c.waiting_state();
  if (state == nullptr) state = std::shared_ptr<ports::ReadingWork>(begin());
  const auto done = std::static_pointer_cast<ports::ReadingWork>(state)->poll();
  if (!done.has_value()) return std::nullopt;
  state.reset();
  SR_ASSIGN_OR_RETURN(std::string result, *done);
  return result;
}

Result<std::unique_ptr<Kernel>> iterator_save(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  return make_kernel([manager](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const auto reading, reading_of(c, *manager));
    SR_ASSIGN_OR_RETURN(auto position, run_work(c, [&] { return reading->save(); }));
    SR_ASSIGN_OR_RETURN(const std::string_view name, handle_of(c, 0));
    if (!position) return c.wait_for("the position of iterator '{}'", name);
    c.set_output(0, Tensor::strings(Shape(), std::vector<std::string>{*std::move(position)}));
    return {};
  });
}

Result<std::unique_ptr<Kernel>> iterator_restore(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  return make_kernel([manager](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_dtype(c, 1, DType::kString));
    SR_RETURN_IF_ERROR(check_rank(c, 1, 0));
    SR_ASSIGN_OR_RETURN(const auto reading, reading_of(c, *manager));
    SR_ASSIGN_OR_RETURN(const auto done, run_work(c, [&] {
                          return reading->restore(std::string(c.in<std::string_view>(1)[0]));
                        }));
    SR_ASSIGN_OR_RETURN(const std::string_view name, handle_of(c, 0));
    if (!done) return c.wait_for("iterator '{}' to go to a position", name);
    c.set_output(0, Tensor::scalar(true));
    return {};
  });
}

}  // namespace

void register_iterator_kernels(KernelTable* table) {
  table->add("DatasetIterator",
             with_arity(0, -1, 1, with_outputs({DType::kString}, dataset_iterator)));
  table->add("IteratorNext", with_arity(1, 1, -1, iterator_next));
  table->add("IteratorNextOrEnd", with_arity(1, 1, -1, iterator_next_or_end));
  table->add("IteratorSave", with_arity(1, 1, 1, with_outputs({DType::kString}, iterator_save)));
  table->add("IteratorRestore",
             with_arity(2, 2, 1, with_outputs({DType::kBool}, iterator_restore)));
}

}  // namespace sidereal::exec
