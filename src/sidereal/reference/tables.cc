#include <algorithm>
#include <map>

#include "sidereal/reference/value.h"

/// Sources, variables, rows of tables, and the ops that look-ups are expanded into.
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

/// The value of the variable of the handle at input `i`.
Result<Tensor*> variable_of(const Call& c, size_t i = 0) {
  const Node* from = &c.graph.node(c.node.inputs[i].node);
  while (from->op == "Identity") from = &c.graph.node(from->inputs[0].node);
  if (from->op != "Variable") {
    return base::unimplemented("the handle of '{}' is not made in its graph", c.node.name);
  }
  SR_ASSIGN_OR_RETURN(const std::string name,
                      ir::get_attr<std::string>(from->attrs, "shared_name"));
  if (c.request.variables != nullptr) {
    const auto it = c.request.variables->find(name);
    if (it != c.request.variables->end()) return &it->second;
  }
  return base::not_found("variable '{}' has no value", name);
}

/// Stands for the handle; who reads it looks for this node.
Status variable(const Call& c) {
  c.add_output(DType::kString, Shape());
  return {};
}

Status variable_read(const Call& c) {
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

/// Rows of a table of any rank, by the ids at input 1.
Status gather_rows(const Call& c, const Value& table) {
  Shape shape = c.in(1).shape;
  int64_t width = 1;
  for (int i = 1; i < table.shape.rank(); ++i) {
    shape.append(table.shape.dim(i));
    width *= table.shape.dim(i);
  }
  Value& out = c.add_output(table.dtype, shape);
  for (int64_t i = 0; i < c.in(1).size(); ++i) {
    const int64_t id = c.in(1).integer[i];
    if (id < 0 || id >= table.shape.dim(0)) return base::invalid_argument("id {}", id);
    for (int64_t d = 0; d < width; ++d) {
      if (table.is_real()) {
        out.real[i * width + d] = table.real[id * width + d];
      } else {
        out.integer[i * width + d] = table.integer[id * width + d];
      }
    }
  }
  return {};
}

Status gather(const Call& c) {
  if (ir::attr_or<int64_t>(c.node.attrs, "axis", 0) != 0 ||
      ir::attr_or<int64_t>(c.node.attrs, "batch_dims", 0) != 0) {
    return base::unimplemented("the reference gathers along axis 0 only");
  }
  return gather_rows(c, c.in(0));
}

Status variable_gather(const Call& c) {
  SR_ASSIGN_OR_RETURN(const Tensor* variable, variable_of(c));
  SR_ASSIGN_OR_RETURN(const Value table, from_tensor(*variable));
  return gather_rows(c, table);
}

/// The learning rate at input `i` of an update by plain descent.
Result<double> learning_rate(const Call& c, size_t i) {
  if (ir::attr_or<std::string>(c.node.attrs, "kind", "") != "sgd") {
    return base::unimplemented("the reference knows the rule 'sgd' only");
  }
  return c.in(i).real[0];
}

/// -= rate * the sum of the rows that belong to each row of the variable.
Status update_rows(const Call& c) {
  SR_ASSIGN_OR_RETURN(Tensor * tensor, variable_of(c));
  SR_ASSIGN_OR_RETURN(const double rate, learning_rate(c, 4));
  SR_ASSIGN_OR_RETURN(Value table, from_tensor(*tensor));
  const int64_t rows = table.shape.dim(0);
  const int64_t width = rows == 0 ? 0 : table.size() / rows;
  Value sums = make_value(table.dtype, table.shape);
  for (int64_t i = 0; i < c.in(1).size(); ++i) {
    const int64_t id = c.in(1).integer[i];
    if (id < 0 || id >= rows) return base::invalid_argument("id {}", id);
    for (int64_t d = 0; d < width; ++d) {
      sums.real[id * width + d] += c.in(2).real[i * width + d];
    }
  }
  for (int64_t i = 0; i < table.size(); ++i) table.real[i] -= rate * sums.real[i];
  *tensor = to_tensor(table);
  return {};
}

/// Row r of a table in parts is row r / parts of part r % parts; the handle of part k is at input
/// `first` + k.
struct Parts {
  const Call& call;
  size_t first;
  int64_t count;
  int64_t dim;

  static Result<Parts> of(const Call& c, size_t first) {
    SR_ASSIGN_OR_RETURN(const int64_t dim, ir::get_attr<int64_t>(c.node.attrs, "dim"));
    return Parts{c, first, static_cast<int64_t>(c.node.inputs.size() - first), dim};
  }
  /// The values of the part that has row `id`, and where in them that begins.
  Result<std::pair<Tensor*, int64_t>> find(int64_t id) const {
    SR_ASSIGN_OR_RETURN(Tensor * part, variable_of(call, first + static_cast<size_t>(id % count)));
    const int64_t at = id / count * dim;
    if (at + dim > part->num_elements()) return base::invalid_argument("id {}", id);
    return std::pair{part, at};
  }
};

/// Rows by id; zeros for negative ids.
Status embedding_lookup(const Call& c) {
  SR_ASSIGN_OR_RETURN(const Parts parts, Parts::of(c, 1));
  Value& out = c.add_output(DType::kFloat32, with_last(c.in(0).shape, parts.dim));
  for (int64_t i = 0; i < c.in(0).size(); ++i) {
    if (c.in(0).integer[i] < 0) continue;
    SR_ASSIGN_OR_RETURN(const auto row, parts.find(c.in(0).integer[i]));
    const float* const from = row.first->data<const float>().data() + row.second;
    std::copy_n(from, parts.dim, out.real.begin() + i * parts.dim);
  }
  return {};
}

/// -= rate * the sum of the gradients of each row.
Status embedding_update(const Call& c) {
  SR_ASSIGN_OR_RETURN(const Parts parts, Parts::of(c, 4));
  SR_ASSIGN_OR_RETURN(const double rate, learning_rate(c, 3));
  std::map<int64_t, std::vector<double>> sums;
  for (int64_t i = 0; i < c.in(0).size(); ++i) {
    if (c.in(0).integer[i] < 0) continue;
    std::vector<double>& sum = sums[c.in(0).integer[i]];
    sum.resize(static_cast<size_t>(parts.dim));
    for (int64_t d = 0; d < parts.dim; ++d) sum[d] += c.in(1).real[i * parts.dim + d];
  }
  for (const auto& [id, sum] : sums) {
    SR_ASSIGN_OR_RETURN(const auto row, parts.find(id));
    float* const weights = row.first->data<float>().data() + row.second;
    for (int64_t d = 0; d < parts.dim; ++d) weights[d] -= static_cast<float>(rate * sum[d]);
  }
  return {};
}

Status update_dense(const Call& c) {
  SR_ASSIGN_OR_RETURN(Tensor * tensor, variable_of(c));
  SR_ASSIGN_OR_RETURN(const double rate, learning_rate(c, 3));
  SR_ASSIGN_OR_RETURN(Value value, from_tensor(*tensor));
  if (!(value.shape == c.in(1).shape)) return base::invalid_argument("shapes differ");
  for (int64_t i = 0; i < value.size(); ++i) value.real[i] -= rate * c.in(1).real[i];
  *tensor = to_tensor(value);
  return {};
}

Status unique(const Call& c) {
  std::vector<int64_t> found;
  std::vector<int64_t> inverse;
  const bool is_strict = ir::attr_or(c.node.attrs, "strict", false);
  for (const int64_t id : c.in(0).integer) {
    if (id < 0 && !is_strict) {
      inverse.push_back(-1);
      continue;
    }
    const auto it = std::find(found.begin(), found.end(), id);
    inverse.push_back(it - found.begin());
    if (it == found.end()) found.push_back(id);
  }
  const Shape unique{static_cast<int64_t>(found.size())};
  const Shape all{static_cast<int64_t>(inverse.size())};
  c.add_output(DType::kInt64, unique).integer = std::move(found);
  c.add_output(DType::kInt32, all).integer = std::move(inverse);
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
    if (id < 0 || id >= layout.rows) return base::invalid_argument("id {}", id);
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
                     {"Variable", variable},
                     {"VariableRead", variable_read},
                     {"VariableGather", variable_gather},
                     {"VariableUpdateDense", update_dense},
                     {"VariableUpdateRows", update_rows},
                     {"EmbeddingLookup", embedding_lookup},
                     {"EmbeddingUpdate", embedding_update},
                     {"Gather", gather},
                     {"Unique", unique},
                     {"Route", route},
                     {"GatherParts", gather_parts},
                     {"SumParts", sum_parts}});
}

}  // namespace sidereal::reference::internal
