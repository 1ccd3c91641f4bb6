#include <algorithm>
#include <cstring>
#include <string>

#include "sidereal/exec/array_util.h"
#include "sidereal/kernels/grid.h"
#include "sidereal/kernels/strided.h"
#include "sidereal/tensor/slicing.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::Grid;
using kernels::StridedView;
using tensor::Shape;
using tensor::Tensor;

void zero(const Tensor& t) {
  if (t.nbytes() > 0) std::memset(t.raw(), 0, t.nbytes());
}

// --- StridedSlice.

/// The terms of a strided slice: begin, end and strides as attributes or inputs, and the masks.
struct SliceArgs {
  IntsArg begin;
  IntsArg end;
  IntsArg strides;
  tensor::SliceTerms masks;
};

Result<SliceArgs> slice_args(const BindContext& bind, int first) {
  SliceArgs args;
  SR_ASSIGN_OR_RETURN(args.begin, IntsArg::bind(bind, "begin", first));
  SR_ASSIGN_OR_RETURN(args.end, IntsArg::bind(bind, "end", first + 1));
  SR_ASSIGN_OR_RETURN(args.strides, IntsArg::bind(bind, "strides", first + 2));
  const ir::AttrMap& attrs = bind.instruction.attrs;
  args.masks.begin_mask = ir::attr_or<int64_t>(attrs, "begin_mask", 0);
  args.masks.end_mask = ir::attr_or<int64_t>(attrs, "end_mask", 0);
  args.masks.ellipsis_mask = ir::attr_or<int64_t>(attrs, "ellipsis_mask", 0);
  args.masks.new_axis_mask = ir::attr_or<int64_t>(attrs, "new_axis_mask", 0);
  args.masks.shrink_axis_mask = ir::attr_or<int64_t>(attrs, "shrink_axis_mask", 0);
  return args;
}

Result<tensor::ResolvedSlice> resolve(const SliceArgs& args, const KernelContext& c,
                                      const Shape& shape) {
  SR_ASSIGN_OR_RETURN(const Ints begin, args.begin.get(c));
  SR_ASSIGN_OR_RETURN(const Ints end, args.end.get(c));
  SR_ASSIGN_OR_RETURN(const Ints strides, args.strides.get(c));
  tensor::SliceTerms terms = args.masks;
  terms.begin = begin;
  terms.end = end;
  terms.strides = strides;
  return tensor::resolve_slice(terms, shape);
}

StridedView view_of(const Shape& shape, const tensor::ResolvedSlice& slice) {
  StridedView view = StridedView::dense(shape);
  for (int i = 0; i < shape.rank(); ++i) {
    view.slice(i, slice.begin[i], slice.stride[i], slice.extent[i]);
  }
  return view;
}

Result<std::unique_ptr<Kernel>> strided_slice(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const SliceArgs args, slice_args(bind, 1));
  return make_kernel([args](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    SR_ASSIGN_OR_RETURN(const tensor::ResolvedSlice slice, resolve(args, c, x.shape()));
    kernels::gather_strided(x.raw(), view_of(x.shape(), slice), bytes_of(x),
                            c.output(0, slice.shape).raw());
    return {};
  });
}

Result<std::unique_ptr<Kernel>> strided_slice_grad(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const SliceArgs args, slice_args(bind, 2));
  return make_kernel([args](KernelContext& c) -> Status {
    const Tensor dy = c.input(0);
    const Shape to = c.input(1).shape();
    SR_ASSIGN_OR_RETURN(const tensor::ResolvedSlice slice, resolve(args, c, to));
    if (!(dy.shape() == slice.shape)) {
      return invalid_argument("dy has shape {}, but the slice has {}", dy.shape().to_string(),
                              slice.shape.to_string());
    }
    const Tensor out = c.output(0, to);
    zero(out);
    kernels::scatter_strided(dy.raw(), view_of(to, slice), bytes_of(dy), out.raw());
    return {};
  });
}

// --- Slice.

/// A part of a value: where it begins and how long it is, by dimension. Checks that it is inside.
Status check_part(std::span<const int64_t> begin, std::span<const int64_t> size,
                  const Shape& whole) {
  if (static_cast<int>(begin.size()) != whole.rank() || begin.size() != size.size()) {
    return invalid_argument("begin has {} and size {} entries for a value of rank {}", begin.size(),
                            size.size(), whole.rank());
  }
  for (int i = 0; i < whole.rank(); ++i) {
    const int64_t extent = whole.dim(i);
    if (begin[i] < 0 || size[i] < 0 || begin[i] > extent || size[i] > extent - begin[i]) {
      return base::invalid_argument("{} elements from {} on are not in dimension {} of extent {}",
                                    size[i], begin[i], i, extent);
    }
  }
  return {};
}

StridedView view_of_part(std::span<const int64_t> begin, std::span<const int64_t> size,
                         const Shape& whole) {
  StridedView view = StridedView::dense(whole);
  for (int i = 0; i < whole.rank(); ++i) view.slice(i, begin[i], 1, size[i]);
  return view;
}

Result<std::unique_ptr<Kernel>> slice(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const IntsArg begin_arg, IntsArg::bind(bind, "begin", 1));
  SR_ASSIGN_OR_RETURN(const IntsArg size_arg, IntsArg::bind(bind, "size", 2));
  return make_kernel([begin_arg, size_arg](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    SR_ASSIGN_OR_RETURN(const Ints begin, begin_arg.get(c));
    SR_ASSIGN_OR_RETURN(Ints size, size_arg.get(c));
    const int rank = x.shape().rank();
    for (int i = 0; i < rank && i < static_cast<int>(std::min(size.size(), begin.size())); ++i) {
      const int64_t extent = x.shape().dim(i);
      if (size[i] == -1 && begin[i] >= 0 && begin[i] <= extent) size[i] = extent - begin[i];
    }
    SR_RETURN_IF_ERROR(check_part(begin, size, x.shape()));
    Tensor& out = c.output(0, Shape{std::span<const int64_t>(size)});
    kernels::gather_strided(x.raw(), view_of_part(begin, size, x.shape()), bytes_of(x), out.raw());
    return {};
  });
}

Result<std::unique_ptr<Kernel>> slice_grad(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const IntsArg begin_arg, IntsArg::bind(bind, "begin", 2));
  return make_kernel([begin_arg](KernelContext& c) -> Status {
    const Tensor dy = c.input(0);
    const Shape to = c.input(1).shape();
    SR_ASSIGN_OR_RETURN(const Ints begin, begin_arg.get(c));
    SR_RETURN_IF_ERROR(check_part(begin, dy.shape().dims(), to));
    const Tensor out = c.output(0, to);
    zero(out);
    kernels::scatter_strided(dy.raw(), view_of_part(begin, dy.shape().dims(), to), bytes_of(dy),
                             out.raw());
    return {};
  });
}

// --- Padding.

/// The shape with paddings around it; kInvalidArgument for paddings that do not fit.
Result<Shape> padded_shape(std::span<const int64_t> pads, const Shape& from) {
  if (pads.size() != 2 * static_cast<size_t>(from.rank())) {
    return invalid_argument("paddings has {} entries for a value of rank {}", pads.size(),
                            from.rank());
  }
  constexpr int64_t kPadMax = int64_t{1} << 40;
  Ints extents;
  for (int i = 0; i < from.rank(); ++i) {
    const int64_t before = pads[2 * i];
    const int64_t after = pads[2 * i + 1];
    if (before < 0 || after < 0 || before > kPadMax || after > kPadMax) {
      return invalid_argument("dimension {} is padded by {} and {}", i, before, after);
    }
    extents.push_back(before + from.dim(i) + after);
  }
  return checked_shape(extents);
}

Result<std::unique_ptr<Kernel>> pad(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const IntsArg pads_arg, IntsArg::bind(bind, "paddings", 2));
  return make_kernel([pads_arg](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_same_dtype(c, 0, 1));
    SR_RETURN_IF_ERROR(check_rank(c, 1, 0));
    const Tensor x = c.input(0);
    const Tensor value = c.input(1);
    SR_ASSIGN_OR_RETURN(const Ints pads, pads_arg.get(c));
    SR_ASSIGN_OR_RETURN(const Shape to, padded_shape(pads, x.shape()));
    SR_ASSIGN_OR_RETURN(Tensor* const out, large_output(c, 0, to));
    kernels::fill_bytes(value.raw(), bytes_of(x), out->num_elements(), out->raw());
    Ints begin;
    for (size_t i = 0; i < pads.size(); i += 2) begin.push_back(pads[i]);
    kernels::scatter_strided(x.raw(), view_of_part(begin, x.shape().dims(), to), bytes_of(x),
                             out->raw());
    return {};
  });
}

/// For every point of the padded value, where in `from` it comes from.
Status mirror(std::span<const int64_t> pads, const Shape& from, bool reflect, Grid* grid) {
  const StridedView dense = StridedView::dense(from);
  int whole = from.rank();  // Dimensions from here on are not padded: they are moved in one run.
  while (whole > 0 && pads[2 * whole - 2] == 0 && pads[2 * whole - 1] == 0) --whole;
  grid->reset(product_of(from, whole, from.rank()));
  for (int d = 0; d < whole; ++d) {
    const int64_t n = from.dim(d);
    const int64_t before = pads[2 * d];
    const int64_t after = pads[2 * d + 1];
    const int64_t most = reflect ? n - 1 : n;
    if (before > std::max<int64_t>(most, 0) || after > std::max<int64_t>(most, 0)) {
      return invalid_argument("dimension {} of extent {} has no mirror image of {} and {} elements",
                              d, n, before, after);
    }
    const std::span<int64_t> table = grid->add_dimension(before + n + after);
    for (int64_t o = 0; o < static_cast<int64_t>(table.size()); ++o) {
      int64_t i = o - before;
      if (i < 0) i = reflect ? -i : -i - 1;
      if (i >= n) i = 2 * n - i - (reflect ? 2 : 1);
      table[o] = i * dense.strides[d];
    }
  }
  return {};
}

Result<bool> reflects(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const std::string mode,
                      ir::get_attr<std::string>(bind.instruction.attrs, "mode"));
  if (mode == "reflect" || mode == "symmetric") return mode == "reflect";
  return invalid_argument("mode is '{}'; it must be 'reflect' or 'symmetric'", mode);
}

Result<std::unique_ptr<Kernel>> mirror_pad(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const IntsArg pads_arg, IntsArg::bind(bind, "paddings", 1));
  SR_ASSIGN_OR_RETURN(const bool reflect, reflects(bind));
  return make_kernel([pads_arg, reflect, grid = Grid()](KernelContext& c) mutable -> Status {
    const Tensor x = c.input(0);
    SR_ASSIGN_OR_RETURN(const Ints pads, pads_arg.get(c));
    SR_ASSIGN_OR_RETURN(const Shape to, padded_shape(pads, x.shape()));
    SR_RETURN_IF_ERROR(mirror(pads, x.shape(), reflect, &grid));
    kernels::gather_grid(x.raw(), grid, bytes_of(x), c.output(0, to).raw());
    return {};
  });
}

Result<std::unique_ptr<Kernel>> mirror_pad_grad(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const IntsArg pads_arg, IntsArg::bind(bind, "paddings", 2));
  SR_ASSIGN_OR_RETURN(const bool reflect, reflects(bind));
  return make_kernel([pads_arg, reflect, grid = Grid()](KernelContext& c) mutable -> Status {
    const Tensor dy = c.input(0);
    const Shape from = c.input(1).shape();
    SR_ASSIGN_OR_RETURN(const Ints pads, pads_arg.get(c));
    SR_ASSIGN_OR_RETURN(const Shape padded, padded_shape(pads, from));
    if (!(dy.shape() == padded)) {
      return invalid_argument("dy has shape {}, but the padded value has {}",
                              dy.shape().to_string(), padded.to_string());
    }
    SR_RETURN_IF_ERROR(mirror(pads, from, reflect, &grid));
    const Tensor out = c.output(0, from);
    zero(out);
    return tensor::with_dtype<tensor::NumericTypes>(dy.dtype(), [&]<class T>() -> Status {
      kernels::scatter_add_grid<T>(dy.data<const T>().data(), grid, out.data<T>().data());
      return {};
    });
  });
}

// --- Reverse and Roll.

Result<std::unique_ptr<Kernel>> reverse(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const auto axes,
                      ir::get_attr<std::vector<int64_t>>(bind.instruction.attrs, "axes"));
  return make_kernel([axes](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    StridedView view = StridedView::dense(x.shape());
    absl::InlinedVector<bool, 8> seen(x.shape().rank(), false);
    for (const int64_t wanted : axes) {
      SR_ASSIGN_OR_RETURN(const int axis, axis_in(wanted, x.shape().rank()));
      if (seen[axis]) return invalid_argument("axis {} is named twice", axis);
      seen[axis] = true;
      const int64_t extent = x.shape().dim(axis);
      if (extent > 0) view.slice(axis, extent - 1, -1, extent);
    }
    kernels::gather_strided(x.raw(), view, bytes_of(x), c.output(0, x.shape()).raw());
    return {};
  });
}

Result<std::unique_ptr<Kernel>> roll(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(const auto shift, ir::get_attr<std::vector<int64_t>>(attrs, "shift"));
  SR_ASSIGN_OR_RETURN(const auto axes, ir::get_attr<std::vector<int64_t>>(attrs, "axes"));
  if (shift.size() != axes.size()) {
    return invalid_argument("{} shifts for {} axes", shift.size(), axes.size());
  }
  return make_kernel([shift, axes, grid = Grid()](KernelContext& c) mutable -> Status {
    const Tensor x = c.input(0);
    const int rank = x.shape().rank();
    const StridedView dense = StridedView::dense(x.shape());
    Ints by(rank, 0);
    int last = 0;  // Dimensions behind the last one that moves go in one run.
    for (size_t i = 0; i < axes.size(); ++i) {
      SR_ASSIGN_OR_RETURN(const int axis, axis_in(axes[i], rank));
      const int64_t extent = std::max<int64_t>(x.shape().dim(axis), 1);
      by[axis] = (by[axis] + shift[i] % extent + extent) % extent;
      last = std::max(last, axis + 1);
    }
    grid.reset(product_of(x.shape(), last, rank));
    for (int d = 0; d < last; ++d) {
      const int64_t extent = x.shape().dim(d);
      const std::span<int64_t> table = grid.add_dimension(extent);
      for (int64_t i = 0; i < extent; ++i) {
        table[i] = (i - by[d] + extent) % extent * dense.strides[d];
      }
    }
    kernels::gather_grid(x.raw(), grid, bytes_of(x), c.output(0, x.shape()).raw());
    return {};
  });
}

}  // namespace

void register_array_slice_kernels(KernelTable* table) {
  table->add("StridedSlice", with_arity(1, 4, 1, like_input(strided_slice)));
  table->add("StridedSliceGrad", with_arity(2, 5, 1, like_input(strided_slice_grad)));
  table->add("Slice", with_arity(1, 3, 1, like_input(slice)));
  table->add("SliceGrad", with_arity(2, 3, 1, like_input(slice_grad)));
  table->add("Pad", with_arity(2, 3, 1, like_input(pad)));
  table->add("MirrorPad", with_arity(1, 2, 1, like_input(mirror_pad)));
  table->add("MirrorPadGrad", with_arity(2, 3, 1, like_input(mirror_pad_grad)));
  table->add("Reverse", with_arity(1, 1, 1, like_input(reverse)));
  table->add("Roll", with_arity(1, 1, 1, like_input(roll)));
}

}  // namespace sidereal::exec
