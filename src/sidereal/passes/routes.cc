#include "sidereal/passes/internal/routes.h"

#include <utility>

namespace sidereal::passes {

using ir::NodeId;
using ir::Output;

Result<NodeId> Routes::unique(const ir::Node& like, Output ids, const std::string& stem) {
  const auto [at, is_new] = uniques_.try_emplace(std::pair(ids, like.device));
  if (!is_new) return at->second;
  Output wide = rewriter_.map(ids);
  if (from_.spec(ids).dtype != ir::DType::kInt64) {
    SR_ASSIGN_OR_RETURN(const NodeId cast,
                        rewriter_.add_beside(like, "Cast", {wide}, {{"dtype", ir::DType::kInt64}},
                                             stem + "/int64", registry_));
    wide = {cast, 0};
  }
  ir::AttrMap attrs;
  if (strict_) attrs["strict"] = true;
  SR_ASSIGN_OR_RETURN(at->second, rewriter_.add_beside(like, "Unique", {wide}, std::move(attrs),
                                                       stem + "/unique", registry_));
  return at->second;
}

Result<Routed> Routes::route(const ir::Node& like, Output ids, const RoutedTable& table) {
  std::string stem = from_.output_name(ids);
  if (const size_t colon = stem.rfind(':'); colon != std::string::npos) stem[colon] = '_';
  SR_ASSIGN_OR_RETURN(const NodeId distinct, unique(like, ids, stem));
  const auto [at, is_new] = routes_.try_emplace(std::tuple(distinct, table.rows, table.parts));
  if (is_new) {
    SR_ASSIGN_OR_RETURN(
        at->second, rewriter_.add_beside(like, "Route", {{distinct, 0}},
                                         {{"rows", table.rows},
                                          {"lanes", std::vector<int64_t>{table.parts}},
                                          {"var", table.name}},
                                         fmt::format("{}/route_{}", stem, table.rows), registry_));
  }
  const NodeId node = at->second;
  Routed out;
  out.inverse = {distinct, 1};
  for (int32_t i = 0; i < table.parts; ++i) out.rows.push_back({node, i});
  out.position = {node, static_cast<int32_t>(table.parts)};
  return out;
}

}  // namespace sidereal::passes
