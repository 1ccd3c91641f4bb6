#include "sidereal/exec/array_util.h"

#include <utility>

#include "sidereal/ir/schema.h"
#include "sidereal/kernels/sparse.h"

namespace sidereal::exec {

using base::invalid_argument;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// The index of the input that stands for attribute `name`, or an error when it is not there.
Result<int> input_for(const BindContext& bind, const std::string& name, int input) {
  if (input >= 0 && static_cast<size_t>(input) < bind.instruction.inputs.size()) return input;
  return invalid_argument("'{}' is neither an attribute nor an input", name);
}

}  // namespace

Result<IntsArg> IntsArg::bind(const BindContext& bind, const std::string& name, int input) {
  IntsArg out;
  const auto* attr = ir::find_attr<std::vector<int64_t>>(bind.instruction.attrs, name);
  if (attr == nullptr) {
    SR_ASSIGN_OR_RETURN(out.input_, input_for(bind, name, input));
  } else {
    out.values_.assign(attr->begin(), attr->end());
  }
  return out;
}

Result<Ints> IntsArg::get(const KernelContext& c) const {
  if (input_ < 0) return values_;
  return ints_of(c.input(input_));
}

Result<IntArg> IntArg::bind(const BindContext& bind, const std::string& name, int input) {
  IntArg out;
  const auto* attr = ir::find_attr<int64_t>(bind.instruction.attrs, name);
  if (attr == nullptr) {
    SR_ASSIGN_OR_RETURN(out.input_, input_for(bind, name, input));
  } else {
    out.value_ = *attr;
  }
  return out;
}

Result<int64_t> IntArg::get(const KernelContext& c) const {
  if (input_ < 0) return value_;
  SR_ASSIGN_OR_RETURN(const Ints values, ints_of(c.input(input_)));
  if (values.size() == 1) return values[0];
  return invalid_argument("input {} must be one integer, but has {} elements", input_,
                          values.size());
}

Result<Ints> ints_of(const Tensor& t) {
  Ints out;
  SR_RETURN_IF_ERROR(with_index(t.dtype(), [&]<class I>() -> Status {
    const std::span<const I> data = t.data<const I>();
    out.assign(data.begin(), data.end());
    return {};
  }));
  return out;
}

Result<Shape> checked_shape(std::span<const int64_t> extents) {
  for (const int64_t extent : extents) {
    if (extent < 0)
      return invalid_argument("shape [{}] has a negative extent", fmt::join(extents, ","));
  }
  Shape shape(extents);
  SR_RETURN_IF_ERROR(ir::check_shape(shape));
  return shape;
}

Result<Tensor*> large_output(KernelContext& c, int i, const Shape& shape) {
  constexpr int64_t kLarge = int64_t{1} << 28;
  SR_RETURN_IF_ERROR(ir::check_shape(shape));
  const auto bytes =
      shape.num_elements() * static_cast<int64_t>(tensor::size_of(c.output_dtype(i)));
  // Asked for and given back at once: whether there is so much.
  if (bytes > kLarge && tensor::Buffer::try_allocate_zeroed(bytes) == nullptr) {
    return base::resource_exhausted("a {} of shape {} needs {} bytes, which the machine has not",
                                    tensor::name_of(c.output_dtype(i)), shape.to_string(), bytes);
  }
  return &c.output(i, shape);
}

std::string place_of(int64_t flat, const Shape& shape) {
  std::vector<int64_t> at(shape.rank());
  for (int i = shape.rank(); i-- > 0;) {
    at[i] = flat % shape.dim(i);
    flat /= shape.dim(i);
  }
  return fmt::format("[{}]", fmt::join(at, ","));
}

Result<int> axis_in(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return invalid_argument("axis {} of a value with {} dimensions", axis, rank);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Status check_same_dtype(const KernelContext& c, int a, int b) {
  return check_dtype(c, b, c.input(a).dtype());
}

int64_t product_of(const Shape& shape, int from, int to) {
  int64_t product = 1;
  for (int i = from; i < to; ++i) product *= shape.dim(i);
  return product;
}

Status check_places(std::span<const int64_t> position, std::span<const int32_t> inverse,
                    Places places, std::span<const int64_t> rows, std::vector<int64_t>& next) {
  int64_t bad = kernels::find_bad_position(position, rows, next);
  if (bad >= 0) {
    return invalid_argument("position {} of {} is not what Route gives for parts of [{}] rows", bad,
                            position.size(), fmt::join(rows, ","));
  }
  bad = kernels::find_bad_place(inverse, static_cast<int64_t>(position.size()),
                                places == Places::kFirstInOrder);
  if (bad < 0) return {};
  return invalid_argument("place {} of {} is not what Unique gives for {} ids", bad, inverse.size(),
                          position.size());
}

KernelFactory output_like(int o, int i, KernelFactory factory) {
  return [=, factory =
                 std::move(factory)](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
    const program::Instruction& instruction = bind.instruction;
    if (static_cast<size_t>(o) >= instruction.outputs.size() ||
        static_cast<size_t>(i) >= instruction.inputs.size()) {
      return invalid_argument("{} inputs and {} outputs do not fit the op",
                              instruction.inputs.size(), instruction.outputs.size());
    }
    const tensor::DType dtype = bind.program.slots[instruction.inputs[i]].dtype;
    SR_RETURN_IF_ERROR(
        check_slot(bind, instruction.outputs[o], dtype, fmt::format("output {}", o)));
    return factory(bind);
  };
}

void register_array_kernels(KernelTable* table) {
  register_array_shape_kernels(table);
  register_array_slice_kernels(table);
  register_array_join_kernels(table);
  register_array_gather_kernels(table);
  register_lookup_kernels(table);
  register_array_segment_kernels(table);
  register_array_sort_kernels(table);
  register_array_membership_kernels(table);
  register_spatial_kernels(table);
}

}  // namespace sidereal::exec
