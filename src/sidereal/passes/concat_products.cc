#include "sidereal/passes/concat_products.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/passes/internal/rewrite.h"
#include "sidereal/passes/prune.h"

namespace sidereal::passes {
namespace {

using ir::DType;
using ir::Node;
using ir::NodeId;
using ir::Output;
using ir::Shape;

/// Columns a part must have: narrower ones are multiplied too slowly.
constexpr int64_t kWidthMin = 32;
/// Rows, where they are known: for a few, writing them is cheaper than a product for every part.
constexpr int64_t kRowsMin = 32;

bool is_real(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64; }

/// The extent of the last dimension, -1 when it is not known.
int64_t width_of(const Shape& shape) {
  return shape.has_rank() && shape.rank() > 0 ? shape.dim(-1) : -1;
}

bool is_matrix(const Shape& shape) { return shape.has_rank() && shape.rank() == 2; }

/// What both passes ask of a graph.
class Finder {
 public:
  explicit Finder(const StepGraph& step)
      : graph(step.graph), readers(readers_of(step.graph)), pinned_(pinned_nodes(step)) {}

  [[nodiscard]] const Node& node(NodeId id) const { return graph.node(id); }
  [[nodiscard]] const Shape& shape(Output value) const { return graph.spec(value).shape; }

  /// True when `node` may go away, runs where `with` runs and has one output of its dtype.
  [[nodiscard]] bool may_go(const Node& node, const Node& with) const {
    return !pinned_[node.id.value] && node.outputs.size() == 1 && same_place(node, with) &&
           node.outputs[0].dtype == with.outputs[0].dtype;
  }

  /// True for a reshape that leaves rows of the last dimension whole.
  [[nodiscard]] bool keeps_rows(const Node& node) const {
    if (node.op != "Reshape" && node.op != "ReshapeLike") return false;
    const int64_t width = width_of(node.outputs[0].shape);
    return width > 0 && width == width_of(shape(node.inputs[0]));
  }

  /// True for a product of two matrices in the dtype they have, transposed as told.
  [[nodiscard]] bool is_product(const Node& node, bool ta, bool tb) const {
    if (node.op != "MatMul" && node.op != "FusedMatMul") return false;
    return ir::attr_or(node.attrs, "transpose_a", false) == ta &&
           ir::attr_or(node.attrs, "transpose_b", false) == tb &&
           is_matrix(shape(node.inputs[0])) && is_matrix(shape(node.inputs[1])) &&
           is_real(node.outputs[0].dtype) &&
           graph.spec(node.inputs[0]).dtype == node.outputs[0].dtype;
  }

  const ir::Graph& graph;
  std::vector<std::vector<NodeId>> readers;

 private:
  std::vector<bool> pinned_;
};

/// True for a shape that Reshape can be told: one unknown extent, and no 0 beside it.
bool is_tellable(const Shape& shape) {
  if (!shape.has_rank()) return false;
  const auto dims = shape.dims();
  return std::count(dims.begin(), dims.end(), -1) <= 1 &&
         std::count(dims.begin(), dims.end(), 0) == 0;
}

Node shaped(Output value, const Node& like, const Shape& shape) {
  Node made;
  made.op = "Reshape";
  made.name = like.name;
  put_beside(like, &made);
  made.inputs = {value};
  made.attrs["shape"] = std::vector<int64_t>(shape.dims().begin(), shape.dims().end());
  return made;
}

/// See split_products().
class Splitter {
 public:
  Splitter(const StepGraph& step, const ir::OpRegistry& registry)
      : step_(step), registry_(registry), find_(step), rewriter_(step.graph) {}

  Result<StepGraph> run() {
    for (const Node& product : step_.graph.nodes()) find_pieces(product);
    if (products_.empty()) return step_;
    for (const Node& node : step_.graph.nodes()) {
      if (products_.contains(node.id)) {
        SR_RETURN_IF_ERROR(split(node, products_.at(node.id)));
      } else if (places_.contains(node.id)) {
        SR_RETURN_IF_ERROR(put_piece(node, places_.at(node.id)));
      } else if (!views_.contains(node.id)) {
        rewriter_.copy(node);
      }
    }
    return prune(rewriter_.finish(step_));
  }

 private:
  /// Where a piece comes from.
  struct Place {
    NodeId product;
    int32_t index;
  };

  void find_pieces(const Node& product) {
    if (product.op != "MatMul" || !find_.is_product(product, false, true)) return;
    const int64_t rows = find_.shape(product.inputs[0]).dim(0);
    if (!find_.may_go(product, product) || (rows >= 0 && rows < kRowsMin)) return;
    std::vector<NodeId> pieces;
    std::vector<NodeId> views;
    if (!add_pieces(product, product, &pieces, &views) || pieces.empty()) return;
    int64_t total = 0;
    for (const NodeId id : pieces) {
      const Node& piece = find_.node(id);
      const int64_t size = width_of(piece.outputs[0].shape);
      if (size < kWidthMin || !can_be_shaped(piece) || updates_rows(piece)) return;
      if (ir::attr_or<int64_t>(piece.attrs, "begin", -1) < 0) return;
      total += size;
    }
    if (total > width_of(product.outputs[0].shape)) return;
    views_.insert(views.begin(), views.end());
    for (size_t i = 0; i < pieces.size(); ++i) {
      places_[pieces[i]] = {product.id, static_cast<int32_t>(i)};
    }
    products_[product.id] = std::move(pieces);
  }

  /// Adds the pieces of `value`, which shows `product`; false when it is read in another way.
  bool add_pieces(const Node& product, const Node& value, std::vector<NodeId>* pieces,
                  std::vector<NodeId>* views) const {
    for (const NodeId id : find_.readers[value.id.value]) {
      const Node& reader = find_.node(id);
      if (reader.inputs[0].node != value.id || !find_.may_go(reader, product)) return false;
      // A value whose shape alone is read has to be there as well.
      if (reader.inputs.size() > 1 && reader.inputs[1].node == value.id) return false;
      if (find_.keeps_rows(reader)) {
        if (!add_pieces(product, reader, pieces, views)) return false;
        views->push_back(id);
        continue;
      }
      if (reader.op != "SliceAxis" || !is_last_axis(reader)) return false;
      pieces->push_back(id);
    }
    return true;
  }

  /// True when `value` goes to an update of a table only: lay_out_lookups makes that read columns.
  /// At most `steps` nodes lie between.
  [[nodiscard]] bool updates_rows(const Node& value, int steps = 4) const {
    const std::vector<NodeId>& readers = find_.readers[value.id.value];
    return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](NodeId id) {
      const Node& reader = find_.node(id);
      const bool passes_on =
          reader.op == "Reshape" || reader.op == "ReshapeLike" || reader.op == "Concat";
      return reader.op == "UpdateRows" ||
             (passes_on && steps > 0 && updates_rows(reader, steps - 1));
    });
  }

  [[nodiscard]] bool is_last_axis(const Node& slice) const {
    const int rank = find_.shape(slice.inputs[0]).rank();
    const auto axis = ir::attr_or<int64_t>(slice.attrs, "axis", 0);
    return axis == -1 || axis == rank - 1;
  }

  [[nodiscard]] bool can_be_shaped(const Node& piece) const {
    const Shape& shape = piece.outputs[0].shape;
    return is_matrix(shape) || is_tellable(shape) || part_like(piece).valid();
  }

  /// The part of a concatenation that `piece` is the gradient of, when that can be seen: it has its
  /// shape.
  [[nodiscard]] Output part_like(const Node& piece) const {
    const Node& whole = find_.node(piece.inputs[0].node);
    if (whole.op != "ReshapeLike") return {};
    const Node& joined = find_.node(whole.inputs[1].node);
    if (joined.op != "Concat" || !is_last_of(joined)) return {};
    int64_t at = 0;
    for (const Output& part : joined.inputs) {
      const int64_t width = width_of(find_.shape(part));
      if (width < 0) return {};
      const bool same = at == ir::attr_or<int64_t>(piece.attrs, "begin", -1) &&
                        width == width_of(piece.outputs[0].shape);
      if (same && find_.shape(part).rank() == piece.outputs[0].shape.rank()) return part;
      at += width;
    }
    return {};
  }

  [[nodiscard]] bool is_last_of(const Node& joined) const {
    const Shape& shape = joined.outputs[0].shape;
    const auto axis = ir::attr_or<int64_t>(joined.attrs, "axis", 0);
    return shape.has_rank() && (axis == -1 || axis == shape.rank() - 1);
  }

  Status split(const Node& product, const std::vector<NodeId>& pieces) {
    std::vector<int64_t> begins;
    std::vector<int64_t> sizes;
    for (const NodeId id : pieces) {
      begins.push_back(ir::attr_or<int64_t>(find_.node(id).attrs, "begin", 0));
      sizes.push_back(ir::attr_or<int64_t>(find_.node(id).attrs, "size", 0));
    }
    Node made;
    made.op = "MatMulSplit";
    made.name = product.name;
    put_beside(product, &made);
    made.attrs = {{"begins", std::move(begins)}, {"sizes", std::move(sizes)}};
    made.inputs = rewriter_.map(product.inputs);
    SR_ASSIGN_OR_RETURN(made_[product.id], rewriter_.add_as(std::move(made), registry_));
    return {};
  }

  Status put_piece(const Node& piece, const Place& place) {
    const Output value{made_.at(place.product), place.index};
    const Shape& shape = piece.outputs[0].shape;
    if (is_matrix(shape)) {
      rewriter_.replace(Output{piece.id, 0}, value);
      return {};
    }
    Node made = shaped(value, piece, shape);
    if (!is_tellable(shape)) {
      made.op = "ReshapeLike";
      made.attrs.clear();
      made.inputs.push_back(rewriter_.map(part_like(piece)));
    }
    SR_ASSIGN_OR_RETURN(const NodeId id, rewriter_.add_as(std::move(made), registry_));
    rewriter_.replace(piece.id, id);
    return {};
  }

  const StepGraph& step_;
  const ir::OpRegistry& registry_;
  Finder find_;
  Rewriter rewriter_;
  std::map<NodeId, std::vector<NodeId>> products_;  // Their pieces.
  std::map<NodeId, Place> places_;                  // By piece.
  std::set<NodeId> views_;                          // Between a product and its pieces.
  std::map<NodeId, NodeId> made_;                   // By old product, in the new graph.
};

/// See join_products().
class Joiner {
 public:
  Joiner(const StepGraph& step, const ir::OpRegistry& registry)
      : step_(step), registry_(registry), find_(step), rewriter_(step.graph) {}

  Result<StepGraph> run() {
    for (const Node& joined : step_.graph.nodes()) find_products(joined);
    if (products_.empty()) return step_;
    for (const Node& node : step_.graph.nodes()) {
      // Views of what is not there any more are pruned, and with them the Concat.
      if (const auto last = activations_.find(node.id); last != activations_.end()) {
        SR_RETURN_IF_ERROR(join(find_.node(last->second), node));
      } else if (!products_.contains(node.id)) {
        rewriter_.copy(node);
      } else if (activation_of(node) == nullptr) {
        SR_RETURN_IF_ERROR(join(node, node));
      }
    }
    return prune(rewriter_.finish(step_));
  }

 private:
  void find_products(const Node& joined) {
    if (joined.op != "Concat" || joined.inputs.size() < 2 || !find_.may_go(joined, joined)) return;
    const Shape& shape = joined.outputs[0].shape;
    const auto axis = ir::attr_or<int64_t>(joined.attrs, "axis", 0);
    if (!is_real(joined.outputs[0].dtype) || width_of(shape) < 0 || shape.rank() < 2) return;
    if (axis != -1 && axis != shape.rank() - 1) return;
    const bool one_is_full =
        std::any_of(joined.inputs.begin(), joined.inputs.end(),
                    [&](const Output& part) { return before_broadcast(part) == part; });
    for (const Output& part : joined.inputs) {
      const bool narrow = one_is_full && before_broadcast(part) != part;
      if (!narrow && width_of(find_.shape(part)) < kWidthMin) return;
    }
    // Rows of tables are put into their place by lay_out_lookups.
    const bool has_rows =
        std::any_of(joined.inputs.begin(), joined.inputs.end(), [&](const Output& part) {
          return find_.node(part.node).op == "Gather" && find_.readers[part.node.value].size() == 1;
        });
    std::vector<NodeId> products;
    if (has_rows || !add_products(joined, joined, &products)) return;
    for (const NodeId id : products) {
      products_[id] = joined.id;
      if (const Node* activation = activation_of(find_.node(id))) activations_[activation->id] = id;
    }
  }

  /// What is applied to `product`, when it can be done on rows that are still near; or nullptr.
  [[nodiscard]] const Node* activation_of(const Node& product) const {
    const std::vector<NodeId>& readers = find_.readers[product.id.value];
    if (readers.size() != 1 || !find_.may_go(product, product)) return nullptr;
    if (ir::attr_or(product.attrs, "transpose_a", false)) return nullptr;
    if (ir::attr_or(product.attrs, "relu", false)) return nullptr;
    const Node& reader = find_.node(readers[0]);
    const bool is_known = reader.op == "Relu" || reader.op == "Sigmoid" || reader.op == "Tanh";
    const bool is_near = same_place(reader, product) && reader.control_inputs.empty();
    return is_known && is_near ? &reader : nullptr;
  }

  /// Adds the products of `value`, which shows `joined`; false when it is read in another way.
  bool add_products(const Node& joined, const Node& value, std::vector<NodeId>* products) const {
    for (const NodeId id : find_.readers[value.id.value]) {
      const Node& reader = find_.node(id);
      if (reader.inputs[0].node != value.id || !same_place(reader, joined)) return false;
      if (reader.inputs.size() > 1 && reader.inputs[1].node == value.id) return false;
      if (find_.may_go(reader, joined) && find_.keeps_rows(reader)) {
        if (!add_products(joined, reader, products)) return false;
        continue;
      }
      const bool transposed = reader.op == "MatMul" && find_.is_product(reader, true, false);
      if (!transposed && !find_.is_product(reader, false, false)) return false;
      if (!reader.control_inputs.empty()) return false;
      const int64_t rows = find_.shape(reader.inputs[0]).dim(0);
      if (rows >= 0 && rows < kRowsMin) return false;
      products->push_back(id);
    }
    return true;
  }

  /// What `part` was before its rows were broadcast; else `part` itself.
  [[nodiscard]] Output before_broadcast(Output part) const {
    const Node& made = find_.node(part.node);
    if (made.op != "BroadcastTo" && made.op != "BroadcastLike") return part;
    const int64_t width = width_of(find_.shape(made.inputs[0]));
    return width > 0 && width == width_of(find_.shape(part)) ? made.inputs[0] : part;
  }

  /// Puts the product of a Concat in the place of `last`: itself, or its activation.
  Status join(const Node& product, const Node& last) {
    const Node& joined = find_.node(products_.at(product.id));
    const bool transposed = ir::attr_or(product.attrs, "transpose_a", false);
    Node made;
    made.op = transposed ? "TransposedConcatMatMul" : "ConcatMatMul";
    made.name = last.name;
    put_beside(last, &made);
    const bool one_is_full =
        std::any_of(joined.inputs.begin(), joined.inputs.end(),
                    [&](const Output& part) { return before_broadcast(part) == part; });
    for (const Output& part : joined.inputs) {
      made.inputs.push_back(rewriter_.map(one_is_full ? before_broadcast(part) : part));
    }
    for (size_t i = 1; i < product.inputs.size(); ++i) {
      made.inputs.push_back(rewriter_.map(product.inputs[i]));
    }
    if (product.op == "FusedMatMul") made.attrs["bias"] = true;
    if (ir::attr_or(product.attrs, "relu", false)) made.attrs["activation"] = std::string("Relu");
    if (last.id != product.id) made.attrs["activation"] = last.op;
    SR_ASSIGN_OR_RETURN(const NodeId id, rewriter_.add_as(std::move(made), registry_));
    rewriter_.replace(last.id, id);
    return {};
  }

  const StepGraph& step_;
  const ir::OpRegistry& registry_;
  Finder find_;
  Rewriter rewriter_;
  std::map<NodeId, NodeId> products_;     // Their Concats.
  std::map<NodeId, NodeId> activations_;  // Their products.
};

}  // namespace

Result<StepGraph> split_products(const StepGraph& step, const ir::OpRegistry& registry) {
  return Splitter(step, registry).run();
}

Result<StepGraph> join_products(const StepGraph& step, const ir::OpRegistry& registry) {
  return Joiner(step, registry).run();
}

}  // namespace sidereal::passes
