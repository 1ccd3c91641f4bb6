#include "sidereal/passes/expand_embeddings.h"

#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/part_name.h"
#include "sidereal/passes/internal/rewrite.h"
#include "sidereal/passes/internal/routes.h"

namespace sidereal::passes {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Output;

/// Inputs before the handles of an EmbeddingUpdate: ids, gradients, step, learning rate; and of an
/// EmbeddingAccumulate: ids, gradients, step.
constexpr size_t kBeforeUpdated = 4;
constexpr size_t kBeforeAccumulators = 3;

/// The table that one node works on.
struct Table {
  int64_t rows = 0;
  int64_t dim = 0;
  std::vector<std::vector<Output>> parts;  ///< The handle of each, and those of its slots.

  [[nodiscard]] int64_t rows_of(size_t part) const {
    const auto count = static_cast<int64_t>(parts.size());
    return (rows - static_cast<int64_t>(part) + count - 1) / count;
  }
};

Result<Table> table_of(const Node& node) {
  Table table;
  SR_ASSIGN_OR_RETURN(table.rows, ir::get_attr<int64_t>(node.attrs, "rows"));
  SR_ASSIGN_OR_RETURN(table.dim, ir::get_attr<int64_t>(node.attrs, "dim"));
  return table;
}

class EmbeddingExpander {
 public:
  EmbeddingExpander(const StepGraph& step, const ir::OpRegistry& registry)
      : step_(step),
        registry_(registry),
        rewriter_(step.graph),
        router_(step.graph, registry, &rewriter_, /*strict=*/false) {}

  Result<StepGraph> run() {
    for (const Node& node : step_.graph.nodes()) {
      Status status;
      if (node.op == "EmbeddingLookup") {
        status = expand_lookup(node);
      } else if (node.op == "EmbeddingUpdate") {
        status = expand_update(node);
      } else if (node.op == "EmbeddingAccumulate") {
        status = expand_accumulate(node);
      } else {
        rewriter_.copy(node);
      }
      SR_RETURN_IF_ERROR(
          base::with_context(status, fmt::format("node '{}' ({})", node.name, node.op)));
    }
    return rewriter_.finish(step_);
  }

 private:
  /// The table's name for messages: that of the variable, without the part.
  [[nodiscard]] std::string name_of(Output handle) const {
    const Node& made = step_.graph.node(handle.node);
    const auto name = ir::attr_or<std::string>(made.attrs, "shared_name", made.name);
    return std::string(base::split_part(name).first);
  }

  Result<Routed> route(const Node& node, const Table& table) {
    return router_.route(node, node.inputs[0],
                         {.rows = table.rows,
                          .parts = static_cast<int64_t>(table.parts.size()),
                          .name = name_of(table.parts[0][0])});
  }

  Status expand_lookup(const Node& node) {
    SR_ASSIGN_OR_RETURN(Table table, table_of(node));
    for (size_t i = 1; i < node.inputs.size(); ++i) table.parts.push_back({node.inputs[i]});
    SR_ASSIGN_OR_RETURN(const Routed routed, route(node, table));
    std::vector<Output> inputs = {rewriter_.map(node.inputs[0]), routed.position, routed.inverse};
    for (size_t i = 0; i < table.parts.size(); ++i) {
      const Output handle = table.parts[i][0];
      const Node& home = step_.graph.node(handle.node);
      const ir::Shape shape{table.rows_of(i), table.dim};
      SR_ASSIGN_OR_RETURN(const NodeId read,
                          rewriter_.add_beside(home, "VariableRead", {rewriter_.map(handle)},
                                               {{"dtype", ir::DType::kFloat32}, {"shape", shape}},
                                               fmt::format("{}/read_{}", node.name, i), registry_,
                                               rewriter_.map(node.control_inputs)));
      SR_ASSIGN_OR_RETURN(const NodeId rows,
                          rewriter_.add_beside(home, "Gather", {{read, 0}, routed.rows[i]}, {},
                                               fmt::format("{}/rows_{}", node.name, i), registry_));
      inputs.push_back({rows, 0});
    }
    return finish(node, "GatherParts", std::move(inputs), {{"dim", table.dim}}, {});
  }

  /// The rows of each part that have gradients, and the sums of these: outputs of one node.
  struct Sums {
    std::vector<Output> rows;
    NodeId sums;
  };
  Result<Sums> sum_rows(const Node& node, const Table& table) {
    SR_ASSIGN_OR_RETURN(Routed routed, route(node, table));
    std::vector<Output> inputs = {rewriter_.map(node.inputs[1]), routed.position, routed.inverse};
    inputs.insert(inputs.end(), routed.rows.begin(), routed.rows.end());
    Sums out;
    SR_ASSIGN_OR_RETURN(
        out.sums, rewriter_.add_beside(node, "SumParts", std::move(inputs), {{"dim", table.dim}},
                                       node.name + "/sum", registry_));
    out.rows = std::move(routed.rows);
    return out;
  }

  Status expand_accumulate(const Node& node) {
    SR_ASSIGN_OR_RETURN(Table table, table_of(node));
    for (size_t i = kBeforeAccumulators; i < node.inputs.size(); ++i) {
      table.parts.push_back({node.inputs[i]});
    }
    SR_ASSIGN_OR_RETURN(const Sums found, sum_rows(node, table));
    std::vector<NodeId> added;
    for (size_t i = 0; i < table.parts.size(); ++i) {
      const Output handle = table.parts[i][0];
      SR_ASSIGN_OR_RETURN(
          added.emplace_back(),
          rewriter_.add_beside(step_.graph.node(handle.node), "AccumulatorApply",
                               {rewriter_.map(handle),
                                rewriter_.map(node.inputs[2]),
                                found.rows[i],
                                {found.sums, static_cast<int32_t>(i)}},
                               {}, base::part_name(node.name, static_cast<int64_t>(i)), registry_,
                               rewriter_.map(node.control_inputs)));
    }
    return finish(node, "NoOp", {}, {}, std::move(added));
  }

  Status expand_update(const Node& node) {
    SR_ASSIGN_OR_RETURN(Table table, table_of(node));
    SR_RETURN_IF_ERROR(add_parts(node, &table));
    SR_ASSIGN_OR_RETURN(const Sums found, sum_rows(node, table));
    ir::AttrMap attrs = node.attrs;
    attrs.erase("rows");
    attrs.erase("dim");
    attrs.erase("parts");
    attrs["distinct"] = true;
    std::vector<NodeId> updates;
    for (size_t i = 0; i < table.parts.size(); ++i) {
      std::vector<Output> update = {rewriter_.map(table.parts[i][0]),
                                    found.rows[i],
                                    {found.sums, static_cast<int32_t>(i)},
                                    rewriter_.map(node.inputs[2]),
                                    rewriter_.map(node.inputs[3])};
      for (size_t slot = 1; slot < table.parts[i].size(); ++slot) {
        update.push_back(rewriter_.map(table.parts[i][slot]));
      }
      SR_ASSIGN_OR_RETURN(const NodeId made,
                          rewriter_.add_beside(step_.graph.node(table.parts[i][0].node),
                                               "VariableUpdateRows", std::move(update), attrs,
                                               base::part_name(node.name, static_cast<int64_t>(i)),
                                               registry_, rewriter_.map(node.control_inputs)));
      updates.push_back(made);
    }
    return finish(node, "NoOp", {}, {}, std::move(updates));
  }

  /// The handles of an update, which have as many parts as their look-up has.
  Status add_parts(const Node& node, Table* table) const {
    SR_ASSIGN_OR_RETURN(const int64_t parts, ir::get_attr<int64_t>(node.attrs, "parts"));
    const size_t handles = node.inputs.size() - kBeforeUpdated;
    if (parts < 1 || handles % static_cast<size_t>(parts) != 0) {
      return base::invalid_argument("{} handles of {} parts", handles, parts);
    }
    const size_t each = handles / static_cast<size_t>(parts);
    for (size_t i = kBeforeUpdated; i < node.inputs.size(); i += each) {
      const auto first = node.inputs.begin() + static_cast<std::ptrdiff_t>(i);
      table->parts.emplace_back(first, first + static_cast<std::ptrdiff_t>(each));
    }
    return {};
  }

  /// Puts the last node of a rewrite in the place of `old`, under its name.
  Status finish(const Node& old, std::string op, std::vector<Output> inputs, ir::AttrMap attrs,
                std::vector<NodeId> controls) {
    Node made;
    made.name = old.name;
    made.op = std::move(op);
    made.inputs = std::move(inputs);
    made.attrs = std::move(attrs);
    made.control_inputs = std::move(controls);
    put_beside(old, &made);
    SR_ASSIGN_OR_RETURN(const NodeId id, rewriter_.add_as(std::move(made), registry_));
    rewriter_.replace(old.id, id);
    return {};
  }

  const StepGraph& step_;
  const ir::OpRegistry& registry_;
  Rewriter rewriter_;
  Routes router_;
};

}  // namespace

Result<StepGraph> expand_embeddings(const StepGraph& step, const ir::OpRegistry& registry) {
  return EmbeddingExpander(step, registry).run();
}

}  // namespace sidereal::passes
