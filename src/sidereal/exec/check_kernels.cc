#include <algorithm>
#include <cmath>
#include <cstdio>

#include "sidereal/exec/string_util.h"

/// Checks of values and printing.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Tensor;

/// How many of the elements are NaN, and how many infinite.
struct Odd {
  int64_t nan = 0;
  int64_t infinite = 0;
};

Odd count_odd(const Tensor& x) {
  Odd odd;
  tensor::visit_dtype<tensor::FloatTypes>(x.dtype(), [&]<class T>() {
    for (const T value : x.data<const T>()) {
      const tensor::ComputeType<T> v = value;
      odd.nan += std::isnan(v) ? 1 : 0;
      odd.infinite += std::isinf(v) ? 1 : 0;
    }
  });
  return odd;
}

Result<std::unique_ptr<Kernel>> check_numerics(const BindContext& bind) {
  std::string message = ir::attr_or<std::string>(bind.instruction.attrs, "message", "");
  return make_kernel([message = std::move(message)](KernelContext& c) -> Status {
    const Tensor& x = c.input(0);
    const Odd odd = count_odd(x);
    if (odd.nan + odd.infinite > 0) {
      return invalid_argument("{}{}{} of {} elements are NaN, {} infinite", message,
                              message.empty() ? "" : ": ", odd.nan, x.num_elements(), odd.infinite);
    }
    c.set_output(0, x);
    return {};
  });
}

Result<std::unique_ptr<Kernel>> assertion(const BindContext& bind) {
  std::string message = ir::attr_or<std::string>(bind.instruction.attrs, "message", "");
  const int64_t summarize = ir::attr_or<int64_t>(bind.instruction.attrs, "summarize", 3);
  return make_kernel([message = std::move(message), summarize](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kBool));
    const std::span<const bool> holds = c.in<bool>(0);
    if (std::all_of(holds.begin(), holds.end(), [](bool b) { return b; })) return {};
    std::string text = message.empty() ? "the condition does not hold" : message;
    for (int i = 1; i < c.num_inputs(); ++i) {
      text += fmt::format("{} {}", i == 1 ? ":" : ",", text_of(c.input(i), summarize));
    }
    return invalid_argument("{}", text);
  });
}

/// The texts put where {} stands in the template; what is left over follows.
std::string fill_in(const std::string& pattern, const std::vector<std::string>& texts) {
  std::string out;
  size_t used = 0;
  size_t at = 0;
  while (used < texts.size()) {
    const size_t hole = pattern.find("{}", at);
    if (hole == std::string::npos) break;
    out += pattern.substr(at, hole - at) + texts[used++];
    at = hole + 2;
  }
  out += pattern.substr(at);
  for (; used < texts.size(); ++used) {
    if (!out.empty()) out += ' ';
    out += texts[used];
  }
  return out;
}

Result<std::unique_ptr<Kernel>> print(const BindContext& bind) {
  std::string pattern = ir::attr_or<std::string>(bind.instruction.attrs, "template", "");
  const int64_t summarize = ir::attr_or<int64_t>(bind.instruction.attrs, "summarize", 3);
  return make_kernel([pattern = std::move(pattern), summarize](KernelContext& c) -> Status {
    std::vector<std::string> texts;
    for (int i = 0; i < c.num_inputs(); ++i) texts.push_back(text_of(c.input(i), summarize));
    const std::string line = fill_in(pattern, texts) + "\n";
    std::fputs(line.c_str(), stderr);
    return {};
  });
}

}  // namespace

void register_check_kernels(KernelTable* table) {
  table->add("CheckNumerics", with_arity(1, 1, 1, like_input(check_numerics)));
  table->add("Assert", with_arity(1, -1, 0, assertion));
  table->add("Print", with_arity(0, -1, 0, print));
}

}  // namespace sidereal::exec
