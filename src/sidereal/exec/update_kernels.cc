#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/exec/resource_util.h"
#include "sidereal/ir/schema.h"
#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/optimizer.h"
#include "sidereal/kernels/sparse.h"
#include "sidereal/resources/row_layout.h"

/// Updates of weights by the rules of optimizers, in place where the step may.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::RuleKind;
using resources::Rows;
using resources::Variable;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

Result<RuleKind> kind_from(const std::string& name) {
  constexpr std::pair<std::string_view, RuleKind> kKinds[] = {{"sgd", RuleKind::kSgd},
                                                              {"momentum", RuleKind::kMomentum},
                                                              {"adagrad", RuleKind::kAdagrad},
                                                              {"adam", RuleKind::kAdam},
                                                              {"ftrl", RuleKind::kFtrl}};
  for (const auto& [known, kind] : kKinds) {
    if (known == name) return kind;
  }
  return invalid_argument("optimizer '{}' is not known", name);
}

/// The rule of the attributes; what depends on the step is filled in at each run.
Result<kernels::RuleStep> rule_of(const ir::AttrMap& attrs) {
  kernels::RuleStep rule;
  SR_ASSIGN_OR_RETURN(const std::string kind, ir::get_attr<std::string>(attrs, "kind"));
  SR_ASSIGN_OR_RETURN(rule.kind, kind_from(kind));
  rule.learning_rate = static_cast<float>(ir::attr_or(attrs, "learning_rate", 0.0));
  rule.nesterov = ir::attr_or(attrs, "nesterov", false);
  const std::pair<const char*, float*> fields[] = {{"weight_decay", &rule.weight_decay},
                                                   {"momentum", &rule.momentum},
                                                   {"beta1", &rule.beta1},
                                                   {"beta2", &rule.beta2},
                                                   {"epsilon", &rule.epsilon},
                                                   {"l1", &rule.l1},
                                                   {"l2", &rule.l2},
                                                   {"lr_power", &rule.lr_power}};
  for (const auto& [name, field] : fields) {
    *field = static_cast<float>(ir::attr_or(attrs, name, static_cast<double>(*field)));
  }
  return rule;
}

/// What is updated: values that come in and go out again, or variables. The weights are number 0,
/// the slots follow.
class Target {
 public:
  virtual ~Target() = default;
  [[nodiscard]] virtual DType dtype(int i) const = 0;
  [[nodiscard]] virtual const Shape& shape(int i) const = 0;
  /// To be called when all inputs have been checked, before rows are changed.
  virtual void lay_out(KernelContext& /*c*/) {}
  /// Where it is to be written to.
  virtual Rows changed(int i) = 0;

  /// "float32[2,3]".
  [[nodiscard]] std::string to_string(int i) const {
    return fmt::format("{}{}", tensor::name_of(dtype(i)), shape(i).to_string());
  }
};

/// Inputs of which the outputs are made. The slots follow input `step`.
class Values final : public Target {
 public:
  Values(KernelContext& c, int step) : context_(c), step_(step) {}
  [[nodiscard]] DType dtype(int i) const override { return context_.input(input(i)).dtype(); }
  [[nodiscard]] const Shape& shape(int i) const override {
    return context_.input(input(i)).shape();
  }
  Rows changed(int i) override { return Rows::of(context_.updated(i, input(i))); }

 private:
  [[nodiscard]] int input(int i) const { return i == 0 ? 0 : step_ + i; }

  KernelContext& context_;
  int step_;
};

/// Values of variables, which are locked.
class Locked final : public Target {
 public:
  explicit Locked(std::span<Variable::Value* const> values) : values_(values) {}
  [[nodiscard]] DType dtype(int i) const override { return values_[i]->dtype(); }
  [[nodiscard]] const Shape& shape(int i) const override { return values_[i]->shape(); }
  void lay_out(KernelContext& c) override {
    std::optional<resources::RowLayout> layout = resources::RowLayout::plan(values_);
    if (!layout.has_value()) return;
    constexpr int64_t kBytes = int64_t{1} << 20;
    c.parallel(layout->rows(), kBytes / layout->stride() + 1,
               [&](int64_t begin, int64_t end) { layout->move(begin, end); });
    layout->finish();
  }
  Rows changed(int i) override { return values_[i]->own(); }

 private:
  std::span<Variable::Value* const> values_;
};

/// What both kernels share: the rule, and weights and slots ready to be changed.
class Update {
 public:
  /// `step`: the input that counts the updates.
  Update(const kernels::RuleStep& rule, int step) : rule_(rule), step_(step) {}

  /// Checks the target, and finds what depends on the step.
  Status prepare(KernelContext& c, const Target& target) {
    SR_RETURN_IF_ERROR(check_float(target, 0, "the weights are"));
    SR_RETURN_IF_ERROR(check_dtype(c, step_, DType::kFloat64));
    if (c.input(step_).num_elements() != 1) return invalid_argument("the step must be a scalar");
    for (int i = 1; i <= num_slots(); ++i) {
      SR_RETURN_IF_ERROR(check_float(target, i, "a slot is"));
      if (target.shape(i) == target.shape(0)) continue;
      return invalid_argument("a slot is {}; the weights are {}", target.to_string(i),
                              target.to_string(0));
    }
    if (rule_.kind == RuleKind::kAdam) {
      const double t = c.in<double>(step_)[0];
      rule_.correction1 =
          static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(rule_.beta1), t)));
      rule_.correction2 =
          static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(static_cast<double>(rule_.beta2), t)));
    }
    return {};
  }

  /// To be called when all inputs have been checked.
  kernels::SplitTable begin(Target& target) const {
    kernels::SplitTable table;
    kernels::RowArray* const arrays[] = {&table.w, &table.slot1, &table.slot2};
    for (int i = 0; i <= num_slots(); ++i) {
      const Rows rows = target.changed(i);
      *arrays[i] = {reinterpret_cast<float*>(rows.at),
                    rows.stride / static_cast<int64_t>(sizeof(float))};
    }
    return table;
  }

  static Status check_float(const Target& target, int i, std::string_view what) {
    if (target.dtype(i) == DType::kFloat32) return {};
    return invalid_argument("{} {}; the rules of optimizers are float32", what,
                            target.to_string(i));
  }

  [[nodiscard]] const kernels::RuleStep& rule() const { return rule_; }
  [[nodiscard]] int num_slots() const { return kernels::num_slots(rule_.kind); }
  [[nodiscard]] int step() const { return step_; }
  void set_learning_rate(float rate) { rule_.learning_rate = rate; }

 private:
  kernels::RuleStep rule_;
  int step_;
};

/// Kernels of updates, of values or, when there is a `manager`, of variables.
class UpdateKernel : public Kernel {
 public:
  UpdateKernel(const Update& update, resources::Manager* manager)
      : update_(update),
        manager_(manager),
        known_(static_cast<size_t>(update.num_slots()) + 1),
        variables_(known_.size()) {}

  Status run(KernelContext& c) final {
    if (manager_ == nullptr) {
      Values values(c, update_.step());
      return apply(c, values);
    }
    const int rate = update_.step() + 1;
    SR_RETURN_IF_ERROR(check_dtype(c, rate, DType::kFloat32));
    if (c.input(rate).num_elements() != 1) {
      return invalid_argument("the learning rate must be a scalar");
    }
    update_.set_learning_rate(c.in<float>(rate)[0]);
    for (int i = 0; i <= update_.num_slots(); ++i) {
      const int input = i == 0 ? 0 : rate + i;
      SR_ASSIGN_OR_RETURN(variables_[i], known_[i].of_input(c, input, *manager_));
    }
    return Variable::change(variables_, [&](std::span<Variable::Value* const> values) {
      Locked locked(values);
      return apply(c, locked);
    });
  }

 protected:
  virtual Status apply(KernelContext& c, Target& target) = 0;
  Update& update() { return update_; }

 private:
  Update update_;
  resources::Manager* manager_;
  std::vector<KnownVariable> known_;  // The weights, the slots.
  std::vector<Variable*> variables_;  // The same, found.
};

class UpdateDense final : public UpdateKernel {
 public:
  using UpdateKernel::UpdateKernel;

 private:
  Status apply(KernelContext& c, Target& target) override {
    SR_RETURN_IF_ERROR(update().prepare(c, target));
    const Tensor grad = c.input(1);
    if (grad.dtype() != DType::kFloat32) {
      return invalid_argument("the gradient is {}; the rules of optimizers are float32",
                              grad.to_string());
    }
    if (!(grad.shape() == target.shape(0))) {
      return invalid_argument("the gradient is {}; the weights are {}", grad.to_string(),
                              target.to_string(0));
    }
    const int64_t count = grad.shape().rank() == 0 ? 1 : grad.shape().dim(0);
    const int64_t dim = count == 0 ? 0 : grad.num_elements() / count;
    const kernels::SplitTable table = update().begin(target);
    const float* from = grad.data<const float>().data();
    const auto is_apart = [dim](const kernels::RowArray& rows) {
      return rows.data != nullptr && rows.stride != dim;
    };
    if (is_apart(table.w) || is_apart(table.slot1) || is_apart(table.slot2)) {
      apply_to_rows(c, table, from, count, dim);
      return {};
    }
    c.parallel(grad.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
      const auto part = [begin](const kernels::RowArray& rows) {
        return rows.data == nullptr ? nullptr : rows.data + begin;
      };
      kernels::apply_dense(update().rule(), {.w_in = part(table.w),
                                             .w_out = part(table.w),
                                             .slot1 = part(table.slot1),
                                             .slot2 = part(table.slot2),
                                             .grad = from + begin,
                                             .n = end - begin});
    });
    return {};
  }

  /// The same of rows that do not follow one another.
  void apply_to_rows(KernelContext& c, const kernels::SplitTable& table, const float* grad,
                     int64_t count, int64_t dim) {
    c.parallel(count, kGrain / dim + 1, [&](int64_t begin, int64_t end) {
      constexpr int64_t kBlock = 64;
      std::array<int64_t, kBlock> rows{};
      std::array<const float*, kBlock> grads{};
      for (int64_t at = begin; at < end; at += kBlock) {
        const auto size = static_cast<size_t>(std::min(kBlock, end - at));
        for (size_t i = 0; i < size; ++i) {
          rows[i] = at + static_cast<int64_t>(i);
          grads[i] = grad + rows[i] * dim;
        }
        kernels::apply_split_rows(update().rule(), table, std::span(rows.data(), size),
                                  std::span(grads.data(), size), dim);
      }
    });
  }
};

/// Checks the inputs of an update whose step is input `step`. The manager of its variables, nullptr
/// when it updates values.
Result<resources::Manager*> check_inputs(const BindContext& bind, const kernels::RuleStep& rule,
                                         int step, bool of_variables) {
  const int slots = kernels::num_slots(rule.kind);
  const int needed = step + 1 + slots + (of_variables ? 1 : 0);
  SR_RETURN_IF_ERROR(check_arity(bind, needed, needed, of_variables ? 0 : 1 + slots));
  if (of_variables) return manager_of(bind);
  return static_cast<resources::Manager*>(nullptr);
}

Result<std::unique_ptr<Kernel>> update_dense(const BindContext& bind, bool of_variables) {
  constexpr int kStep = 2;
  SR_ASSIGN_OR_RETURN(const auto rule, rule_of(bind.instruction.attrs));
  SR_ASSIGN_OR_RETURN(resources::Manager* const manager,
                      check_inputs(bind, rule, kStep, of_variables));
  return std::unique_ptr<Kernel>(std::make_unique<UpdateDense>(Update(rule, kStep), manager));
}

/// Where the indices and the gradients of an update of rows are among the inputs. Those of several
/// inputs follow one another.
struct RowInputs {
  int indices = 1;
  std::vector<int64_t> columns = {0};
  std::vector<int64_t> widths = {0};  ///< 0: as wide as a row of the weights.
  bool distinct = false;              ///< No two indices are equal.

  [[nodiscard]] int first_values() const { return 1 + indices; }
  [[nodiscard]] int num_values() const { return static_cast<int>(columns.size()); }
  [[nodiscard]] int step() const { return first_values() + num_values(); }
};

class UpdateRows final : public UpdateKernel {
 public:
  UpdateRows(const kernels::RuleStep& rule, RowInputs inputs, resources::Manager* manager)
      : UpdateKernel(Update(rule, inputs.step()), manager), inputs_(std::move(inputs)) {}

 private:
  Status apply(KernelContext& c, Target& target) override {
    SR_RETURN_IF_ERROR(update().prepare(c, target));
    const Shape& shape = target.shape(0);
    if (shape.rank() < 1) return invalid_argument("a scalar has no rows");
    const int64_t count = shape.dim(0);
    const int64_t dim = count == 0 ? 0 : shape.num_elements() / count;
    SR_ASSIGN_OR_RETURN(const std::span<const int64_t> rows, rows_of(c));
    if (const int64_t bad = kernels::find_out_of_range(rows, count); bad >= 0) {
      return base::out_of_range("index {} is not a row of {}: indices are 0 to {}", rows[bad],
                                target.to_string(0), count - 1);
    }
    SR_RETURN_IF_ERROR(find_gradients(c, target, static_cast<int64_t>(rows.size()), dim));
    // Who says that rows are distinct may lie: then one is updated twice, but never by two threads.
    const bool is_distinct = inputs_.distinct && c.threads() == 1;
    Tensor sums;
    const std::span<const int64_t> distinct =
        is_distinct ? take_all(rows) : sum_equal(c, rows, dim, &sums);
    target.lay_out(c);
    const kernels::SplitTable table = update().begin(target);
    if (dim == 0) return {};
    c.parallel(
        static_cast<int64_t>(distinct.size()), kGrain / dim + 1, [&](int64_t begin, int64_t end) {
          const auto size = static_cast<size_t>(end - begin);
          kernels::apply_split_rows(update().rule(), table,
                                    distinct.subspan(static_cast<size_t>(begin), size),
                                    std::span<const float* const>(sums_.data() + begin, size), dim);
        });
    return {};
  }

  /// Points sums_ at the gradients of `rows`, which are distinct.
  std::span<const int64_t> take_all(std::span<const int64_t> rows) {
    sums_.resize(std::max(sums_.size(), rows.size()));
    const float** to = sums_.data();
    for (const kernels::GradRows& some : gradients_) {
      for (int64_t i = 0; i < some.count; ++i) *to++ = some.from + i * some.stride;
    }
    return rows;
  }

  /// Points sums_ at the sums of the gradients of equal rows, some of them in `sums`. The distinct
  /// rows.
  std::span<const int64_t> sum_equal(KernelContext& c, std::span<const int64_t> rows, int64_t dim,
                                     Tensor* sums) {
    const auto n = static_cast<int64_t>(rows.size());
    distinct_.resize(std::max(distinct_.size(), rows.size()));
    inverse_.resize(std::max(inverse_.size(), rows.size()));
    const int64_t found = kernels::unique(rows, scratch_, distinct_.data(), inverse_.data());
    sums_.resize(std::max(sums_.size(), static_cast<size_t>(found)));
    if (found < n) *sums = c.temporary(DType::kFloat32, Shape{std::min(found, n - found), dim});
    kernels::sum_equal_rows(gradients_,
                            std::span<const int32_t>(inverse_.data(), static_cast<size_t>(n)), dim,
                            found < n ? sums->data<float>().data() : nullptr, sums_);
    return {distinct_.data(), static_cast<size_t>(found)};
  }

  /// All indices, as int64.
  Result<std::span<const int64_t>> rows_of(KernelContext& c) {
    if (inputs_.indices == 1 && c.input(1).dtype() == DType::kInt64) {
      return c.input(1).data<const int64_t>();
    }
    size_t n = 0;
    for (int i = 1; i <= inputs_.indices; ++i) n += c.input(i).num_elements();
    wide_.resize(std::max(wide_.size(), n));
    int64_t* to = wide_.data();
    for (int i = 1; i <= inputs_.indices; ++i) {
      const Tensor& indices = c.input(i);
      if (indices.dtype() != DType::kInt64) SR_RETURN_IF_ERROR(check_dtype(c, i, DType::kInt32));
      kernels::cast(indices.dtype(), indices.raw(), DType::kInt64, reinterpret_cast<std::byte*>(to),
                    indices.num_elements());
      to += indices.num_elements();
    }
    return std::span<const int64_t>(wide_.data(), n);
  }

  /// Sets gradients_ to `n` rows of `dim`.
  Status find_gradients(KernelContext& c, const Target& target, int64_t n, int64_t dim) {
    gradients_.clear();
    int64_t found = 0;
    for (int v = 0; v < inputs_.num_values(); ++v) {
      const int input = inputs_.first_values() + v;
      SR_RETURN_IF_ERROR(check_dtype(c, input, DType::kFloat32));
      const Tensor& values = c.input(input);
      const bool is_whole = inputs_.widths[v] == 0;
      const int64_t width = is_whole ? dim : inputs_.widths[v];
      // Rows of no elements may be any number: as many as are wanted.
      const int64_t rows = width == 0 ? n : values.num_elements() / width;
      if (rows * width != values.num_elements() || inputs_.columns[v] > width - dim) {
        return invalid_argument("rows of {} from column {} of rows of {} in {}", dim,
                                inputs_.columns[v], width, values.to_string());
      }
      gradients_.push_back({values.data<const float>().data() + inputs_.columns[v], width, rows});
      found += rows;
    }
    if (found == n) return {};
    return invalid_argument("{} for {} rows of {}", c.input(inputs_.first_values()).to_string(), n,
                            target.to_string(0));
  }

  RowInputs inputs_;
  kernels::UniqueScratch scratch_;
  std::vector<int64_t> wide_;
  std::vector<int64_t> distinct_;
  std::vector<int32_t> inverse_;
  std::vector<const float*> sums_;  // By distinct row: where its gradient is.
  std::vector<kernels::GradRows> gradients_;
};

Result<std::unique_ptr<Kernel>> make_update_rows(const BindContext& bind, RowInputs inputs,
                                                 bool of_variables = false) {
  SR_ASSIGN_OR_RETURN(const auto rule, rule_of(bind.instruction.attrs));
  inputs.distinct = of_variables && ir::attr_or(bind.instruction.attrs, "distinct", false);
  SR_ASSIGN_OR_RETURN(resources::Manager* const manager,
                      check_inputs(bind, rule, inputs.step(), of_variables));
  return std::unique_ptr<Kernel>(std::make_unique<UpdateRows>(rule, std::move(inputs), manager));
}

Result<std::unique_ptr<Kernel>> update_joined_rows(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  RowInputs inputs;
  SR_ASSIGN_OR_RETURN(inputs.columns, ir::get_attr<std::vector<int64_t>>(attrs, "columns"));
  SR_ASSIGN_OR_RETURN(inputs.widths, ir::get_attr<std::vector<int64_t>>(attrs, "widths"));
  SR_ASSIGN_OR_RETURN(const int64_t indices, ir::get_attr<int64_t>(attrs, "indices"));
  const auto most = static_cast<int64_t>(bind.instruction.inputs.size());
  if (indices < 1 || indices > most || inputs.columns.empty() ||
      inputs.columns.size() != inputs.widths.size()) {
    return invalid_argument("{} indices, {} columns and {} widths for {} inputs", indices,
                            inputs.columns.size(), inputs.widths.size(), most);
  }
  for (size_t i = 0; i < inputs.columns.size(); ++i) {
    const int64_t width = inputs.widths[i];
    if (width < 1 || width > ir::kMaxElements || inputs.columns[i] < 0) {
      return invalid_argument("column {} of rows of {}", inputs.columns[i], width);
    }
  }
  inputs.indices = static_cast<int>(indices);
  return make_update_rows(bind, std::move(inputs));
}

}  // namespace

void register_update_kernels(KernelTable* table) {
  const auto of_values = [](KernelFactory factory) {
    return with_outputs({DType::kFloat32}, std::move(factory));
  };
  table->add("UpdateDense",
             of_values([](const BindContext& bind) { return update_dense(bind, false); }));
  table->add("UpdateRows",
             of_values([](const BindContext& bind) { return make_update_rows(bind, {}); }));
  table->add("UpdateJoinedRows", of_values(update_joined_rows));
  table->add("VariableUpdateDense",
             [](const BindContext& bind) { return update_dense(bind, true); });
  table->add("VariableUpdateRows",
             [](const BindContext& bind) { return make_update_rows(bind, {}, true); });
}

}  // namespace sidereal::exec
