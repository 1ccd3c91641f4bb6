#include <algorithm>
#include <cmath>
#include <cstring>

#include "sidereal/exec/array_util.h"
#include "sidereal/kernels/strided.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::StridedView;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr int64_t kElementsMax = int64_t{1} << 48;

// --- Questions about a value.

/// Writes `count` numbers to a new output of the int32 or int64 the program says.
Status put_ints(KernelContext& c, const Shape& shape, std::span<const int64_t> values) {
  return with_index(c.output_dtype(0), [&]<class I>() -> Status {
    I* out = c.output(0, shape).template data<I>().data();
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] > std::numeric_limits<I>::max()) {
        return base::invalid_argument("{} does not fit an int32; ask for int64", values[i]);
      }
      out[i] = static_cast<I>(values[i]);
    }
    return {};
  });
}

Status shape_op(KernelContext& c) {
  const Shape& shape = c.input(0).shape();
  return put_ints(c, Shape{shape.rank()}, shape.dims());
}

Status size_op(KernelContext& c) {
  const int64_t size = c.input(0).num_elements();
  return put_ints(c, {}, {&size, 1});
}

Status rank_op(KernelContext& c) {
  const int64_t rank = c.input(0).shape().rank();
  return put_ints(c, {}, {&rank, 1});
}

// --- Views.

/// Fills in -1 and, when `copies`, 0 of the shape asked of Reshape. Extents copied stand on both
/// sides and are left out of the count, so that an empty batch leaves the others as they are.
Result<Shape> resolve_shape(std::span<const int64_t> wanted, bool copies, const Tensor& x) {
  const int rank = x.shape().rank();
  const auto wanted_rank = static_cast<int>(wanted.size());
  Shape shape;
  int unknown = -1;
  int64_t given = 1;
  int64_t had = 1;
  for (int i = 0; i < std::max(rank, wanted_rank); ++i) {
    const bool copied = copies && i < rank && i < wanted_rank && wanted[i] == 0;
    if (i < rank && !copied) had *= x.shape().dim(i);
    if (i >= wanted_rank) continue;
    if (wanted[i] < 0 && unknown >= 0) return invalid_argument("two unknown extents");
    if (wanted[i] < 0) unknown = i;
    shape.append(copied ? x.shape().dim(i) : std::max<int64_t>(wanted[i], 0));
    if (copied || wanted[i] < 0) continue;
    if (wanted[i] > 0 && given > kElementsMax / wanted[i]) {
      return invalid_argument("the shape has too many elements");
    }
    given *= wanted[i];
  }
  const bool fits = unknown < 0 ? had == given : given > 0 && had % given == 0;
  if (!fits) {
    return invalid_argument("{} cannot become [{}]", x.shape().to_string(), fmt::join(wanted, ","));
  }
  if (unknown >= 0) shape.set_dim(unknown, had / given);
  return shape;
}

Result<std::unique_ptr<Kernel>> reshape(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const IntsArg arg, IntsArg::bind(bind, "shape", 1));
  const bool copies = arg.is_attr() && !ir::attr_or(bind.instruction.attrs, "allow_zero", false);
  return make_kernel([arg, copies](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const Ints wanted, arg.get(c));
    SR_ASSIGN_OR_RETURN(const Shape shape, resolve_shape(wanted, copies, c.input(0)));
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

Result<std::unique_ptr<Kernel>> expand_dims(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const int64_t wanted, ir::get_attr<int64_t>(bind.instruction.attrs, "axis"));
  return make_kernel([wanted](KernelContext& c) -> Status {
    const Shape& from = c.input(0).shape();
    SR_ASSIGN_OR_RETURN(const int axis, axis_in(wanted, from.rank() + 1));
    Shape to;
    for (int i = 0; i < axis; ++i) to.append(from.dim(i));
    to.append(1);
    for (int i = axis; i < from.rank(); ++i) to.append(from.dim(i));
    c.set_output(0, c.input(0).reshaped(to));
    return {};
  });
}

Result<std::unique_ptr<Kernel>> squeeze(const BindContext& bind) {
  const auto axes = ir::attr_or<std::vector<int64_t>>(bind.instruction.attrs, "axes", {});
  return make_kernel([axes](KernelContext& c) -> Status {
    const Shape& from = c.input(0).shape();
    absl::InlinedVector<bool, 8> drop(from.rank(), false);
    for (const int64_t wanted : axes) {
      SR_ASSIGN_OR_RETURN(const int axis, axis_in(wanted, from.rank()));
      if (from.dim(axis) != 1) {
        return invalid_argument("dimension {} has extent {}; only extents of 1 can be squeezed",
                                axis, from.dim(axis));
      }
      drop[axis] = true;
    }
    Shape to;
    for (int i = 0; i < from.rank(); ++i) {
      if (axes.empty() ? from.dim(i) != 1 : !drop[i]) to.append(from.dim(i));
    }
    c.set_output(0, c.input(0).reshaped(to));
    return {};
  });
}

Result<std::unique_ptr<Kernel>> ensure_shape(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const Shape wanted, ir::get_attr<Shape>(bind.instruction.attrs, "shape"));
  return make_kernel([wanted](KernelContext& c) -> Status {
    if (!wanted.accepts(c.input(0).shape())) {
      return invalid_argument("the value has shape {}, but {} was promised",
                              c.input(0).shape().to_string(), wanted.to_string());
    }
    c.set_output(0, c.input(0));
    return {};
  });
}

// --- Moving elements.

Result<std::unique_ptr<Kernel>> transpose(const BindContext& bind) {
  const auto attr = ir::attr_or<std::vector<int64_t>>(bind.instruction.attrs, "perm", {});
  return make_kernel([attr](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    const int rank = x.shape().rank();
    if (!attr.empty() && static_cast<int>(attr.size()) != rank) {
      return invalid_argument("perm has {} entries for a value of rank {}", attr.size(), rank);
    }
    const StridedView from = StridedView::dense(x.shape());
    StridedView view;
    Shape shape;
    absl::InlinedVector<bool, 8> seen(rank, false);
    for (int i = 0; i < rank; ++i) {
      SR_ASSIGN_OR_RETURN(const int axis, axis_in(attr.empty() ? rank - 1 - i : attr[i], rank));
      if (seen[axis]) return invalid_argument("perm names axis {} twice", axis);
      seen[axis] = true;
      view.dims.push_back(from.dims[axis]);
      view.strides.push_back(from.strides[axis]);
      shape.append(from.dims[axis]);
    }
    kernels::gather_strided(x.raw(), view, bytes_of(x), c.output(0, shape).raw());
    return {};
  });
}

Status broadcast(KernelContext& c, const Tensor& x, std::span<const int64_t> extents) {
  SR_ASSIGN_OR_RETURN(const Shape to, checked_shape(extents));
  const StridedView from = StridedView::dense(x.shape());
  const int extra = to.rank() - x.shape().rank();
  StridedView view;
  for (int i = 0; i < to.rank(); ++i) {
    const int64_t have = i < extra ? 1 : from.dims[i - extra];
    if (have != 1 && have != to.dim(i)) {
      return invalid_argument("{} cannot be broadcast to {}", x.shape().to_string(),
                              to.to_string());
    }
    view.dims.push_back(to.dim(i));
    view.strides.push_back(have == 1 ? 0 : from.strides[i - extra]);
  }
  if (extra < 0) {
    return invalid_argument("{} cannot be broadcast to {}", x.shape().to_string(), to.to_string());
  }
  SR_ASSIGN_OR_RETURN(Tensor* const made, large_output(c, 0, to));
  Tensor& out = *made;
  if (x.num_elements() == 1) {
    kernels::fill_bytes(x.raw(), bytes_of(x), out.num_elements(), out.raw());
  } else {
    kernels::gather_strided(x.raw(), view, bytes_of(x), out.raw());
  }
  return {};
}

/// BroadcastTo; Fill when `scalar`, which takes scalars only.
KernelFactory broadcast_to(bool scalar) {
  return [scalar](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
    SR_ASSIGN_OR_RETURN(const IntsArg arg, IntsArg::bind(bind, "shape", 1));
    return make_kernel([arg, scalar](KernelContext& c) -> Status {
      if (scalar) SR_RETURN_IF_ERROR(check_rank(c, 0, 0));
      SR_ASSIGN_OR_RETURN(const Ints extents, arg.get(c));
      const Tensor x = c.input(0);
      return broadcast(c, x, extents);
    });
  };
}

// --- Ranges and one-hot.

/// How many numbers start, start + delta, ... lie before limit; tf.range's rules.
template <class T>
Result<int64_t> range_size(T start, T limit, T delta) {
  if (delta == 0) return invalid_argument("delta is 0");
  if (delta > 0 ? start > limit : start < limit) {
    return invalid_argument("the range runs away from its limit: start {}, limit {}, delta {}",
                            start, limit, delta);
  }
  double size = 0;
  if constexpr (std::is_integral_v<T>) {
    // As doubles: the differences may not fit T. Exact up to 2^53, which is more than fits memory.
    size = std::ceil((static_cast<double>(limit) - static_cast<double>(start)) /
                     static_cast<double>(delta));
  } else {
    size = std::ceil(std::abs((static_cast<double>(limit) - static_cast<double>(start)) /
                              static_cast<double>(delta)));
  }
  if (!(size <= static_cast<double>(kElementsMax))) {
    return invalid_argument("a range from {} to {} by {} has too many elements", start, limit,
                            delta);
  }
  return static_cast<int64_t>(size);
}

Status range(KernelContext& c) {
  for (int i = 0; i < 3; ++i) {
    SR_RETURN_IF_ERROR(check_same_dtype(c, 0, i));
    SR_RETURN_IF_ERROR(check_rank(c, i, 0));
  }
  return tensor::with_dtype<tensor::NumericTypes>(c.input(0).dtype(), [&]<class T>() -> Status {
    using C = tensor::ComputeType<T>;
    const C start = c.in<T>(0)[0];
    const C limit = c.in<T>(1)[0];
    const C delta = c.in<T>(2)[0];
    SR_ASSIGN_OR_RETURN(const int64_t size, range_size<C>(start, limit, delta));
    SR_ASSIGN_OR_RETURN(Tensor* const made, large_output(c, 0, Shape{size}));
    T* out = made->data<T>().data();
    for (int64_t i = 0; i < size; ++i) {
      if constexpr (std::is_integral_v<C>) {
        // Unsigned: a product that does not fit wraps around, and so does the sum.
        out[i] = static_cast<T>(static_cast<uint64_t>(start) +
                                static_cast<uint64_t>(i) * static_cast<uint64_t>(delta));
      } else {
        out[i] = static_cast<T>(start + static_cast<C>(i) * delta);
      }
    }
    return {};
  });
}

template <class I>
void one_hot_bytes(const Tensor& indices, int64_t suffix, int64_t depth, const std::byte* on,
                   int64_t bytes, std::byte* out) {
  const std::span<const I> ids = indices.data<const I>();
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<int64_t>(ids[i]);
    if (id < 0 || id >= depth) continue;
    const int64_t before = static_cast<int64_t>(i) / suffix;
    const int64_t behind = static_cast<int64_t>(i) % suffix;
    std::memcpy(out + ((before * depth + id) * suffix + behind) * bytes, on, bytes);
  }
}

Result<std::unique_ptr<Kernel>> one_hot(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const IntArg depth_arg, IntArg::bind(bind, "depth", 3));
  const auto wanted = ir::attr_or<int64_t>(bind.instruction.attrs, "axis", -1);
  return make_kernel([depth_arg, wanted](KernelContext& c) -> Status {
    const Tensor indices = c.input(0);
    SR_RETURN_IF_ERROR(check_same_dtype(c, 1, 2));
    if (c.input(1).num_elements() != 1 || c.input(2).num_elements() != 1) {
      return invalid_argument("the on and off values must be scalars");
    }
    SR_ASSIGN_OR_RETURN(const int64_t depth, depth_arg.get(c));
    const Shape& from = indices.shape();
    SR_ASSIGN_OR_RETURN(const int axis, axis_in(wanted, from.rank() + 1));
    Ints extents(from.dims().begin(), from.dims().end());
    extents.insert(extents.begin() + axis, depth);
    SR_ASSIGN_OR_RETURN(const Shape shape, checked_shape(extents));
    const Tensor on = c.input(1);
    SR_ASSIGN_OR_RETURN(Tensor* const made, large_output(c, 0, shape));
    Tensor& out = *made;
    kernels::fill_bytes(c.input(2).raw(), bytes_of(on), out.num_elements(), out.raw());
    return with_index(indices.dtype(), [&]<class I>() -> Status {
      one_hot_bytes<I>(indices, product_of(from, axis, from.rank()), depth, on.raw(), bytes_of(on),
                       out.raw());
      return {};
    });
  });
}

/// A factory that checks that output 0 is int32 or int64.
KernelFactory index_output(KernelFactory factory) {
  return
      [factory = std::move(factory)](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
        const DType dtype = bind.program.slots[bind.instruction.outputs[0]].dtype;
        if (dtype != DType::kInt32 && dtype != DType::kInt64) {
          return invalid_argument("the output is {}; it must be int32 or int64",
                                  tensor::name_of(dtype));
        }
        return factory(bind);
      };
}

}  // namespace

void register_array_shape_kernels(KernelTable* table) {
  table->add("Shape", with_arity(1, 1, 1, index_output(stateless(shape_op))));
  table->add("Size", with_arity(1, 1, 1, index_output(stateless(size_op))));
  table->add("Rank", with_arity(1, 1, 1, with_outputs({DType::kInt32}, stateless(rank_op))));
  table->add("Reshape", with_arity(1, 2, 1, like_input(reshape)));
  table->add("ReshapeLike", with_arity(2, 2, 1, like_input(stateless(reshape_like))));
  table->add("ExpandDims", with_arity(1, 1, 1, like_input(expand_dims)));
  table->add("Squeeze", with_arity(1, 1, 1, like_input(squeeze)));
  table->add("EnsureShape", with_arity(1, 1, 1, like_input(ensure_shape)));
  table->add("Transpose", with_arity(1, 1, 1, like_input(transpose)));
  table->add("BroadcastTo", with_arity(1, 2, 1, like_input(broadcast_to(false))));
  table->add("Fill", with_arity(1, 2, 1, like_input(broadcast_to(true))));
  table->add("Range", with_arity(3, 3, 1, like_input(stateless(range))));
  table->add("OneHot", with_arity(3, 4, 1, output_like(0, 1, one_hot)));
}

}  // namespace sidereal::exec
