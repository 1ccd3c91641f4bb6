#include <algorithm>

#include "sidereal/reference/value.h"

/// Sources, variables, and the ops that lookups are expanded into.
namespace sidereal::reference::internal {
namespace {

constexpr int kShardShift = 40;

Status fed(const Call& c) {
  const auto it = c.request.feeds.find(c.node.name);
  if (it == c.request.feeds.end()) {
    return base::invalid_argument("'{}' is not fed", c.node.name);
  }
  SR_ASSIGN_OR_RETURN(Value value, from_tensor(it->second));
  const ir::TensorSpec& spec = c.node.outputs[0];
  if (value.dtype != spec.dtype || !spec.shape.accepts(value.shape)) {
    return base::invalid_argument("'{}' is fed {}; it takes {}", c.node.name,
                                  it->second.to_string(), ir::to_string(spec));
  }
  c.outputs->push_back(std::move(value));
  return {};
}

Status constant(const Call& c) {
  SR_ASSIGN_OR_RETURN(const Tensor tensor, ir::get_attr<Tensor>(c.node.attrs, "value"));
  SR_ASSIGN_OR_RETURN(Value value, from_tensor(tensor));
  c.outputs->push_back(std::move(value));
  return {};
}

Status no_op(const Call& /*c*/) { return {}; }

Result<Tensor*> variable_of(const Call& c) {
  SR_ASSIGN_OR_RETURN(const std::string name, ir::get_attr<std::string>(c.node.attrs, "var"));
  if (c.request.variables != nullptr) {
    const auto it = c.request.variables->find(name);
    if (it != c.request.variables->end()) return &it->second;
  }
  return base::not_found("variable '{}' has no value", name);
}

Status read_variable(const Call& c) {
  SR_ASSIGN_OR_RETURN(const Tensor* variable, variable_of(c));
  SR_ASSIGN_OR_RETURN(Value value, from_tensor(*variable));
  c.outputs->push_back(std::move(value));
  return {};
}

Shape with_last(const Shape& shape, int64_t extent) {
  Shape out = shape;
  out.append(extent);
  return out;
}

Status lookup(const Call& c) {
  SR_ASSIGN_OR_RETURN(const Tensor* tensor, variable_of(c));
  SR_ASSIGN_OR_RETURN(const Value table, from_tensor(*tensor));
  const int64_t dim = table.shape.dim(1);
  Value& out = c.add_output(table.dtype, with_last(c.in(0).shape, dim));
  for (int64_t i = 0; i < c.in(0).size(); ++i) {
    const int64_t id = c.in(0).integer[i];
    if (id < 0) continue;
    if (id >= table.shape.dim(0)) return base::out_of_range("id {}", id);
    std::copy_n(table.real.begin() + id * dim, dim, out.real.begin() + i * dim);
  }
  return {};
}

Result<double> learning_rate(const Call& c) {
  SR_ASSIGN_OR_RETURN(const std::string name, ir::get_attr<std::string>(c.node.attrs, "var"));
  const ir::VariableDef* variable = c.graph.find_variable(name);
  if (variable == nullptr) return base::not_found("variable '{}' is not declared", name);
  const auto it = variable->optimizer.parameters.find("learning_rate");
  if (variable->optimizer.kind != "sgd" || it == variable->optimizer.parameters.end()) {
    return base::unimplemented("the reference knows sgd with a learning_rate only");
  }
  return it->second;
}

/// tensor -= rate * sum of the rows of `grads` that belong to each row; ids name global rows.
Status update_rows(const Call& c, const std::vector<int64_t>& ids, const Value& grads) {
  SR_ASSIGN_OR_RETURN(Tensor * tensor, variable_of(c));
  SR_ASSIGN_OR_RETURN(const double rate, learning_rate(c));
  SR_ASSIGN_OR_RETURN(Value table, from_tensor(*tensor));
  const int64_t dim = table.shape.dim(1);
  Value sums = make_value(table.dtype, table.shape);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) continue;
    if (ids[i] >= table.shape.dim(0)) return base::out_of_range("id {}", ids[i]);
    for (int64_t d = 0; d < dim; ++d) {
      sums.real[ids[i] * dim + d] += grads.real[static_cast<int64_t>(i) * dim + d];
    }
  }
  for (int64_t i = 0; i < table.size(); ++i) table.real[i] -= rate * sums.real[i];
  *tensor = to_tensor(table);
  return {};
}

Status apply_dense(const Call& c) {
  SR_ASSIGN_OR_RETURN(Tensor * tensor, variable_of(c));
  SR_ASSIGN_OR_RETURN(const double rate, learning_rate(c));
  SR_ASSIGN_OR_RETURN(Value value, from_tensor(*tensor));
  if (!(value.shape == c.in(0).shape)) return base::invalid_argument("shapes differ");
  for (int64_t i = 0; i < value.size(); ++i) value.real[i] -= rate * c.in(0).real[i];
  *tensor = to_tensor(value);
  return {};
}

Status apply_sparse(const Call& c) { return update_rows(c, c.in(0).integer, c.in(1)); }

Status unique(const Call& c) {
  std::vector<int64_t> found;
  std::vector<int64_t> inverse;
  for (const int64_t id : c.in(0).integer) {
    if (id < 0) {
      inverse.push_back(-1);
      continue;
    }
    const auto it = std::find(found.begin(), found.end(), id);
    inverse.push_back(it - found.begin());
    if (it == found.end()) found.push_back(id);
  }
  c.add_output(DType::kInt64, Shape{static_cast<int64_t>(found.size())}).integer = found;
  c.add_output(DType::kInt32, Shape{static_cast<int64_t>(inverse.size())}).integer = inverse;
  return {};
}

/// Where the rows of a table lie: 'div' over the tasks, then round robin over a task's lanes.
struct Layout {
  std::vector<int64_t> lanes;
  int64_t rows = 0;

  [[nodiscard]] int64_t task_rows(size_t task) const {
    const auto tasks = static_cast<int64_t>(lanes.size());
    return rows / tasks + (static_cast<int64_t>(task) < rows % tasks ? 1 : 0);
  }
  /// The global row of local row `local` of shard `shard`.
  [[nodiscard]] int64_t global_row(int64_t shard, int64_t local) const {
    int64_t first = 0;
    size_t task = 0;
    for (; shard >= lanes[task]; ++task) {
      shard -= lanes[task];
      first += task_rows(task);
    }
    return first + local * lanes[task] + shard;
  }
  /// The shard and local row of global row `row`.
  [[nodiscard]] std::pair<int64_t, int64_t> place(int64_t row) const {
    int64_t shard = 0;
    size_t task = 0;
    for (; row >= task_rows(task); ++task) {
      row -= task_rows(task);
      shard += lanes[task];
    }
    return {shard + row % lanes[task], row / lanes[task]};
  }
};

Result<Layout> layout_of(const Node& route) {
  Layout out;
  SR_ASSIGN_OR_RETURN(out.lanes, ir::get_attr<std::vector<int64_t>>(route.attrs, "lanes"));
  SR_ASSIGN_OR_RETURN(out.rows, ir::get_attr<int64_t>(route.attrs, "rows"));
  return out;
}

Status route(const Call& c) {
  SR_ASSIGN_OR_RETURN(const Layout layout, layout_of(c.node));
  std::vector<std::vector<int64_t>> rows(c.node.outputs.size() - 1);
  std::vector<int64_t> position;
  for (const int64_t id : c.in(0).integer) {
    if (id < 0 || id >= layout.rows) return base::out_of_range("id {}", id);
    const auto [shard, local] = layout.place(id);
    position.push_back(shard << kShardShift | static_cast<int64_t>(rows[shard].size()));
    rows[shard].push_back(local);
  }
  rows.push_back(position);
  for (const auto& list : rows) {
    c.add_output(DType::kInt64, Shape{static_cast<int64_t>(list.size())}).integer = list;
  }
  return {};
}

/// The global rows named by input 0 of a shard op, whose layout its Route node knows.
Result<std::vector<int64_t>> global_rows(const Call& c) {
  const Node* from = &c.graph.node(c.node.inputs[0].node);
  while (from->op == "Identity") from = &c.graph.node(from->inputs[0].node);
  if (from->op != "Route") {
    return base::unimplemented("the rows of '{}' do not come from a Route", c.node.name);
  }
  SR_ASSIGN_OR_RETURN(const Layout layout, layout_of(*from));
  SR_ASSIGN_OR_RETURN(const int64_t shard, ir::get_attr<int64_t>(c.node.attrs, "shard"));
  std::vector<int64_t> out;
  for (const int64_t local : c.in(0).integer) out.push_back(layout.global_row(shard, local));
  return out;
}

Status shard_gather(const Call& c) {
  SR_ASSIGN_OR_RETURN(const Tensor* tensor, variable_of(c));
  SR_ASSIGN_OR_RETURN(const Value table, from_tensor(*tensor));
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, global_rows(c));
  const int64_t dim = table.shape.dim(1);
  Value& out = c.add_output(table.dtype, Shape{static_cast<int64_t>(rows.size()), dim});
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= table.shape.dim(0)) return base::out_of_range("row {}", rows[i]);
    std::copy_n(table.real.begin() + rows[i] * dim, dim,
                out.real.begin() + static_cast<int64_t>(i) * dim);
  }
  return {};
}

Status shard_apply(const Call& c) {
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, global_rows(c));
  return update_rows(c, rows, c.in(1));
}

/// The shard and the index in it of each id, from (position, inverse) at inputs 1 and 2.
Result<std::pair<int64_t, int64_t>> part_of(const Call& c, int64_t i) {
  const int64_t position = c.in(1).integer[c.in(2).integer[i]];
  const int64_t shard = position >> kShardShift;
  if (shard + 3 >= static_cast<int64_t>(c.inputs.size())) {
    return base::invalid_argument("position names shard {}", shard);
  }
  return std::pair{shard, position & ((int64_t{1} << kShardShift) - 1)};
}

Status gather_parts(const Call& c) {
  SR_ASSIGN_OR_RETURN(const int64_t dim, ir::get_attr<int64_t>(c.node.attrs, "dim"));
  Value& out = c.add_output(DType::kFloat32, with_last(c.in(0).shape, dim));
  for (int64_t i = 0; i < c.in(0).size(); ++i) {
    if (c.in(2).integer[i] < 0) continue;
    SR_ASSIGN_OR_RETURN(const auto place, part_of(c, i));
    const Value& part = c.in(static_cast<size_t>(place.first) + 3);
    std::copy_n(part.real.begin() + place.second * dim, dim, out.real.begin() + i * dim);
  }
  return {};
}

Status sum_parts(const Call& c) {
  SR_ASSIGN_OR_RETURN(const int64_t dim, ir::get_attr<int64_t>(c.node.attrs, "dim"));
  for (size_t s = 3; s < c.inputs.size(); ++s) {
    c.add_output(DType::kFloat32, Shape{c.in(s).size(), dim});
  }
  for (int64_t i = 0; i < c.in(2).size(); ++i) {
    if (c.in(2).integer[i] < 0) continue;
    SR_ASSIGN_OR_RETURN(const auto place, part_of(c, i));
    std::vector<double>& part = (*c.outputs)[place.first].real;
    for (int64_t d = 0; d < dim; ++d) part[place.second * dim + d] += c.in(0).real[i * dim + d];
  }
  return {};
}

}  // namespace

void add_tables(Functions* functions) {
  functions->insert({{"Placeholder", fed},
                     {"Arg", fed},
                     {"Const", constant},
                     {"NoOp", no_op},
                     {"ReadVariable", read_variable},
                     {"Lookup", lookup},
                     {"ApplyDense", apply_dense},
                     {"ApplySparse", apply_sparse},
                     {"Unique", unique},
                     {"Route", route},
                     {"ShardGather", shard_gather},
                     {"ShardApply", shard_apply},
                     {"GatherParts", gather_parts},
                     {"SumParts", sum_parts}});
}

}  // namespace sidereal::reference::internal
