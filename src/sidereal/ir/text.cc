#include "sidereal/ir/text.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "sidereal/ir/function.h"

#include "sidereal/ir/internal/text_type.h"
#include "sidereal/tensor/dispatch.h"

namespace sidereal::ir {
namespace {

/// Appends the text of one value after another.
class Printer {
 public:
  void literal(std::string_view text) { out_ += text; }

  template <class... Args>
  void format(fmt::format_string<Args...> f, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), f, std::forward<Args>(args)...);
  }

  /// `ascii`: with escapes for all other bytes, which need not be text.
  void quoted(std::string_view text, bool ascii = false) {
    out_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        out_ += '\\';
        out_ += c;
      } else if (c == '\n') {
        out_ += "\\n";
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f ||
                 (ascii && static_cast<unsigned char>(c) > 0x7f)) {
        format("\\x{:02x}", static_cast<unsigned char>(c));
      } else {
        out_ += c;
      }
    }
    out_ += '"';
  }

  /// The shortest decimal that reads back as the same float; NaNs keep their bits.
  template <class T>
  void number(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(value)) {
        using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
        format("nan(0x{:x})", std::bit_cast<Bits>(value));
        return;
      }
    }
    format("{}", value);
  }

  /// As number(), but never to be taken for an int.
  void real(double value) {
    const size_t from = out_.size();
    number(value);
    if (out_.find_first_of(".einf", from) == std::string::npos) out_ += ".0";
  }

  void spec(const TensorSpec& spec) {
    out_ += tensor::name_of(spec.dtype);
    shape(spec.shape);
  }

  void shape(const Shape& shape) { out_ += shape.to_string(); }

  void tensor(const Tensor& tensor) {
    spec({tensor.dtype(), tensor.shape()});
    const bool is_large =
        tensor.dtype() != DType::kString && tensor.num_elements() > kDecimalElementsMax;
    out_ += is_large ? "base64{" : "{";
    if (is_large) {
      base64(tensor);
    } else {
      elements(tensor);
    }
    out_ += '}';
  }

  /// True when what was written takes a reader of version 2.
  [[nodiscard]] bool has_base64() const { return has_base64_; }

  void value(const AttrValue& value) {
    std::visit([this](const auto& v) { attr(v); }, value);
  }

  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  void attr(bool v) { out_ += v ? "true" : "false"; }
  void attr(int64_t v) { number(v); }
  void attr(double v) { real(v); }
  void attr(const std::string& v) { quoted(v); }
  void attr(DType v) { out_ += tensor::name_of(v); }
  void attr(const Tensor& v) { tensor(v); }
  void attr(const Shape& v) {
    out_ += "shape";
    shape(v);
  }
  template <class T>
  void attr(const std::vector<T>& values) {
    out_ += std::is_same_v<T, int64_t>  ? "ints["
            : std::is_same_v<T, double> ? "floats["
                                        : "strings[";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_ += ", ";
      attr(values[i]);
    }
    out_ += ']';
  }

  template <class T>
  void elements_as(const Tensor& tensor) {
    const T* data = reinterpret_cast<const T*>(tensor.raw());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      if (i > 0) out_ += ',';
      if constexpr (sizeof(T) == 1) {
        number(static_cast<int>(data[i]));
      } else {
        number(data[i]);
      }
    }
  }

  /// The elements as they lie in memory, little-endian.
  void base64(const Tensor& tensor) {
    static_assert(std::endian::native == std::endian::little);
    std::string text;
    absl::Base64Escape(
        absl::string_view(reinterpret_cast<const char*>(tensor.raw()), tensor.nbytes()), &text);
    out_ += text;
    has_base64_ = true;
  }

  void elements(const Tensor& tensor) {
    if (tensor.dtype() == DType::kString) {
      const char* comma = "";
      for (const std::string_view value : tensor.data<const std::string_view>()) {
        out_ += std::exchange(comma, ",");
        quoted(value, true);
      }
      return;
    }
    tensor::visit_dtype<tensor::PlainTypes>(
        tensor.dtype(), [&]<class T>() { elements_as<internal::TextType<T>>(tensor); });
  }

  std::string out_;
  bool has_base64_ = false;
};

void print_output(Printer* p, Output o) {
  p->format("%{}", o.node.value);
  if (o.index != 0) p->format(":{}", o.index);
}

void print_attrs(Printer* p, const AttrMap& attrs) {
  if (attrs.empty()) return;
  const char* separator = " {";
  for (const auto& [name, value] : attrs) {
    p->format("{}{}=", separator, name);
    p->value(value);
    separator = ", ";
  }
  p->literal("}");
}

void print_node(Printer* p, const Node& node) {
  p->format("%{} = {}(", node.id.value, node.op);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i > 0) p->literal(", ");
    print_output(p, node.inputs[i]);
  }
  p->literal(") name=");
  p->quoted(node.name);
  print_attrs(p, node.attrs);
  if (!node.device.empty()) {
    p->literal(" device=");
    p->quoted(node.device);
  }
  for (size_t i = 0; i < node.control_inputs.size(); ++i) {
    p->format("{}%{}", i == 0 ? " after(" : ", ", node.control_inputs[i].value);
  }
  if (!node.control_inputs.empty()) p->literal(")");
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    p->literal(i == 0 ? " : " : ", ");
    p->spec(node.outputs[i]);
  }
}

/// Writes functions, each once and after those it holds. Thread: core-local.
class FunctionPrinter {
 public:
  explicit FunctionPrinter(Printer* printer) : p_(*printer) {}

  /// What stands between the functions and the end of a graph or body.
  void content(const Graph& graph, std::string_view indent) {
    for (const NamedFunction& held : graph.functions()) {
      p_.literal(indent);
      p_.literal("use ");
      p_.quoted(held.name);
      p_.format(" @{}\n", numbers_.at(held.function.get()));
    }
    for (const Node& node : graph.nodes()) {
      p_.literal(indent);
      print_node(&p_, node);
      p_.literal("\n");
    }
  }

  /// All functions that `graph` holds, directly or not.
  void functions_of(const Graph& graph) {
    for (const NamedFunction& held : graph.functions()) function(*held.function);
  }

  void function(const Function& function) {
    if (numbers_.contains(&function)) return;
    functions_of(function.body());
    const size_t number = numbers_.size();
    numbers_.emplace(&function, number);
    p_.format("function @{} {{\n", number);
    content(function.body(), "  ");
    p_.literal("  return ");
    for (size_t i = 0; i < function.outputs().size(); ++i) {
      if (i > 0) p_.literal(", ");
      print_output(&p_, function.outputs()[i]);
    }
    for (size_t i = 0; i < function.targets().size(); ++i) {
      p_.format("{}%{}", i == 0 ? " after(" : ", ", function.targets()[i].value);
    }
    p_.literal(function.targets().empty() ? "\n}\n" : ")\n}\n");
  }

 private:
  Printer& p_;
  absl::flat_hash_map<const Function*, size_t> numbers_;
};

}  // namespace

std::string to_text(const Graph& /*graph*/, const Node& node) {
  Printer printer;
  print_node(&printer, node);
  return printer.take();
}

std::string to_text(const AttrMap& attrs) {
  Printer printer;
  print_attrs(&printer, attrs);
  const std::string text = printer.take();
  return text.empty() ? text : text.substr(1);
}

std::string to_text(const Function& function) {
  Printer printer;
  FunctionPrinter(&printer).function(function);
  return printer.take();
}

std::string to_text(const Graph& graph) {
  Printer printer;
  printer.format("{} 1\n", kTextMagic);
  FunctionPrinter functions(&printer);
  functions.functions_of(graph);
  functions.content(graph, "");
  const bool has_base64 = printer.has_base64();
  std::string text = printer.take();
  if (has_base64) text[kTextMagic.size() + 1] = '2';
  return text;
}

}  // namespace sidereal::ir
