#include "sidereal/ops/signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "sidereal/base/wrap.h"
#include "sidereal/ops/internal.h"

namespace sidereal::ops {
namespace {

using base::wrap;
using internal::DTypeSet;
using ir::AttrMap;
using ir::AttrSpec;
using ir::DType;
using ir::OpSchema;
using ir::Shape;
using ir::TensorSpec;

constexpr int kDTypes = static_cast<int>(DType::kString);
/// Where the search for something that an op takes begins.
constexpr std::array<DType, 6> kUsual = {DType::kFloat32, DType::kInt64,  DType::kInt32,
                                         DType::kBool,    DType::kString, DType::kFloat64};
/// How many inputs are looked at where any number may be given.
constexpr int kOpenInputs = 2;
/// Ways to choose required attributes.
constexpr int kVariants = 8;
/// How wide the lines of the page are, those of tables excepted.
constexpr size_t kPageColumns = 100;

/// A word in quotes in the doc of an attribute, which is one of its values; "" without one.
std::string quoted_word(const std::string& doc) {
  const size_t begin = doc.find('\'');
  const size_t end = begin == std::string::npos ? begin : doc.find('\'', begin + 1);
  return end == std::string::npos ? "" : doc.substr(begin + 1, end - begin - 1);
}

/// Something that a required attribute can be; variant `which` of a few. `at` is its place among
/// them: of two integers the second is greater, as limits are.
std::optional<ir::AttrValue> plausible(const AttrSpec& attr, int which, int at) {
  if (attr.type == "int") return int64_t{which < kVariants / 2 ? 1 : 0} + at;
  if (attr.type == "bool") return false;
  if (attr.type == "float") return 0.5;
  if (attr.type == "string") return quoted_word(attr.doc);
  if (attr.type == "dtype") return which < kVariants / 2 ? DType::kFloat32 : DType::kInt32;
  if (attr.type == "shape") return Shape{2};
  if (attr.type == "ints") {
    const std::array<std::vector<int64_t>, 4> lists = {{{0}, {1, 1}, {}, {1, 1, 1, 1}}};
    return lists[static_cast<size_t>(which) % lists.size()];
  }
  if (attr.type == "floats") return std::vector<double>{};
  if (attr.type == "strings") return std::vector<std::string>{};
  if (attr.type == "tensor") return ir::Tensor::scalar(1.0F);
  return std::nullopt;
}

/// Asks an op's inference.
class Probe {
 public:
  explicit Probe(const OpSchema& schema) : schema_(schema) {}

  /// The outputs, or nothing when the op does not take these inputs.
  [[nodiscard]] std::optional<std::vector<TensorSpec>> ask(const std::vector<DType>& dtypes) const {
    return ask(dtypes, attrs_);
  }

  /// As ask(), with an attribute of another value.
  [[nodiscard]] std::optional<std::vector<TensorSpec>> ask_with(const std::vector<DType>& dtypes,
                                                                const std::string& attr,
                                                                DType value) const {
    AttrMap attrs = attrs_;
    attrs[attr] = value;
    return ask(dtypes, attrs);
  }

  [[nodiscard]] const OpSchema& schema() const { return schema_; }

  /// Attributes and dtypes that the op takes; false when none were found.
  bool find(std::vector<DType>* dtypes) {
    const int least = schema_.min_inputs;
    const int most = schema_.max_inputs < 0 ? std::max(least, kOpenInputs) : schema_.max_inputs;
    for (int which = 0; which < kVariants; ++which) {
      if (!set_attrs(which)) return false;
      for (int count = std::min(most, 6); count >= least; --count) {
        dtypes->assign(static_cast<size_t>(count), DType::kInvalid);
        if (search(dtypes, 0)) return true;
      }
    }
    return false;
  }

 private:
  [[nodiscard]] std::optional<std::vector<TensorSpec>> ask(const std::vector<DType>& dtypes,
                                                           const AttrMap& attrs) const {
    std::vector<TensorSpec> inputs;
    for (const DType dtype : dtypes) inputs.push_back({dtype, Shape::unknown_rank()});
    std::vector<TensorSpec> outputs;
    const ir::InferContext context{.graph = graph_,
                                   .schema = schema_,
                                   .node_name = name_,
                                   .inputs = inputs,
                                   .attrs = attrs,
                                   .outputs = &outputs};
    if (!schema_.infer(context).ok()) return std::nullopt;
    return outputs;
  }

  bool set_attrs(int which) {
    attrs_.clear();
    int at = 0;
    for (const AttrSpec& attr : schema_.attrs) {
      if (!attr.required) continue;
      std::optional<ir::AttrValue> value = plausible(attr, which, at++);
      if (!value.has_value()) return false;
      attrs_[attr.name] = *std::move(value);
    }
    return true;
  }

  bool search(std::vector<DType>* dtypes, size_t at) {
    if (at == dtypes->size()) return ask(*dtypes).has_value();
    for (const DType dtype : kUsual) {
      (*dtypes)[at] = dtype;
      if (search(dtypes, at + 1)) return true;
    }
    return false;
  }

  const OpSchema& schema_;
  const ir::Graph graph_;
  const std::string name_ = "probe";
  AttrMap attrs_;
};

/// True when another dtype of input `i` alone is taken.
bool is_free(const Probe& probe, const std::vector<DType>& base, size_t i) {
  for (int d = 1; d <= kDTypes; ++d) {
    if (static_cast<DType>(d) == base[i]) continue;
    std::vector<DType> changed = base;
    changed[i] = static_cast<DType>(d);
    if (probe.ask(changed).has_value()) return true;
  }
  return false;
}

/// `base` with input `i`, and those that go with it, of another dtype.
std::vector<DType> with(const OpSignature& signature, std::vector<DType> base, size_t i, DType d) {
  base[i] = d;
  for (size_t k = 0; k < base.size(); ++k) {
    if (signature.inputs[k].same_as == static_cast<int>(i)) base[k] = d;
  }
  return base;
}

void find_ties(const Probe& probe, const std::vector<DType>& base, OpSignature* signature) {
  for (size_t i = 0; i < base.size(); ++i) {
    if (is_free(probe, base, i)) continue;
    for (size_t k = 0; k < i && signature->inputs[i].same_as < 0; ++k) {
      if (base[k] != base[i] || signature->inputs[k].same_as >= 0) continue;
      // Tied when both can change together, with what is tied to the first.
      signature->inputs[i].same_as = static_cast<int>(k);
      bool together = false;
      for (int d = 1; d <= kDTypes && !together; ++d) {
        const auto dtype = static_cast<DType>(d);
        if (dtype != base[k]) together = probe.ask(with(*signature, base, k, dtype)).has_value();
      }
      if (!together) signature->inputs[i].same_as = -1;
    }
  }
}

/// The attribute that says what dtype output `o` has; "" when none does.
std::string deciding_attr(const Probe& probe, const std::vector<DType>& base, size_t o) {
  for (const AttrSpec& attr : probe.schema().attrs) {
    if (attr.type != "dtype") continue;
    int followed = 0;
    for (int d = 1; d <= kDTypes; ++d) {
      const auto dtype = static_cast<DType>(d);
      const auto outputs = probe.ask_with(base, attr.name, dtype);
      followed += outputs.has_value() && (*outputs)[o].dtype == dtype ? 1 : 0;
    }
    if (followed > 1) return attr.name;
  }
  return "";
}

void find_outputs(const Probe& probe, const std::vector<DType>& base, OpSignature* signature) {
  const std::vector<TensorSpec> outputs = *probe.ask(base);
  for (size_t o = 0; o < outputs.size(); ++o) {
    OpSignature::Output output{.dtype = outputs[o].dtype, .attr = deciding_attr(probe, base, o)};
    for (size_t i = 0; i < base.size() && output.same_as < 0; ++i) {
      const std::vector<DType>& dtypes = signature->inputs[i].dtypes;
      const auto follows = [&](DType dtype) {
        const auto changed = probe.ask(with(*signature, base, i, dtype));
        return changed.has_value() && o < changed->size() && (*changed)[o].dtype == dtype;
      };
      if (dtypes.size() > 1 && std::all_of(dtypes.begin(), dtypes.end(), follows)) {
        output.same_as = static_cast<int>(i);
      }
    }
    signature->outputs.push_back(output);
  }
}

std::vector<DType> members(const DTypeSet& set) {
  std::vector<DType> out;
  for (int d = 1; d <= kDTypes; ++d) {
    if (set.has(static_cast<DType>(d))) out.push_back(static_cast<DType>(d));
  }
  return out;
}

std::string count_text(const OpSchema& schema) {
  if (schema.min_inputs == schema.max_inputs) return std::to_string(schema.min_inputs);
  if (schema.max_inputs < 0) return fmt::format("{} or more", schema.min_inputs);
  return fmt::format("{} to {}", schema.min_inputs, schema.max_inputs);
}

std::string input_text(const OpSignature& signature, size_t i) {
  const OpSignature::Input& input = signature.inputs[i];
  if (input.same_as >= 0) return fmt::format("as input {}", input.same_as);
  return describe_dtypes(input.dtypes);
}

std::string inputs_text(const OpSchema& schema, const OpSignature& signature) {
  if (!signature.known) return count_text(schema);
  std::vector<std::string> parts;
  for (size_t i = 0; i < signature.inputs.size(); ++i) parts.push_back(input_text(signature, i));
  if (parts.empty()) return "none";
  const std::string count =
      schema.min_inputs == schema.max_inputs ? "" : fmt::format(" ({})", count_text(schema));
  return fmt::format("{}{}", fmt::join(parts, "; "), count);
}

bool is_required(const OpSchema& schema, const std::string& attr) {
  return std::any_of(schema.attrs.begin(), schema.attrs.end(),
                     [&](const AttrSpec& known) { return known.name == attr && known.required; });
}

std::string outputs_text(const OpSchema& schema, const OpSignature& signature) {
  if (!signature.known) return "as what it runs or reads gives";
  std::vector<std::string> parts;
  for (const OpSignature::Output& output : signature.outputs) {
    const std::string fixed(tensor::name_of(output.dtype));
    std::string text = output.same_as >= 0 ? fmt::format("as input {}", output.same_as) : fixed;
    if (is_required(schema, output.attr)) {
      text = fmt::format("as `{}` says", output.attr);
    } else if (!output.attr.empty()) {
      text += fmt::format(", or as `{}` says", output.attr);
    }
    parts.push_back(std::move(text));
  }
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, "; "));
}

const char* gradient_text(const OpSchema& schema) {
  return schema.differentiable && schema.gradient != nullptr ? "yes" : "no";
}

std::vector<std::string> notes_of(const OpSchema& schema) {
  std::vector<std::string> notes;
  if (schema.stateful) notes.emplace_back("is never merged with another or left out");
  return notes;
}

}  // namespace

OpSignature signature_of(const OpSchema& schema) {
  OpSignature out;
  Probe probe(schema);
  std::vector<DType> base;
  if (!probe.find(&base)) return out;
  out.known = true;
  out.inputs.resize(base.size());
  find_ties(probe, base, &out);
  for (size_t i = 0; i < base.size(); ++i) {
    for (int d = 1; d <= kDTypes; ++d) {
      const auto dtype = static_cast<DType>(d);
      if (probe.ask(with(out, base, i, dtype)).has_value()) out.inputs[i].dtypes.push_back(dtype);
    }
  }
  find_outputs(probe, base, &out);
  return out;
}

std::string describe_dtypes(const std::vector<DType>& dtypes) {
  using namespace internal::sets;  // NOLINT(google-build-using-namespace): names of sets only.
  struct Named {
    const DTypeSet* set;
    const char* name;
  };
  for (const auto& [set, name] :
       {Named{&kAll, "any"}, Named{&kPlain, "any but string"}, Named{&kNumbers, "any number"},
        Named{&kFloats, "any float"}, Named{&kIntegers, "any integer"},
        Named{&kSigned, "any signed number"}, Named{&kIndices, "int32 or int64"},
        Named{&kReals, "float32 or float64"}}) {
    if (members(*set) == dtypes) return name;
  }
  std::vector<std::string_view> names;
  for (const DType dtype : dtypes) names.push_back(tensor::name_of(dtype));
  if (names.size() < 10) return fmt::format("{}", fmt::join(names, ", "));
  std::vector<std::string_view> others;
  for (const DType dtype : members(kAll)) {
    if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) {
      others.push_back(tensor::name_of(dtype));
    }
  }
  return fmt::format("any but {}", fmt::join(others, " and "));
}

std::string describe_op(const OpSchema& schema) {
  const OpSignature signature = signature_of(schema);
  std::string out = fmt::format("{}\n    {}\n    inputs: {}\n    outputs: {}\n    gradient: {}\n",
                                schema.name, schema.doc, inputs_text(schema, signature),
                                outputs_text(schema, signature), gradient_text(schema));
  for (const std::string& note : notes_of(schema)) out += fmt::format("    it {}\n", note);
  for (const AttrSpec& attr : schema.attrs) {
    out += fmt::format("    {}: {}{}. {}\n", attr.name, attr.type,
                       attr.required ? "" : ", optional", attr.doc);
  }
  return out;
}

std::string ops_page(const ir::OpRegistry& registry) {
  const auto cell = [](std::string text) {
    for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
      text.insert(at, "\\");
    }
    return text;
  };
  const auto item = [](const std::string& text) {
    return wrap("- " + text, kPageColumns, "  ") + "\n";
  };
  std::string out = fmt::format(
      "# Operations\n\n{}\n\n",
      wrap(fmt::format("The {} operations of graphs. `sidereal ops NAME` shows one of them. This "
                       "page is made by `sidereal ops --markdown`; the dtypes are what each op's "
                       "inference takes.",
                       registry.names().size()),
           kPageColumns));
  for (const std::string& name : registry.names()) {
    const OpSchema& schema = *registry.find(name);
    const OpSignature signature = signature_of(schema);
    out += fmt::format("## {}\n\n{}\n\n", name, wrap(schema.doc, kPageColumns));
    out += item("inputs: " + inputs_text(schema, signature));
    out += item("outputs: " + outputs_text(schema, signature));
    out += item(fmt::format("gradient: {}", gradient_text(schema)));
    for (const std::string& note : notes_of(schema)) out += item("it " + note);
    if (!schema.attrs.empty()) out += "\n| attribute | type | |\n|---|---|---|\n";
    for (const AttrSpec& attr : schema.attrs) {
      out += fmt::format("| `{}` | {}{} | {} |\n", attr.name, attr.type,
                         attr.required ? "" : ", optional", cell(attr.doc));
    }
    out += '\n';
  }
  out.pop_back();
  return out;
}

}  // namespace sidereal::ops
