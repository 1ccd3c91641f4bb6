#include "sidereal/exec/kernel_util.h"
#include "sidereal/ir/attr.h"

namespace sidereal::exec {
namespace {

using tensor::Tensor;

Result<std::unique_ptr<Kernel>> host_function(const BindContext& bind) {
  ports::HostFunctions* const host = bind.environment.host_functions;
  if (host == nullptr) {
    return base::failed_precondition(
        "a function of the embedding program runs in the process of that program only; do this "
        "part outside of the graph, or with ops");
  }
  SR_ASSIGN_OR_RETURN(const auto function,
                      ir::get_attr<int64_t>(bind.instruction.attrs, "function"));
  SR_ASSIGN_OR_RETURN(auto specs, output_components(bind));
  return make_kernel([host, function, specs = std::move(specs)](KernelContext& c) -> Status {
    std::vector<Tensor> inputs;
    // Copies: the function may keep what it is given, and the plan uses that memory again.
    for (int i = 0; i < c.num_inputs(); ++i) inputs.push_back(c.input(i).clone());
    SR_ASSIGN_OR_RETURN(std::vector<Tensor> results, host->call(function, inputs));
    if (results.size() != specs.size()) {
      return base::invalid_argument("the function gave {} values; {} were declared", results.size(),
                                    specs.size());
    }
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].dtype() != specs[i].dtype || !specs[i].shape.accepts(results[i].shape())) {
        return base::invalid_argument("value {} of the function is {}; {} was declared", i,
                                      results[i].to_string(), ir::to_string(specs[i]));
      }
      c.set_output(static_cast<int>(i), std::move(results[i]));
    }
    return {};
  });
}

}  // namespace

void register_host_kernels(KernelTable* table) { table->add("HostFunction", host_function); }

}  // namespace sidereal::exec
