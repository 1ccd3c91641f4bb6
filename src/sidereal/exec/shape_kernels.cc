#include <algorithm>
#include <cstring>
#include <utility>
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
      return base::invalid_argument("slice {}+{} of axis {} of {}", begin, size, axis,
                                    x.to_string());
    }
    Shape shape = x.shape();
    shape.set_dim(axis, size);
    Tensor& out = c.output(0, shape);
    if (out.nbytes() == 0) return {};
    const AxisView from = view_of(x, axis);
    const int64_t run = size * from.inner_bytes;
    c.parallel(from.outer, kGrainBytes / run + 1, [&](int64_t first, int64_t last) {
      for (int64_t o = first; o < last; ++o) {
        std::memcpy(out.raw() + o * run, x.raw() + (o * from.extent + begin) * from.inner_bytes,
                    run);
      }
    });
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
  SR_ASSIGN_OR_RETURN(Tensor value, ir::get_attr<Tensor>(bind.instruction.attrs, "value"));
  SR_RETURN_IF_ERROR(check_slot(bind, bind.instruction.outputs[0], value.dtype(), "the output"));
  return make_kernel([value = GivenValue(std::move(value))](KernelContext& c) mutable -> Status {
    c.set_output(0, value.get());
    return {};
  });
}

}  // namespace

void register_shape_kernels(KernelTable* table) {
  table->add("Identity", with_arity(1, 1, 1, like_input(stateless(identity))));
  table->add("StopGradient", with_arity(1, 1, 1, like_input(stateless(identity))));
  table->add("NoOp", with_arity(0, -1, 0, stateless([](KernelContext&) { return Status(); })));
  table->add("Const", with_arity(0, 0, 1, constant));
  table->add("SliceAxis", with_arity(1, 1, 1, like_input(slice_axis)));
  table->add("PadAxis", with_arity(1, 1, 1, like_input(pad_axis)));
}

}  // namespace sidereal::exec
