#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/exec/made_once.h"
#include "sidereal/exec/resource_util.h"
#include "sidereal/ir/schema.h"
#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/optimizer.h"
#include "sidereal/kernels/sparse.h"
#include "sidereal/ops/update_rule.h"
#include "sidereal/resources/pushed_by.h"
#include "sidereal/resources/row_layout.h"

/// Updates of weights by the rules of optimizers, in place where the step may.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::UpdateRule;
using resources::Rows;
using resources::Variable;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// What is updated: values that come in and go out again, or variables. The weights are number 0,
/// the slots follow.
class Target {
 public:
  virtual ~Target() = default;
  [[nodiscard]] virtual DType dtype(int i) const = 0;
  [[nodiscard]] virtual const Shape& shape(int i) const = 0;
  /// To be called when all inputs have been checked, before rows are changed.
  virtual void lay_out(KernelContext& /*c*/) {}
  /// Where it is, to be read.
  [[nodiscard]] virtual Rows now(int i) const = 0;
  /// Where it is to be written to.
  virtual Rows changed(int i) = 0;
  /// The same, of some rows alone.
  virtual Rows changed(int i, std::span<const int64_t> /*rows*/) { return changed(i); }

  /// "float32[2,3]".
  [[nodiscard]] std::string to_string(int i) const {
    return fmt::format("{}{}", tensor::name_of(dtype(i)), shape(i).to_string());
  }
};

/// Inputs of which the outputs are made. The slots follow the learning rate, which follows `step`.
class Values final : public Target {
 public:
  Values(KernelContext& c, int step) : context_(c), step_(step) {}
  [[nodiscard]] DType dtype(int i) const override { return context_.input(input(i)).dtype(); }
  [[nodiscard]] const Shape& shape(int i) const override {
    return context_.input(input(i)).shape();
  }
  [[nodiscard]] Rows now(int i) const override { return Rows::of(context_.input(input(i))); }
  Rows changed(int i) override { return Rows::of(context_.updated(i, input(i))); }

 private:
  [[nodiscard]] int input(int i) const { return i == 0 ? 0 : step_ + 1 + i; }

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
  [[nodiscard]] Rows now(int i) const override { return values_[i]->rows(); }
  Rows changed(int i) override { return values_[i]->own(); }
  Rows changed(int i, std::span<const int64_t> rows) override { return values_[i]->own(rows); }

 private:
  std::span<Variable::Value* const> values_;
};

/// The only number of input `i`, float32 or float64.
Result<double> number_of(const KernelContext& c, int i, std::string_view what) {
  const Tensor& value = c.input(i);
  if (value.num_elements() != 1) return invalid_argument("{} must be a scalar", what);
  if (value.dtype() == DType::kFloat64) return c.in<double>(i)[0];
  SR_RETURN_IF_ERROR(check_dtype(c, i, DType::kFloat32));
  return double{c.in<float>(i)[0]};
}

/// Kernels of updates, of values or, when there is a `manager`, of variables.
class UpdateKernel : public Kernel {
 public:
  /// `step`: the input that counts the updates; the learning rate follows it, then the slots.
  UpdateKernel(const UpdateRule& rule, int step, resources::Manager* manager)
      : rule_(rule),
        step_(step),
        num_slots_(rule.num_slots()),
        manager_(manager),
        known_(static_cast<size_t>(num_slots_) + 1),
        variables_(known_.size()) {}

  Status run(KernelContext& c) final {
    SR_RETURN_IF_ERROR(check_dtype(c, step_, DType::kFloat64));
    now_.rule = &rule_;
    SR_ASSIGN_OR_RETURN(now_.step, number_of(c, step_, "the step"));
    SR_ASSIGN_OR_RETURN(now_.learning_rate, number_of(c, step_ + 1, "the learning rate"));
    if (manager_ == nullptr) {
      Values values(c, step_);
      return check_and_apply(c, values);
    }
    for (int i = 0; i <= num_slots_; ++i) {
      const int input = i == 0 ? 0 : step_ + 1 + i;
      SR_ASSIGN_OR_RETURN(variables_[i], known_[i].of_input(c, input, *manager_));
    }
    return Variable::change(variables_, [&](std::span<Variable::Value* const> values) {
      Locked locked(values);
      SR_RETURN_IF_ERROR(check_and_apply(c, locked));
      // One that has no lane is of this program alone, which knows how it trains.
      if (changes() && variables_[0]->owner() != nullptr) {
        variables_[0]->staleness()->note_change(resources::step_of(c.step_id(), c.pusher()),
                                                resources::pusher_of(c.pusher()), is_of_rows(),
                                                rows_);
      }
      return Status();
    });
  }

 protected:
  /// Whether it changes what it is given, and whether that is rows of a table.
  [[nodiscard]] virtual bool changes() const { return true; }
  [[nodiscard]] virtual bool is_of_rows() const = 0;
  /// Weights and slots have been checked. Says set_rows(), of a table.
  virtual Status apply(KernelContext& c, Target& target) = 0;

  /// Rows that exist, each once.
  void set_rows(std::span<const int64_t> rows) {
    rows_ = static_cast<int64_t>(rows.size());
    if (manager_ != nullptr && variables_[0]->owner() != nullptr) {
      variables_[0]->hot_rows()->pushes.note(rows);
    }
  }

  /// The weights and slots of a target, as `rows_of` gives them.
  template <class T, class RowsOf>
  kernels::RuleArrays<T> arrays_of(const RowsOf& rows_of) const {
    const auto array = [&](int i) {
      const Rows rows = rows_of(i);
      return kernels::RowArray<T>{reinterpret_cast<T*>(rows.at),
                                  rows.stride / static_cast<int64_t>(sizeof(T))};
    };
    kernels::RuleArrays<T> out;
    out.weights = array(0);
    for (int i = 0; i < num_slots_; ++i) out.slots[static_cast<size_t>(i)] = array(i + 1);
    return out;
  }
  [[nodiscard]] const UpdateRule& rule() const { return rule_; }
  [[nodiscard]] const kernels::RuleStep& now() const { return now_; }
  [[nodiscard]] int num_slots() const { return num_slots_; }
  [[nodiscard]] bool is_of_row(int slot) const {
    return rule_.slot(slot).width == kernels::SlotWidth::kRow;
  }

 private:
  Status check_and_apply(KernelContext& c, Target& target) {
    const DType dtype = target.dtype(0);
    if (dtype != DType::kFloat32 && dtype != DType::kFloat64) {
      return invalid_argument("the weights are {}; the rules of optimizers are float32 and float64",
                              target.to_string(0));
    }
    for (int i = 0; i < num_slots_; ++i) {
      const Shape& shape = target.shape(i + 1);
      const bool is_like =
          is_of_row(i) ? shape == rule_.slot_shape(i, target.shape(0)) : shape == target.shape(0);
      if (is_like && target.dtype(i + 1) == dtype) continue;
      return invalid_argument("a slot is {}; the weights are {}", target.to_string(i + 1),
                              target.to_string(0));
    }
    return apply(c, target);
  }

  UpdateRule rule_;
  int step_;
  int num_slots_;
  kernels::RuleStep now_;
  int64_t rows_ = 0;  // Of a table that it changed.
  resources::Manager* manager_;
  std::vector<KnownVariable> known_;  // The weights, the slots.
  std::vector<Variable*> variables_;  // The same, found.
};

/// What a kernel of dense updates does: with kNorms it only gives the norms, and changes nothing.
enum class Dense : uint8_t { kUpdate, kNorms };

class UpdateDense final : public UpdateKernel {
 public:
  static constexpr int kStep = 2;  ///< The input.

  /// `norms`: the input that has them; none, if it is below 0: then they are those of the weights.
  UpdateDense(const UpdateRule& rule, Dense what, int norms, resources::Manager* manager)
      : UpdateKernel(rule, kStep, manager), what_(what), norms_input_(norms) {}

 private:
  [[nodiscard]] bool changes() const override { return what_ == Dense::kUpdate; }
  [[nodiscard]] bool is_of_rows() const override { return false; }

  Status apply(KernelContext& c, Target& target) override {
    const Tensor grad = c.input(1);
    if (grad.dtype() != target.dtype(0) || !(grad.shape() == target.shape(0))) {
      return invalid_argument("the gradient is {}; the weights are {}", grad.to_string(),
                              target.to_string(0));
    }
    kernels::RuleNorms norms;
    if (norms_input_ >= 0) {
      SR_RETURN_IF_ERROR(check_dtype(c, norms_input_, DType::kFloat64));
      const std::span<const double> given = c.in<double>(norms_input_);
      if (given.size() != 2) return invalid_argument("{} norms; they are two", given.size());
      norms = {.first = given[0], .second = given[1]};
    }
    if (target.dtype(0) == DType::kFloat64) {
      update<double>(c, target, grad, &norms);
    } else {
      update<float>(c, target, grad, &norms);
    }
    if (what_ == Dense::kNorms) {
      const std::span<double> out = c.output(0, Shape{2}).data<double>();
      out[0] = norms.first;
      out[1] = norms.second;
    }
    return {};
  }

  template <class T>
  void update(KernelContext& c, Target& target, const Tensor& grad, kernels::RuleNorms* norms) {
    const kernels::RuleArrays<T> table = arrays_of<T>(
        [&](int i) { return what_ == Dense::kUpdate ? target.changed(i) : target.now(i); });
    const T* from = grad.data<const T>().data();
    const int64_t n = grad.num_elements();
    if (n == 0) return;
    const int64_t width = kernels::elements_of_row(grad.shape());
    if (is_together(table, width)) {
      const kernels::DenseUpdate<T> all = rows_from(table, from, 0, n, has_row_slots() ? width : 1);
      measure(c, (n + kernels::kNormPart - 1) / kernels::kNormPart, norms, [&](int64_t p) {
        const int64_t begin = p * kernels::kNormPart;
        const int64_t size = std::min(kernels::kNormPart, n - begin);
        return kernels::measure_dense(now(), all.part(rule(), begin, size));
      });
      if (what_ == Dense::kNorms) return;
      c.parallel(n / all.row, kGrain / all.row + 1, [&](int64_t begin, int64_t end) {
        kernels::apply_dense(now(), all.part(rule(), begin * all.row, (end - begin) * all.row),
                             *norms);
      });
      return;
    }
    // Rows that do not follow one another: of a table, with slots between them.
    const int64_t count = n / width;
    const int64_t rows_of_part = kernels::kNormPart / width + 1;
    const auto row = [&](int64_t r) { return rows_from(table, from + r * width, r, width, width); };
    measure(c, (count + rows_of_part - 1) / rows_of_part, norms, [&](int64_t p) {
      kernels::RuleNorms sum;
      const int64_t end = std::min(count, (p + 1) * rows_of_part);
      for (int64_t r = p * rows_of_part; r < end; ++r) {
        sum += kernels::measure_dense(now(), row(r));
      }
      return sum;
    });
    if (what_ == Dense::kNorms) return;
    c.parallel(count, kGrain / width + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) kernels::apply_dense(now(), row(r), *norms);
    });
  }

  /// `n` weights from row `first` on.
  template <class T>
  kernels::DenseUpdate<T> rows_from(const kernels::RuleArrays<T>& table, const T* grad,
                                    int64_t first, int64_t n, int64_t row) const {
    const auto at = [first](const kernels::RowArray<T>& array) {
      return array.data + first * array.stride;
    };
    kernels::DenseUpdate<T> out;
    out.w_in = at(table.weights);
    out.w_out = at(table.weights);
    for (size_t i = 0; i < static_cast<size_t>(num_slots()); ++i) out.slots[i] = at(table.slots[i]);
    out.grad = grad;
    out.n = n;
    out.row = row;
    return out;
  }

  [[nodiscard]] bool has_row_slots() const {
    for (int i = 0; i < num_slots(); ++i) {
      if (is_of_row(i)) return true;
    }
    return false;
  }

  /// Whether all rows of each array follow one another.
  template <class T>
  [[nodiscard]] bool is_together(const kernels::RuleArrays<T>& table, int64_t width) const {
    if (table.weights.stride != width) return false;
    for (int i = 0; i < num_slots(); ++i) {
      if (table.slots[static_cast<size_t>(i)].stride != (is_of_row(i) ? 1 : width)) return false;
    }
    return true;
  }

  /// Adds up the norms of all weights, whose parts are measured at once and added in order. Does
  /// nothing where the rule has none, or they are an input.
  template <class Measure>
  void measure(KernelContext& c, int64_t parts, kernels::RuleNorms* sum, const Measure& of_part) {
    if (!rule().rule().uses_norms || norms_input_ >= 0) return;
    of_parts_.resize(static_cast<size_t>(parts));
    c.run_parts(parts, [&](int64_t p) { of_parts_[static_cast<size_t>(p)] = of_part(p); });
    for (const kernels::RuleNorms& part : of_parts_) *sum += part;
  }

  Dense what_;
  int norms_input_;
  std::vector<kernels::RuleNorms> of_parts_;
};

/// The manager of the variables of an update; nullptr when it updates values.
Result<resources::Manager*> manager_for(const BindContext& bind, bool of_variables) {
  if (of_variables) return manager_of(bind);
  return static_cast<resources::Manager*>(nullptr);
}

Result<std::unique_ptr<Kernel>> update_dense(const BindContext& bind, bool of_variables,
                                             Dense what) {
  SR_ASSIGN_OR_RETURN(const UpdateRule rule, ops::update_rule_of(bind.instruction.attrs));
  const int slots = rule.num_slots();
  const int needed = UpdateDense::kStep + 2 + slots;
  const bool has_norms = static_cast<int>(bind.instruction.inputs.size()) > needed;
  const bool takes_norms = what == Dense::kUpdate && rule.rule().uses_norms;
  const int outputs = what == Dense::kNorms ? 1 : of_variables ? 0 : 1 + slots;
  SR_RETURN_IF_ERROR(check_arity(bind, needed, needed + (takes_norms ? 1 : 0), outputs));
  SR_ASSIGN_OR_RETURN(resources::Manager* const manager, manager_for(bind, of_variables));
  return std::unique_ptr<Kernel>(
      std::make_unique<UpdateDense>(rule, what, has_norms ? needed : -1, manager));
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
  UpdateRows(const UpdateRule& rule, RowInputs inputs, resources::Manager* manager)
      : UpdateKernel(rule, inputs.step(), manager), inputs_(std::move(inputs)) {}

 private:
  [[nodiscard]] bool is_of_rows() const override { return true; }

  /// Gradients, and where the sum of each distinct row is.
  template <class T>
  struct Sums {
    std::vector<kernels::GradRows<T>> gradients;
    std::vector<const T*> of;
  };

  Status apply(KernelContext& c, Target& target) override {
    if (target.dtype(0) == DType::kFloat64) return update(c, target, doubles_);
    return update(c, target, floats_);
  }

  template <class T>
  Status update(KernelContext& c, Target& target, Sums<T>& sums) {
    const Shape& shape = target.shape(0);
    if (shape.rank() < 1) return invalid_argument("a scalar has no rows");
    const int64_t count = shape.dim(0);
    const int64_t dim = count == 0 ? 0 : shape.num_elements() / count;
    SR_ASSIGN_OR_RETURN(const std::span<const int64_t> rows, rows_of(c));
    if (const int64_t bad = kernels::find_out_of_range(rows, count); bad >= 0) {
      return base::invalid_argument("index {} is not a row of {}: indices are 0 to {}", rows[bad],
                                    target.to_string(0), count - 1);
    }
    SR_RETURN_IF_ERROR(
        find_gradients(c, target, static_cast<int64_t>(rows.size()), dim, &sums.gradients));
    // Who says that rows are distinct may lie: then one is updated twice, but never by two threads.
    const bool is_distinct = inputs_.distinct && c.threads() == 1;
    Tensor room;
    const std::span<const int64_t> distinct =
        is_distinct ? rows : sum_equal(c, rows, dim, sums, &room);
    const kernels::RowGradients<T> grads = is_distinct
                                               ? take_all(sums, rows.size(), dim)
                                               : kernels::RowGradients<T>{.rows = sums.of.data()};
    target.lay_out(c);
    const kernels::RuleArrays<T> table =
        arrays_of<T>([&](int i) { return target.changed(i, distinct); });
    set_rows(distinct);
    if (dim == 0) return {};
    c.parallel(static_cast<int64_t>(distinct.size()), kGrain / dim + 1,
               [&](int64_t begin, int64_t end) {
                 kernels::apply_rows<T>(
                     now(), table,
                     distinct.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                     grads.from(begin, dim), dim);
               });
    return {};
  }

  /// The gradients of `n` distinct rows, where they are.
  template <class T>
  static kernels::RowGradients<T> take_all(Sums<T>& sums, size_t n, int64_t dim) {
    if (sums.gradients.size() == 1 && sums.gradients[0].stride == dim) {
      return {.data = sums.gradients[0].from};
    }
    sums.of.resize(std::max(sums.of.size(), n));
    const T** to = sums.of.data();
    for (const kernels::GradRows<T>& some : sums.gradients) {
      for (int64_t i = 0; i < some.count; ++i) *to++ = some.from + i * some.stride;
    }
    return {.rows = sums.of.data()};
  }

  /// Points sums.of at the sums of the gradients of equal rows, some of them in `room`. The
  /// distinct rows.
  template <class T>
  std::span<const int64_t> sum_equal(KernelContext& c, std::span<const int64_t> rows, int64_t dim,
                                     Sums<T>& sums, Tensor* room) {
    const auto n = static_cast<int64_t>(rows.size());
    distinct_.resize(std::max(distinct_.size(), rows.size()));
    inverse_.resize(std::max(inverse_.size(), rows.size()));
    const int64_t found = kernels::unique(rows, scratch_, distinct_.data(), inverse_.data());
    sums.of.resize(std::max(sums.of.size(), static_cast<size_t>(found)));
    if (found < n) {
      *room = c.temporary(tensor::kDTypeOf<T>, Shape{std::min(found, n - found), dim});
    }
    kernels::sum_equal_rows<T>(sums.gradients,
                               std::span<const int32_t>(inverse_.data(), static_cast<size_t>(n)),
                               dim, found < n ? room->data<T>().data() : nullptr, sums.of);
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

  /// Sets `gradients` to `n` rows of `dim`.
  template <class T>
  Status find_gradients(KernelContext& c, const Target& target, int64_t n, int64_t dim,
                        std::vector<kernels::GradRows<T>>* gradients) {
    gradients->clear();
    int64_t found = 0;
    for (int v = 0; v < inputs_.num_values(); ++v) {
      const int input = inputs_.first_values() + v;
      SR_RETURN_IF_ERROR(check_dtype(c, input, tensor::kDTypeOf<T>));
      const Tensor& values = c.input(input);
      const bool is_whole = inputs_.widths[v] == 0;
      const int64_t width = is_whole ? dim : inputs_.widths[v];
      // Rows of no elements may be any number: as many as are wanted.
      const int64_t rows = width == 0 ? n : values.num_elements() / width;
      if (rows * width != values.num_elements() || inputs_.columns[v] > width - dim) {
        return invalid_argument("rows of {} from column {} of rows of {} in {}", dim,
                                inputs_.columns[v], width, values.to_string());
      }
      gradients->push_back({values.data<const T>().data() + inputs_.columns[v], width, rows});
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
  Sums<float> floats_;
  Sums<double> doubles_;
};

Result<std::unique_ptr<Kernel>> make_update_rows(const BindContext& bind, RowInputs inputs,
                                                 bool of_variables = false) {
  SR_ASSIGN_OR_RETURN(const UpdateRule rule, ops::update_rule_of(bind.instruction.attrs));
  inputs.distinct = of_variables && ir::attr_or(bind.instruction.attrs, "distinct", false);
  const int slots = rule.num_slots();
  const int needed = inputs.step() + 2 + slots;
  SR_RETURN_IF_ERROR(check_arity(bind, needed, needed, of_variables ? 0 : 1 + slots));
  SR_ASSIGN_OR_RETURN(resources::Manager* const manager, manager_for(bind, of_variables));
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
  // Weights, indices or gradient, step and learning rate at least.
  const auto of_values = [](KernelFactory factory) {
    return with_arity(4, -1, -1, like_input(std::move(factory)));
  };
  const auto dense = [](bool of_variables, Dense what) {
    return [=](const BindContext& bind) { return update_dense(bind, of_variables, what); };
  };
  table->add("UpdateDense", of_values(dense(false, Dense::kUpdate)));
  table->add("UpdateNorms", with_outputs({DType::kFloat64}, dense(false, Dense::kNorms)));
  table->add("UpdateRows",
             of_values([](const BindContext& bind) { return make_update_rows(bind, {}); }));
  table->add("UpdateJoinedRows", of_values(update_joined_rows));
  table->add("VariableUpdateDense", made_once(dense(true, Dense::kUpdate)));
  table->add("VariableUpdateNorms", with_outputs({DType::kFloat64}, dense(true, Dense::kNorms)));
  table->add("VariableUpdateRows",
             made_once([](const BindContext& bind) { return make_update_rows(bind, {}, true); }));
}

}  // namespace sidereal::exec
