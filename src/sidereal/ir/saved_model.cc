#include "sidereal/ir/saved_model.h"

#include <array>
#include <set>
#include <utility>

#include "sidereal/base/bytes.h"
#include "sidereal/base/hash.h"
#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/tensor/strings.h"

// The format is docs/formats/saved_model.md.
namespace sidereal::ir {
namespace {

using base::ByteReader;
using base::ByteWriter;
using base::data_loss;
using base::invalid_argument;

constexpr std::array<char, 4> kMagic = {'S', 'R', 'S', 'M'};
constexpr uint32_t kMaxText = 1U << 24;

enum class Section : uint32_t { kFunctions = 1, kValues = 2, kObjects = 3 };
constexpr std::array<Section, 3> kSections = {Section::kFunctions, Section::kValues,
                                              Section::kObjects};

constexpr uint8_t kVariableFlag = 1;
constexpr uint8_t kTrainableFlag = 2;

const char* name_of(Section section) {
  switch (section) {
    case Section::kFunctions:
      return "functions";
    case Section::kValues:
      return "values";
    case Section::kObjects:
      break;
  }
  return "objects";
}

// ---- writing
// --------------------------------------------------------------------------------------

void put(ByteWriter* w, const std::string& text) { w->put_string(text); }
void put(ByteWriter* w, uint32_t number) { w->put(number); }
void put(ByteWriter* w, NodeId node) { w->put(node.value); }
void put(ByteWriter* w, const Output& output) {
  w->put(output.node.value);
  w->put(output.index);
}

template <class T>
void put_list(ByteWriter* w, const std::vector<T>& items) {
  w->put(static_cast<uint32_t>(items.size()));
  for (const T& item : items) put(w, item);
}

void put_long(ByteWriter* w, std::string_view bytes) {
  w->put(static_cast<uint64_t>(bytes.size()));
  w->put_bytes(bytes);
}

std::string functions_of(const SavedModel& model) {
  ByteWriter w;
  w.put(static_cast<uint32_t>(model.functions.size()));
  for (const SavedFunction& function : model.functions) {
    put(&w, function.name);
    put(&w, function.structure);
    put_long(&w, to_text(function.graph));
    put_list(&w, function.inputs);
    put_list(&w, function.captures);
    put_list(&w, function.outputs);
    put_list(&w, function.assigned);
    put_list(&w, function.targets);
  }
  w.put(static_cast<uint32_t>(model.signatures.size()));
  for (const SavedSignature& signature : model.signatures) {
    put(&w, signature.name);
    w.put(signature.function);
    put_list(&w, signature.inputs);
    put_list(&w, signature.outputs);
  }
  return w.take();
}

/// The elements of a tensor: as they are, or, of strings, u64 lengths and then the bytes.
std::string elements_of(const Tensor& value) {
  if (value.dtype() == DType::kString) return tensor::strings_to_bytes(value);
  return {reinterpret_cast<const char*>(value.raw()), value.nbytes()};
}

std::string values_of(const SavedModel& model) {
  ByteWriter w;
  w.put(static_cast<uint32_t>(model.values.size()));
  for (const SavedValue& value : model.values) {
    put(&w, value.name);
    w.put(static_cast<uint8_t>((value.variable ? kVariableFlag : 0) |
                               (value.trainable ? kTrainableFlag : 0)));
    w.put(value.value.dtype());
    w.put(static_cast<uint8_t>(value.value.shape().rank()));
    for (const int64_t extent : value.value.shape().dims()) w.put(extent);
    put_long(&w, elements_of(value.value));
  }
  return w.take();
}

// ---- reading
// --------------------------------------------------------------------------------------

Status get(ByteReader* r, std::string* out) { return r->get_string(out, kMaxText); }
Status get(ByteReader* r, uint32_t* out) { return r->get(out); }
Status get(ByteReader* r, NodeId* out) { return r->get(&out->value); }
Status get(ByteReader* r, Output* out) {
  SR_RETURN_IF_ERROR(r->get(&out->node.value));
  return r->get(&out->index);
}

template <class T>
Status get_list(ByteReader* r, std::vector<T>* out) {
  uint32_t count = 0;
  SR_RETURN_IF_ERROR(r->get_count(&count, kMaxSavedList, 4));
  out->resize(count);
  for (T& item : *out) SR_RETURN_IF_ERROR(get(r, &item));
  return {};
}

Result<std::string_view> get_long(ByteReader* r) {
  uint64_t bytes = 0;
  SR_RETURN_IF_ERROR(r->get(&bytes));
  if (bytes > r->remaining()) {
    return data_loss("{} bytes are announced where {} are left", bytes, r->remaining());
  }
  return r->take(bytes);
}

Status get_function(ByteReader* r, const OpRegistry& registry, SavedFunction* out) {
  SR_RETURN_IF_ERROR(get(r, &out->name));
  SR_RETURN_IF_ERROR(get(r, &out->structure));
  SR_ASSIGN_OR_RETURN(const std::string_view text, get_long(r));
  SR_RETURN_IF_ERROR(get_list(r, &out->inputs));
  SR_RETURN_IF_ERROR(get_list(r, &out->captures));
  SR_RETURN_IF_ERROR(get_list(r, &out->outputs));
  SR_RETURN_IF_ERROR(get_list(r, &out->assigned));
  SR_RETURN_IF_ERROR(get_list(r, &out->targets));
  SR_ASSIGN_OR_RETURN(out->graph, from_text(text, registry));
  return {};
}

Status get_functions(std::string_view bytes, const OpRegistry& registry, SavedModel* model) {
  ByteReader r(bytes);
  uint32_t count = 0;
  SR_RETURN_IF_ERROR(r.get_count(&count, kMaxSavedFunctions, 36));
  for (uint32_t i = 0; i < count; ++i) {
    SR_RETURN_IF_ERROR(
        base::with_context(get_function(&r, registry, &model->functions.emplace_back()),
                           fmt::format("function {}", i)));
  }
  SR_RETURN_IF_ERROR(r.get_count(&count, kMaxSavedFunctions, 16));
  for (uint32_t i = 0; i < count; ++i) {
    SavedSignature& signature = model->signatures.emplace_back();
    SR_RETURN_IF_ERROR(get(&r, &signature.name));
    SR_RETURN_IF_ERROR(r.get(&signature.function));
    SR_RETURN_IF_ERROR(get_list(&r, &signature.inputs));
    SR_RETURN_IF_ERROR(get_list(&r, &signature.outputs));
  }
  if (r.remaining() > 0) return data_loss("{} bytes follow the last signature", r.remaining());
  return {};
}

Status get_tensor(ByteReader* r, Tensor* out) {
  DType dtype = DType::kInvalid;
  uint8_t rank = 0;
  SR_RETURN_IF_ERROR(r->get(&dtype));
  if (!tensor::is_valid(dtype)) return data_loss("{} is not a dtype", static_cast<int>(dtype));
  SR_RETURN_IF_ERROR(r->get(&rank));
  if (rank > kMaxRank) return data_loss("a value has rank {}", rank);
  Shape shape;
  for (uint8_t i = 0; i < rank; ++i) {
    int64_t extent = 0;
    SR_RETURN_IF_ERROR(r->get(&extent));
    if (extent < 0) return data_loss("a value has extent {}", extent);
    shape.append(extent);
  }
  SR_RETURN_IF_ERROR(check_shape(shape));
  SR_ASSIGN_OR_RETURN(const std::string_view bytes, get_long(r));
  if (dtype == DType::kString) {
    SR_ASSIGN_OR_RETURN(*out, tensor::strings_from_bytes(bytes, shape));
    return {};
  }
  const auto count = static_cast<uint64_t>(shape.num_elements());
  if (bytes.size() != count * tensor::size_of(dtype)) {
    return data_loss("{}{} has {} bytes", tensor::name_of(dtype), shape.to_string(), bytes.size());
  }
  if (dtype == DType::kBool &&
      bytes.find_first_not_of(std::string_view("\0\1", 2)) != std::string_view::npos) {
    return data_loss("a bool is neither 0 nor 1");
  }
  *out = Tensor::empty(dtype, shape);
  if (!bytes.empty()) __builtin_memcpy(out->raw(), bytes.data(), bytes.size());
  return {};
}

Status get_value(ByteReader* r, SavedValue* out) {
  uint8_t flags = 0;
  SR_RETURN_IF_ERROR(get(r, &out->name));
  SR_RETURN_IF_ERROR(r->get(&flags));
  if ((flags & ~(kVariableFlag | kTrainableFlag)) != 0 || flags == kTrainableFlag) {
    return data_loss("the flags of a value are {}", flags);
  }
  out->variable = (flags & kVariableFlag) != 0;
  out->trainable = (flags & kTrainableFlag) != 0;
  return get_tensor(r, &out->value);
}

Status get_values(std::string_view bytes, SavedModel* model) {
  ByteReader r(bytes);
  uint32_t count = 0;
  SR_RETURN_IF_ERROR(r.get_count(&count, kMaxSavedValues, 15));
  for (uint32_t i = 0; i < count; ++i) {
    SR_RETURN_IF_ERROR(base::with_context(get_value(&r, &model->values.emplace_back()),
                                          fmt::format("value {}", i)));
  }
  if (r.remaining() > 0) return data_loss("{} bytes follow the last value", r.remaining());
  return {};
}

/// The bytes of the next section, which must be `wanted`.
Result<std::string_view> get_section(ByteReader* r, Section wanted) {
  Section kind = wanted;
  uint64_t checksum = 0;
  SR_RETURN_IF_ERROR(r->get(&kind));
  if (kind != wanted) {
    return data_loss("section {} stands where {} is expected", static_cast<uint32_t>(kind),
                     static_cast<uint32_t>(wanted));
  }
  SR_RETURN_IF_ERROR(r->get(&checksum));
  SR_ASSIGN_OR_RETURN(const std::string_view bytes, get_long(r));
  if (base::hash64(bytes) != checksum) {
    return data_loss("the checksum of the section is wrong: the bytes were changed or damaged");
  }
  return bytes;
}

Status get_header(ByteReader* r, SavedModel* model) {
  SR_ASSIGN_OR_RETURN(const std::string_view magic, r->take(kMagic.size()));
  if (magic != std::string_view(kMagic.data(), kMagic.size())) {
    return data_loss("the bytes do not start with 'SRSM'");
  }
  uint16_t version = 0;
  uint16_t flags = 0;
  SR_RETURN_IF_ERROR(r->get(&version));
  SR_RETURN_IF_ERROR(r->get(&flags));
  if (version == 0 || version > kSavedModelVersion || flags != 0) {
    return invalid_argument(
        "the format is version {}, flags {}; this release reads versions 1 to {}: use the release "
        "that saved it, or a later one",
        version, flags, kSavedModelVersion);
  }
  return get(r, &model->producer);
}

// ---- what a model must be
// -------------------------------------------------------------------------

bool has(const Graph& graph, NodeId node) {
  return node.value >= 0 && static_cast<size_t>(node.value) < graph.size();
}

bool has(const Graph& graph, Output output) {
  return has(graph, output.node) && output.index >= 0 &&
         static_cast<size_t>(output.index) < graph.node(output.node).outputs.size();
}

bool takes(const TensorSpec& spec, const Tensor& value) {
  return spec.dtype == value.dtype() && spec.shape.accepts(value.shape());
}

Status check_inputs(const SavedFunction& f) {
  std::set<Output> seen;
  for (const Output& input : f.inputs) {
    if (!has(f.graph, input) || f.graph.node(input.node).op != "Placeholder") {
      return data_loss("an input is no Placeholder of the graph");
    }
    if (!seen.insert(input).second) return data_loss("an input is named twice");
  }
  for (const Output& output : f.outputs) {
    if (!has(f.graph, output)) return data_loss("an output is not in the graph");
  }
  for (const NodeId target : f.targets) {
    if (!has(f.graph, target)) return data_loss("a target is not in the graph");
  }
  return {};
}

Status check_function(const SavedModel& model, const SavedFunction& f) {
  SR_RETURN_IF_ERROR(check_inputs(f));
  if (f.captures.size() > f.inputs.size()) return data_loss("more captures than inputs");
  if (f.assigned.size() > f.outputs.size()) return data_loss("more assignments than outputs");
  const size_t arguments = f.inputs.size() - f.captures.size();
  for (size_t i = 0; i < f.captures.size(); ++i) {
    if (f.captures[i] >= model.values.size()) return data_loss("a captured value is not there");
    const TensorSpec& spec = f.graph.spec(f.inputs[arguments + i]);
    const Tensor& value = model.values[f.captures[i]].value;
    if (!takes(spec, value)) {
      return data_loss("an input of {} is fed with {}", to_string(spec), value.to_string());
    }
  }
  const size_t results = f.outputs.size() - f.assigned.size();
  for (size_t i = 0; i < f.assigned.size(); ++i) {
    if (f.assigned[i] >= model.values.size() || !model.values[f.assigned[i]].variable) {
      return data_loss("what is assigned to is no variable");
    }
    if (f.graph.spec(f.outputs[results + i]).dtype != model.values[f.assigned[i]].value.dtype()) {
      return data_loss("a variable is given a value of another dtype");
    }
  }
  return {};
}

Status check_model(const SavedModel& model) {
  for (size_t i = 0; i < model.functions.size(); ++i) {
    SR_RETURN_IF_ERROR(base::with_context(
        check_function(model, model.functions[i]),
        fmt::format("function {} ('{}')", i, model.functions[i].name.substr(0, kMaxNameBytes))));
  }
  std::set<std::string_view> names;
  for (const SavedSignature& s : model.signatures) {
    if (s.function >= model.functions.size()) return data_loss("a signature has no function");
    const SavedFunction& f = model.functions[s.function];
    if (s.inputs.size() != f.inputs.size() - f.captures.size() ||
        s.outputs.size() != f.outputs.size() - f.assigned.size()) {
      return data_loss("a signature names other inputs and outputs than its function has");
    }
    if (!names.insert(s.name).second) return data_loss("two signatures have one name");
  }
  return {};
}

/// What the reader would refuse for its size.
Status check_limits(const SavedModel& model, const OpRegistry& registry) {
  if (model.functions.size() > kMaxSavedFunctions || model.values.size() > kMaxSavedValues ||
      model.signatures.size() > kMaxSavedFunctions || model.objects.size() > kMaxText) {
    return invalid_argument("{} functions, {} values: the format holds {} and {}",
                            model.functions.size(), model.values.size(), kMaxSavedFunctions,
                            kMaxSavedValues);
  }
  for (const SavedFunction& f : model.functions) {
    SR_RETURN_IF_ERROR(base::with_context(verify(f.graph, registry), f.name));
    for (const Node& node : f.graph.nodes()) {
      const auto* value = find_attr<Tensor>(node.attrs, "value");
      if (value == nullptr || value->nbytes() <= kMaxTextTensorBytes) continue;
      return invalid_argument(
          "{} '{}' of function '{}' is a constant of {} bytes; a graph holds {}: make it a tensor "
          "or variable outside of the function, which is saved by itself",
          node.op, node.name, f.name, value->nbytes(), kMaxTextTensorBytes);
    }
  }
  for (const SavedValue& value : model.values) {
    if (!value.value.defined()) return invalid_argument("value '{}' is empty", value.name);
  }
  return {};
}

}  // namespace

const SavedSignature* SavedModel::find_signature(std::string_view name) const {
  for (const SavedSignature& signature : signatures) {
    if (signature.name == name) return &signature;
  }
  return nullptr;
}

Result<std::string> encode_saved_model(const SavedModel& model, const OpRegistry& registry) {
  SR_RETURN_IF_ERROR(check_limits(model, registry));
  if (const Status fits = check_model(model); !fits.ok()) {
    return invalid_argument("{}", base::message_of(fits));
  }
  ByteWriter w;
  w.put_bytes({kMagic.data(), kMagic.size()});
  w.put(kSavedModelVersion);
  w.put(uint16_t{0});
  w.put_string(model.producer);
  const std::array<std::string, 3> sections = {functions_of(model), values_of(model),
                                               model.objects};
  for (size_t i = 0; i < sections.size(); ++i) {
    w.put(kSections[i]);
    w.put(base::hash64(sections[i]));
    put_long(&w, sections[i]);
  }
  return w.take();
}

Result<SavedModel> decode_saved_model(std::string_view bytes, const OpRegistry& registry) {
  SavedModel model;
  const auto read = [&]() -> Status {
    ByteReader r(bytes);
    SR_RETURN_IF_ERROR(get_header(&r, &model));
    for (const Section section : kSections) {
      const std::string where = fmt::format("section '{}'", name_of(section));
      Result<std::string_view> part = get_section(&r, section);
      if (!part.ok()) return base::with_context(part.status(), where);
      if (section == Section::kFunctions) {
        SR_RETURN_IF_ERROR(base::with_context(get_functions(*part, registry, &model), where));
      } else if (section == Section::kValues) {
        SR_RETURN_IF_ERROR(base::with_context(get_values(*part, &model), where));
      } else {
        model.objects = std::string(*part);
      }
    }
    if (r.remaining() > 0) return data_loss("{} bytes follow the last section", r.remaining());
    return check_model(model);
  };
  SR_RETURN_IF_ERROR(base::with_context(read(), "a saved model"));
  return model;
}

}  // namespace sidereal::ir
