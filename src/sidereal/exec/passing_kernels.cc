#include <optional>
#include <utility>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/ir/attr.h"

/// Send and Recv: see ports::Rendezvous.
namespace sidereal::exec {
namespace {

using tensor::Tensor;

Result<ports::Rendezvous*> rendezvous_of(const KernelContext& c) {
  if (c.rendezvous() != nullptr) return c.rendezvous();
  return base::failed_precondition("this program runs alone: nobody passes tensors to it");
}

Result<std::unique_ptr<Kernel>> send(const BindContext& bind) {
  SR_RETURN_IF_ERROR(check_arity(bind, 1, 1, 0));
  SR_ASSIGN_OR_RETURN(const auto edge, ir::get_attr<int64_t>(bind.instruction.attrs, "edge"));
  return make_kernel([edge](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(ports::Rendezvous* const rendezvous, rendezvous_of(c));
    return rendezvous->send({.edge = edge, .step = c.step_id()}, c.input(0));
  });
}

Result<std::unique_ptr<Kernel>> recv(const BindContext& bind) {
  SR_RETURN_IF_ERROR(check_arity(bind, 0, 0, 1));
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(const auto edge, ir::get_attr<int64_t>(attrs, "edge"));
  SR_ASSIGN_OR_RETURN(const auto name, ir::get_attr<std::string>(attrs, "tensor_name"));
  ports::TensorSource source;
  SR_ASSIGN_OR_RETURN(source.device, ir::get_attr<std::string>(attrs, "send_device"));
  source.incarnation =
      static_cast<uint64_t>(ir::attr_or<int64_t>(attrs, "send_device_incarnation", 0));
  const ir::Shape shape = bind.program.slots[bind.instruction.outputs[0]].shape;
  return make_kernel([=](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(ports::Rendezvous* const rendezvous, rendezvous_of(c));
    SR_ASSIGN_OR_RETURN(std::optional<Tensor> value,
                        rendezvous->receive({.edge = edge, .step = c.step_id()}, source));
    if (!value) return c.wait_for(fmt::format("tensor '{}' from {}", name, source.device));
    if (value->dtype() != c.output_dtype(0) || !shape.accepts(value->shape())) {
      return base::invalid_argument("{} sent {}; {}{} was declared", source.device,
                                    value->to_string(), tensor::name_of(c.output_dtype(0)),
                                    shape.to_string());
    }
    c.set_output(0, *std::move(value));
    return {};
  });
}

}  // namespace

void register_passing_kernels(KernelTable* table) {
  table->add("Send", send);
  table->add("Recv", recv);
}

}  // namespace sidereal::exec
