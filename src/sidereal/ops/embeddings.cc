#include <algorithm>
#include <utility>

#include "sidereal/ops/internal.h"
#include "sidereal/ops/ops.h"
#include "sidereal/ops/update_rule.h"

/// Rows of tables that lie in parts, read and updated by id. The pass expand_embeddings makes
/// others of them.
namespace sidereal::ops::internal {
namespace {

constexpr int64_t kPartsMax = 1 << 16;

/// float32 [rows, dim].
struct Extents {
  int64_t rows = 0;
  int64_t dim = 0;
};

Result<Extents> extents_of(const InferContext& c) {
  Extents out;
  SR_ASSIGN_OR_RETURN(out.rows, ir::get_attr<int64_t>(c.attrs, "rows"));
  SR_ASSIGN_OR_RETURN(out.dim, ir::get_attr<int64_t>(c.attrs, "dim"));
  if (out.rows < 1 || out.dim < 1 || out.dim > ir::kMaxElements / out.rows) {
    return base::invalid_argument("a table of {} rows of {}", out.rows, out.dim);
  }
  return out;
}

Status require_parts(const Extents& table, int64_t parts) {
  if (parts >= 1 && parts <= std::min(table.rows, kPartsMax)) return {};
  return base::invalid_argument("{} parts of a table of {} rows", parts, table.rows);
}

Status require_handles(const InferContext& c, size_t first) {
  for (size_t i = first; i < c.inputs.size(); ++i) {
    SR_RETURN_IF_ERROR(require_dtype(c, i, DType::kString));
    SR_RETURN_IF_ERROR(require_rank(c, i, 0));
  }
  return {};
}

Status infer_lookup(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const Extents table, extents_of(c));
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kInt64));
  SR_RETURN_IF_ERROR(require_handles(c, 1));
  SR_RETURN_IF_ERROR(require_parts(table, static_cast<int64_t>(c.inputs.size()) - 1));
  return put(c, DType::kFloat32, with_last(c.inputs[0].shape, table.dim));
}

/// (ids, gradients): a row for each id.
Status require_gradients(const InferContext& c, const Extents& table) {
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kInt64));
  SR_RETURN_IF_ERROR(require_dtype(c, 1, DType::kFloat32));
  const Shape wanted = with_last(c.inputs[0].shape, table.dim);
  if (merge_shapes(c.inputs[1].shape, wanted).ok()) return {};
  return base::invalid_argument("the gradients must have shape {}: one row of {} per id",
                                wanted.to_string(), table.dim);
}

Status infer_accumulate(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const Extents table, extents_of(c));
  SR_RETURN_IF_ERROR(require_gradients(c, table));
  SR_RETURN_IF_ERROR(require_dtype(c, 2, DType::kInt64));
  SR_RETURN_IF_ERROR(require_rank(c, 2, 0));
  SR_RETURN_IF_ERROR(require_handles(c, 3));
  return require_parts(table, static_cast<int64_t>(c.inputs.size()) - 3);
}

Status infer_update(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const Extents table, extents_of(c));
  SR_RETURN_IF_ERROR(require_gradients(c, table));
  SR_RETURN_IF_ERROR(require_step(c, 2));
  SR_RETURN_IF_ERROR(require_handles(c, 4));
  SR_ASSIGN_OR_RETURN(const kernels::UpdateRule rule, update_rule_of(c.attrs));
  SR_ASSIGN_OR_RETURN(const int64_t parts, ir::get_attr<int64_t>(c.attrs, "parts"));
  SR_RETURN_IF_ERROR(require_parts(table, parts));
  const auto handles = static_cast<int64_t>(c.inputs.size()) - 4;
  if (handles == parts * (rule.num_slots() + 1)) return {};
  return base::invalid_argument("{} handles of {} parts for {}, which has {} slots", handles, parts,
                                rule.rule().name, rule.num_slots());
}

}  // namespace

void register_embeddings(OpRegistry* registry) {
  const ir::AttrSpec rows = {"rows", "int", true, "Rows of the table, all parts together."};
  const ir::AttrSpec dim = {"dim", "int", true, "Elements of a row."};
  registry->add({.name = "EmbeddingLookup",
                 .doc = "(ids, handles of parts...) -> ids.shape + [dim]: rows of a float32 table "
                        "of which row r of all is row r / n of part r % n. A negative id gives a "
                        "row of zeros and takes no gradient. Graphs only.",
                 .min_inputs = 2,
                 .max_inputs = -1,
                 .attrs = {rows, dim},
                 .infer = infer_lookup,
                 .gradient = no_flow,
                 .stateful = true});
  registry->add({.name = "EmbeddingAccumulate",
                 .doc = "(ids, gradients, step, accumulators of parts...): AccumulatorApply of the "
                        "gradients of a table as EmbeddingLookup has it, those of equal ids "
                        "summed, to the accumulator of each part, of which some may get no rows. "
                        "Graphs only.",
                 .min_inputs = 4,
                 .max_inputs = -1,
                 .attrs = {rows, dim},
                 .infer = infer_accumulate,
                 .differentiable = false,
                 .stateful = true,
                 .effect = true});
  std::vector<ir::AttrSpec> attrs = {rows, dim, {"parts", "int", true, "Parts of the table."}};
  for (ir::AttrSpec& attr : update_rule_attrs()) attrs.push_back(std::move(attr));
  registry->add({.name = "EmbeddingUpdate",
                 .doc = "(ids, gradients, step, learning rate, then the handles of each part and "
                        "of its slots...): VariableUpdateRows of a table as EmbeddingLookup has "
                        "it, by gradients of shape ids.shape + [dim]. Graphs only.",
                 .min_inputs = 5,
                 .max_inputs = -1,
                 .attrs = std::move(attrs),
                 .infer = infer_update,
                 .differentiable = false,
                 .stateful = true,
                 .effect = true});
}

}  // namespace sidereal::ops::internal

namespace sidereal::ops {

ir::Output variable(ir::Builder& b, std::string_view name, ir::DType dtype,
                    const ir::Shape& shape) {
  const ir::Output handle = b.add(
      "Variable", {}, {{"dtype", dtype}, {"shape", shape}, {"shared_name", std::string()}}, name);
  if (!handle.valid()) return handle;
  ir::Node& node = b.graph().mutable_node(handle.node);
  node.attrs["shared_name"] = node.name;
  return handle;
}

ir::Output variable_read(ir::Builder& b, ir::Output handle, std::string_view name) {
  if (!b.status().ok()) return {};
  const ir::AttrMap& of = b.graph().node(handle.node).attrs;
  return b.add("VariableRead", {handle}, {{"dtype", of.at("dtype")}, {"shape", of.at("shape")}},
               name);
}

ir::Output embedding_lookup(ir::Builder& b, ir::Output ids, const std::vector<ir::Output>& handles,
                            int64_t rows, int64_t dim, std::string_view name) {
  std::vector<ir::Output> inputs = {ids};
  inputs.insert(inputs.end(), handles.begin(), handles.end());
  return b.add("EmbeddingLookup", inputs, {{"rows", rows}, {"dim", dim}}, name);
}

}  // namespace sidereal::ops
