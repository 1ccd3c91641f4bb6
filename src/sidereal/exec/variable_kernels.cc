#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/exec/array_util.h"
#include "sidereal/exec/kernel_util.h"
#include "sidereal/exec/made_once.h"
#include "sidereal/exec/resource_util.h"
#include "sidereal/exec/scatter_rows.h"
#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/rows.h"
#include "sidereal/kernels/sparse.h"
#include "sidereal/resources/pushed_by.h"
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

/// For figures of how old what a step computes with is. Thread: that of the value.
void note_read(const KernelContext& c, Variable* variable) {
  variable->staleness()->note_read(resources::step_of(c.step_id(), c.pusher()),
                                   resources::pusher_of(c.pusher()));
}

/// The lane whose the variable is, of which each lane has one: the attribute "of_lane"; -1: it is
/// that of all lanes.
Result<int> only_lane(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  if (!attrs.contains("of_lane")) return -1;
  SR_ASSIGN_OR_RETURN(const int64_t lane, ir::get_attr<int64_t>(attrs, "of_lane"));
  const VariableLanes* const lanes = bind.environment.lanes;
  const int count = lanes == nullptr ? bind.environment.lane + 1 : lanes->count();
  if (lane < -1 || lane >= count) {
    return invalid_argument("of_lane is {}; there are {} lanes here", lane, count);
  }
  return lane == -1 ? bind.environment.lane : static_cast<int>(lane);
}

Result<std::unique_ptr<Kernel>> variable(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  resources::VariableDef def;
  SR_ASSIGN_OR_RETURN(def.name, key_of(bind));
  SR_ASSIGN_OR_RETURN(def.dtype, ir::get_attr<DType>(attrs, "dtype"));
  def.shape = ir::attr_or<Shape>(attrs, "shape", Shape::unknown_rank());
  SR_ASSIGN_OR_RETURN(const int only, only_lane(bind));
  if (only >= 0) def.name += fmt::format("/lane:{}", only);
  // Made once here, so that a wrong definition is found when the program is bound.
  SR_RETURN_IF_ERROR(Variable::make(def).status());
  GivenValue handle(Tensor::strings(Shape(), std::vector<std::string>{def.name}));
  return make_kernel([manager, lanes = bind.environment.lanes, lane = bind.environment.lane, only,
                      def = std::move(def), handle = std::move(handle),
                      known = KnownVariable()](KernelContext& c) mutable -> Status {
    SR_ASSIGN_OR_RETURN(Variable* const found, only >= 0
                                                   ? known.made_for_lane(def, manager, lanes, only)
                                                   : known.made(def, manager, lanes, lane));
    SR_RETURN_IF_ERROR(found->check_same(def));
    c.set_output(0, handle.get());
    return {};
  });
}

Result<std::unique_ptr<Kernel>> read(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  const auto shape = ir::attr_or<Shape>(bind.instruction.attrs, "shape", Shape::unknown_rank());
  return make_kernel([manager, shape, give = GivenOut(bind),
                      known = KnownVariable()](KernelContext& c) mutable -> Status {
    SR_ASSIGN_OR_RETURN(Variable* const found, known.of_input(c, 0, *manager));
    return found->look([&](const Variable::Value& value) -> Status {
      note_read(c, found);
      if (!resources::fits(shape, value.shape())) {
        return invalid_argument("the variable holds {}; shape {} was declared", value.to_string(),
                                shape.to_string());
      }
      return give(c, value);
    });
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
  return make_kernel([manager, checks, give = GivenOut(bind),
                      known = KnownVariable()](KernelContext& c) mutable -> Status {
    SR_ASSIGN_OR_RETURN(Variable* const found, known.of_input(c, 0, *manager));
    Status given;
    SR_RETURN_IF_ERROR(found->assign(
        c.input(1), checks, [&](const Variable::Value& value) { given = give(c, value); }));
    return given;
  });
}

/// A kernel that changes the variable of input 0, or those of its rows that input 1 says, by
/// `change(value, context, &rows)`, and gives the new value out. `rows`: for the numbers of those
/// rows.
template <class F>
KernelFactory changing(bool of_rows, F change) {
  return [change, of_rows](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
    SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
    return make_kernel([manager, change, of_rows, give = GivenOut(bind), known = KnownVariable(),
                        rows = std::vector<int64_t>()](KernelContext& c) mutable -> Status {
      SR_ASSIGN_OR_RETURN(Variable* const found, known.of_input(c, 0, *manager));
      return Variable::change({&found, 1}, [&](std::span<Variable::Value* const> values) {
        SR_RETURN_IF_ERROR(change(values[0], c, &rows));
        if (found->owner() != nullptr) {
          found->staleness()->note_assignment(resources::step_of(c.step_id(), c.pusher()),
                                              resources::pusher_of(c.pusher()), of_rows,
                                              static_cast<int64_t>(rows.size()));
          found->hot_rows()->pushes.note(rows);
        }
        return give(c, *values[0]);
      });
    });
  };
}

KernelFactory assign_sum(kernels::BinaryOp op) {
  return changing(false, [op](Variable::Value* value, KernelContext& c, auto* /*rows*/) -> Status {
    const Tensor& x = c.input(1);
    if (x.dtype() != value->dtype() || !(x.shape() == value->shape())) {
      return invalid_argument("{} for a variable that is {}: they must have one dtype and shape",
                              x.to_string(), value->to_string());
    }
    return tensor::with_dtype<tensor::NumericTypes>(x.dtype(), [&]<class T>() -> Status {
      const resources::Rows to = value->own().joined(sizeof(T));
      const T* const from = x.data<const T>().data();
      const auto add = [op](std::byte* row, const T* terms, int64_t count) {
        T* const sum = reinterpret_cast<T*>(row);
        kernels::binary<T>(op, sum, terms, sum, count);
      };
      if (to.count == 1) {
        c.parallel(to.width, kGrain, [&](int64_t begin, int64_t end) {
          add(to.at + begin * static_cast<int64_t>(sizeof(T)), from + begin, end - begin);
        });
        return {};
      }
      c.parallel(to.count, kGrain / to.width + 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          add(to.at + r * to.stride, from + r * to.width, to.width);
        }
      });
      return {};
    });
  });
}

KernelFactory scatter(Scatter how) {
  return changing(
      true, [how](Variable::Value* value, KernelContext& c, std::vector<int64_t>* rows) -> Status {
        const ir::TensorSpec spec = {value->dtype(), value->shape()};
        SR_RETURN_IF_ERROR(rows_of(spec, c.input(1), c.input(2), rows));
        if (rows->empty()) return {};
        return scatter_rows(how, *rows, c.input(2), value->own(*rows));
      });
}

// --- Rows.

/// Gives rows of a variable out without the rest of it: nobody holds the value meanwhile, so that
/// changes need no copy.
class GatherRows final : public Kernel {
 public:
  GatherRows(Manager* manager, Shape declared)
      : manager_(manager), declared_(std::move(declared)) {}

  Status run(KernelContext& c) override {
    SR_ASSIGN_OR_RETURN(Variable* const found, known_.of_input(c, 0, *manager_));
    SR_ASSIGN_OR_RETURN(const std::span<const int64_t> indices, indices_of(c));
    return found->look([&](const Variable::Value& value) {
      note_read(c, found);
      SR_RETURN_IF_ERROR(take(c, value, indices));
      // One that has no lane is of this program alone.
      if (found->owner() != nullptr) found->hot_rows()->pulls.note(indices);
      return Status();
    });
  }

 private:
  /// The indices as int64.
  Result<std::span<const int64_t>> indices_of(KernelContext& c) {
    const Tensor& indices = c.input(1);
    if (indices.dtype() == DType::kInt64) return indices.data<const int64_t>();
    SR_RETURN_IF_ERROR(check_dtype(c, 1, DType::kInt32));
    const std::span<const int32_t> in = indices.data<const int32_t>();
    wide_.assign(in.begin(), in.end());
    return wide_;
  }

  Status take(KernelContext& c, const Variable::Value& value, std::span<const int64_t> indices) {
    const Shape& shape = value.shape();
    if (!resources::fits(declared_, shape)) {
      return invalid_argument("the variable holds {}; shape {} was declared", value.to_string(),
                              declared_.to_string());
    }
    if (shape.rank() < 1) return invalid_argument("a scalar {} has no rows", value.to_string());
    const DType dtype = c.output_dtype(0);
    if (dtype != value.dtype() && (value.dtype() != DType::kFloat32 || dtype != DType::kBFloat16)) {
      return invalid_argument("the variable holds {}; {} was declared", value.to_string(),
                              tensor::name_of(dtype));
    }
    if (const int64_t bad = kernels::find_out_of_range(indices, shape.dim(0)); bad >= 0) {
      return base::invalid_argument("index {} at {} of the indices is not in [0, {})", indices[bad],
                                    place_of(bad, c.input(1).shape()), shape.dim(0));
    }
    Shape gathered = c.input(1).shape();
    for (int i = 1; i < shape.rank(); ++i) gathered.append(shape.dim(i));
    Tensor& out = c.output(0, gathered);
    if (out.num_elements() == 0) return {};
    if (dtype == DType::kString) {
      out.buffer()->keep_all_of(*value.get(Tensor::empty).buffer());
    }
    const resources::Rows rows = value.rows();
    const int64_t grain = kGrainBytes / (rows.width * bytes_of(out)) + 1;
    c.parallel(static_cast<int64_t>(indices.size()), grain, [&](int64_t begin, int64_t end) {
      const auto some =
          indices.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
      std::byte* const to = out.raw() + begin * rows.width * bytes_of(out);
      if (dtype == DType::kBFloat16 && value.dtype() == DType::kFloat32) {
        return take_rounded(rows, some, reinterpret_cast<tensor::BFloat16*>(to));
      }
      if (dtype == DType::kFloat32) {
        return kernels::gather_rows(reinterpret_cast<const float*>(rows.at),
                                    rows.stride / static_cast<int64_t>(sizeof(float)), some,
                                    rows.width, reinterpret_cast<float*>(to));
      }
      kernels::take_rows(rows.at, some, rows.stride, to);
    });
    return {};
  }

  /// Rows of floats, rounded.
  static void take_rounded(const resources::Rows& rows, std::span<const int64_t> indices,
                           tensor::BFloat16* to) {
    constexpr int64_t kBlock = 2048;
    std::array<float, kBlock> block;
    const auto* const from = reinterpret_cast<const float*>(rows.at);
    const int64_t stride = rows.stride / static_cast<int64_t>(sizeof(float));
    if (rows.width > kBlock) {
      for (const int64_t index : indices) {
        kernels::narrow(from + index * stride, to, rows.width);
        to += rows.width;
      }
      return;
    }
    const auto count = static_cast<size_t>(kBlock / rows.width);
    for (size_t i = 0; i < indices.size(); i += count) {
      const auto some = indices.subspan(i, std::min(count, indices.size() - i));
      const int64_t elements = static_cast<int64_t>(some.size()) * rows.width;
      kernels::gather_rows(from, stride, some, rows.width, block.data());
      kernels::narrow(block.data(), to, elements);
      to += elements;
    }
  }

  Manager* manager_;
  Shape declared_;
  KnownVariable known_;
  std::vector<int64_t> wide_;  // Indices that are not int64.
};

Result<std::unique_ptr<Kernel>> gather(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  auto shape = ir::attr_or<Shape>(bind.instruction.attrs, "shape", Shape::unknown_rank());
  return std::unique_ptr<Kernel>(std::make_unique<GatherRows>(manager, std::move(shape)));
}

}  // namespace

void register_variable_kernels(KernelTable* table) {
  table->add("Variable", with_arity(0, 0, 1, with_outputs({DType::kString}, variable)));
  table->add("VariableRead", with_arity(1, 1, 1, read));
  table->add("VariableGather", with_arity(2, 2, 1, gather));
  table->add("VariableIsInitialized",
             with_arity(1, 1, 1, with_outputs({DType::kBool}, is_initialized)));
  const auto change = [table](const char* name, int inputs, KernelFactory factory) {
    table->add(name, with_arity(inputs, inputs, 1, made_once(std::move(factory))));
  };
  change("VariableAssign", 2, assign);
  change("VariableAssignAdd", 2, assign_sum(kernels::BinaryOp::kAdd));
  change("VariableAssignSub", 2, assign_sum(kernels::BinaryOp::kSub));
  change("VariableScatterAdd", 3, scatter(Scatter::kAdd));
  change("VariableScatterSub", 3, scatter(Scatter::kSub));
  change("VariableScatterUpdate", 3, scatter(Scatter::kUpdate));
}

}  // namespace sidereal::exec
