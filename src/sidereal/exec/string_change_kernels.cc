#include <re2/re2.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "sidereal/exec/string_util.h"
#include "sidereal/tensor/strings.h"

/// Strings changed, measured and matched one by one.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::StringsBuilder;
using tensor::Tensor;

Result<bool> counts_characters(const BindContext& bind) {
  const auto unit = ir::attr_or<std::string>(bind.instruction.attrs, "unit", "BYTE");
  if (unit != "BYTE" && unit != "UTF8_CHAR") return invalid_argument("unit is '{}'", unit);
  return unit == "UTF8_CHAR";
}

/// Characters of UTF-8 text: the bytes that begin one.
int64_t characters(std::string_view text) {
  return static_cast<int64_t>(text.size()) -
         std::count_if(text.begin(), text.end(), is_continuation);
}

Result<std::unique_ptr<Kernel>> length(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const bool by_character, counts_characters(bind));
  return make_kernel([by_character](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kString));
    int32_t* out = c.output(0, c.input(0).shape()).data<int32_t>().data();
    for (const std::string_view text : c.in<std::string_view>(0)) {
      const int64_t count = by_character ? characters(text) : static_cast<int64_t>(text.size());
      *out++ = static_cast<int32_t>(std::min<int64_t>(count, std::numeric_limits<int32_t>::max()));
    }
    return {};
  });
}

/// New strings of the same lengths, byte by byte.
template <char (*change)(char)>
Status change_bytes(KernelContext& c) {
  SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kString));
  const Tensor& x = c.input(0);
  StringsBuilder strings;
  strings.reserve(x.num_elements(), tensor::string_bytes(x));
  std::string changed;
  for (const std::string_view text : x.data<const std::string_view>()) {
    changed.resize(text.size());
    std::transform(text.begin(), text.end(), changed.begin(), change);
    strings.add(changed);
  }
  c.set_output(0, std::move(strings).finish(x.shape()));
  return {};
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

Status strip(KernelContext& c) {
  SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kString));
  const Tensor x = c.input(0);
  const auto texts = x.data<const std::string_view>();
  std::transform(texts.begin(), texts.end(), c.output(0, x.shape()).data<std::string_view>().data(),
                 parse::trim_space);
  return {};
}

// --- Parts.

/// The byte where character `count` begins; the size when there are exactly `count`, npos when
/// there are fewer.
size_t byte_of(std::string_view text, int64_t count) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (!is_continuation(text[i]) && count-- == 0) return i;
  }
  return count == 0 ? text.size() : std::string_view::npos;
}

/// `len` bytes or characters from `pos` on; false when pos is outside of the text.
bool part_of(std::string_view text, int64_t pos, int64_t len, bool by_character,
             std::string_view* out) {
  const int64_t size = by_character ? characters(text) : static_cast<int64_t>(text.size());
  if (pos < -size || pos > size) return false;
  if (pos < 0) pos += size;
  len = std::min(len, size - pos);
  if (!by_character) {
    *out = text.substr(pos, len);
    return true;
  }
  text.remove_prefix(byte_of(text, pos));
  *out = text.substr(0, byte_of(text, len));
  return true;
}

template <class I>
Status run_substr(KernelContext& c, bool by_character, const Shape& shape) {
  const auto texts = c.in<std::string_view>(0);
  const auto begins = c.in<I>(1);
  const auto sizes = c.in<I>(2);
  const Spread text_at(c.input(0).shape(), shape);
  const Spread begin_at(c.input(1).shape(), shape);
  const Spread size_at(c.input(2).shape(), shape);
  std::string_view* out = c.output(0, shape).template data<std::string_view>().data();
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    const std::string_view text = texts[text_at(i)];
    const int64_t pos = begins[begin_at(i)];
    const int64_t len = sizes[size_at(i)];
    if (len < 0) return invalid_argument("len is {} at element {}; it may not be negative", len, i);
    if (!part_of(text, pos, len, by_character, &out[i])) {
      return invalid_argument("pos {} is outside of element {}, {}", pos, i, parse::shown(text));
    }
  }
  return {};
}

Result<std::unique_ptr<Kernel>> substr(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const bool by_character, counts_characters(bind));
  return make_kernel([by_character](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kString));
    SR_RETURN_IF_ERROR(check_one_dtype(c, 1, 2));
    SR_ASSIGN_OR_RETURN(const Shape shape, broadcast_inputs(c, 0, 2));
    return tensor::with_dtype<tensor::IndexTypes>(c.input(1).dtype(), [&]<class I>() -> Status {
      return run_substr<I>(c, by_character, shape);
    });
  });
}

// --- Regular expressions. RE2 needs time and memory linear in text and pattern, whatever they are.

re2::StringPiece piece(std::string_view text) { return {text.data(), text.size()}; }

Result<std::shared_ptr<const re2::RE2>> compiled(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const std::string pattern,
                      ir::get_attr<std::string>(bind.instruction.attrs, "pattern"));
  re2::RE2::Options options;
  options.set_log_errors(false);
  auto regex = std::make_shared<const re2::RE2>(pattern, options);
  if (regex->ok()) return regex;
  return invalid_argument("pattern {} is no regular expression: {}", parse::shown(pattern),
                          regex->error());
}

Result<std::unique_ptr<Kernel>> regex_full_match(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const auto regex, compiled(bind));
  return make_kernel([regex](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kString));
    bool* out = c.output(0, c.input(0).shape()).data<bool>().data();
    for (const std::string_view text : c.in<std::string_view>(0)) {
      *out++ = re2::RE2::FullMatch(piece(text), *regex);
    }
    return {};
  });
}

Result<std::unique_ptr<Kernel>> regex_replace(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const auto regex, compiled(bind));
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(std::string rewrite, ir::get_attr<std::string>(attrs, "rewrite"));
  const bool global = ir::attr_or<bool>(attrs, "replace_global", true);
  std::string error;
  if (!regex->CheckRewriteString(piece(rewrite), &error)) {
    return invalid_argument("rewrite {} does not fit the pattern: {}", parse::shown(rewrite),
                            error);
  }
  return make_kernel([regex, rewrite = std::move(rewrite), global](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kString));
    const Tensor& x = c.input(0);
    StringsBuilder strings;
    std::string text;
    for (const std::string_view value : x.data<const std::string_view>()) {
      text.assign(value);
      if (global) {
        re2::RE2::GlobalReplace(&text, *regex, piece(rewrite));
      } else {
        re2::RE2::Replace(&text, *regex, piece(rewrite));
      }
      strings.add(text);
    }
    c.set_output(0, std::move(strings).finish(x.shape()));
    return {};
  });
}

}  // namespace

void register_string_change_kernels(KernelTable* table) {
  const auto to = [](DType dtype, KernelFactory factory) {
    return with_arity(1, 1, 1, with_outputs({dtype}, std::move(factory)));
  };
  table->add("StringLength", to(DType::kInt32, length));
  table->add("StringLower", to(DType::kString, stateless(change_bytes<lower>)));
  table->add("StringUpper", to(DType::kString, stateless(change_bytes<upper>)));
  table->add("StringStrip", to(DType::kString, stateless(strip)));
  table->add("Substr", with_arity(3, 3, 1, with_outputs({DType::kString}, substr)));
  table->add("RegexFullMatch", to(DType::kBool, regex_full_match));
  table->add("RegexReplace", to(DType::kString, regex_replace));
}

}  // namespace sidereal::exec
