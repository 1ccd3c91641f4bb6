#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/optimizer.h"
#include "sidereal/kernels/sparse.h"

/// Updates of weights by the rules of optimizers, in place where the step may.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::RuleKind;
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
  SR_ASSIGN_OR_RETURN(const double rate, ir::get_attr<double>(attrs, "learning_rate"));
  rule.learning_rate = static_cast<float>(rate);
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

/// What both kernels share: the rule, and weights and slots ready to be changed.
class Update {
 public:
  /// `step`: the input that counts the updates; the slots follow it.
  Update(const kernels::RuleStep& rule, int step) : rule_(rule), step_(step) {}

  Status prepare(KernelContext& c) {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kFloat32));
    SR_RETURN_IF_ERROR(check_dtype(c, step_, DType::kFloat64));
    if (c.input(step_).num_elements() != 1) return invalid_argument("the step must be a scalar");
    for (int i = step_ + 1; i < c.num_inputs(); ++i) SR_RETURN_IF_ERROR(check_same(c, 0, i));
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
  kernels::SplitTable begin(KernelContext& c) {
    kernels::SplitTable table;
    float** const arrays[] = {&table.w, &table.slot1, &table.slot2};
    const int slots = kernels::num_slots(rule_.kind);
    for (int i = 0; i <= slots; ++i) {
      *arrays[i] = c.updated(i, i == 0 ? 0 : step_ + i).data<float>().data();
    }
    return table;
  }

  [[nodiscard]] const kernels::RuleStep& rule() const { return rule_; }

 private:
  kernels::RuleStep rule_;
  int step_;
};

/// A factory of an update kernel whose step is input `step`.
template <class K>
KernelFactory update_kernel(int step) {
  return with_outputs(
      {DType::kFloat32}, [step](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
        SR_ASSIGN_OR_RETURN(const auto rule, rule_of(bind.instruction.attrs));
        const int slots = kernels::num_slots(rule.kind);
        SR_RETURN_IF_ERROR(check_arity(bind, step + 1 + slots, step + 1 + slots, 1 + slots));
        return std::unique_ptr<Kernel>(std::make_unique<K>(Update(rule, step)));
      });
}

class UpdateDense final : public Kernel {
 public:
  explicit UpdateDense(const Update& update) : update_(update) {}

  Status run(KernelContext& c) override {
    SR_RETURN_IF_ERROR(check_same(c, 0, 1));
    SR_RETURN_IF_ERROR(update_.prepare(c));
    const Tensor grad = c.input(1);
    const kernels::SplitTable table = update_.begin(c);
    const float* from = grad.data<const float>().data();
    c.parallel(grad.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
      const auto slot = [begin](float* array) { return array == nullptr ? array : array + begin; };
      kernels::apply_dense(update_.rule(), {.w_in = table.w + begin,
                                            .w_out = table.w + begin,
                                            .slot1 = slot(table.slot1),
                                            .slot2 = slot(table.slot2),
                                            .grad = from + begin,
                                            .n = end - begin});
    });
    return {};
  }

 private:
  Update update_;
};

class UpdateRows final : public Kernel {
 public:
  explicit UpdateRows(const Update& update) : update_(update) {}

  Status run(KernelContext& c) override {
    SR_RETURN_IF_ERROR(update_.prepare(c));
    SR_RETURN_IF_ERROR(check_dtype(c, 2, DType::kFloat32));
    const Shape& shape = c.input(0).shape();
    if (shape.rank() < 1) return invalid_argument("a scalar has no rows");
    const int64_t count = shape.dim(0);
    const int64_t dim = count == 0 ? 0 : c.input(0).num_elements() / count;
    SR_ASSIGN_OR_RETURN(const std::span<const int64_t> rows, rows_of(c));
    const auto n = static_cast<int64_t>(rows.size());
    if (const int64_t bad = kernels::find_out_of_range(rows, count); bad >= 0) {
      return base::out_of_range("index {} is not a row of {}: indices are 0 to {}", rows[bad],
                                c.input(0).to_string(), count - 1);
    }
    const Tensor values = c.input(2);
    if (values.num_elements() != n * dim) {
      return invalid_argument("{} for {} rows of {}", values.to_string(), n,
                              c.input(0).to_string());
    }
    const float* grads = values.data<const float>().data();
    distinct_.resize(std::max(distinct_.size(), rows.size()));
    inverse_.resize(std::max(inverse_.size(), rows.size()));
    const int64_t found = kernels::unique(rows, scratch_, distinct_.data(), inverse_.data());
    Tensor sums;
    if (found < n) {
      sums = c.temporary(DType::kFloat32, Shape{found, dim});
      sum_rows(grads, n, found, dim, sums.data<float>().data());
      grads = sums.data<float>().data();
    }
    const kernels::SplitTable table = update_.begin(c);
    const std::span<const int64_t> distinct(distinct_.data(), static_cast<size_t>(found));
    if (dim == 0) return {};
    c.parallel(found, kGrain / dim + 1, [&](int64_t begin, int64_t end) {
      kernels::apply_split_rows(
          update_.rule(), table,
          distinct.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
          grads + begin * dim, dim);
    });
    return {};
  }

 private:
  /// The indices as int64.
  Result<std::span<const int64_t>> rows_of(KernelContext& c) {
    const Tensor& indices = c.input(1);
    if (indices.dtype() == DType::kInt64) return indices.data<const int64_t>();
    SR_RETURN_IF_ERROR(check_dtype(c, 1, DType::kInt32));
    const auto n = static_cast<size_t>(indices.num_elements());
    wide_.resize(std::max(wide_.size(), n));
    kernels::cast(DType::kInt32, indices.raw(), DType::kInt64,
                  reinterpret_cast<std::byte*>(wide_.data()), indices.num_elements());
    return std::span<const int64_t>(wide_.data(), n);
  }

  /// Adds up the rows of equal indices, in their order.
  void sum_rows(const float* grads, int64_t n, int64_t found, int64_t dim, float* sums) {
    // One part that holds every distinct row at its own place.
    for (auto i = static_cast<int64_t>(position_.size()); i < found; ++i) position_.push_back(i);
    float* const part = sums;
    kernels::sum_parts<float>(
        grads, std::span<const int64_t>(position_.data(), static_cast<size_t>(found)),
        std::span<const int32_t>(inverse_.data(), static_cast<size_t>(n)), dim,
        std::span<float* const>(&part, 1));
  }

  Update update_;
  kernels::UniqueScratch scratch_;
  std::vector<int64_t> wide_;
  std::vector<int64_t> distinct_;
  std::vector<int32_t> inverse_;
  std::vector<int64_t> position_;
};

}  // namespace

void register_update_kernels(KernelTable* table) {
  table->add("UpdateDense", update_kernel<UpdateDense>(2));
  table->add("UpdateRows", update_kernel<UpdateRows>(3));
}

}  // namespace sidereal::exec
