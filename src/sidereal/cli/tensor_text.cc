#include "sidereal/cli/tensor_text.h"

#include <fmt/format.h>

#include <type_traits>

#include "sidereal/base/strings.h"
#include "sidereal/tensor/dispatch.h"

namespace sidereal::cli {

namespace {

constexpr size_t kStringBytesMax = 200;

}  // namespace

std::string element_text(const tensor::Tensor& t, int64_t i) {
  std::string out;
  tensor::visit_dtype<tensor::AllTypes>(t.dtype(), [&]<class T>() {
    const T value = t.data<const T>()[static_cast<size_t>(i)];
    if constexpr (std::is_same_v<T, std::string_view>) {
      out = fmt::format("\"{}\"", base::message_text(value, kStringBytesMax));
    } else if constexpr (std::is_same_v<T, tensor::Float16> ||
                         std::is_same_v<T, tensor::BFloat16>) {
      out = fmt::format("{}", static_cast<float>(value));
    } else {
      out = fmt::format("{}", value);
    }
  });
  return out;
}

std::string elements_text(const tensor::Tensor& t, int64_t from, int64_t count) {
  std::string out;
  for (int64_t i = from; i < from + count; ++i) {
    if (i > from) out += ' ';
    out += element_text(t, i);
  }
  return out;
}

}  // namespace sidereal::cli
