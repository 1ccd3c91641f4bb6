#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "sidereal/exec/array_util.h"
#include "sidereal/kernels/rows.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::RowOp;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

using Rows = std::vector<int64_t>;  // Kept from run to run.

// --- Gather.

/// A Gather as loops: for every batch and every place before the axis, rows of `inner` elements.
struct GatherLoops {
  int64_t batch = 1;
  int64_t outer = 1;
  int64_t extent = 1;
  int64_t inner = 1;
  int64_t indices = 1;  // Per batch.
  Shape gathered;
};

struct GatherAttrs {
  int64_t axis = 0;
  int64_t batch_dims = 0;
};

GatherAttrs gather_attrs(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  return {ir::attr_or<int64_t>(attrs, "axis", 0), ir::attr_or<int64_t>(attrs, "batch_dims", 0)};
}

Result<GatherLoops> loops_of(const GatherAttrs& attrs, const Shape& x, const Shape& indices) {
  SR_ASSIGN_OR_RETURN(const int axis, axis_in(attrs.axis, x.rank()));
  const int64_t batch_dims =
      attrs.batch_dims < 0 ? attrs.batch_dims + indices.rank() : attrs.batch_dims;
  if (batch_dims < 0 || batch_dims > indices.rank() || batch_dims > axis) {
    return invalid_argument("{} batch dimensions do not fit indices of shape {} and axis {}",
                            attrs.batch_dims, indices.to_string(), axis);
  }
  const auto batched = static_cast<int>(batch_dims);
  for (int i = 0; i < batched; ++i) {
    if (x.dim(i) == indices.dim(i)) continue;
    return invalid_argument("shapes {} and {} differ in batch dimension {}", x.to_string(),
                            indices.to_string(), i);
  }
  GatherLoops loops;
  loops.batch = product_of(x, 0, batched);
  loops.outer = product_of(x, batched, axis);
  loops.extent = x.dim(axis);
  loops.inner = product_of(x, axis + 1, x.rank());
  loops.indices = product_of(indices, batched, indices.rank());
  for (int i = 0; i < axis; ++i) loops.gathered.append(x.dim(i));
  for (int i = batched; i < indices.rank(); ++i) loops.gathered.append(indices.dim(i));
  for (int i = axis + 1; i < x.rank(); ++i) loops.gathered.append(x.dim(i));
  return loops;
}

/// Checks the indices and leaves them in `rows` as int64.
Status read_indices(const Tensor& indices, int64_t extent, Rows* rows) {
  return with_index(indices.dtype(), [&]<class I>() -> Status {
    const std::span<const I> in = indices.data<const I>();
    const int64_t bad = kernels::first_outside<I>(in, extent, /*skip_negative=*/false);
    if (bad >= 0) {
      return base::invalid_argument("index {} at {} of the indices is not in [0, {})", in[bad],
                                    place_of(bad, indices.shape()), extent);
    }
    rows->assign(in.begin(), in.end());
    return {};
  });
}

/// Calls run(place in x, indices of one batch, place in the gathered value), in elements.
template <class Run>
void run_loops(const GatherLoops& loops, const Rows& rows, Run run) {
  const auto count = static_cast<size_t>(loops.indices);
  for (int64_t b = 0; b < loops.batch; ++b) {
    const std::span<const int64_t> mine(rows.data() + b * loops.indices, count);
    for (int64_t o = 0; o < loops.outer; ++o) {
      const int64_t block = b * loops.outer + o;
      run(block * loops.extent * loops.inner, mine, block * loops.indices * loops.inner);
    }
  }
}

Result<std::unique_ptr<Kernel>> gather(const BindContext& bind) {
  const DType in = bind.program.slots[bind.instruction.inputs[0]].dtype;
  const DType out = bind.program.slots[bind.instruction.outputs[0]].dtype;
  if (in != DType::kFloat32 || out != DType::kBFloat16) {
    SR_RETURN_IF_ERROR(check_slot(bind, bind.instruction.outputs[0], in, "the output"));
  }
  const GatherAttrs attrs = gather_attrs(bind);
  return make_kernel([attrs, rows = Rows()](KernelContext& c) mutable -> Status {
    const Tensor x = c.input(0);
    SR_ASSIGN_OR_RETURN(const GatherLoops loops, loops_of(attrs, x.shape(), c.input(1).shape()));
    SR_RETURN_IF_ERROR(read_indices(c.input(1), loops.extent, &rows));
    Tensor& out = c.output(0, loops.gathered);
    if (out.nbytes() == 0) return {};
    if (out.dtype() != x.dtype()) {
      const float* from = x.data<const float>().data();
      auto* rounded = out.data<tensor::BFloat16>().data();
      run_loops(loops, rows, [&](int64_t in, std::span<const int64_t> mine, int64_t to) {
        kernels::take_rows(from + in, mine, loops.inner, rounded + to);
      });
      return {};
    }
    const int64_t bytes = bytes_of(x);
    run_loops(loops, rows, [&](int64_t in, std::span<const int64_t> mine, int64_t to) {
      const int64_t row = loops.inner * bytes;
      const auto count = static_cast<int64_t>(mine.size());
      c.parallel(count, kGrainBytes / row + 1, [&](int64_t begin, int64_t end) {
        kernels::take_rows(
            x.raw() + in * bytes,
            mine.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), row,
            out.raw() + to * bytes + begin * row);
      });
    });
    return {};
  });
}

Result<std::unique_ptr<Kernel>> gather_grad(const BindContext& bind) {
  const GatherAttrs attrs = gather_attrs(bind);
  return make_kernel([attrs, rows = Rows()](KernelContext& c) mutable -> Status {
    const Tensor dy = c.input(0);
    const Shape to = c.input(2).shape();
    SR_ASSIGN_OR_RETURN(const GatherLoops loops, loops_of(attrs, to, c.input(1).shape()));
    if (!(dy.shape() == loops.gathered)) {
      return invalid_argument("dy has shape {}, but {} was gathered", dy.shape().to_string(),
                              loops.gathered.to_string());
    }
    SR_RETURN_IF_ERROR(read_indices(c.input(1), loops.extent, &rows));
    return tensor::with_dtype<tensor::NumericTypes>(dy.dtype(), [&]<class T>() -> Status {
      using C = tensor::ComputeType<T>;
      const Tensor wide = widened(c, dy);
      WideOutput out(c, 0, to);
      std::fill_n(out.data<C>(), to.num_elements(), C(0));
      run_loops(loops, rows, [&](int64_t at, std::span<const int64_t> mine, int64_t from) {
        kernels::combine_rows<C>(RowOp::kAdd, wide.data<const C>().data() + from, mine, loops.inner,
                                 out.data<C>() + at);
      });
      return out.store();
    });
  });
}

// --- GatherNd and the scatters.

/// Indices [batch..., n..., k] into a value [batch..., k dimensions, rest...], as row numbers.
struct NdLoops {
  int batch_dims = 0;
  int k = 0;
  int64_t inner = 1;
  Shape slices;
};

Result<NdLoops> nd_loops(int64_t batch_dims, const Shape& x, const Shape& indices) {
  if (indices.rank() < 1) return invalid_argument("the indices are a scalar");
  const int64_t k = indices.dim(-1);
  if (batch_dims < 0 || batch_dims >= indices.rank() || k > x.rank() - batch_dims) {
    return invalid_argument(
        "indices of shape {} with {} batch dimensions do not index a value of "
        "shape {}",
        indices.to_string(), batch_dims, x.to_string());
  }
  NdLoops loops;
  loops.batch_dims = static_cast<int>(batch_dims);
  loops.k = static_cast<int>(k);
  for (int i = 0; i < loops.batch_dims; ++i) {
    if (x.dim(i) == indices.dim(i)) continue;
    return invalid_argument("shapes {} and {} differ in batch dimension {}", x.to_string(),
                            indices.to_string(), i);
  }
  for (int i = 0; i < indices.rank() - 1; ++i) loops.slices.append(indices.dim(i));
  for (int i = loops.batch_dims + loops.k; i < x.rank(); ++i) loops.slices.append(x.dim(i));
  loops.inner = product_of(x, loops.batch_dims + loops.k, x.rank());
  return loops;
}

/// The row number each index tuple means.
Status read_tuples(const NdLoops& loops, const Shape& x, const Tensor& indices, Rows* rows) {
  int64_t tuples = 1;
  for (int i = 0; i < indices.shape().rank() - 1; ++i) tuples *= indices.shape().dim(i);
  const int64_t batches = product_of(x, 0, loops.batch_dims);
  const int64_t per_batch = batches > 0 ? tuples / batches : 0;
  rows->resize(tuples);
  return with_index(indices.dtype(), [&]<class I>() -> Status {
    const I* in = indices.data<const I>().data();
    for (int64_t t = 0; t < tuples; ++t, in += loops.k) {
      int64_t row = per_batch > 0 ? t / per_batch : 0;
      for (int d = 0; d < loops.k; ++d) {
        const int64_t extent = x.dim(loops.batch_dims + d);
        const auto index = static_cast<int64_t>(in[d]);
        if (index < 0 || index >= extent) [[unlikely]] {
          return base::invalid_argument(
              "index {} at {} of the indices is not in [0, {}), the range of dimension {} of {}",
              index, place_of(t * loops.k + d, indices.shape()), extent, loops.batch_dims + d,
              x.to_string());
        }
        row = row * extent + index;
      }
      (*rows)[t] = row;
    }
    return {};
  });
}

int64_t batch_dims_of(const BindContext& bind) {
  return ir::attr_or<int64_t>(bind.instruction.attrs, "batch_dims", 0);
}

Result<std::unique_ptr<Kernel>> gather_nd(const BindContext& bind) {
  const int64_t batch_dims = batch_dims_of(bind);
  return make_kernel([batch_dims, rows = Rows()](KernelContext& c) mutable -> Status {
    const Tensor x = c.input(0);
    const Tensor indices = c.input(1);
    SR_ASSIGN_OR_RETURN(const NdLoops loops, nd_loops(batch_dims, x.shape(), indices.shape()));
    SR_RETURN_IF_ERROR(read_tuples(loops, x.shape(), indices, &rows));
    Tensor& out = c.output(0, loops.slices);
    kernels::take_rows(x.raw(), rows, loops.inner * bytes_of(x), out.raw());
    return {};
  });
}

/// Zeros of shape `to` with the rows of `updates` added.
Status scatter_into_zeros(KernelContext& c, const Tensor& updates, const Rows& rows, int64_t inner,
                          const Shape& to) {
  return tensor::with_dtype<tensor::NumericTypes>(updates.dtype(), [&]<class T>() -> Status {
    using C = tensor::ComputeType<T>;
    const Tensor wide = widened(c, updates);
    WideOutput out(c, 0, to);
    std::fill_n(out.data<C>(), to.num_elements(), C(0));
    kernels::combine_rows<C>(RowOp::kAdd, wide.data<const C>().data(), rows, inner, out.data<C>());
    return out.store();
  });
}

Status check_slices(const Tensor& updates, const NdLoops& loops) {
  if (updates.shape() == loops.slices) return {};
  return invalid_argument("the updates have shape {}, but the indices ask for {}",
                          updates.shape().to_string(), loops.slices.to_string());
}

Result<std::unique_ptr<Kernel>> gather_nd_grad(const BindContext& bind) {
  const int64_t batch_dims = batch_dims_of(bind);
  return make_kernel([batch_dims, rows = Rows()](KernelContext& c) mutable -> Status {
    const Tensor dy = c.input(0);
    const Tensor indices = c.input(1);
    const Shape to = c.input(2).shape();
    SR_ASSIGN_OR_RETURN(const NdLoops loops, nd_loops(batch_dims, to, indices.shape()));
    SR_RETURN_IF_ERROR(check_slices(dy, loops));
    SR_RETURN_IF_ERROR(read_tuples(loops, to, indices, &rows));
    return scatter_into_zeros(c, dy, rows, loops.inner, to);
  });
}

Result<std::unique_ptr<Kernel>> scatter_nd(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const IntsArg arg, IntsArg::bind(bind, "shape", 2));
  return make_kernel([arg, rows = Rows()](KernelContext& c) mutable -> Status {
    const Tensor indices = c.input(0);
    const Tensor updates = c.input(1);
    SR_ASSIGN_OR_RETURN(const Ints extents, arg.get(c));
    SR_ASSIGN_OR_RETURN(const Shape to, checked_shape(extents));
    SR_ASSIGN_OR_RETURN(const NdLoops loops, nd_loops(0, to, indices.shape()));
    SR_RETURN_IF_ERROR(check_slices(updates, loops));
    SR_RETURN_IF_ERROR(read_tuples(loops, to, indices, &rows));
    SR_RETURN_IF_ERROR(large_output(c, 0, to).status());
    return scatter_into_zeros(c, updates, rows, loops.inner, to);
  });
}

/// The number of a TensorScatter op that is none of RowOp's: the update takes the place.
constexpr int kUpdate = -1;

KernelFactory tensor_scatter(int op) {
  return with_arity(
      3, 3, 1, like_input([op](const BindContext&) {
        return make_kernel([op, rows = Rows()](KernelContext& c) mutable -> Status {
          SR_RETURN_IF_ERROR(check_same_dtype(c, 0, 2));
          const Tensor x = c.input(0);
          const Tensor indices = c.input(1);
          const Tensor updates = c.input(2);
          SR_ASSIGN_OR_RETURN(const NdLoops loops, nd_loops(0, x.shape(), indices.shape()));
          SR_RETURN_IF_ERROR(check_slices(updates, loops));
          SR_RETURN_IF_ERROR(read_tuples(loops, x.shape(), indices, &rows));
          if (op == kUpdate) {
            Tensor& out = c.output(0, x.shape());
            if (x.nbytes() > 0) std::memcpy(out.raw(), x.raw(), x.nbytes());
            kernels::put_rows(updates.raw(), rows, loops.inner * bytes_of(x), out.raw());
            return {};
          }
          return tensor::with_dtype<tensor::NumericTypes>(x.dtype(), [&]<class T>() -> Status {
            using C = tensor::ComputeType<T>;
            const Tensor from = widened(c, x);
            const Tensor wide = widened(c, updates);
            WideOutput out(c, 0, x.shape());
            std::copy_n(from.data<const C>().data(), x.num_elements(), out.data<C>());
            kernels::combine_rows<C>(static_cast<RowOp>(op), wide.data<const C>().data(), rows,
                                     loops.inner, out.data<C>());
            return out.store();
          });
        });
      }));
}

}  // namespace

void register_array_gather_kernels(KernelTable* table) {
  table->add("Gather", with_arity(2, 2, 1, gather));
  table->add("GatherGrad", with_arity(3, 3, 1, like_input(gather_grad)));
  table->add("GatherNd", with_arity(2, 2, 1, like_input(gather_nd)));
  table->add("GatherNdGrad", with_arity(3, 3, 1, like_input(gather_nd_grad)));
  table->add("ScatterNd", with_arity(2, 3, 1, output_like(0, 1, scatter_nd)));
  table->add("TensorScatterAdd", tensor_scatter(static_cast<int>(RowOp::kAdd)));
  table->add("TensorScatterSub", tensor_scatter(static_cast<int>(RowOp::kSub)));
  table->add("TensorScatterUpdate", tensor_scatter(kUpdate));
  table->add("TensorScatterMax", tensor_scatter(static_cast<int>(RowOp::kMax)));
  table->add("TensorScatterMin", tensor_scatter(static_cast<int>(RowOp::kMin)));
}

}  // namespace sidereal::exec
