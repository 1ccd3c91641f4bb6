#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/escaping.h"
#include "sidereal/base/strings.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/internal/text_type.h"
#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/tensor/dispatch.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::ir {
namespace {

bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/// Reads tokens of one text; every error carries the place. Blanks (not newlines) before a token
/// are skipped. Thread: core-local.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }

  Status error(const std::string& message) const {
    return base::invalid_argument("graph text {}:{}: {}", line_, at_ - line_start_ + 1, message);
  }

  Status expected(std::string_view what) const {
    std::string got = "the end of the text";
    if (!at_end()) {
      got = text_[at_] == '\n' ? "the end of the line"
                               : "'" + std::string(text_.substr(at_, 1)) + "'";
    }
    return error(fmt::format("expected {}, got {}", what, got));
  }

  /// Takes `token` when it comes next.
  bool accept(std::string_view token) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  /// Takes the word `word` when it comes next as a whole.
  bool accept_word(std::string_view word) {
    skip_blanks();
    const std::string_view rest = text_.substr(at_);
    if (!rest.starts_with(word)) return false;
    if (rest.size() > word.size() && is_word_char(rest[word.size()])) return false;
    at_ += word.size();
    return true;
  }

  Status expect(std::string_view token) {
    return accept(token) ? Status() : expected("'" + std::string(token) + "'");
  }

  Status expect_line_end() {
    skip_blanks();
    if (at_end()) return {};
    if (text_[at_] != '\n') return expected("the end of the line");
    ++at_;
    ++line_;
    line_start_ = at_;
    return {};
  }

  /// Skips empty lines and lines that start with '#'.
  void skip_empty_lines() {
    while (!at_end()) {
      skip_blanks();
      if (!at_end() && text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      if (at_end() || text_[at_] != '\n') return;
      ++at_;
      ++line_;
      line_start_ = at_;
    }
  }

  Status word(std::string_view what, std::string* out) {
    skip_blanks();
    size_t end = at_;
    while (end < text_.size() && is_word_char(text_[end])) ++end;
    if (end == at_ || end - at_ > kMaxNameBytes) return expected(what);
    out->assign(text_.substr(at_, end - at_));
    at_ = end;
    return {};
  }

  Status quoted(std::string_view what, std::string* out) {
    skip_blanks();
    if (at_end() || text_[at_] != '"') return expected(what);
    out->clear();
    for (++at_; !at_end() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\n') return expected("a closing '\"'");
      if (text_[at_] != '\\') {
        out->push_back(text_[at_]);
        continue;
      }
      ++at_;
      SR_RETURN_IF_ERROR(escape(out));
    }
    if (at_end()) return expected("a closing '\"'");
    ++at_;
    return {};
  }

  /// A number of type T. Floating point: decimal, inf, or nan(0xBITS).
  template <class T>
  Status number(std::string_view what, T* out) {
    skip_blanks();
    if constexpr (std::is_floating_point_v<T>) {
      if (text_.substr(at_).starts_with("nan(0x")) return nan(out);
    }
    const auto result = std::from_chars(text_.data() + at_, text_.data() + text_.size(), *out);
    if (result.ec == std::errc::result_out_of_range) {
      return error(fmt::format("the number is out of range for {}", what));
    }
    if (result.ec != std::errc()) return expected(what);
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(*out)) return error("write a NaN with its bits: nan(0x7fc00000)");
    }
    at_ = result.ptr - text_.data();
    return {};
  }

  /// Exactly `bytes` bytes.
  Status base64(size_t bytes, std::string* out) {
    const size_t length = (bytes + 2) / 3 * 4;
    const std::string wanted = fmt::format("{} bytes in base64", bytes);
    if (length > remaining()) return expected(wanted);
    if (!absl::Base64Unescape(absl::string_view(text_.data() + at_, length), out) ||
        out->size() != bytes) {
      return expected(wanted);
    }
    at_ += length;
    return {};
  }

  /// True when the number that comes next is written as a floating-point number.
  bool next_is_real() {
    skip_blanks();
    size_t end = at_;
    if (end < text_.size() && text_[end] == '-') ++end;
    if (end < text_.size() && (text_[end] == 'i' || text_[end] == 'n')) return true;
    while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
    return end < text_.size() && (text_[end] == '.' || text_[end] == 'e');
  }

  /// True when "inf" or "nan(" comes next.
  bool next_is_inf_or_nan() {
    skip_blanks();
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("nan(")) return true;
    return rest.starts_with("inf") && (rest.size() == 3 || !is_word_char(rest[3]));
  }

  [[nodiscard]] size_t remaining() const { return text_.size() - at_; }

  /// The next character, or '\0' at the end.
  char peek() {
    skip_blanks();
    return at_end() ? '\0' : text_[at_];
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }

  Status escape(std::string* out) {
    const char c = at_end() ? '\0' : text_[at_];
    if (c == '"' || c == '\\') {
      out->push_back(c);
      return {};
    }
    if (c == 'n') {
      out->push_back('\n');
      return {};
    }
    if (c == 'x' && at_ + 2 < text_.size()) {
      const int high = hex_digit(text_[at_ + 1]);
      const int low = hex_digit(text_[at_ + 2]);
      if (high >= 0 && low >= 0) {
        out->push_back(static_cast<char>(high * 16 + low));
        at_ += 2;
        return {};
      }
    }
    return expected("one of \\\" \\\\ \\n \\xHH");
  }

  template <class T>
  Status nan(T* out) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    Bits bits = 0;
    const char* first = text_.data() + at_ + 6;
    const auto result = std::from_chars(first, text_.data() + text_.size(), bits, 16);
    const T value = std::bit_cast<T>(bits);
    if (result.ec != std::errc() || !std::isnan(value)) return error("expected the bits of a NaN");
    at_ = result.ptr - text_.data();
    *out = value;
    return at_end() || text_[at_] != ')' ? expected("')'") : (++at_, Status());
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t line_start_ = 0;
  int64_t line_ = 1;
};

/// Reads the lines of a graph. Thread: core-local.
class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text) {}

  Result<Graph> run() {
    SR_RETURN_IF_ERROR(header());
    for (in_.skip_empty_lines(); !in_.at_end(); in_.skip_empty_lines()) {
      if (in_.accept_word("function")) {
        SR_RETURN_IF_ERROR(function());
      } else {
        SR_RETURN_IF_ERROR(line_of_graph());
      }
      SR_RETURN_IF_ERROR(in_.expect_line_end());
    }
    return std::move(graph_);
  }

 private:
  Status line_of_graph() {
    if (in_.accept_word("use")) return use();
    return node();
  }

  /// A function, from its number to the brace that ends it.
  Status function() {
    if (functions_.size() >= kMaxTextFunctions) return in_.error("too many functions");
    SR_RETURN_IF_ERROR(in_.expect("@"));
    size_t number = 0;
    SR_RETURN_IF_ERROR(in_.number("a function number", &number));
    if (number != functions_.size()) {
      return in_.error(
          fmt::format("function @{} stands where @{} must be", number, functions_.size()));
    }
    SR_RETURN_IF_ERROR(in_.expect("{"));
    SR_RETURN_IF_ERROR(in_.expect_line_end());
    Graph around = std::exchange(graph_, {});
    for (in_.skip_empty_lines(); !in_.accept_word("return"); in_.skip_empty_lines()) {
      if (in_.at_end()) return in_.expected("'return'");
      SR_RETURN_IF_ERROR(line_of_graph());
      SR_RETURN_IF_ERROR(in_.expect_line_end());
    }
    std::vector<Output> outputs;
    std::vector<NodeId> targets;
    if (in_.peek() == '%') {
      do {
        SR_RETURN_IF_ERROR(output(&outputs.emplace_back()));
      } while (in_.accept(","));
    }
    if (in_.accept("after(")) SR_RETURN_IF_ERROR(control_inputs(&targets));
    SR_RETURN_IF_ERROR(in_.expect_line_end());
    in_.skip_empty_lines();
    SR_RETURN_IF_ERROR(in_.expect("}"));
    Result<FunctionPtr> made = Function::make(std::exchange(graph_, std::move(around)),
                                              std::move(outputs), std::move(targets));
    if (!made.ok()) return in_.error(base::message_of(made.status()));
    functions_.push_back(*std::move(made));
    return {};
  }

  Status use() {
    std::string local;
    size_t number = 0;
    SR_RETURN_IF_ERROR(name("the function's name in quotes", &local));
    SR_RETURN_IF_ERROR(in_.expect("@"));
    SR_RETURN_IF_ERROR(in_.number("a function number", &number));
    if (number >= functions_.size()) {
      return in_.error(
          fmt::format("@{} is not an earlier function; functions do not call themselves", number));
    }
    if (graph_.find_function(local) != nullptr) {
      return in_.error(fmt::format("two functions are named '{}'", local));
    }
    if (++uses_ > kMaxTextFunctions) return in_.error("too many uses of functions");
    return graph_.add_function(local, functions_[number]);
  }

  Status header() {
    int version = 0;
    if (!in_.accept_word(kTextMagic)) {
      return in_.expected(fmt::format("'{} 1'", kTextMagic));
    }
    SR_RETURN_IF_ERROR(in_.number("a version", &version));
    if (version < 1 || version > kTextVersion) {
      return in_.error(fmt::format("the text has version {}; this program reads versions 1 to {}",
                                   version, kTextVersion));
    }
    return in_.expect_line_end();
  }

  Status name(std::string_view what, std::string* out) {
    SR_RETURN_IF_ERROR(in_.quoted(what, out));
    if (is_legal_name(*out)) return {};
    return in_.error(fmt::format("'{}' is not a legal name: {}", out->substr(0, 64), kNameRule));
  }

  Status dtype(DType* out) {
    std::string text;
    SR_RETURN_IF_ERROR(in_.word("a dtype", &text));
    const Result<DType> found = tensor::dtype_from_name(text);
    if (!found.ok()) return in_.error(base::message_of(found.status()));
    *out = *found;
    return {};
  }

  Status shape(Shape* out) {
    if (in_.accept("?")) {
      *out = Shape::unknown_rank();
      return {};
    }
    *out = Shape();
    SR_RETURN_IF_ERROR(in_.expect("["));
    while (!in_.accept("]")) {
      if (out->rank() > 0) SR_RETURN_IF_ERROR(in_.expect(","));
      int64_t extent = -1;
      if (!in_.accept("?")) {
        SR_RETURN_IF_ERROR(in_.number("an extent", &extent));
        if (extent < 0) return in_.error("an extent is negative; write '?' for unknown");
      }
      out->append(extent);
      if (out->rank() > kMaxRank) return in_.error("too many dimensions");
    }
    const Status limits = check_shape(*out);
    return limits.ok() ? limits : in_.error(base::message_of(limits));
  }

  Status spec(TensorSpec* out) {
    SR_RETURN_IF_ERROR(dtype(&out->dtype));
    return shape(&out->shape);
  }

  Status node() {
    if (++nodes_ > kMaxTextNodes) return in_.error("too many nodes");
    Node node;
    int32_t id = 0;
    SR_RETURN_IF_ERROR(in_.expect("%"));
    SR_RETURN_IF_ERROR(in_.number("a node number", &id));
    if (id != static_cast<int32_t>(graph_.size())) {
      return in_.error(fmt::format("node %{} stands where %{} must be", id, graph_.size()));
    }
    SR_RETURN_IF_ERROR(in_.expect("="));
    SR_RETURN_IF_ERROR(in_.word("an op", &node.op));
    SR_RETURN_IF_ERROR(inputs(&node.inputs));
    SR_RETURN_IF_ERROR(in_.expect("name="));
    SR_RETURN_IF_ERROR(name("the node's name in quotes", &node.name));
    if (graph_.find(node.name) != nullptr) {
      return in_.error(fmt::format("another node is named '{}' too", node.name));
    }
    if (in_.accept("{")) SR_RETURN_IF_ERROR(attrs(&node.attrs));
    if (in_.accept("device=")) SR_RETURN_IF_ERROR(in_.quoted("a device", &node.device));
    if (in_.accept("after(")) SR_RETURN_IF_ERROR(control_inputs(&node.control_inputs));
    if (in_.accept(":")) {
      do {
        SR_RETURN_IF_ERROR(spec(&node.outputs.emplace_back()));
      } while (in_.accept(","));
    }
    graph_.append(std::move(node));
    return {};
  }

  Status node_id(NodeId* out) {
    SR_RETURN_IF_ERROR(in_.expect("%"));
    SR_RETURN_IF_ERROR(in_.number("a node number", &out->value));
    if (out->value < 0 || static_cast<size_t>(out->value) >= graph_.size()) {
      return in_.error(fmt::format("%{} is not an earlier node", out->value));
    }
    return {};
  }

  Status inputs(std::vector<Output>* out) {
    SR_RETURN_IF_ERROR(in_.expect("("));
    while (!in_.accept(")")) {
      if (!out->empty()) SR_RETURN_IF_ERROR(in_.expect(","));
      SR_RETURN_IF_ERROR(output(&out->emplace_back()));
    }
    return {};
  }

  Status output(Output* out) {
    SR_RETURN_IF_ERROR(node_id(&out->node));
    if (in_.accept(":")) SR_RETURN_IF_ERROR(in_.number("an output number", &out->index));
    const Node& from = graph_.node(out->node);
    if (out->index >= 0 && static_cast<size_t>(out->index) < from.outputs.size()) return {};
    return in_.error(fmt::format("'{}' has {} outputs; there is no output {}", from.name,
                                 from.outputs.size(), out->index));
  }

  Status control_inputs(std::vector<NodeId>* out) {
    do {
      SR_RETURN_IF_ERROR(node_id(&out->emplace_back()));
    } while (in_.accept(","));
    return in_.expect(")");
  }

  Status attrs(AttrMap* out) {
    do {
      std::string key;
      AttrValue value;
      SR_RETURN_IF_ERROR(in_.word("an attribute", &key));
      SR_RETURN_IF_ERROR(in_.expect("="));
      SR_RETURN_IF_ERROR(attr_value(&value));
      if (!out->emplace(key, std::move(value)).second) {
        return in_.error(fmt::format("attribute '{}' is given twice", key));
      }
    } while (in_.accept(","));
    return in_.expect("}");
  }

  Status attr_value(AttrValue* out) {
    if (in_.peek() == '"') return in_.quoted("a string", &out->emplace<std::string>());
    if (in_.accept_word("true")) return *out = true, Status();
    if (in_.accept_word("false")) return *out = false, Status();
    if (in_.accept("ints[")) {
      return list(&out->emplace<std::vector<int64_t>>(),
                  [this](int64_t* v) { return in_.number("an int", v); });
    }
    if (in_.accept("floats[")) {
      return list(&out->emplace<std::vector<double>>(),
                  [this](double* v) { return in_.number("a number", v); });
    }
    if (in_.accept("strings[")) {
      return list(&out->emplace<std::vector<std::string>>(),
                  [this](std::string* v) { return in_.quoted("a string", v); });
    }
    if (in_.accept_word("shape")) return shape(&out->emplace<Shape>());
    const char next = in_.peek();
    const bool digit = (next >= '0' && next <= '9') || next == '-';
    if (digit && !in_.next_is_real()) return in_.number("an int", &out->emplace<int64_t>());
    if (digit || in_.next_is_inf_or_nan()) return in_.number("a float", &out->emplace<double>());
    return dtype_or_tensor(out);
  }

  template <class T, class ReadOne>
  Status list(std::vector<T>* out, ReadOne read_one) {
    while (!in_.accept("]")) {
      if (!out->empty()) SR_RETURN_IF_ERROR(in_.expect(","));
      SR_RETURN_IF_ERROR(read_one(&out->emplace_back()));
    }
    return {};
  }

  Status dtype_or_tensor(AttrValue* out) {
    TensorSpec found;
    SR_RETURN_IF_ERROR(dtype(&found.dtype));
    if (in_.peek() != '[') return *out = found.dtype, Status();
    SR_RETURN_IF_ERROR(shape(&found.shape));
    if (!found.shape.is_fully_defined()) return in_.error("a tensor's extents must be known");
    // Each element takes a character or more: a lying shape costs nothing.
    const auto count = static_cast<size_t>(found.shape.num_elements());
    if (count > in_.remaining() || count * tensor::size_of(found.dtype) > kMaxTextTensorBytes) {
      return in_.error("the tensor is larger than its text or than 2 GiB");
    }
    if (in_.accept("base64{")) return base64_elements(found, out);
    Tensor& tensor = out->emplace<Tensor>(Tensor::zeros(found.dtype, found.shape));
    SR_RETURN_IF_ERROR(in_.expect("{"));
    SR_RETURN_IF_ERROR(elements(&tensor));
    return in_.expect("}");
  }

  /// Elements as they lie in memory, up to the closing brace.
  Status base64_elements(const TensorSpec& spec, AttrValue* out) {
    if (spec.dtype == DType::kString) return in_.error("strings are not written in base64");
    const size_t bytes =
        static_cast<size_t>(spec.shape.num_elements()) * tensor::size_of(spec.dtype);
    std::string data;
    SR_RETURN_IF_ERROR(in_.base64(bytes, &data));
    if (spec.dtype == DType::kBool &&
        std::any_of(data.begin(), data.end(), [](char c) { return c != 0 && c != 1; })) {
      return in_.error("a bool is neither 0 nor 1");
    }
    Tensor& tensor = out->emplace<Tensor>(Tensor::empty(spec.dtype, spec.shape));
    if (bytes > 0) __builtin_memcpy(tensor.raw(), data.data(), bytes);
    return in_.expect("}");
  }

  template <class T, class Text = T>
  Status elements_as(Tensor* tensor) {
    T* data = reinterpret_cast<T*>(tensor->raw());
    for (int64_t i = 0; i < tensor->num_elements(); ++i) {
      if (i > 0) SR_RETURN_IF_ERROR(in_.expect(","));
      Text value{};
      SR_RETURN_IF_ERROR(in_.number("an element", &value));
      if constexpr (!std::is_same_v<T, Text>) {
        if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) {
          return in_.error("the element is out of range for its dtype");
        }
      }
      if (tensor->dtype() == DType::kBool && value != Text{} && value != Text{1}) {
        return in_.error("a bool is written 0 or 1");
      }
      data[i] = static_cast<T>(value);
    }
    return {};
  }

  Status string_elements(Tensor* tensor) {
    tensor::StringsBuilder strings;
    std::string value;
    for (int64_t i = 0; i < tensor->num_elements(); ++i) {
      if (i > 0) SR_RETURN_IF_ERROR(in_.expect(","));
      SR_RETURN_IF_ERROR(in_.quoted("a string", &value));
      strings.add(value);
    }
    *tensor = std::move(strings).finish(tensor->shape());
    return {};
  }

  Status elements(Tensor* tensor) {
    if (tensor->dtype() == DType::kString) return string_elements(tensor);
    return tensor::with_dtype<tensor::PlainTypes>(tensor->dtype(), [&]<class T>() -> Status {
      using Stored = internal::TextType<T>;
      // Bytes are written as numbers, not as characters.
      using Text = std::conditional_t<sizeof(Stored) == 1, int, Stored>;
      return elements_as<Stored, Text>(tensor);
    });
  }

  Scanner in_;
  Graph graph_;  // The one the next line belongs to.
  std::vector<FunctionPtr> functions_;
  size_t nodes_ = 0;  // In all graphs and bodies together.
  size_t uses_ = 0;
};

}  // namespace

Result<Graph> from_text(std::string_view text, const OpRegistry& registry) {
  Parser parser(text);
  SR_ASSIGN_OR_RETURN(Graph graph, parser.run());
  SR_RETURN_IF_ERROR(verify(graph, registry));
  return graph;
}

}  // namespace sidereal::ir
