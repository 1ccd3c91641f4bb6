#include <span>
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
  if (bind.instruction.inputs.empty() || !bind.instruction.outputs.empty()) {
    return base::invalid_argument("Send takes one tensor or more, and makes none");
  }
  SR_ASSIGN_OR_RETURN(const auto edge, ir::get_attr<int64_t>(bind.instruction.attrs, "edge"));
  return make_kernel([edge, values = ports::TensorGroup()](KernelContext& c) mutable -> Status {
    SR_ASSIGN_OR_RETURN(ports::Rendezvous* const rendezvous, rendezvous_of(c));
    values.clear();
    for (int i = 0; i < c.num_inputs(); ++i) values.push_back(c.input(i));
    Status sent = rendezvous->send({.edge = edge, .step = c.step_id()}, values);
    values.clear();
    return sent;
  });
}

/// One Recv of a program. Thread: core-local.
class RecvKernel final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const BindContext& bind) {
    const program::Instruction& instruction = bind.instruction;
    if (!instruction.inputs.empty() || instruction.outputs.empty()) {
      return base::invalid_argument("Recv takes no tensor, and makes one or more");
    }
    auto out = std::make_unique<RecvKernel>();
    const ir::AttrMap& attrs = instruction.attrs;
    SR_ASSIGN_OR_RETURN(out->edge_, ir::get_attr<int64_t>(attrs, "edge"));
    SR_ASSIGN_OR_RETURN(const auto name, ir::get_attr<std::string>(attrs, "tensor_name"));
    SR_ASSIGN_OR_RETURN(out->peer_, ir::get_attr<int64_t>(attrs, "peer"));
    for (const int32_t slot : instruction.outputs) {
      out->shapes_.push_back(bind.program.slots[slot].shape);
    }
    out->what_ = fmt::format("tensor '{}'", name);
    if (out->shapes_.size() > 1) out->what_ += fmt::format(" and {} more", out->shapes_.size() - 1);
    return std::unique_ptr<Kernel>(std::move(out));
  }

  Status run(KernelContext& c) override {
    SR_ASSIGN_OR_RETURN(ports::Rendezvous* const rendezvous, rendezvous_of(c));
    const std::span<const ports::TensorSource> peers = c.peers();
    if (peer_ < 0 || static_cast<size_t>(peer_) >= peers.size()) {
      return base::invalid_argument("{} comes from peer {}, but the program was given {} peers",
                                    what_, peer_, peers.size());
    }
    const ports::TensorSource& source = peers[static_cast<size_t>(peer_)];
    SR_ASSIGN_OR_RETURN(
        const std::span<Tensor> values,
        rendezvous->receive({.edge = edge_, .step = c.step_id()}, source, shapes_.size()));
    if (values.empty()) {
      // Text is made where it is not asked for later: each Recv of a step may come here.
      return c.is_told_of_arrivals() ? c.wait_for("a tensor")
                                     : c.wait_for("{}", awaited(c.peers()));
    }
    for (size_t i = 0; i < shapes_.size(); ++i) {
      SR_RETURN_IF_ERROR(check(c, source, i, values[i]));
      c.set_output(static_cast<int>(i), std::move(values[i]));
    }
    return {};
  }

  [[nodiscard]] std::string awaited(std::span<const ports::TensorSource> peers) const override {
    return fmt::format("{} from {}", what_, peers[static_cast<size_t>(peer_)].device);
  }

 private:
  /// Values come from anybody.
  [[nodiscard]] Status check(const KernelContext& c, const ports::TensorSource& source, size_t i,
                             const Tensor& value) const {
    const ir::DType dtype = c.output_dtype(static_cast<int>(i));
    if (value.defined() && value.dtype() == dtype && shapes_[i].accepts(value.shape())) return {};
    return base::invalid_argument("{}: {} sent {} as number {}; {}{} was declared", what_,
                                  source.device,
                                  value.defined() ? value.to_string() : "a dead value", i,
                                  tensor::name_of(dtype), shapes_[i].to_string());
  }

  int64_t edge_ = 0;
  int64_t peer_ = 0;
  std::string what_;  // For messages.
  std::vector<ir::Shape> shapes_;
};

}  // namespace

void register_passing_kernels(KernelTable* table) {
  table->add("Send", send);
  table->add("Recv", RecvKernel::make);
}

}  // namespace sidereal::exec
