#include <algorithm>
#include <cstring>

#include "sidereal/exec/array_util.h"
#include "sidereal/exec/string_util.h"
#include "sidereal/ir/schema.h"
#include "sidereal/tensor/strings.h"

/// Numbers as the bytes they are in memory.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// The bytes of each of `count` elements of `width` bytes in the other order.
void swap_bytes(std::byte* data, int64_t count, int64_t width) {
  for (int64_t i = 0; i < count; ++i) std::reverse(data + i * width, data + (i + 1) * width);
}

/// What is not 0 is true: other bytes are no bools.
void normalize_bools(std::byte* data, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    data[i] = data[i] == std::byte{0} ? std::byte{0} : std::byte{1};
}

/// Bytes of every string: `fixed` or, when that is negative, what they all have.
Result<int64_t> common_bytes(std::span<const std::string_view> texts, int64_t fixed) {
  if (fixed >= 0) return fixed;
  const auto bytes = texts.empty() ? 0 : static_cast<int64_t>(texts[0].size());
  for (size_t i = 0; i < texts.size(); ++i) {
    if (static_cast<int64_t>(texts[i].size()) == bytes) continue;
    return invalid_argument(
        "element {} has {} bytes where element 0 has {}; all must have the same, or give "
        "fixed_length",
        i, texts[i].size(), bytes);
  }
  return bytes;
}

Result<std::unique_ptr<Kernel>> decode_raw(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(const DType dtype, ir::get_attr<DType>(attrs, "out_type"));
  if (dtype == DType::kString) return invalid_argument("strings are not decoded to strings");
  SR_RETURN_IF_ERROR(check_slot(bind, bind.instruction.outputs[0], dtype, "the output"));
  const int64_t fixed = ir::attr_or<int64_t>(attrs, "fixed_length", -1);
  const bool little = ir::attr_or<bool>(attrs, "little_endian", true);
  return make_kernel([dtype, fixed, little](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kString));
    const Tensor x = c.input(0);
    const auto texts = x.data<const std::string_view>();
    const auto width = static_cast<int64_t>(tensor::size_of(dtype));
    SR_ASSIGN_OR_RETURN(const int64_t bytes, common_bytes(texts, fixed));
    if (bytes % width != 0) {
      return invalid_argument("strings of {} bytes are no whole number of {}, {} bytes each", bytes,
                              tensor::name_of(dtype), width);
    }
    Shape shape = x.shape();
    shape.append(bytes / width);
    SR_ASSIGN_OR_RETURN(Tensor * out, large_output(c, 0, shape));
    std::byte* to = out->raw();
    for (const std::string_view text : texts) {
      const int64_t taken = std::min<int64_t>(bytes, static_cast<int64_t>(text.size()));
      if (taken > 0) std::memcpy(to, text.data(), taken);
      // Zeros are zeros in any order, and `fixed` may ask for many of them.
      const int64_t elements = (taken + width - 1) / width;
      for (int64_t at = taken; at < bytes; at += kGrainBytes) {
        c.check_stop();
        std::memset(to + at, 0, std::min(kGrainBytes, bytes - at));
      }
      if (!little) swap_bytes(to, elements, width);
      if (dtype == DType::kBool) normalize_bools(to, elements);
      to += bytes;
    }
    return {};
  });
}

Result<std::unique_ptr<Kernel>> encode_raw(const BindContext& bind) {
  const bool little = ir::attr_or<bool>(bind.instruction.attrs, "little_endian", true);
  return make_kernel([little](KernelContext& c) -> Status {
    const Tensor& x = c.input(0);
    const int rank = x.shape().rank();
    if (rank == 0 || x.dtype() == DType::kString) {
      return invalid_argument("{} cannot be made strings of bytes", x.to_string());
    }
    Shape shape;
    for (int i = 0; i + 1 < rank; ++i) shape.append(x.shape().dim(i));
    SR_RETURN_IF_ERROR(ir::check_shape(shape));  // x may be empty, and this not.
    const int64_t row = x.shape().dim(-1) * bytes_of(x);
    constexpr int64_t kStringsMax = int64_t{1} << 32;
    if (shape.num_elements() > kStringsMax) {
      return base::resource_exhausted("{} strings", shape.num_elements());
    }
    tensor::StringsBuilder strings;
    strings.reserve(shape.num_elements(), x.nbytes());
    std::string bytes(row, '\0');
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      if (row > 0) std::memcpy(bytes.data(), x.raw() + i * row, row);
      if (!little) {
        swap_bytes(reinterpret_cast<std::byte*>(bytes.data()), x.shape().dim(-1), bytes_of(x));
      }
      strings.add(bytes);
    }
    c.set_output(0, std::move(strings).finish(shape));
    return {};
  });
}

}  // namespace

void register_raw_kernels(KernelTable* table) {
  table->add("DecodeRaw", with_arity(1, 1, 1, decode_raw));
  table->add("EncodeRaw", with_arity(1, 1, 1, with_outputs({DType::kString}, encode_raw)));
}

}  // namespace sidereal::exec
