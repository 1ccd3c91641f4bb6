#include "sidereal/dataset/definition_text.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ir/text.h"

namespace sidereal::dataset {
namespace {

using base::invalid_argument;
using ir::AttrMap;
using tensor::DType;

/// Ops of graphs are called as those of datasets, with this behind.
constexpr std::string_view kSuffix = "Dataset";
constexpr std::string_view kSlotOp = "DatasetSlot";
constexpr int64_t kSlotsMax = 1'000'000;

constexpr std::string_view kOps[] = {
    "Tensors",    "TensorSlices", "Range",    "TextLines",   "Records", "Rows",
    "Generator",  "RaggedBatch",  "Argument", "Map",         "Filter",  "TakeWhile",
    "Interleave", "Batch",        "Unbatch",  "PaddedBatch", "Window",  "Shuffle",
    "Repeat",     "Take",         "Skip",     "Shard",       "Zip",     "Concatenate",
    "Prefetch",   "Cache",        "CacheFile"};

ir::OpSchema dataset_schema(std::string_view op) {
  ir::OpSchema schema;
  schema.name = std::string(op) + std::string(kSuffix);
  schema.doc = "A dataset, in a graph that defines one.";
  schema.max_inputs = -1;
  schema.attrs = {
      {"datasets", "int", true, "How many of the inputs are datasets; they come first."},
      {"function", "function", false, "Runs on each element."},
      {"inner", "bool", false, "Whether values of the function fill in the last dataset."},
      {"dtype", "dtype", false, "Of a range."},
      {"dtypes", "strings", false, "Of the components, where the op does not say."},
      {"shapes", "ints", false, "Of the components."},
      {"spec", "string", false, "Which files, as JSON."},
      {"columns", "strings", false, "Of a batch, in the order of the components."},
      {"number", "int", false, "Of a generator."},
      {"index", "int", false, "Of a component, or of a shard."},
      {"num_shards", "int", false, "Of files."},
      {"batch_size", "int", false, "Rows of a batch that is read."},
      {"drop_remainder", "bool", false, "Leaves out a last batch or window that is not full."},
      {"parallel", "int", false, "Threads; -1: as many as seem good."},
      {"seed", "int", false, "Of an order; none: another one in each process."},
      {"reshuffle_each_iteration", "bool", false,
       "Whether each iteration has an order of its own."},
  };
  schema.infer = [](const ir::InferContext& c) -> Status {
    c.outputs->push_back({DType::kString, {}});
    return {};
  };
  schema.differentiable = false;
  schema.stateful = true;
  return schema;
}

ir::OpSchema slot_schema() {
  ir::OpSchema schema;
  schema.name = kSlotOp;
  schema.doc = "A value of the function that fills in a dataset.";
  schema.attrs = {{"index", "int", true, "Number of the value."},
                  {"dtype", "dtype", true, "Its dtype."},
                  {"shape", "shape", false, "What is known of its shape."}};
  schema.infer = [](const ir::InferContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const auto dtype, ir::get_attr<DType>(c.attrs, "dtype"));
    const auto shape = ir::attr_or(c.attrs, "shape", tensor::Shape::unknown_rank());
    c.outputs->push_back({dtype, shape});
    return ir::check_shape(shape);
  };
  schema.differentiable = false;
  return schema;
}

/// Adds datasets to a graph, each once. Thread: core-local.
class Writer {
 public:
  explicit Writer(const ir::OpRegistry& registry) : builder_(&graph_, &registry) {}

  ir::Output add(const Dataset& dataset) {
    const auto known = added_.find(&dataset);
    if (known != added_.end()) return known->second;
    const DatasetDef& def = dataset.def();
    std::vector<ir::Output> inputs;
    for (const DatasetPtr& input : def.inputs) inputs.push_back(add(*input));
    AttrMap attrs = def.attrs;
    if (def.inner != nullptr) {
      inputs.push_back(add(*def.inner));
      attrs["inner"] = true;
    }
    attrs["datasets"] = static_cast<int64_t>(inputs.size());
    for (const Parameter& parameter : def.parameters) inputs.push_back(add(parameter));
    if (def.function != nullptr) {
      attrs["function"] = graph_.hold_function(def.op, def.function);
    }
    const ir::Output made = builder_.add(def.op + std::string(kSuffix), inputs, std::move(attrs));
    added_[&dataset] = made;
    return made;
  }

  Result<std::string> text() {
    SR_RETURN_IF_ERROR(builder_.status());
    return ir::to_text(graph_);
  }

 private:
  ir::Output add(const Parameter& parameter) {
    if (parameter.slot < 0) return builder_.add("Const", {}, {{"value", parameter.value}});
    return builder_.add(kSlotOp, {},
                        {{"index", int64_t{parameter.slot}},
                         {"dtype", parameter.spec.dtype},
                         {"shape", parameter.spec.shape}});
  }

  ir::Graph graph_;
  ir::Builder builder_;
  absl::flat_hash_map<const Dataset*, ir::Output> added_;
};

/// What the nodes read so far stand for.
struct Read {
  std::vector<DatasetPtr> datasets;   ///< By node; null where it is none.
  std::vector<Parameter> parameters;  ///< By node.
};

Result<DatasetPtr> read_dataset(const ir::Graph& graph, const ir::Node& node, const Read& read) {
  DatasetDef def;
  def.op = node.op.substr(0, node.op.size() - kSuffix.size());
  const auto datasets = static_cast<size_t>(ir::attr_or<int64_t>(node.attrs, "datasets", 0));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const auto from = static_cast<size_t>(node.inputs[i].node.value);
    const DatasetPtr& dataset = read.datasets[from];
    if ((dataset != nullptr) != (i < datasets)) {
      return invalid_argument("input {} is {}a dataset", i, dataset == nullptr ? "not " : "");
    }
    if (dataset != nullptr) {
      def.inputs.push_back(dataset);
    } else {
      def.parameters.push_back(read.parameters[from]);
    }
  }
  if (ir::attr_or(node.attrs, "inner", false) && !def.inputs.empty()) {
    def.inner = def.inputs.back();
    def.inputs.pop_back();
  }
  for (const auto& [name, value] : node.attrs) {
    if (name == "datasets" || name == "inner" || ir::is_note(name)) continue;
    if (name == "function") {
      const auto* function = std::get_if<std::string>(&value);
      def.function = function == nullptr ? nullptr : graph.find_function(*function);
    } else {
      def.attrs[name] = value;
    }
  }
  return Dataset::make(std::move(def));
}

Status read_node(const ir::Graph& graph, const ir::Node& node, Read* read) {
  if (node.op == "Const") {
    SR_ASSIGN_OR_RETURN(Tensor value, ir::get_attr<Tensor>(node.attrs, "value"));
    read->parameters.back() = Parameter::of(std::move(value));
    return {};
  }
  if (node.op == kSlotOp) {
    SR_ASSIGN_OR_RETURN(const auto index, ir::get_attr<int64_t>(node.attrs, "index"));
    if (index < 0 || index > kSlotsMax) return invalid_argument("there is no value {}", index);
    read->parameters.back() = Parameter::from_slot(static_cast<int32_t>(index), node.outputs[0]);
    return {};
  }
  if (!node.op.ends_with(kSuffix)) {
    return invalid_argument("an op of graphs; the definition of a dataset has datasets only");
  }
  SR_ASSIGN_OR_RETURN(read->datasets.back(), read_dataset(graph, node, *read));
  return {};
}

}  // namespace

void register_dataset_ops(ir::OpRegistry* registry) {
  for (const std::string_view op : kOps) registry->add(dataset_schema(op));
  registry->add(slot_schema());
}

Result<std::string> to_text(const Dataset& dataset, const ir::OpRegistry& registry) {
  if (!dataset.local_reason().empty()) {
    return base::failed_precondition("the dataset cannot leave this process: {}",
                                     dataset.local_reason());
  }
  Writer writer(registry);
  writer.add(dataset);
  return writer.text();
}

Result<DatasetPtr> from_text(std::string_view text, const ir::OpRegistry& registry) {
  SR_ASSIGN_OR_RETURN(const ir::Graph graph, ir::from_text(text, registry));
  Read read;
  for (const ir::Node& node : graph.nodes()) {
    read.datasets.emplace_back();
    read.parameters.emplace_back();
    SR_RETURN_IF_ERROR(base::with_context(read_node(graph, node, &read),
                                          fmt::format("{} '{}'", node.op, node.name)));
  }
  if (read.datasets.empty() || read.datasets.back() == nullptr) {
    return invalid_argument("the text ends with no dataset");
  }
  return read.datasets.back();
}

}  // namespace sidereal::dataset
