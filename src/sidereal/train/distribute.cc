#include "sidereal/train/distribute.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sidereal/base/part_name.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ir/needed.h"
#include "sidereal/ops/ops.h"

namespace sidereal::train {

using ir::DType;
using ir::Node;
using ir::NodeId;
using ir::Output;

namespace {

/// A variable of the model, or a slot of one, and where its parts are.
struct Home {
  const ModelVariable* variable = nullptr;
  const SlotVariable* slot = nullptr;     ///< nullptr: the variable itself.
  std::vector<std::string> devices = {};  ///< By part.
  std::vector<Output> handles = {};       ///< By part, in the new graph.
};

class Distributor {
 public:
  Distributor(const CompiledModel& model, const Placement& placement,
              const ir::OpRegistry& registry)
      : model_(model), placement_(placement), registry_(registry) {}

  Result<DistributedModel> run() {
    place();
    out_.graph.mutable_functions() = model_.graph.functions();
    for (const Node& node : model_.graph.nodes()) copy(node);
    ir::Builder builder(&out_.graph, &registry_);
    add_reads(&builder);
    add_initializers(&builder);
    add_has_value(&builder);
    out_.saving = add_saving(&builder, saved_variables());
    SR_RETURN_IF_ERROR(builder.status());
    SR_RETURN_IF_ERROR(add_inference());
    return std::move(out_);
  }

 private:
  void place() {
    for (const ModelVariable& variable : model_.variables) {
      std::vector<std::string> devices;
      for (const int task : placement_.tasks.at(variable.name)) {
        devices.push_back(ps_device(static_cast<size_t>(task)));
      }
      settle(variable, devices);
    }
  }

  void settle(const ModelVariable& variable, const std::vector<std::string>& devices) {
    homes_[variable.name] = {.variable = &variable, .devices = devices};
    for (const SlotVariable& slot : variable.slots) {
      homes_[slot.name] = {.variable = &variable, .slot = &slot, .devices = devices};
    }
  }

  void copy(const Node& node) {
    const auto home = homes_.find(node.name);
    if (node.op == "Variable" && home != homes_.end()) {
      add_handles(node, &home->second);
      values_.emplace_back();
      return;
    }
    Node made = node;
    if (node.op == "Variable") made.device = ps_device(0);
    const size_t first_part = node.op == "EmbeddingLookup"   ? 1
                              : node.op == "EmbeddingUpdate" ? 4
                                                             : node.inputs.size();
    made.inputs.clear();
    for (size_t i = 0; i < std::min(first_part, node.inputs.size()); ++i) {
      made.inputs.push_back(map(node.inputs[i]));
    }
    if (first_part < node.inputs.size()) {
      const size_t parts = home_of(node.inputs[first_part]).handles.size();
      for (size_t k = 0; k < parts; ++k) {
        for (size_t i = first_part; i < node.inputs.size(); ++i) {
          made.inputs.push_back(home_of(node.inputs[i]).handles[k]);
        }
      }
      if (made.attrs.contains("parts")) made.attrs["parts"] = static_cast<int64_t>(parts);
    }
    for (NodeId& control : made.control_inputs) control = values_[control.value];
    values_.push_back(out_.graph.append(std::move(made)));
  }

  /// The handle of a variable that has no parts is one value.
  [[nodiscard]] Output map(Output old) const {
    const auto home = homes_.find(model_.graph.node(old.node).name);
    if (home != homes_.end()) return home->second.handles[0];
    return {values_[old.node.value], old.index};
  }

  [[nodiscard]] const Home& home_of(Output handle) const {
    return homes_.at(model_.graph.node(handle.node).name);
  }

  void add_handles(const Node& node, Home* home) {
    const auto parts = static_cast<int64_t>(home->devices.size());
    const std::string& table = home->variable->name;
    for (int64_t k = 0; k < parts; ++k) {
      Node made = node;
      if (home->variable->options.is_table) {
        made.name = base::part_name(table, k) + node.name.substr(table.size());
        ir::Shape shape = home->slot == nullptr ? home->variable->shape : home->slot->shape;
        shape.set_dim(0, (shape.dim(0) - k + parts - 1) / parts);
        made.attrs["shape"] = shape;
      }
      made.attrs["shared_name"] = made.name;
      made.device = home->devices[static_cast<size_t>(k)];
      home->handles.push_back({out_.graph.append(std::move(made)), 0});
    }
  }

  void add_reads(ir::Builder* b) {
    const auto scope = b->scope("read");
    for (const ModelVariable& variable : model_.variables) {
      for (const Output& handle : homes_.at(variable.name).handles) {
        const Output read = ops::variable_read(*b, handle, b->graph().node(handle.node).name);
        if (!read.valid()) return;
        out_.variables[variable.name].reads.push_back(b->graph().node(read.node).name);
      }
    }
  }

  void add_initializers(ir::Builder* b) {
    const auto scope = b->scope("initialize");
    std::vector<NodeId> assigned;
    const auto assign = [&](Output handle, Output value) {
      if (!value.valid()) return;
      const std::string device = b->graph().node(handle.node).device;
      Node& made = b->graph().mutable_node(value.node);
      made.device = device;
      for (const Output& input : made.inputs) b->graph().mutable_node(input.node).device = device;
      const std::string name = "assign_" + b->graph().node(handle.node).name;
      assigned.push_back(b->add_node("VariableAssign", {handle, value}, {}, {}, name));
    };
    for (const auto& [name, home] : homes_) {
      for (size_t k = 0; k < home.handles.size(); ++k) {
        const Output handle = home.handles[k];
        if (home.slot == nullptr) {
          assign(handle, first_value(b, *home.variable, k, home.handles.size()));
        } else {
          const auto& shape = std::get<ir::Shape>(b->graph().node(handle.node).attrs.at("shape"));
          assign(handle, filled(b, home.variable->options.dtype, shape, home.slot->first));
        }
      }
    }
    if (const Node* const steps = out_.graph.find(kGlobalStep); steps != nullptr) {
      assign({steps->id, 0}, filled(b, DType::kInt64, {}, 0));
    }
    if (!b->status().ok()) return;
    out_.initializer = b->graph().node(ops::no_op(*b, assigned, "all")).name;
  }

  void add_has_value(ir::Builder* b) {
    const auto scope = b->scope("has_value");
    for (const auto& [name, home] : homes_) {
      for (const Output handle : home.handles) {
        const Node& of = b->graph().node(handle.node);
        const std::string device = of.device;
        const Output made = b->add("VariableIsInitialized", {handle}, {}, of.name);
        if (!made.valid()) return;
        b->graph().mutable_node(made.node).device = device;
        out_.has_value.push_back(b->graph().output_name(made));
      }
    }
  }

  /// Variables and slots as a checkpoint has them: a table is one tensor, however it is cut here.
  [[nodiscard]] std::vector<SavedVariable> saved_variables() const {
    std::vector<SavedVariable> out;
    for (const auto& [name, home] : homes_) {
      const ir::Shape& shape = home.slot == nullptr ? home.variable->shape : home.slot->shape;
      const size_t parts = home.handles.size();
      for (size_t k = 0; k < parts; ++k) {
        out.push_back({.handle = home.handles[k],
                       .name = name,
                       .slice = parts == 1 ? "" : slice_text(shape, k, parts),
                       .dtype = home.variable->options.dtype,
                       .shape = shape});
      }
    }
    if (const Node* const steps = out_.graph.find(kGlobalStep); steps != nullptr) {
      out.push_back({.handle = {steps->id, 0}, .name = kGlobalStep, .dtype = DType::kInt64});
    }
    return out;
  }

  /// Rows r of `shape` with r % parts == part: "8 4 1,2,3:-".
  static std::string slice_text(const ir::Shape& shape, size_t part, size_t parts) {
    std::string out;
    for (const int64_t extent : shape.dims()) out += fmt::format("{} ", extent);
    const auto rows = static_cast<size_t>(shape.dim(0));
    out += fmt::format("{},{},{}", part, (rows - part + parts - 1) / parts, parts);
    for (int i = 1; i < shape.rank(); ++i) out += ":-";
    return out;
  }

  static Output first_value(ir::Builder* b, const ModelVariable& variable, size_t part,
                            size_t parts) {
    if (variable.options.value != nullptr) {
      return ops::constant(*b, rows_of(*variable.options.value, part, parts), "first_value");
    }
    const Output value =
        ops::initial_value(*b, variable.options.initializer, variable.name, variable.shape,
                           static_cast<int64_t>(part), static_cast<int64_t>(parts), "first_value");
    const DType dtype = variable.options.dtype;
    return dtype == DType::kFloat32 ? value : ops::cast(*b, value, dtype, "first_value");
  }

  /// The rows r of `whole` for which r % parts == part.
  static ir::Tensor rows_of(const ir::Tensor& whole, size_t part, size_t parts) {
    if (parts == 1) return whole;
    ir::Shape shape = whole.shape();
    const auto rows = static_cast<size_t>(shape.dim(0));
    shape.set_dim(0, static_cast<int64_t>((rows - part + parts - 1) / parts));
    ir::Tensor made = ir::Tensor::empty(whole.dtype(), shape);
    const size_t row = whole.nbytes() / rows;
    for (size_t i = 0; part + i * parts < rows; ++i) {
      std::memcpy(made.raw() + i * row, whole.raw() + (part + i * parts) * row, row);
    }
    return made;
  }

  static Output filled(ir::Builder* b, DType dtype, const ir::Shape& shape, double value) {
    const Output number = ops::scalar(*b, dtype, value, "fill_value");
    const std::vector<int64_t> extents(shape.dims().begin(), shape.dims().end());
    return b->add("Fill", {number}, {{"shape", extents}}, "fill");
  }

  /// The model without dropout: a copy of what depends on one, named "inference/NAME".
  Status add_inference() {
    std::vector<Output> wanted;
    for (const std::string& name : {model_.prediction, model_.loss}) {
      SR_ASSIGN_OR_RETURN(const Output old, model_.graph.find_output(name));
      wanted.push_back(map(old));
    }
    const size_t count = out_.graph.size();
    const std::vector<bool> needed = ir::needed_for(out_.graph, wanted);
    std::map<NodeId, NodeId> copies;
    for (size_t i = 0; i < count; ++i) {
      Node node = out_.graph.nodes()[i];
      bool differs = node.op == "Dropout";
      if (differs) node.attrs["training"] = false;
      for (Output& input : node.inputs) {
        const auto copied = copies.find(input.node);
        if (copied == copies.end()) continue;
        input.node = copied->second;
        differs = true;
      }
      if (!needed[i] || !differs) continue;
      const NodeId old = node.id;
      node.name = out_.graph.unique_name("inference/" + node.name);
      copies[old] = out_.graph.append(std::move(node));
    }
    for (Output& one : wanted) {
      if (const auto copied = copies.find(one.node); copied != copies.end()) {
        one.node = copied->second;
      }
    }
    out_.prediction = out_.graph.output_name(wanted[0]);
    out_.loss = out_.graph.output_name(wanted[1]);
    return {};
  }

  const CompiledModel& model_;
  const Placement& placement_;
  const ir::OpRegistry& registry_;
  DistributedModel out_;
  std::map<std::string, Home> homes_;  // By the name of the variable or slot.
  std::vector<NodeId> values_;         // By node of the model: what it is in the new graph.
};

}  // namespace

std::string ps_device(size_t task) { return fmt::format("/job:ps/task:{}", task); }

Result<DistributedModel> distribute(const CompiledModel& model, const Placement& placement,
                                    const ir::OpRegistry& registry) {
  return Distributor(model, placement, registry).run();
}

ir::Graph on_worker(const ir::Graph& graph, int index, const ir::OpRegistry& registry) {
  ir::Graph out = graph;
  const std::string device = fmt::format("/job:worker/task:{}", index);
  for (size_t i = 0; i < out.size(); ++i) {
    Node& node = out.mutable_node(NodeId(static_cast<int32_t>(i)));
    const ir::OpSchema* const schema = registry.find(node.op);
    const bool follows = schema != nullptr && schema->handle_inputs > 0;
    if (node.device.empty() && !follows) node.device = device;
  }
  return out;
}

}  // namespace sidereal::train
