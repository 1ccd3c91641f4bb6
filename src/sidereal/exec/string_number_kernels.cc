#include <farmhash.h>
#include <fmt/format.h>
#include <highwayhash/c_bindings.h>

#include <array>
#include <cmath>

#include "sidereal/base/category_id.h"
#include "sidereal/base/hash.h"
#include "sidereal/exec/string_util.h"
#include "sidereal/tensor/strings.h"

/// Numbers of strings, and strings of numbers.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Tensor;
using tensor::with_dtype;

// --- Hashes.

using Hash = uint64_t (*)(std::string_view, const std::array<uint64_t, 2>&);

uint64_t fast_hash(std::string_view text, const std::array<uint64_t, 2>& /*key*/) {
  return util::Fingerprint64(text.data(), text.size());
}
uint64_t strong_hash(std::string_view text, const std::array<uint64_t, 2>& key) {
  return SipHashC(key.data(), text.data(), text.size());
}
uint64_t plain_hash(std::string_view text, const std::array<uint64_t, 2>& /*key*/) {
  return base::hash64(text);
}

template <Hash hash>
Result<std::unique_ptr<Kernel>> hash_bucket(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(const int64_t buckets, ir::get_attr<int64_t>(attrs, "num_buckets"));
  if (buckets < 1) return invalid_argument("num_buckets is {}; it must be 1 or more", buckets);
  const auto given = ir::attr_or<std::vector<int64_t>>(attrs, "key", {0, 0});
  if (given.size() != 2) return invalid_argument("key has {} integers, not 2", given.size());
  const std::array<uint64_t, 2> key = {static_cast<uint64_t>(given[0]),
                                       static_cast<uint64_t>(given[1])};
  return make_kernel([buckets, key](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kString));
    const std::span<const std::string_view> x = c.in<std::string_view>(0);
    int64_t* out = c.output(0, c.input(0).shape()).data<int64_t>().data();
    const auto modulus = static_cast<uint64_t>(buckets);
    for (const std::string_view text : x) *out++ = static_cast<int64_t>(hash(text, key) % modulus);
    return {};
  });
}

Result<std::unique_ptr<Kernel>> category_id(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(const int64_t buckets, ir::get_attr<int64_t>(attrs, "num_buckets"));
  SR_ASSIGN_OR_RETURN(const int64_t field, ir::get_attr<int64_t>(attrs, "field"));
  if (buckets < 1 || field < 0 || field > INT64_MAX / buckets - 1) {
    return invalid_argument("field {} of {} buckets has no ids of 64 bits", field, buckets);
  }
  return make_kernel([buckets, field](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kString));
    const std::span<const std::string_view> x = c.in<std::string_view>(0);
    int64_t* out = c.output(0, c.input(0).shape()).data<int64_t>().data();
    for (const std::string_view text : x) *out++ = base::category_id(text, field, buckets);
    return {};
  });
}

// --- Text of numbers.

/// How AsString writes, as a format of fmt: the one of printf with the same flags.
struct NumberFormat {
  std::string text;  ///< Of the number itself, "{:>8.3f}".

  static Result<NumberFormat> bind(const BindContext& bind, DType dtype) {
    const ir::AttrMap& attrs = bind.instruction.attrs;
    const auto precision = ir::attr_or<int64_t>(attrs, "precision", -1);
    const auto width = ir::attr_or<int64_t>(attrs, "width", -1);
    const auto fill = ir::attr_or<std::string>(attrs, "fill", "");
    const bool scientific = ir::attr_or<bool>(attrs, "scientific", false);
    const bool shortest = ir::attr_or<bool>(attrs, "shortest", false);
    constexpr int64_t kMax = 1024;
    if (precision > kMax || width > kMax || fill.size() > 1 ||
        std::string_view(" +-0#").find(fill) == std::string_view::npos) {
      return invalid_argument("precision {}, width {} and fill '{}' are no format", precision,
                              width, fill);
    }
    const bool real = tensor::is_floating(dtype);
    std::string spec = "{:";
    spec += fill == "-" ? "<" : fill == "0" ? "" : ">";
    if (fill == " " || fill == "+") spec += fill;
    if (fill == "#" && real) spec += '#';
    if (fill == "0") spec += '0';
    if (width > 0) spec += std::to_string(width);
    if (real && precision >= 0) spec += fmt::format(".{}", precision);
    if (real) spec += scientific ? "e" : shortest ? "g" : "f";
    return NumberFormat{spec + "}"};
  }
};

template <class T>
void append_number(const NumberFormat& format, T value, fmt::memory_buffer* out) {
  if constexpr (std::is_same_v<T, bool>) {
    fmt::format_to(std::back_inserter(*out), "{}", value ? "true" : "false");
  } else if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    fmt::format_to(std::back_inserter(*out), fmt::runtime(format.text), static_cast<Wide>(value));
  } else {
    // All NaNs are one: the sign bit of a NaN means nothing.
    const auto wide = static_cast<double>(static_cast<tensor::ComputeType<T>>(value));
    fmt::format_to(std::back_inserter(*out), fmt::runtime(format.text),
                   std::isnan(wide) ? std::abs(wide) : wide);
  }
}

Result<std::unique_ptr<Kernel>> as_string(const BindContext& bind) {
  const DType dtype = bind.program.slots[bind.instruction.inputs[0]].dtype;
  SR_ASSIGN_OR_RETURN(const NumberFormat format, NumberFormat::bind(bind, dtype));
  return make_kernel([format](KernelContext& c) -> Status {
    const Tensor& x = c.input(0);
    tensor::StringsBuilder strings;
    fmt::memory_buffer text;
    SR_RETURN_IF_ERROR(with_dtype<tensor::PlainTypes>(x.dtype(), [&]<class T>() -> Status {
      for (const T value : x.data<const T>()) {
        text.clear();
        append_number(format, value, &text);
        strings.add({text.data(), text.size()});
      }
      return {};
    }));
    c.set_output(0, std::move(strings).finish(x.shape()));
    return {};
  });
}

// --- Numbers of text.

using Numbers = tensor::Join<tensor::RealTypes, tensor::IntegerTypes>;

Result<std::unique_ptr<Kernel>> to_number(const BindContext& bind) {
  const auto dtype = ir::attr_or<DType>(bind.instruction.attrs, "out_type", DType::kFloat32);
  SR_RETURN_IF_ERROR(check_slot(bind, bind.instruction.outputs[0], dtype, "the output"));
  return make_kernel([dtype](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kString));
    const Tensor x = c.input(0);
    return with_dtype<Numbers>(dtype, [&]<class T>() -> Status {
      const auto texts = x.data<const std::string_view>();
      T* out = c.output(0, x.shape()).template data<T>().data();
      for (size_t i = 0; i < texts.size(); ++i) {
        if (!parse::parse_number(texts[i], &out[i])) [[unlikely]] {
          return invalid_argument("element {} is {}, which is no {}", i, parse::shown(texts[i]),
                                  tensor::name_of(dtype));
        }
      }
      return {};
    });
  });
}

}  // namespace

void register_string_number_kernels(KernelTable* table) {
  const auto number = [](KernelFactory factory) {
    return with_arity(1, 1, 1, with_outputs({DType::kInt64}, std::move(factory)));
  };
  table->add("StringToHashBucketFast", number(hash_bucket<fast_hash>));
  table->add("StringToHashBucketStrong", number(hash_bucket<strong_hash>));
  table->add("StringToHashBucket", number(hash_bucket<plain_hash>));
  table->add("CategoryId", number(category_id));
  table->add("AsString", with_arity(1, 1, 1, with_outputs({DType::kString}, as_string)));
  table->add("StringToNumber", with_arity(1, 1, 1, to_number));
}

}  // namespace sidereal::exec
