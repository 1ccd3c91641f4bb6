#include "sidereal/passes/lookup_layout.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/passes/internal/rewrite.h"
#include "sidereal/passes/prune.h"

namespace sidereal::passes {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Output;
using Ints = std::vector<int64_t>;

/// The product of the extents [from, to) of `shape`; -1 when that is not known.
int64_t product_of(const ir::Shape& shape, int from, int to) {
  int64_t product = 1;
  for (int i = from; i < to; ++i) {
    if (shape.dim(i) < 0) return -1;
    product *= shape.dim(i);
  }
  return product;
}

/// The axis of a node whose attribute counts dimensions of `rank`, or -1.
int axis_of(const Node& node, int rank) {
  const auto* axis = ir::find_attr<int64_t>(node.attrs, "axis");
  if (axis == nullptr || *axis < -rank || *axis >= rank) return -1;
  return static_cast<int>(*axis < 0 ? *axis + rank : *axis);
}

/// Gradients of rows as columns of the rows of `values`, which are `width` long.
struct Columns {
  Output values;
  int64_t column = 0;
  int64_t width = 0;
};

class LookupLayout {
 public:
  LookupLayout(const StepGraph& step, const ir::OpRegistry& registry)
      : step_(step),
        registry_(registry),
        rewriter_(step.graph),
        pinned_(pinned_nodes(step)),
        dropped_(step.graph.size()) {
    for (const Node& node : step.graph.nodes()) {
      for (const Output& input : node.inputs) readers_[input].insert(node.id);
    }
  }

  Result<StepGraph> run() {
    choose_updates();
    for (const Node& node : step_.graph.nodes()) SR_RETURN_IF_ERROR(rewrite(node));
    if (!changed_) return step_;
    return prune(rewriter_.finish(step_));
  }

 private:
  [[nodiscard]] const Node& maker(Output value) const { return step_.graph.node(value.node); }
  [[nodiscard]] const ir::Shape& shape_of(Output value) const {
    return step_.graph.spec(value).shape;
  }
  static bool is_update(const Node& node) {
    return node.op == "UpdateRows" && node.inputs.size() >= 4;
  }

  static bool reads_gradients(const Node& node) {
    return is_update(node) || (node.op == "SumParts" && !node.attrs.contains("width"));
  }

  /// True when `value` is made for `reader` alone, in the same place.
  [[nodiscard]] bool is_own(Output value, NodeId reader) const {
    const auto readers = readers_.find(value);
    return !pinned_[value.node.value] && readers != readers_.end() && readers->second.size() == 1 &&
           *readers->second.begin() == reader && same_place(maker(value), step_.graph.node(reader));
  }

  Status rewrite(const Node& node) {
    if (dropped_[node.id.value]) return {};
    if (const auto update = updates_.find(node.id); update != updates_.end()) {
      return rewrite_update(node, update->second);
    }
    if (node.op == "Unstack" && freed_.contains(node.id)) return rewrite_unstack(node);
    if (node.op == "Concat" || node.op == "Stack") {
      SR_ASSIGN_OR_RETURN(const bool joined, rewrite_join(node));
      if (joined) return {};
    }
    rewriter_.copy(node);
    return {};
  }

  /// A value that a join or an update reads.
  struct Part {
    Output value;               ///< As it is read.
    Output shown;               ///< What `value` is another shape of.
    NodeId reader;              ///< Of `shown`.
    std::vector<NodeId> views;  ///< Between the two.
  };

  [[nodiscard]] Part part_of(Output value, NodeId reader) const {
    Part part{.value = value, .shown = value, .reader = reader, .views = {}};
    while (is_own(part.shown, part.reader)) {
      const Node& node = maker(part.shown);
      const bool is_view = node.op == "Reshape" || node.op == "ReshapeLike" ||
                           node.op == "ExpandDims" || node.op == "Squeeze";
      if (!is_view) break;
      part.views.push_back(node.id);
      part.reader = node.id;
      part.shown = node.inputs[0];
    }
    return part;
  }

  // --- Lookups.

  /// Part of a join: rows of tables, or a value.
  struct Joined {
    int64_t count = 0;  ///< Rows of the table in each row of the join; 0: a value.
    std::vector<Output> inputs;
  };

  /// The rows of a Gather or GatherParts by `ids`, each of `width`, when they may be a part of a
  /// join along `axis`.
  [[nodiscard]] std::optional<Joined> rows_by(Output ids, int64_t width, const Part& part,
                                              int axis) const {
    const ir::Shape& shape = shape_of(ids);
    if (!shape.has_rank() || shape.rank() < axis) return {};
    const int64_t count = product_of(shape, axis, shape.rank());
    if (count < 1 || width < 1) return {};
    // Under another shape, each row of the join still has as many elements of it.
    const ir::Shape& read = shape_of(part.value);
    const bool is_viewed = !part.views.empty();
    if (is_viewed && (axis != 1 || width > ir::kMaxElements / count ||
                      product_of(read, axis, read.rank()) != count * width)) {
      return {};
    }
    return Joined{count, maker(part.shown).inputs};
  }

  [[nodiscard]] std::optional<Joined> gathered(const Node& join, int axis, Output value) const {
    const Part part = part_of(value, join.id);
    const Node& gather = maker(part.shown);
    if (gather.op != "Gather" || !is_own(part.shown, part.reader)) return {};
    if (ir::attr_or<int64_t>(gather.attrs, "axis", 0) != 0) return {};
    if (ir::attr_or<int64_t>(gather.attrs, "batch_dims", 0) != 0) return {};
    const ir::Shape& table = shape_of(gather.inputs[0]);
    if (!table.has_rank() || table.rank() < 1) return {};
    // Read later than it was, the table might have to be kept beside its update.
    for (const NodeId reader : readers_.at(gather.inputs[0])) {
      const bool is_between = reader.value > gather.id.value && reader.value < join.id.value;
      if (is_between && is_update(step_.graph.node(reader))) return {};
    }
    return rows_by(gather.inputs[1], product_of(table, 1, table.rank()), part, axis);
  }

  /// The same of tables of `shards`.
  [[nodiscard]] std::optional<Joined> gathered_parts(const Node& join, int axis, Output value,
                                                     int64_t shards) const {
    if (shards_of(join, value) != shards) return {};
    const Part part = part_of(value, join.id);
    const Node& gather = maker(part.shown);
    return rows_by(gather.inputs[0], ir::attr_or<int64_t>(gather.attrs, "dim", 0), part, axis);
  }

  /// Of the table that `value` has rows of, when that is a GatherParts for `join` alone; else 0.
  [[nodiscard]] int64_t shards_of(const Node& join, Output value) const {
    const Part part = part_of(value, join.id);
    const Node& gather = maker(part.shown);
    if (gather.op != "GatherParts" || !is_own(part.shown, part.reader)) return 0;
    return static_cast<int64_t>(gather.inputs.size()) - 3;
  }

  /// Adds a GatherConcat or GatherPartsConcat in the place of `join`, a Concat or Stack; false when
  /// it is none for that.
  Result<bool> rewrite_join(const Node& join) {
    const ir::TensorSpec& spec = join.outputs[0];
    if (!spec.shape.has_rank() || spec.dtype == ir::DType::kString) return false;
    const int axis = axis_of(join, spec.shape.rank());
    if (axis < 1 || product_of(spec.shape, axis, spec.shape.rank()) < 1) return false;
    Ints counts;
    std::vector<Output> inputs;
    bool gathers = false;
    int64_t shards = 0;
    for (const Output& value : join.inputs) shards = std::max(shards, shards_of(join, value));
    for (const Output& value : join.inputs) {
      const std::optional<Joined> rows =
          shards > 0 ? gathered_parts(join, axis, value, shards) : gathered(join, axis, value);
      const Joined joined = rows.value_or(Joined{0, {value}});
      gathers = gathers || rows.has_value();
      counts.push_back(joined.count);
      inputs.insert(inputs.end(), joined.inputs.begin(), joined.inputs.end());
      const ir::Shape& part = shape_of(value);
      if (!part.has_rank() || product_of(part, axis, part.rank()) < 1) return false;
    }
    if (!gathers) return false;
    Node made = as(join, shards > 0 ? "GatherPartsConcat" : "GatherConcat");
    Ints shape;
    for (int i = axis; i < spec.shape.rank(); ++i) shape.push_back(spec.shape.dim(i));
    made.attrs = {
        {"counts", std::move(counts)}, {"axis", int64_t{axis}}, {"shape", std::move(shape)}};
    if (shards > 0) {
      made.attrs["shards"] = shards;
    } else {
      made.attrs["out_type"] = spec.dtype;
    }
    made.inputs = rewriter_.map(inputs);
    SR_RETURN_IF_ERROR(put(join, std::move(made)));
    return true;
  }

  // --- Updates.

  struct Update {
    std::vector<Output> indices;
    std::vector<Columns> values;
    std::vector<NodeId> dropped;  ///< Nodes that were there for it alone.
    std::vector<Output> freed;    ///< Outputs of Unstacks that it reads in place.
  };

  /// Where the rows of `dim` floats are that a SliceAxis or Unstack makes the part of.
  [[nodiscard]] std::optional<Columns> columns_of(const Part& part, int64_t dim) const {
    const Node& cut = maker(part.shown);
    const bool is_slice = cut.op == "SliceAxis";
    if (!is_slice && cut.op != "Unstack") return {};
    if (!is_own(part.shown, part.reader) || whole_.contains(cut.id)) return {};
    const ir::Shape& shape = shape_of(cut.inputs[0]);
    const int axis = shape.has_rank() ? axis_of(cut, shape.rank()) : -1;
    if (axis < 0) return {};
    const int64_t inner = product_of(shape, axis + 1, shape.rank());
    const int64_t width = product_of(shape, axis, shape.rank());
    const int64_t begin =
        is_slice ? ir::attr_or<int64_t>(cut.attrs, "begin", -1) : int64_t{part.shown.index};
    const int64_t size = is_slice ? ir::attr_or<int64_t>(cut.attrs, "size", -1) : 1;
    if (inner < 1 || width < 1 || begin < 0 || size * inner != dim) return {};
    return Columns{cut.inputs[0], begin * inner, width};
  }

  /// Takes Concats along dimension 0 apart: rows follow one another either way.
  template <class Take>
  void for_each_part(Output value, NodeId reader, std::vector<NodeId>* dropped,
                     const Take& take) const {
    const Part part = part_of(value, reader);
    const Node& join = maker(part.shown);
    const ir::Shape& shape = shape_of(part.shown);
    const bool joins = join.op == "Concat" && is_own(part.shown, part.reader) && shape.has_rank() &&
                       axis_of(join, shape.rank()) == 0;
    if (!joins) return take(part);
    dropped->insert(dropped->end(), part.views.begin(), part.views.end());
    dropped->push_back(join.id);
    for (const Output& input : join.inputs) for_each_part(input, join.id, dropped, take);
  }

  void add_values(const Part& part, int64_t dim, Update* update) const {
    const std::optional<Columns> columns = columns_of(part, dim);
    update->values.push_back(columns.value_or(Columns{part.value, 0, dim}));
    if (!columns.has_value()) return;
    update->dropped.insert(update->dropped.end(), part.views.begin(), part.views.end());
    if (maker(part.shown).op == "Unstack") {
      update->freed.push_back(part.shown);
    } else {
      update->dropped.push_back(part.shown.node);
    }
  }

  /// How the update reads its indices and gradients; none when there is nothing to gain.
  [[nodiscard]] std::optional<Update> plan_of(const Node& node) const {
    Update update;
    if (node.op == "SumParts") {
      const auto dim = ir::attr_or<int64_t>(node.attrs, "dim", 0);
      add_values(part_of(node.inputs[0], node.id), dim, &update);
    } else {
      const ir::Shape& table = shape_of(node.inputs[0]);
      if (!table.has_rank() || table.rank() < 1) return {};
      const int64_t dim = product_of(table, 1, table.rank());
      if (dim < 1) return {};
      for_each_part(node.inputs[1], node.id, &update.dropped,
                    [&](const Part& part) { update.indices.push_back(part.value); });
      for_each_part(node.inputs[2], node.id, &update.dropped,
                    [&](const Part& part) { add_values(part, dim, &update); });
    }
    if (update.dropped.empty() && update.freed.empty()) return {};
    return update;
  }

  void choose_updates() {
    // An Unstack most of which is needed as it is stays whole, and is read.
    std::map<NodeId, int64_t> freed;
    for (const Node& node : step_.graph.nodes()) {
      if (!reads_gradients(node)) continue;
      const std::optional<Update> update = plan_of(node);
      if (!update.has_value()) continue;
      for (const Output& output : update->freed) ++freed[output.node];
    }
    for (const auto& [id, count] : freed) {
      int64_t read = 0;
      const Node& unstack = step_.graph.node(id);
      for (size_t o = 0; o < unstack.outputs.size(); ++o) {
        read += readers_.contains({id, static_cast<int32_t>(o)}) ? 1 : 0;
      }
      if (2 * count < read) whole_.insert(id);
    }
    for (const Node& node : step_.graph.nodes()) {
      if (!reads_gradients(node)) continue;
      std::optional<Update> update = plan_of(node);
      if (!update.has_value()) continue;
      for (const NodeId id : update->dropped) dropped_[id.value] = true;
      for (const Output& output : update->freed) freed_[output.node].insert(output.index);
      updates_[node.id] = std::move(*update);
    }
  }

  Status rewrite_update(const Node& old, const Update& update) {
    if (old.op == "SumParts") return rewrite_sums(old, update.values[0]);
    Node made = as(old, "UpdateJoinedRows");
    Ints columns;
    Ints widths;
    std::vector<Output> inputs = {old.inputs[0]};
    inputs.insert(inputs.end(), update.indices.begin(), update.indices.end());
    for (const Columns& one : update.values) {
      inputs.push_back(one.values);
      columns.push_back(one.column);
      widths.push_back(one.width);
    }
    inputs.insert(inputs.end(), old.inputs.begin() + 3, old.inputs.end());
    made.inputs = rewriter_.map(inputs);
    made.attrs = old.attrs;
    made.attrs["indices"] = static_cast<int64_t>(update.indices.size());
    made.attrs["columns"] = std::move(columns);
    made.attrs["widths"] = std::move(widths);
    return put(old, std::move(made));
  }

  Status rewrite_sums(const Node& old, const Columns& grads) {
    Node made = as(old, "SumParts");
    std::vector<Output> inputs = old.inputs;
    inputs[0] = grads.values;
    made.inputs = rewriter_.map(inputs);
    made.attrs = old.attrs;
    made.attrs["column"] = grads.column;
    made.attrs["width"] = grads.width;
    return put(old, std::move(made));
  }

  /// The outputs of an Unstack that are still read, one by one.
  Status rewrite_unstack(const Node& old) {
    const std::set<int32_t>& freed = freed_.at(old.id);
    const int axis = axis_of(old, shape_of(old.inputs[0]).rank());
    for (size_t o = 0; o < old.outputs.size(); ++o) {
      const auto index = static_cast<int32_t>(o);
      if (freed.contains(index) || !readers_.contains({old.id, index})) continue;
      Node slice = as(old, "SliceAxis");
      slice.name = fmt::format("{}/{}", old.name, index);
      slice.inputs = {rewriter_.map(old.inputs[0])};
      slice.attrs = {{"axis", int64_t{axis}}, {"begin", int64_t{index}}, {"size", int64_t{1}}};
      SR_ASSIGN_OR_RETURN(const NodeId cut, rewriter_.add(std::move(slice), registry_));
      Node value = as(old, "Squeeze");
      value.name = fmt::format("{}/{}/value", old.name, index);
      value.inputs = {{cut, 0}};
      value.attrs = {{"axes", Ints{axis}}};
      SR_ASSIGN_OR_RETURN(const NodeId shown, rewriter_.add(std::move(value), registry_));
      rewriter_.replace(Output{old.id, index}, Output{shown, 0});
    }
    return {};
  }

  // --- Both.

  static Node as(const Node& old, const char* op) {
    Node made;
    made.op = op;
    made.name = old.name;
    put_beside(old, &made);
    return made;
  }

  Status put(const Node& old, Node made) {
    made.control_inputs = rewriter_.map(old.control_inputs);
    SR_ASSIGN_OR_RETURN(const NodeId id, rewriter_.add_as(std::move(made), registry_));
    rewriter_.replace(old.id, id);
    changed_ = true;
    return {};
  }

  const StepGraph& step_;
  const ir::OpRegistry& registry_;
  Rewriter rewriter_;
  std::vector<bool> pinned_;
  std::map<Output, std::set<NodeId>> readers_;
  std::set<NodeId> whole_;  // Unstacks that stay.
  std::map<NodeId, Update> updates_;
  std::map<NodeId, std::set<int32_t>> freed_;  // By other Unstack: outputs read in place.
  std::vector<bool> dropped_;
  bool changed_ = false;
};

}  // namespace

Result<StepGraph> lay_out_lookups(const StepGraph& step, const ir::OpRegistry& registry) {
  return LookupLayout(step, registry).run();
}

}  // namespace sidereal::passes
