#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/exec/resource_util.h"
#include "sidereal/exec/scatter_rows.h"
#include "sidereal/kernels/elementwise.h"
#include "sidereal/tensor/dispatch.h"

/// Kernels of variables that steps share by name; their updates by optimizers are in
/// update_kernels.cc.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using resources::Manager;
using resources::Variable;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

Result<std::unique_ptr<Kernel>> variable(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  resources::VariableDef def;
  SR_ASSIGN_OR_RETURN(def.name, key_of(bind));
  SR_ASSIGN_OR_RETURN(def.dtype, ir::get_attr<DType>(attrs, "dtype"));
  def.shape = ir::attr_or<Shape>(attrs, "shape", Shape::unknown_rank());
  // Made once here, so that a wrong definition is found when the program is bound.
  SR_RETURN_IF_ERROR(Variable::make(def).status());
  GivenValue handle(Tensor::strings(Shape(), std::vector<std::string>{def.name}));
  return make_kernel([manager, def = std::move(def), handle = std::move(handle),
                      known = KnownVariable()](KernelContext& c) mutable -> Status {
    SR_ASSIGN_OR_RETURN(Variable* const found, known.made(def, manager));
    SR_RETURN_IF_ERROR(found->check_same(def));
    c.set_output(0, handle.get());
    return {};
  });
}

/// Gives `value` out, if it has the dtype that the program declares.
Status give(KernelContext& c, Tensor value) {
  if (value.dtype() != c.output_dtype(0)) {
    return invalid_argument("the variable holds {}; {} was declared", value.to_string(),
                            tensor::name_of(c.output_dtype(0)));
  }
  c.set_output(0, std::move(value));
  return {};
}

Result<std::unique_ptr<Kernel>> read(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  const auto shape = ir::attr_or<Shape>(bind.instruction.attrs, "shape", Shape::unknown_rank());
  return make_kernel([manager, shape, known = KnownVariable()](KernelContext& c) mutable -> Status {
    SR_ASSIGN_OR_RETURN(Variable* const found, known.of_input(c, 0, *manager));
    SR_ASSIGN_OR_RETURN(Tensor value, found->read());
    if (!resources::fits(shape, value.shape())) {
      return invalid_argument("the variable holds {}; shape {} was declared", value.to_string(),
                              shape.to_string());
    }
    return give(c, std::move(value));
  });
}

Result<std::unique_ptr<Kernel>> is_initialized(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  return make_kernel([manager, known = KnownVariable()](KernelContext& c) mutable -> Status {
    SR_ASSIGN_OR_RETURN(Variable* const found, known.of_input(c, 0, *manager));
    c.output(0, Shape()).data<bool>()[0] = found->is_initialized();
    return {};
  });
}

Result<std::unique_ptr<Kernel>> assign(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  const bool checks = ir::attr_or(bind.instruction.attrs, "validate_shape", true);
  return make_kernel(
      [manager, checks, known = KnownVariable()](KernelContext& c) mutable -> Status {
        SR_ASSIGN_OR_RETURN(Variable* const found, known.of_input(c, 0, *manager));
        SR_ASSIGN_OR_RETURN(Tensor value, found->assign(c.input(1), checks));
        return give(c, std::move(value));
      });
}

/// A kernel that changes the variable of input 0 by `change(value, context)`, and gives the new
/// value out.
template <class F>
KernelFactory changing(F change) {
  return [change](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
    SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
    return make_kernel(
        [manager, change, known = KnownVariable()](KernelContext& c) mutable -> Status {
          SR_ASSIGN_OR_RETURN(Variable* const found, known.of_input(c, 0, *manager));
          return Variable::change({&found, 1}, [&](std::span<Variable::Value* const> values) {
            SR_RETURN_IF_ERROR(change(values[0], c));
            return give(c, values[0]->get());
          });
        });
  };
}

KernelFactory assign_sum(kernels::BinaryOp op) {
  return changing([op](Variable::Value* value, KernelContext& c) -> Status {
    const Tensor& x = c.input(1);
    if (x.dtype() != value->get().dtype() || !(x.shape() == value->get().shape())) {
      return invalid_argument("{} for a variable that is {}: they must have one dtype and shape",
                              x.to_string(), value->get().to_string());
    }
    const Tensor& sum = value->own();
    return tensor::with_dtype<tensor::NumericTypes>(x.dtype(), [&]<class T>() -> Status {
      T* const to = sum.data<T>().data();
      const T* const from = x.data<const T>().data();
      c.parallel(x.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
        kernels::binary<T>(op, to + begin, from + begin, to + begin, end - begin);
      });
      return {};
    });
  });
}

KernelFactory scatter(Scatter how) {
  return changing([rows = std::vector<int64_t>(), how](Variable::Value* value,
                                                       KernelContext& c) mutable -> Status {
    SR_RETURN_IF_ERROR(rows_of(value->get(), c.input(1), c.input(2), &rows));
    return scatter_rows(how, rows, c.input(2), rows.empty() ? value->get() : value->own());
  });
}

}  // namespace

void register_variable_kernels(KernelTable* table) {
  table->add("Variable", with_arity(0, 0, 1, with_outputs({DType::kString}, variable)));
  table->add("VariableRead", with_arity(1, 1, 1, read));
  table->add("VariableIsInitialized",
             with_arity(1, 1, 1, with_outputs({DType::kBool}, is_initialized)));
  table->add("VariableAssign", with_arity(2, 2, 1, assign));
  table->add("VariableAssignAdd", with_arity(2, 2, 1, assign_sum(kernels::BinaryOp::kAdd)));
  table->add("VariableAssignSub", with_arity(2, 2, 1, assign_sum(kernels::BinaryOp::kSub)));
  table->add("VariableScatterAdd", with_arity(3, 3, 1, scatter(Scatter::kAdd)));
  table->add("VariableScatterSub", with_arity(3, 3, 1, scatter(Scatter::kSub)));
  table->add("VariableScatterUpdate", with_arity(3, 3, 1, scatter(Scatter::kUpdate)));
}

}  // namespace sidereal::exec
