#include <algorithm>
#include <vector>

#include "sidereal/exec/array_util.h"
#include "sidereal/exec/string_util.h"
#include "sidereal/kernels/grid.h"
#include "sidereal/tensor/strings.h"

/// Strings joined and cut apart.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::StringsBuilder;
using tensor::Tensor;

/// kInvalidArgument unless all inputs are strings.
Status check_strings(const KernelContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) SR_RETURN_IF_ERROR(check_dtype(c, i, DType::kString));
  return {};
}

/// kResourceExhausted for more bytes than one op may make: a separator or broadcasting multiplies.
Status check_bytes(size_t bytes) {
  constexpr size_t kBytesMax = size_t{1} << 32;
  if (bytes <= kBytesMax) return {};
  return base::resource_exhausted("the strings would have more than {} bytes together", kBytesMax);
}

Result<std::unique_ptr<Kernel>> string_join(const BindContext& bind) {
  auto separator = ir::attr_or<std::string>(bind.instruction.attrs, "separator", "");
  return make_kernel([separator = std::move(separator)](KernelContext& c) -> Status {
    return join_inputs(c, separator);
  });
}

// --- Along axes.

struct JoinPlan {
  Shape shape;          ///< Of the result.
  kernels::Grid outer;  ///< Where each result's strings begin.
  kernels::Grid inner;  ///< Its strings, from there.
};

/// `axes` in the order given: the first runs fastest.
Status plan_join(const Shape& shape, const std::vector<int64_t>& axes, bool keep, JoinPlan* plan) {
  std::vector<int> order;
  for (const int64_t axis : axes) {
    SR_ASSIGN_OR_RETURN(const int at, axis_in(axis, shape.rank()));
    if (std::find(order.begin(), order.end(), at) != order.end()) {
      return invalid_argument("axis {} is named twice", axis);
    }
    order.push_back(at);
  }
  const auto add = [&shape](kernels::Grid* grid, int d) {
    const int64_t stride = product_of(shape, d + 1, shape.rank());
    const std::span<int64_t> offsets = grid->add_dimension(shape.dim(d));
    for (size_t i = 0; i < offsets.size(); ++i) offsets[i] = static_cast<int64_t>(i) * stride;
  };
  plan->shape = Shape();
  plan->outer.reset(1);
  plan->inner.reset(1);
  for (int d = 0; d < shape.rank(); ++d) {
    if (std::find(order.begin(), order.end(), d) == order.end()) {
      add(&plan->outer, d);
      plan->shape.append(shape.dim(d));
    } else if (keep) {
      plan->shape.append(1);
    }
  }
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) add(&plan->inner, *axis);
  return {};
}

Result<std::unique_ptr<Kernel>> reduce_join(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  const auto* axes = ir::find_attr<std::vector<int64_t>>(attrs, "axes");
  const bool keep = ir::attr_or<bool>(attrs, "keep_dims", false);
  auto separator = ir::attr_or<std::string>(attrs, "separator", "");
  return make_kernel([all = axes == nullptr, plan = JoinPlan(), keep,
                      axes = axes == nullptr ? std::vector<int64_t>() : *axes,
                      separator = std::move(separator)](KernelContext& c) mutable -> Status {
    SR_RETURN_IF_ERROR(check_strings(c));
    const Tensor& x = c.input(0);
    if (all) {
      axes.clear();
      for (int d = x.shape().rank() - 1; d >= 0; --d) axes.push_back(d);
    }
    SR_RETURN_IF_ERROR(plan_join(x.shape(), axes, keep, &plan));
    SR_RETURN_IF_ERROR(check_bytes(tensor::string_bytes(x) + separator.size() * x.num_elements()));
    const std::string_view* data = c.in<std::string_view>(0).data();
    StringsBuilder strings;
    plan.outer.for_each([&](int64_t from) {
      bool first = true;
      plan.inner.for_each([&](int64_t offset) {
        if (!first) strings.append(separator);
        first = false;
        strings.append(data[from + offset]);
      });
      strings.end();
    });
    c.set_output(0, std::move(strings).finish(plan.shape));
    return {};
  });
}

// --- Splitting.

/// How StringSplit cuts. Value type.
class Splitter {
 public:
  explicit Splitter(const ir::AttrMap& attrs)
      : separator_(ir::attr_or<std::string>(attrs, "separator", "")),
        maxsplit_(ir::attr_or<int64_t>(attrs, "maxsplit", -1)),
        each_byte_(ir::attr_or<bool>(attrs, "each_byte", false)),
        skip_empty_(ir::attr_or<bool>(attrs, "skip_empty", false)) {}

  /// Appends the pieces of `text`, which are views of it.
  void split(std::string_view text, std::vector<std::string_view>* out) const {
    if (separator_.empty()) return each_byte_ ? into_bytes(text, out) : at_space(text, out);
    const size_t width = each_byte_ ? 1 : separator_.size();
    for (int64_t cuts = 0; maxsplit_ < 0 || cuts < maxsplit_; ++cuts) {
      const size_t at = each_byte_ ? text.find_first_of(separator_) : text.find(separator_);
      if (at == std::string_view::npos) break;
      add(text.substr(0, at), out);
      text.remove_prefix(at + width);
    }
    add(text, out);
  }

 private:
  void add(std::string_view piece, std::vector<std::string_view>* out) const {
    if (!skip_empty_ || !piece.empty()) out->push_back(piece);
  }

  static void into_bytes(std::string_view text, std::vector<std::string_view>* out) {
    for (size_t i = 0; i < text.size(); ++i) out->push_back(text.substr(i, 1));
  }

  /// As Python's split() without a separator: what is left after the last cut keeps its end.
  void at_space(std::string_view text, std::vector<std::string_view>* out) const {
    for (int64_t cuts = 0;; ++cuts) {
      size_t begin = 0;
      while (begin < text.size() && parse::is_space(text[begin])) ++begin;
      text.remove_prefix(begin);
      if (text.empty()) return;
      size_t end = 0;
      while (end < text.size() && !parse::is_space(text[end])) ++end;
      if (maxsplit_ >= 0 && cuts >= maxsplit_) end = text.size();
      out->push_back(text.substr(0, end));
      text.remove_prefix(end);
    }
  }

  std::string separator_;
  int64_t maxsplit_;
  bool each_byte_;
  bool skip_empty_;
};

Result<std::unique_ptr<Kernel>> string_split(const BindContext& bind) {
  return make_kernel([splitter = Splitter(bind.instruction.attrs),
                      pieces = std::vector<std::string_view>()](KernelContext& c) mutable {
    SR_RETURN_IF_ERROR(check_strings(c));
    const auto texts = c.in<std::string_view>(0);
    pieces.clear();
    int64_t* splits =
        c.output(1, Shape{static_cast<int64_t>(texts.size()) + 1}).data<int64_t>().data();
    *splits++ = 0;
    for (const std::string_view text : texts) {
      splitter.split(text, &pieces);
      *splits++ = static_cast<int64_t>(pieces.size());
    }
    const Tensor& out = c.output(0, Shape{static_cast<int64_t>(pieces.size())});
    std::copy(pieces.begin(), pieces.end(), out.data<std::string_view>().data());
    return Status();
  });
}

// --- Format.

Result<std::unique_ptr<Kernel>> string_format(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(std::string pattern, ir::get_attr<std::string>(attrs, "template"));
  auto hole = ir::attr_or<std::string>(attrs, "placeholder", "{}");
  const int64_t summarize = ir::attr_or<int64_t>(attrs, "summarize", 3);
  if (hole.empty()) return invalid_argument("the placeholder is empty");
  return make_kernel([pattern = std::move(pattern), hole = std::move(hole),
                      summarize](KernelContext& c) -> Status {
    std::string text;
    size_t from = 0;
    for (int i = 0; i < c.num_inputs(); ++i) {
      const size_t at = pattern.find(hole, from);
      if (at == std::string::npos) {
        return invalid_argument("the template has {} placeholders for {} inputs", i,
                                c.num_inputs());
      }
      text += pattern.substr(from, at - from) + text_of(c.input(i), summarize);
      from = at + hole.size();
    }
    text += pattern.substr(from);
    StringsBuilder strings;
    strings.add(text);
    c.set_output(0, std::move(strings).finish(Shape()));
    return {};
  });
}

}  // namespace

Status join_inputs(KernelContext& c, std::string_view separator) {
  SR_RETURN_IF_ERROR(check_strings(c));
  const int inputs = c.num_inputs();
  SR_ASSIGN_OR_RETURN(const Shape shape, broadcast_inputs(c, 0, inputs - 1));
  SR_RETURN_IF_ERROR(checked_shape(shape.dims()).status());
  std::vector<Spread> spreads;
  std::vector<const std::string_view*> data;
  for (int i = 0; i < inputs; ++i) {
    spreads.emplace_back(c.input(i).shape(), shape);
    data.push_back(c.in<std::string_view>(i).data());
  }
  StringsBuilder strings;
  for (int64_t at = 0; at < shape.num_elements(); ++at) {
    for (int i = 0; i < inputs; ++i) {
      if (i > 0) strings.append(separator);
      strings.append(data[i][spreads[i](at)]);
    }
    strings.end();
    SR_RETURN_IF_ERROR(check_bytes(strings.bytes()));
  }
  c.set_output(0, std::move(strings).finish(shape));
  return {};
}

void register_string_join_kernels(KernelTable* table) {
  const auto strings = [](int inputs, KernelFactory factory) {
    return with_arity(inputs < 0 ? 1 : inputs, inputs, 1,
                      with_outputs({DType::kString}, std::move(factory)));
  };
  table->add("StringJoin", strings(-1, string_join));
  table->add("ReduceJoin", strings(1, reduce_join));
  table->add("StringSplit",
             with_arity(1, 1, 2, with_outputs({DType::kString, DType::kInt64}, string_split)));
  table->add("StringFormat", with_arity(0, -1, 1, with_outputs({DType::kString}, string_format)));
}

}  // namespace sidereal::exec
