#include <algorithm>
#include <cstring>
#include <vector>

#include "sidereal/exec/kernel_util.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::Shape;
using tensor::Tensor;

Status identity(KernelContext& c) {
  c.set_output(0, c.input(0));
  return {};
}

/// Multiplies extents, with a limit so that wrong shapes cannot overflow.
Status count(int64_t extent, int64_t* product) {
  constexpr int64_t kElementsMax = int64_t{1} << 48;
  if (extent > 0 && *product > kElementsMax / extent) {
    return invalid_argument("the shape has too many elements");
  }
  *product *= extent;
  return {};
}

/// Fills in -1 and 0 of the shape attribute of Reshape. Extents copied with 0 stand on both sides
/// and are left out of the count, so that an empty batch leaves the others as they are.
Result<Shape> resolve_shape(const std::vector<int64_t>& wanted, const Tensor& x) {
  const int rank = x.shape().rank();
  Shape shape;
  int unknown = -1;
  int64_t given = 1;
  int64_t had = 1;
  for (int i = 0; i < std::max<int>(rank, static_cast<int>(wanted.size())); ++i) {
    const bool copied = i < rank && i < static_cast<int>(wanted.size()) && wanted[i] == 0;
    if (i < rank && !copied) SR_RETURN_IF_ERROR(count(x.shape().dim(i), &had));
    if (i >= static_cast<int>(wanted.size())) continue;
    if (wanted[i] < 0 && unknown >= 0) return invalid_argument("two unknown extents");
    if (wanted[i] < 0) unknown = i;
    shape.append(copied ? x.shape().dim(i) : std::max<int64_t>(wanted[i], 0));
    if (!copied && wanted[i] >= 0) SR_RETURN_IF_ERROR(count(wanted[i], &given));
  }
  const bool fits = unknown < 0 ? had == given : given > 0 && had % given == 0;
  if (!fits) {
    return invalid_argument("{} cannot become [{}]", x.shape().to_string(), fmt::join(wanted, ","));
  }
  if (unknown >= 0) shape.set_dim(unknown, had / given);
  return shape;
}

Result<std::unique_ptr<Kernel>> reshape(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> wanted,
                      ir::get_attr<std::vector<int64_t>>(bind.instruction.attrs, "shape"));
  return make_kernel([wanted](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const Shape shape, resolve_shape(wanted, c.input(0)));
    c.set_output(0, c.input(0).reshaped(shape));
    return {};
  });
}

Status reshape_like(KernelContext& c) {
  if (c.input(0).num_elements() != c.input(1).num_elements()) {
    return invalid_argument("the inputs differ in their number of elements");
  }
  c.set_output(0, c.input(0).reshaped(c.input(1).shape()));
  return {};
}

/// An array seen as [outer, extent, inner] around `axis`, in bytes.
struct AxisView {
  int64_t outer = 1;
  int64_t extent = 1;
  int64_t inner_bytes = 1;
};

AxisView view_of(const Tensor& x, int axis) {
  AxisView view;
  for (int i = 0; i < axis; ++i) view.outer *= x.shape().dim(i);
  view.extent = x.shape().dim(axis);
  view.inner_bytes = static_cast<int64_t>(tensor::size_of(x.dtype()));
  for (int i = axis + 1; i < x.shape().rank(); ++i) view.inner_bytes *= x.shape().dim(i);
  return view;
}

Result<int> resolve_axis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return invalid_argument("axis {} of a value with {} dimensions", axis, rank);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Status run_concat(KernelContext& c, int64_t axis_attr) {
  const Tensor& first = c.input(0);
  SR_ASSIGN_OR_RETURN(const int axis, resolve_axis(axis_attr, first.shape().rank()));
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
  Tensor& out = c.output(0, shape);
  const AxisView to = view_of(out, axis);
  int64_t at = 0;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Tensor& x = c.input(i);
    const int64_t run = x.shape().dim(axis) * to.inner_bytes;
    if (run == 0) continue;
    for (int64_t o = 0; o < to.outer; ++o) {
      std::memcpy(out.raw() + o * to.extent * to.inner_bytes + at, x.raw() + o * run, run);
    }
    at += run;
  }
  return {};
}

Result<std::unique_ptr<Kernel>> concat(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t axis, ir::get_attr<int64_t>(bind.instruction.attrs, "axis"));
  return make_kernel([axis](KernelContext& c) { return run_concat(c, axis); });
}

Result<std::unique_ptr<Kernel>> slice_axis(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(const int64_t axis_attr, ir::get_attr<int64_t>(attrs, "axis"));
  SR_ASSIGN_OR_RETURN(const int64_t begin, ir::get_attr<int64_t>(attrs, "begin"));
  SR_ASSIGN_OR_RETURN(const int64_t size, ir::get_attr<int64_t>(attrs, "size"));
  return make_kernel([=](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    SR_ASSIGN_OR_RETURN(const int axis, resolve_axis(axis_attr, x.shape().rank()));
    if (begin < 0 || size < 0 || begin > x.shape().dim(axis) ||
        size > x.shape().dim(axis) - begin) {
      return base::out_of_range("slice {}+{} of axis {} of {}", begin, size, axis, x.to_string());
    }
    Shape shape = x.shape();
    shape.set_dim(axis, size);
    Tensor& out = c.output(0, shape);
    if (out.nbytes() == 0) return {};
    const AxisView from = view_of(x, axis);
    const int64_t run = size * from.inner_bytes;
    for (int64_t o = 0; o < from.outer; ++o) {
      std::memcpy(out.raw() + o * run, x.raw() + (o * from.extent + begin) * from.inner_bytes, run);
    }
    return {};
  });
}

Result<std::unique_ptr<Kernel>> pad_axis(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(const int64_t axis_attr, ir::get_attr<int64_t>(attrs, "axis"));
  SR_ASSIGN_OR_RETURN(const int64_t before, ir::get_attr<int64_t>(attrs, "before"));
  SR_ASSIGN_OR_RETURN(const int64_t after, ir::get_attr<int64_t>(attrs, "after"));
  constexpr int64_t kPadMax = int64_t{1} << 32;
  if (before < 0 || after < 0 || before > kPadMax || after > kPadMax) {
    return invalid_argument("padding {} and {} is out of range", before, after);
  }
  return make_kernel([=](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    SR_ASSIGN_OR_RETURN(const int axis, resolve_axis(axis_attr, x.shape().rank()));
    Shape shape = x.shape();
    shape.set_dim(axis, before + x.shape().dim(axis) + after);
    Tensor& out = c.output(0, shape);
    if (out.nbytes() == 0) return {};
    std::memset(out.raw(), 0, out.nbytes());
    const AxisView from = view_of(x, axis);
    const AxisView to = view_of(out, axis);
    const int64_t run = from.extent * from.inner_bytes;
    for (int64_t o = 0; o < from.outer && run > 0; ++o) {
      std::memcpy(out.raw() + (o * to.extent + before) * to.inner_bytes, x.raw() + o * run, run);
    }
    return {};
  });
}

Result<std::unique_ptr<Kernel>> constant(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const Tensor value, ir::get_attr<Tensor>(bind.instruction.attrs, "value"));
  SR_RETURN_IF_ERROR(check_slot(bind, bind.instruction.outputs[0], value.dtype(), "the output"));
  return make_kernel([value](KernelContext& c) -> Status {
    c.set_output(0, value);
    return {};
  });
}

}  // namespace

void register_shape_kernels(KernelTable* table) {
  table->add("Identity", with_arity(1, 1, 1, like_input(stateless(identity))));
  table->add("StopGradient", with_arity(1, 1, 1, like_input(stateless(identity))));
  table->add("NoOp", with_arity(0, -1, 0, stateless([](KernelContext&) { return Status(); })));
  table->add("Const", with_arity(0, 0, 1, constant));
  table->add("Reshape", with_arity(1, 1, 1, like_input(reshape)));
  table->add("ReshapeLike", with_arity(2, 2, 1, like_input(stateless(reshape_like))));
  table->add("Concat", with_arity(1, -1, 1, like_input(concat)));
  table->add("SliceAxis", with_arity(1, 1, 1, like_input(slice_axis)));
  table->add("PadAxis", with_arity(1, 1, 1, like_input(pad_axis)));
}

}  // namespace sidereal::exec
