#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/exec/array_util.h"
#include "sidereal/kernels/rows.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

// --- UniqueWithCounts.

struct UniqueScratch {
  absl::flat_hash_map<uint64_t, int64_t> places;
  absl::flat_hash_map<std::string_view, int64_t> text_places;
  std::vector<int64_t> inverse;
  std::vector<int64_t> first;  // Of each distinct element: where it first is.
  std::vector<int64_t> counts;
};

/// What equal elements have in common: their bits, with one zero for both.
template <class T>
uint64_t key_of(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(x);
  } else {
    using C = tensor::ComputeType<T>;
    const C value = x;
    return std::bit_cast<uint64_t>(value == 0 ? 0.0 : static_cast<double>(value));
  }
}

/// Elements are numbered in the order they first appear. A NaN equals nothing, itself included.
template <class T>
void find_unique(std::span<const T> x, UniqueScratch* scratch) {
  scratch->places.clear();
  scratch->text_places.clear();
  scratch->inverse.clear();
  scratch->first.clear();
  scratch->counts.clear();
  for (size_t i = 0; i < x.size(); ++i) {
    const auto next = static_cast<int64_t>(scratch->first.size());
    int64_t place = next;
    if constexpr (std::is_same_v<T, std::string_view>) {
      place = scratch->text_places.try_emplace(x[i], next).first->second;
    } else if (static_cast<tensor::ComputeType<T>>(x[i]) ==
               static_cast<tensor::ComputeType<T>>(x[i])) {
      place = scratch->places.try_emplace(key_of(x[i]), next).first->second;
    }
    if (place == next) {
      scratch->first.push_back(static_cast<int64_t>(i));
      scratch->counts.push_back(0);
    }
    ++scratch->counts[place];
    scratch->inverse.push_back(place);
  }
}

/// Writes `values` to output `i` as the int32 or int64 the program says.
Status put_ints(KernelContext& c, int i, std::span<const int64_t> values) {
  return with_index(c.output_dtype(i), [&]<class I>() -> Status {
    I* out = c.output(i, Shape{static_cast<int64_t>(values.size())}).template data<I>().data();
    for (size_t j = 0; j < values.size(); ++j) out[j] = static_cast<I>(values[j]);
    return {};
  });
}

Result<std::unique_ptr<Kernel>> unique(const BindContext&) {
  return make_kernel([scratch = UniqueScratch()](KernelContext& c) mutable -> Status {
    SR_RETURN_IF_ERROR(check_rank(c, 0, 1));
    const Tensor x = c.input(0);
    SR_RETURN_IF_ERROR(tensor::with_dtype<tensor::AllTypes>(x.dtype(), [&]<class T>() -> Status {
      find_unique<T>(x.data<const T>(), &scratch);
      return {};
    }));
    const auto found = static_cast<int64_t>(scratch.first.size());
    kernels::take_rows(x.raw(), scratch.first, bytes_of(x), c.output(0, Shape{found}).raw());
    SR_RETURN_IF_ERROR(put_ints(c, 1, scratch.inverse));
    return put_ints(c, 2, scratch.counts);
  });
}

// --- Bincount.

template <class T>
void count_into(const Ints& x, const T* weights, int64_t size, T* out) {
  using C = tensor::ComputeType<T>;
  std::fill_n(out, size, static_cast<T>(C(0)));
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] >= size) continue;
    const C weight = weights == nullptr ? C(1) : static_cast<C>(weights[i]);
    out[x[i]] = static_cast<T>(static_cast<C>(static_cast<C>(out[x[i]]) + weight));
  }
}

Result<std::unique_ptr<Kernel>> bincount(const BindContext& bind) {
  const auto at_least = ir::attr_or<int64_t>(bind.instruction.attrs, "minlength", 0);
  const auto at_most = ir::attr_or<int64_t>(bind.instruction.attrs, "maxlength", -1);
  return make_kernel([at_least, at_most](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const Ints x, ints_of(c.input(0)));
    const bool weighted = c.num_inputs() > 1;
    if (weighted && !(c.input(1).shape() == c.input(0).shape())) {
      return invalid_argument("weights of shape {} for numbers of shape {}",
                              c.input(1).shape().to_string(), c.input(0).shape().to_string());
    }
    if (weighted && c.input(1).dtype() != c.output_dtype(0)) {
      return invalid_argument("the weights are not of the dtype of the output");
    }
    int64_t size = 0;
    for (const int64_t value : x) {
      if (value < 0) return invalid_argument("{} is negative and cannot be counted", value);
      // The largest number of all has none after it: no output holds as many, unless cut to
      // maxlength.
      size = std::max(size, value == std::numeric_limits<int64_t>::max() ? value : value + 1);
    }
    size = std::max(size, at_least);
    if (at_most >= 0) size = std::min(size, at_most);
    SR_RETURN_IF_ERROR(large_output(c, 0, Shape{size}).status());
    return tensor::with_dtype<tensor::NumericTypes>(c.output_dtype(0), [&]<class T>() -> Status {
      const T* weights = weighted ? c.in<T>(1).data() : nullptr;
      count_into<T>(x, weights, size, c.output(0, Shape{size}).template data<T>().data());
      return {};
    });
  });
}

// --- Where.

/// Calls found(flat index) for every element that is not zero or false.
template <class F>
Status for_each_true(const Tensor& x, F found) {
  return tensor::with_dtype<tensor::PlainTypes>(x.dtype(), [&]<class T>() -> Status {
    const std::span<const T> data = x.data<const T>();
    for (size_t i = 0; i < data.size(); ++i) {
      if (static_cast<tensor::ComputeType<T>>(data[i]) != tensor::ComputeType<T>(0)) {
        found(static_cast<int64_t>(i));
      }
    }
    return {};
  });
}

Status where(KernelContext& c) {
  const Tensor x = c.input(0);
  const int rank = x.shape().rank();
  int64_t count = 0;
  SR_RETURN_IF_ERROR(for_each_true(x, [&](int64_t) { ++count; }));
  int64_t* out = c.output(0, Shape{count, rank}).data<int64_t>().data();
  return for_each_true(x, [&](int64_t flat) {
    for (int d = rank; d-- > 0;) {
      out[d] = flat % x.shape().dim(d);
      flat /= x.shape().dim(d);
    }
    out += rank;
  });
}

// --- Partition and stitch.

Result<std::unique_ptr<Kernel>> dynamic_partition(const BindContext&) {
  return make_kernel([counts = std::vector<int64_t>()](KernelContext& c) mutable -> Status {
    const Tensor x = c.input(0);
    const Shape ids_shape = c.input(1).shape();
    const int64_t num = c.num_outputs();
    bool fits = ids_shape.rank() <= x.shape().rank();
    for (int i = 0; fits && i < ids_shape.rank(); ++i) fits = ids_shape.dim(i) == x.shape().dim(i);
    if (!fits) {
      return invalid_argument("partitions of shape {} do not fit data of shape {}",
                              ids_shape.to_string(), x.shape().to_string());
    }
    SR_ASSIGN_OR_RETURN(const Ints ids, ints_of(c.input(1)));
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= 0 && ids[i] < num) continue;
      return base::invalid_argument("partition {} at element {} is not in [0, {})", ids[i], i, num);
    }
    counts.resize(num);
    kernels::count_rows(ids, counts);
    const int64_t row = product_of(x.shape(), ids_shape.rank(), x.shape().rank()) * bytes_of(x);
    absl::InlinedVector<std::byte*, 8> to(num);
    for (int64_t p = 0; p < num; ++p) {
      Shape shape{counts[p]};
      for (int i = ids_shape.rank(); i < x.shape().rank(); ++i) shape.append(x.shape().dim(i));
      to[p] = c.output(static_cast<int>(p), shape).raw();
    }
    if (row == 0) return {};
    for (size_t i = 0; i < ids.size(); ++i) {
      std::memcpy(to[ids[i]], x.raw() + static_cast<int64_t>(i) * row, row);
      to[ids[i]] += row;
    }
    return {};
  });
}

/// The shape of one row of data `i` of `n`; kInvalidArgument when its indices do not fit it.
Result<Shape> stitched_row(const KernelContext& c, int i, int n) {
  const Shape& ids = c.input(i).shape();
  const Shape& data = c.input(n + i).shape();
  bool fits = ids.rank() <= data.rank();
  for (int d = 0; fits && d < ids.rank(); ++d) fits = ids.dim(d) == data.dim(d);
  if (!fits) {
    return invalid_argument("indices {} of shape {} do not fit data of shape {}", i,
                            ids.to_string(), data.to_string());
  }
  Shape row;
  for (int d = ids.rank(); d < data.rank(); ++d) row.append(data.dim(d));
  return row;
}

Status dynamic_stitch(KernelContext& c) {
  const int n = c.num_inputs() / 2;
  if (n == 0 || c.num_inputs() % 2 != 0) return invalid_argument("indices and data do not pair up");
  SR_ASSIGN_OR_RETURN(const Shape row, stitched_row(c, 0, n));
  std::vector<Ints> ids;
  int64_t size = 0;
  for (int i = 0; i < n; ++i) {
    SR_RETURN_IF_ERROR(check_same_dtype(c, n, n + i));
    SR_ASSIGN_OR_RETURN(const Shape mine, stitched_row(c, i, n));
    if (!(mine == row)) {
      return invalid_argument("rows of shapes {} and {} cannot be stitched together",
                              row.to_string(), mine.to_string());
    }
    SR_ASSIGN_OR_RETURN(Ints list, ints_of(c.input(i)));
    for (const int64_t id : list) {
      if (id < 0) return base::invalid_argument("index {} is negative", id);
      size = std::max(size, id + 1);
    }
    ids.push_back(std::move(list));
  }
  Shape shape{size};
  for (const int64_t extent : row.dims()) shape.append(extent);
  SR_ASSIGN_OR_RETURN(Tensor* const out, large_output(c, 0, shape));
  if (out->nbytes() > 0) std::memset(out->raw(), 0, out->nbytes());
  const int64_t bytes = row.num_elements() * bytes_of(*out);
  for (int i = 0; i < n; ++i) kernels::put_rows(c.input(n + i).raw(), ids[i], bytes, out->raw());
  return {};
}

KernelFactory stitch_factory() {
  return [](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
    const std::vector<int32_t>& inputs = bind.instruction.inputs;
    const DType dtype = bind.program.slots[inputs[inputs.size() / 2]].dtype;
    SR_RETURN_IF_ERROR(check_slot(bind, bind.instruction.outputs[0], dtype, "the output"));
    return make_kernel(dynamic_stitch);
  };
}

}  // namespace

void register_array_membership_kernels(KernelTable* table) {
  table->add("UniqueWithCounts", with_arity(1, 1, 3, output_like(0, 0, unique)));
  table->add("Bincount", with_arity(1, 2, 1, bincount));
  table->add("Where", with_arity(1, 1, 1, with_outputs({DType::kInt64}, stateless(where))));
  table->add("DynamicPartition", with_arity(2, 2, -1, like_input(dynamic_partition)));
  table->add("DynamicStitch", with_arity(2, -1, 1, stitch_factory()));
}

}  // namespace sidereal::exec
