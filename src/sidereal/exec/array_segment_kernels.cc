#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "sidereal/exec/array_util.h"
#include "sidereal/kernels/rows.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::RowOp;
using tensor::Shape;
using tensor::Tensor;

enum class Combiner { kSum, kMean, kSqrtN };

/// Buffers kept from run to run.
struct Scratch {
  std::vector<int64_t> ids;
  std::vector<int64_t> indices;
  std::vector<int64_t> counts;
};

/// What to do with rows of equal ids.
struct Reduction {
  RowOp op = RowOp::kAdd;
  Combiner combiner = Combiner::kSum;
};

/// The ids as int64. Sorted ones must not fall and not be negative.
Status read_ids(const Tensor& ids, bool sorted, std::vector<int64_t>* out) {
  SR_RETURN_IF_ERROR(with_index(ids.dtype(), [&]<class I>() -> Status {
    const std::span<const I> in = ids.data<const I>();
    out->assign(in.begin(), in.end());
    return {};
  }));
  if (!sorted || out->empty()) return {};
  if (out->front() < 0) return invalid_argument("segment id {} is negative", out->front());
  const auto fall = std::is_sorted_until(out->begin(), out->end());
  if (fall == out->end()) return {};
  return invalid_argument("the segment ids are not sorted: {} at [{}] is behind {}", *fall,
                          fall - out->begin(), *(fall - 1));
}

Status check_below(const std::vector<int64_t>& ids, int64_t num) {
  const int64_t bad =
      kernels::first_outside<int64_t>(std::span<const int64_t>(ids), num, /*skip_negative=*/true);
  if (bad < 0) return {};
  return base::invalid_argument("segment id {} at [{}] is not below the {} segments", ids[bad], bad,
                                num);
}

/// What a sum of `count` rows is divided by.
template <class T>
T divisor_of(Combiner combiner, int64_t count) {
  if (combiner == Combiner::kMean) return static_cast<T>(count);
  return combiner == Combiner::kSqrtN ? static_cast<T>(std::sqrt(static_cast<double>(count)))
                                      : static_cast<T>(1);
}

template <class T>
void divide_rows(Combiner combiner, const std::vector<int64_t>& counts, int64_t width, T* rows) {
  if (combiner == Combiner::kSum) return;
  for (size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] == 0) continue;
    const T divisor = divisor_of<T>(combiner, counts[r]);
    T* row = rows + static_cast<int64_t>(r) * width;
    for (int64_t j = 0; j < width; ++j) row[j] = static_cast<T>(row[j] / divisor);
  }
}

/// Combines the rows of `data` by the ids in `scratch` into `num` rows. `empty`: what rows without
/// any become (the op's neutral number when absent).
Status reduce(KernelContext& c, const Tensor& data, const Reduction& reduction, int64_t num,
              int ids_rank, bool zero_when_empty, Scratch* scratch) {
  Shape shape{num};
  for (int i = ids_rank; i < data.shape().rank(); ++i) shape.append(data.shape().dim(i));
  SR_RETURN_IF_ERROR(large_output(c, 0, shape).status());
  const int64_t width = product_of(data.shape(), ids_rank, data.shape().rank());
  // Rows without elements may be more than there is memory to count.
  if (shape.num_elements() == 0) return {};
  const bool count = zero_when_empty || reduction.combiner != Combiner::kSum;
  if (count) {
    scratch->counts.resize(num);
    kernels::count_rows(scratch->ids, scratch->counts);
  }
  return tensor::with_dtype<tensor::NumericTypes>(data.dtype(), [&]<class T>() -> Status {
    using C = tensor::ComputeType<T>;
    const Tensor wide = widened(c, data);
    WideOutput out(c, 0, shape);
    C* to = out.data<C>();
    std::fill_n(to, shape.num_elements(), kernels::neutral<C>(reduction.op));
    kernels::combine_rows<C>(reduction.op, wide.data<const C>().data(), scratch->ids, width, to);
    if (count) divide_rows<C>(reduction.combiner, scratch->counts, width, to);
    if (zero_when_empty) {
      for (int64_t r = 0; r < num; ++r) {
        if (scratch->counts[r] == 0) std::fill_n(to + r * width, width, C(0));
      }
    }
    return out.store();
  });
}

Status check_ids_fit(const Shape& data, const Shape& ids) {
  bool fits = ids.rank() <= data.rank();
  for (int i = 0; fits && i < ids.rank(); ++i) fits = ids.dim(i) == data.dim(i);
  if (fits) return {};
  return invalid_argument("segment ids of shape {} do not fit data of shape {}", ids.to_string(),
                          data.to_string());
}

KernelFactory sorted(Reduction reduction) {
  return with_arity(
      2, 2, 1, like_input([reduction](const BindContext&) {
        return make_kernel([reduction, scratch = Scratch()](KernelContext& c) mutable -> Status {
          const Tensor data = c.input(0);
          SR_RETURN_IF_ERROR(check_rank(c, 1, 1));
          SR_RETURN_IF_ERROR(check_ids_fit(data.shape(), c.input(1).shape()));
          SR_RETURN_IF_ERROR(read_ids(c.input(1), true, &scratch.ids));
          const int64_t num = scratch.ids.empty() ? 0 : scratch.ids.back() + 1;
          const bool extreme = reduction.op == RowOp::kMax || reduction.op == RowOp::kMin;
          return reduce(c, data, reduction, num, 1, extreme, &scratch);
        });
      }));
}

KernelFactory unsorted(Reduction reduction) {
  return with_arity(
      2, 3, 1, like_input([reduction](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
        SR_ASSIGN_OR_RETURN(const IntArg num_arg, IntArg::bind(bind, "num_segments", 2));
        return make_kernel(
            [reduction, num_arg, scratch = Scratch()](KernelContext& c) mutable -> Status {
              const Tensor data = c.input(0);
              SR_ASSIGN_OR_RETURN(const int64_t num, num_arg.get(c));
              if (num < 0) return invalid_argument("num_segments is {}", num);
              SR_RETURN_IF_ERROR(check_ids_fit(data.shape(), c.input(1).shape()));
              SR_RETURN_IF_ERROR(read_ids(c.input(1), false, &scratch.ids));
              SR_RETURN_IF_ERROR(check_below(scratch.ids, num));
              return reduce(c, data, reduction, num, c.input(1).shape().rank(), false, &scratch);
            });
      }));
}

// --- Rows of data at indices.

/// Sums the rows of `data` at the indices in `scratch` without making them one by one.
template <class T>
void sum_at(const T* data, const Scratch& scratch, int64_t width, T* to) {
  for (size_t i = 0; i < scratch.ids.size(); ++i) {
    const T* from = data + scratch.indices[i] * width;
    T* row = to + scratch.ids[i] * width;
    for (int64_t j = 0; j < width; ++j) row[j] += from[j];
  }
}

struct SparseOptions {
  Combiner combiner = Combiner::kSum;
  bool gathered = false;  ///< The data is the rows at the indices already.
};

Status run_sparse(KernelContext& c, const SparseOptions& options, const IntArg* num_arg,
                  Scratch* scratch) {
  const Tensor data = c.input(0);
  SR_RETURN_IF_ERROR(check_rank(c, 1, 1));
  SR_RETURN_IF_ERROR(check_rank(c, 2, 1));
  if (data.shape().rank() < 1) return invalid_argument("the data is a scalar");
  if (!(c.input(1).shape() == c.input(2).shape())) {
    return invalid_argument("{} indices for {} segment ids", c.input(1).num_elements(),
                            c.input(2).num_elements());
  }
  SR_RETURN_IF_ERROR(read_ids(c.input(1), false, &scratch->indices));
  if (options.gathered) std::iota(scratch->indices.begin(), scratch->indices.end(), int64_t{0});
  SR_RETURN_IF_ERROR(read_ids(c.input(2), true, &scratch->ids));
  const int64_t rows = data.shape().dim(0);
  const int64_t bad = kernels::first_outside<int64_t>(std::span<const int64_t>(scratch->indices),
                                                      rows, /*skip_negative=*/false);
  if (bad >= 0) {
    return base::invalid_argument("index {} at [{}] of the indices is not in [0, {})",
                                  scratch->indices[bad], bad, rows);
  }
  int64_t num = scratch->ids.empty() ? 0 : scratch->ids.back() + 1;
  if (num_arg != nullptr) {
    SR_ASSIGN_OR_RETURN(num, num_arg->get(c));
    if (num < 0) return invalid_argument("num_segments is {}", num);
    SR_RETURN_IF_ERROR(check_below(scratch->ids, num));
  }
  Shape shape = data.shape();
  shape.set_dim(0, num);
  SR_RETURN_IF_ERROR(large_output(c, 0, shape).status());
  // Rows without elements may be more than there is memory to count.
  if (shape.num_elements() == 0) return {};
  scratch->counts.resize(num);
  kernels::count_rows(scratch->ids, scratch->counts);
  const int64_t width = product_of(data.shape(), 1, data.shape().rank());
  return tensor::with_dtype<tensor::FloatTypes>(data.dtype(), [&]<class T>() -> Status {
    using C = tensor::ComputeType<T>;
    const Tensor wide = widened(c, data);
    WideOutput out(c, 0, shape);
    std::fill_n(out.data<C>(), shape.num_elements(), C(0));
    sum_at<C>(wide.data<const C>().data(), *scratch, width, out.data<C>());
    divide_rows<C>(options.combiner, scratch->counts, width, out.data<C>());
    return out.store();
  });
}

KernelFactory sparse(Combiner combiner) {
  return with_arity(
      3, 4, 1, like_input([combiner](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
        const bool given =
            bind.instruction.inputs.size() > 3 || bind.instruction.attrs.contains("num_segments");
        IntArg num;
        if (given) {
          SR_ASSIGN_OR_RETURN(num, IntArg::bind(bind, "num_segments", 3));
        }
        const SparseOptions options = {
            .combiner = combiner,
            .gathered = ir::attr_or(bind.instruction.attrs, "gathered", false)};
        return make_kernel(
            [options, given, num, scratch = Scratch()](KernelContext& c) mutable -> Status {
              return run_sparse(c, options, given ? &num : nullptr, &scratch);
            });
      }));
}

// --- What gradients are made of.

Result<Combiner> combiner_of(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const std::string name,
                      ir::get_attr<std::string>(bind.instruction.attrs, "combiner"));
  if (name == "sum") return Combiner::kSum;
  if (name == "mean") return Combiner::kMean;
  if (name == "sqrt_n") return Combiner::kSqrtN;
  return invalid_argument("combiner is '{}'; it must be 'sum', 'mean' or 'sqrt_n'", name);
}

Status run_spread(KernelContext& c, Combiner combiner, Scratch* scratch) {
  const Tensor g = c.input(0);
  const Shape ids_shape = c.input(1).shape();
  if (g.shape().rank() < 1) return invalid_argument("the rows are a scalar");
  SR_RETURN_IF_ERROR(read_ids(c.input(1), false, &scratch->ids));
  const int64_t num = g.shape().dim(0);
  SR_RETURN_IF_ERROR(check_below(scratch->ids, num));
  Shape shape = ids_shape;
  for (int i = 1; i < g.shape().rank(); ++i) shape.append(g.shape().dim(i));
  const int64_t width = product_of(g.shape(), 1, g.shape().rank());
  Tensor& out = c.output(0, shape);
  kernels::take_rows(g.raw(), scratch->ids, width * bytes_of(g), out.raw());
  if (combiner == Combiner::kSum || shape.num_elements() == 0) return {};
  scratch->counts.resize(num);
  kernels::count_rows(scratch->ids, scratch->counts);
  return tensor::with_dtype<tensor::FloatTypes>(g.dtype(), [&]<class T>() -> Status {
    using C = tensor::ComputeType<T>;
    T* to = out.data<T>().data();
    for (size_t i = 0; i < scratch->ids.size(); ++i, to += width) {
      if (scratch->ids[i] < 0) continue;
      const C divisor = divisor_of<C>(combiner, scratch->counts[scratch->ids[i]]);
      for (int64_t j = 0; j < width; ++j) {
        to[j] = static_cast<T>(static_cast<C>(to[j]) / divisor);
      }
    }
    return {};
  });
}

Result<std::unique_ptr<Kernel>> segment_spread(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const Combiner combiner, combiner_of(bind));
  return make_kernel([combiner, scratch = Scratch()](KernelContext& c) mutable -> Status {
    return run_spread(c, combiner, &scratch);
  });
}

/// 1 over the number of elements of the segment that equal its extreme, for those that do.
template <class T>
void share_ties(const T* x, const T* extremes, const Scratch& scratch, int64_t width,
                std::vector<int64_t>* ties, T* out) {
  using C = tensor::ComputeType<T>;
  const auto equal = [&](size_t i, int64_t j) {
    return static_cast<C>(x[static_cast<int64_t>(i) * width + j]) ==
           static_cast<C>(extremes[scratch.ids[i] * width + j]);
  };
  for (size_t i = 0; i < scratch.ids.size(); ++i) {
    if (scratch.ids[i] < 0) continue;
    for (int64_t j = 0; j < width; ++j) {
      if (equal(i, j)) ++(*ties)[scratch.ids[i] * width + j];
    }
  }
  for (size_t i = 0; i < scratch.ids.size(); ++i) {
    for (int64_t j = 0; j < width; ++j) {
      const bool wins = scratch.ids[i] >= 0 && equal(i, j);
      const auto count = wins ? static_cast<C>((*ties)[scratch.ids[i] * width + j]) : C(1);
      out[static_cast<int64_t>(i) * width + j] = static_cast<T>(wins ? C(1) / count : C(0));
    }
  }
}

Result<std::unique_ptr<Kernel>> segment_ties(const BindContext&) {
  return make_kernel([scratch = Scratch()](KernelContext& c) mutable -> Status {
    const Tensor x = c.input(0);
    const Tensor extremes = c.input(1);
    SR_RETURN_IF_ERROR(check_same_dtype(c, 0, 1));
    const Shape ids = c.input(2).shape();
    SR_RETURN_IF_ERROR(check_ids_fit(x.shape(), ids));
    SR_RETURN_IF_ERROR(read_ids(c.input(2), false, &scratch.ids));
    const int64_t width = product_of(x.shape(), ids.rank(), x.shape().rank());
    if (extremes.shape().rank() < 1 || extremes.num_elements() != extremes.shape().dim(0) * width) {
      return invalid_argument("extremes of shape {} do not fit", extremes.shape().to_string());
    }
    SR_RETURN_IF_ERROR(check_below(scratch.ids, extremes.shape().dim(0)));
    scratch.counts.assign(extremes.num_elements(), 0);
    return tensor::with_dtype<tensor::NumericTypes>(x.dtype(), [&]<class T>() -> Status {
      T* out = c.output(0, x.shape()).template data<T>().data();
      share_ties<T>(x.data<const T>().data(), extremes.data<const T>().data(), scratch, width,
                    &scratch.counts, out);
      return {};
    });
  });
}

}  // namespace

void register_array_segment_kernels(KernelTable* table) {
  table->add("SegmentSum", sorted({}));
  table->add("SegmentMean", sorted({RowOp::kAdd, Combiner::kMean}));
  table->add("SegmentProd", sorted({RowOp::kMul, Combiner::kSum}));
  table->add("SegmentMax", sorted({RowOp::kMax, Combiner::kSum}));
  table->add("SegmentMin", sorted({RowOp::kMin, Combiner::kSum}));
  table->add("UnsortedSegmentSum", unsorted({}));
  table->add("UnsortedSegmentMean", unsorted({RowOp::kAdd, Combiner::kMean}));
  table->add("UnsortedSegmentSqrtN", unsorted({RowOp::kAdd, Combiner::kSqrtN}));
  table->add("UnsortedSegmentProd", unsorted({RowOp::kMul, Combiner::kSum}));
  table->add("UnsortedSegmentMax", unsorted({RowOp::kMax, Combiner::kSum}));
  table->add("UnsortedSegmentMin", unsorted({RowOp::kMin, Combiner::kSum}));
  table->add("SparseSegmentSum", sparse(Combiner::kSum));
  table->add("SparseSegmentMean", sparse(Combiner::kMean));
  table->add("SparseSegmentSqrtN", sparse(Combiner::kSqrtN));
  table->add("SegmentSpread", with_arity(2, 2, 1, like_input(segment_spread)));
  table->add("SegmentTies", with_arity(3, 3, 1, like_input(segment_ties)));
}

}  // namespace sidereal::exec
