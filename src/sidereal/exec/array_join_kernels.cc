#include <algorithm>
#include <cstring>

#include "sidereal/exec/array_util.h"
#include "sidereal/kernels/grid.h"
#include "sidereal/kernels/strided.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::Grid;
using kernels::StridedView;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// Copies `block` bytes of each of `count` places, `to_step` and `from_step` bytes apart.
void copy_blocks(const std::byte* from, int64_t from_step, std::byte* to, int64_t to_step,
                 int64_t block, int64_t count) {
  if (block == 0) return;
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * to_step, from + i * from_step, block);
}

/// `shape` around `axis`: values before it, and bytes of one of its steps.
struct Around {
  int64_t outer;
  int64_t inner_bytes;
};

Around around(const Shape& shape, int axis, int64_t bytes) {
  return {product_of(shape, 0, axis), product_of(shape, axis + 1, shape.rank()) * bytes};
}

Result<int64_t> axis_of(const BindContext& bind) {
  return ir::get_attr<int64_t>(bind.instruction.attrs, "axis");
}

// --- Concat and its gradient.

Result<std::unique_ptr<Kernel>> concat(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t wanted, axis_of(bind));
  return make_kernel([wanted](KernelContext& c) -> Status {
    const Tensor& first = c.input(0);
    SR_ASSIGN_OR_RETURN(const int axis, axis_in(wanted, first.shape().rank()));
    Shape shape = first.shape();
    int64_t extent = 0;
    for (int i = 0; i < c.num_inputs(); ++i) {
      const Tensor& x = c.input(i);
      Shape expected = first.shape();
      if (x.shape().rank() == expected.rank()) expected.set_dim(axis, x.shape().dim(axis));
      if (x.dtype() != first.dtype() || !(x.shape() == expected)) {
        return invalid_argument("inputs differ outside axis {}", axis);
      }
      extent += x.shape().dim(axis);
    }
    shape.set_dim(axis, extent);
    const Around to = around(shape, axis, bytes_of(first));
    Tensor& out = c.output(0, shape);
    const int64_t step = extent * to.inner_bytes;
    c.parallel(to.outer, kGrainBytes / (step + 1) + 1, [&](int64_t begin, int64_t end) {
      int64_t at = begin * step;
      for (int i = 0; i < c.num_inputs(); ++i) {
        const int64_t run = c.input(i).shape().dim(axis) * to.inner_bytes;
        copy_blocks(c.input(i).raw() + begin * run, run, out.raw() + at, step, run, end - begin);
        at += run;
      }
    });
    return {};
  });
}

/// Cuts `x` along `axis` into outputs of the given extents, which add up to x's.
void cut(KernelContext& c, const Tensor& x, int axis, std::span<const int64_t> extents) {
  const Around from = around(x.shape(), axis, bytes_of(x));
  const int64_t step = x.shape().dim(axis) * from.inner_bytes;
  int64_t at = 0;
  for (int i = 0; i < c.num_outputs(); ++i) {
    Shape shape = x.shape();
    shape.set_dim(axis, extents[i]);
    const int64_t run = extents[i] * from.inner_bytes;
    copy_blocks(x.raw() + at, step, c.output(i, shape).raw(), run, run, from.outer);
    at += run;
  }
}

Result<std::unique_ptr<Kernel>> concat_grad(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t wanted, axis_of(bind));
  if (bind.instruction.outputs.size() + 1 != bind.instruction.inputs.size()) {
    return invalid_argument("{} outputs for {} values", bind.instruction.outputs.size(),
                            bind.instruction.inputs.size() - 1);
  }
  return make_kernel([wanted](KernelContext& c) -> Status {
    const Tensor dy = c.input(0);
    SR_ASSIGN_OR_RETURN(const int axis, axis_in(wanted, dy.shape().rank()));
    Ints extents;
    int64_t sum = 0;
    for (int i = 1; i < c.num_inputs(); ++i) {
      const Shape& like = c.input(i).shape();
      Shape expected = dy.shape();
      if (like.rank() == dy.shape().rank()) expected.set_dim(axis, like.dim(axis));
      if (!(like == expected)) {
        return invalid_argument("input {} has shape {}, which is no part of {}", i,
                                like.to_string(), dy.shape().to_string());
      }
      extents.push_back(like.dim(axis));
      sum += like.dim(axis);
    }
    if (sum != dy.shape().dim(axis)) {
      return invalid_argument("the parts add up to {}, not to {}", sum, dy.shape().dim(axis));
    }
    cut(c, dy, axis, extents);
    return {};
  });
}

Result<std::unique_ptr<Kernel>> split(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t wanted, axis_of(bind));
  return make_kernel([wanted](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    SR_ASSIGN_OR_RETURN(const int axis, axis_in(wanted, x.shape().rank()));
    const int64_t extent = x.shape().dim(axis);
    const int num = c.num_outputs();
    if (num == 0 || extent % num != 0) {
      return invalid_argument("an axis of extent {} cannot be split into {} equal parts", extent,
                              num);
    }
    cut(c, x, axis, Ints(num, extent / num));
    return {};
  });
}

Result<std::unique_ptr<Kernel>> split_v(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t wanted, axis_of(bind));
  SR_ASSIGN_OR_RETURN(const auto sizes,
                      ir::get_attr<std::vector<int64_t>>(bind.instruction.attrs, "sizes"));
  if (sizes.size() != bind.instruction.outputs.size()) {
    return invalid_argument("{} sizes for {} outputs", sizes.size(),
                            bind.instruction.outputs.size());
  }
  return make_kernel([wanted, sizes](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    SR_ASSIGN_OR_RETURN(const int axis, axis_in(wanted, x.shape().rank()));
    const int64_t extent = x.shape().dim(axis);
    Ints extents(sizes.begin(), sizes.end());
    int64_t left = extent;
    int64_t* rest = nullptr;
    for (int64_t& size : extents) {
      if (size < 0) {
        if (rest != nullptr) return invalid_argument("two sizes are -1; one may be");
        rest = &size;
      } else if (size > left) {
        return invalid_argument("the sizes add up to more than the axis' extent {}", extent);
      } else {
        left -= size;
      }
    }
    if (rest != nullptr) {
      *rest = left;
    } else if (left != 0) {
      return invalid_argument("the sizes add up to {} less than the axis' extent {}", left, extent);
    }
    cut(c, x, axis, extents);
    return {};
  });
}

// --- Stack and Unstack.

Result<std::unique_ptr<Kernel>> stack(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t wanted, axis_of(bind));
  return make_kernel([wanted](KernelContext& c) -> Status {
    for (int i = 1; i < c.num_inputs(); ++i) SR_RETURN_IF_ERROR(check_same(c, 0, i));
    const Shape from = c.input(0).shape();
    SR_ASSIGN_OR_RETURN(const int axis, axis_in(wanted, from.rank() + 1));
    Ints extents(from.dims().begin(), from.dims().end());
    extents.insert(extents.begin() + axis, c.num_inputs());
    const int64_t run = product_of(from, axis, from.rank()) * bytes_of(c.input(0));
    const int64_t outer = product_of(from, 0, axis);
    Tensor& out = c.output(0, Shape{std::span<const int64_t>(extents)});
    for (int i = 0; i < c.num_inputs(); ++i) {
      copy_blocks(c.input(i).raw(), run, out.raw() + i * run, c.num_inputs() * run, run, outer);
    }
    return {};
  });
}

Result<std::unique_ptr<Kernel>> unstack(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t wanted, axis_of(bind));
  return make_kernel([wanted](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    SR_ASSIGN_OR_RETURN(const int axis, axis_in(wanted, x.shape().rank()));
    if (x.shape().dim(axis) != c.num_outputs()) {
      return invalid_argument("an axis of extent {} cannot be unstacked into {}",
                              x.shape().dim(axis), c.num_outputs());
    }
    const Around from = around(x.shape(), axis, bytes_of(x));
    Shape shape;
    for (int i = 0; i < x.shape().rank(); ++i) {
      if (i != axis) shape.append(x.shape().dim(i));
    }
    const int64_t run = from.inner_bytes;
    for (int i = 0; i < c.num_outputs(); ++i) {
      copy_blocks(x.raw() + i * run, c.num_outputs() * run, c.output(i, shape).raw(), run, run,
                  from.outer);
    }
    return {};
  });
}

// --- Tile.

/// `from` repeated `multiples` times; kInvalidArgument when they do not fit.
Result<Shape> tiled_shape(std::span<const int64_t> multiples, const Shape& from) {
  if (static_cast<int>(multiples.size()) != from.rank()) {
    return invalid_argument("{} multiples for a value of rank {}", multiples.size(), from.rank());
  }
  constexpr int64_t kTimesMax = int64_t{1} << 48;
  Ints extents;
  for (int i = 0; i < from.rank(); ++i) {
    const int64_t most = kTimesMax / std::max<int64_t>(from.dim(i), 1);
    if (multiples[i] < 0 || multiples[i] > most) {
      return invalid_argument("multiple {} is {}", i, multiples[i]);
    }
    extents.push_back(multiples[i] * from.dim(i));
  }
  return checked_shape(extents);
}

void tile_grid(std::span<const int64_t> multiples, const Shape& from, Grid* grid) {
  const StridedView dense = StridedView::dense(from);
  int whole = from.rank();
  while (whole > 0 && multiples[whole - 1] == 1) --whole;
  // The innermost dimension that is repeated is still moved in whole runs.
  grid->reset(product_of(from, std::max(whole - 1, 0), from.rank()));
  for (int d = 0; d + 1 < whole; ++d) {
    const std::span<int64_t> table = grid->add_dimension(multiples[d] * from.dim(d));
    for (size_t i = 0; i < table.size(); ++i) {
      table[i] = static_cast<int64_t>(i) % from.dim(d) * dense.strides[d];
    }
  }
  if (whole > 0) {
    const std::span<int64_t> table = grid->add_dimension(multiples[whole - 1]);
    std::fill(table.begin(), table.end(), 0);
  }
}

Result<std::unique_ptr<Kernel>> tile(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const IntsArg arg, IntsArg::bind(bind, "multiples", 1));
  return make_kernel([arg, grid = Grid()](KernelContext& c) mutable -> Status {
    const Tensor x = c.input(0);
    SR_ASSIGN_OR_RETURN(const Ints multiples, arg.get(c));
    SR_ASSIGN_OR_RETURN(const Shape to, tiled_shape(multiples, x.shape()));
    SR_ASSIGN_OR_RETURN(Tensor* const out, large_output(c, 0, to));
    if (out->num_elements() == 0) return {};
    tile_grid(multiples, x.shape(), &grid);
    kernels::gather_grid(x.raw(), grid, bytes_of(x), out->raw());
    return {};
  });
}

Result<std::unique_ptr<Kernel>> tile_grad(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const IntsArg arg, IntsArg::bind(bind, "multiples", 2));
  return make_kernel([arg, grid = Grid()](KernelContext& c) mutable -> Status {
    const Tensor dy = c.input(0);
    const Shape from = c.input(1).shape();
    SR_ASSIGN_OR_RETURN(const Ints multiples, arg.get(c));
    SR_ASSIGN_OR_RETURN(const Shape tiled, tiled_shape(multiples, from));
    if (!(dy.shape() == tiled)) {
      return invalid_argument("dy has shape {}, but the tiled value has {}", dy.shape().to_string(),
                              tiled.to_string());
    }
    const Tensor out = c.output(0, from);
    if (out.nbytes() == 0) return {};
    std::memset(out.raw(), 0, out.nbytes());
    if (dy.num_elements() == 0) return {};
    tile_grid(multiples, from, &grid);
    return tensor::with_dtype<tensor::NumericTypes>(dy.dtype(), [&]<class T>() -> Status {
      kernels::scatter_add_grid<T>(dy.data<const T>().data(), grid, out.data<T>().data());
      return {};
    });
  });
}

Status repeat_indices(KernelContext& c) {
  SR_RETURN_IF_ERROR(check_rank(c, 0, 1));
  return with_index(c.input(0).dtype(), [&]<class I>() -> Status {
    const Tensor repeats = c.input(0);
    constexpr int64_t kTotalMax = int64_t{1} << 40;
    int64_t total = 0;
    for (const I times : repeats.data<const I>()) {
      if (times < 0 || times > kTotalMax || total > kTotalMax) {
        return invalid_argument("an element is repeated {} times", times);
      }
      total += times;
    }
    SR_ASSIGN_OR_RETURN(Tensor* const made, large_output(c, 0, Shape{total}));
    int64_t* out = made->data<int64_t>().data();
    int64_t index = 0;
    for (const I times : repeats.data<const I>()) out = std::fill_n(out, times, index++);
    return {};
  });
}

}  // namespace

void register_array_join_kernels(KernelTable* table) {
  table->add("Concat", with_arity(1, -1, 1, like_input(concat)));
  table->add("ConcatGrad", with_arity(2, -1, -1, like_input(concat_grad)));
  table->add("Split", with_arity(1, 1, -1, like_input(split)));
  table->add("SplitV", with_arity(1, 1, -1, like_input(split_v)));
  table->add("Stack", with_arity(1, -1, 1, like_input(stack)));
  table->add("Unstack", with_arity(1, 1, -1, like_input(unstack)));
  table->add("Tile", with_arity(1, 2, 1, like_input(tile)));
  table->add("TileGrad", with_arity(2, 3, 1, like_input(tile_grad)));
  table->add("RepeatIndices",
             with_arity(1, 1, 1, with_outputs({DType::kInt64}, stateless(repeat_indices))));
}

}  // namespace sidereal::exec
