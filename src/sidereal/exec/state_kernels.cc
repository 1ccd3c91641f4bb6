#include "sidereal/exec/kernel_util.h"
#include "sidereal/ir/attr.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using ports::ParameterShard;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// The shard an instruction names by "var" and (embeddings) "shard".
Result<ParameterShard*> find_shard(const BindContext& bind, bool embedding) {
  if (bind.environment.parameters == nullptr) {
    return base::failed_precondition("a worker holds no variables; this op runs on a ps");
  }
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(const std::string variable, ir::get_attr<std::string>(attrs, "var"));
  int64_t shard = -1;
  if (embedding) {
    SR_ASSIGN_OR_RETURN(shard, ir::get_attr<int64_t>(attrs, "shard"));
  }
  SR_ASSIGN_OR_RETURN(ParameterShard* const found,
                      bind.environment.parameters->find(variable, shard));
  if ((found->dim() > 0) != embedding) {
    return invalid_argument("variable '{}' is {} embedding", variable, embedding ? "no" : "an");
  }
  return found;
}

Result<std::unique_ptr<Kernel>> read_variable(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(ParameterShard* const shard, find_shard(bind, false));
  return make_kernel([shard](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(Tensor value, shard->read());
    c.set_output(0, std::move(value));
    return {};
  });
}

Result<std::unique_ptr<Kernel>> apply_dense(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(ParameterShard* const shard, find_shard(bind, false));
  return make_kernel([shard](KernelContext& c) { return shard->apply_dense(c.input(0)); });
}

Result<std::unique_ptr<Kernel>> shard_gather(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(ParameterShard* const shard, find_shard(bind, true));
  return make_kernel([shard](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kInt64));
    SR_RETURN_IF_ERROR(check_rank(c, 0, 1));
    const std::span<const int64_t> rows = c.in<int64_t>(0);
    Tensor& out = c.output(0, Shape{static_cast<int64_t>(rows.size()), shard->dim()});
    return shard->gather(rows, out.data<float>().data());
  });
}

Result<std::unique_ptr<Kernel>> shard_apply(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(ParameterShard* const shard, find_shard(bind, true));
  return make_kernel([shard](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kInt64));
    SR_RETURN_IF_ERROR(check_rank(c, 0, 1));
    SR_RETURN_IF_ERROR(check_dtype(c, 1, DType::kFloat32));
    const std::span<const int64_t> rows = c.in<int64_t>(0);
    const Shape expected{static_cast<int64_t>(rows.size()), shard->dim()};
    if (!(c.input(1).shape() == expected)) {
      return invalid_argument("gradients {} for {} rows of {}", c.input(1).to_string(), rows.size(),
                              shard->dim());
    }
    return shard->apply_rows(rows, c.in<float>(1).data());
  });
}

}  // namespace

void register_state_kernels(KernelTable* table) {
  table->add("ReadVariable", with_arity(0, 0, 1, with_outputs({DType::kFloat32}, read_variable)));
  table->add("ApplyDense", with_arity(1, 1, 0, apply_dense));
  table->add("ShardGather", with_arity(1, 1, 1, with_outputs({DType::kFloat32}, shard_gather)));
  table->add("ShardApply", with_arity(2, 2, 0, shard_apply));
}

}  // namespace sidereal::exec
