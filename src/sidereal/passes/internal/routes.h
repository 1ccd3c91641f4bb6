#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/internal/rewrite.h"

namespace sidereal::passes {

/// What a Unique and a Route make of ids.
struct Routed {
  ir::Output inverse;            ///< Which of the distinct ids each id is.
  std::vector<ir::Output> rows;  ///< By part: the rows that are wanted of it.
  ir::Output position;           ///< Where each of the distinct ids went.
};

/// The table that ids are of. Value type.
struct RoutedTable {
  int64_t rows = 0;
  int64_t parts = 1;
  std::string name;  ///< For errors.
};

/// The Uniques and Routes that one pass adds: a Unique for each value of ids on a device, and a
/// Route for it and each number of rows and parts, whoever asks.
/// Thread: core-local. Borrows the old graph, the registry and the rewriter.
class Routes {
 public:
  /// `strict`: negative ids are ids too, which no table has; else they are left out.
  Routes(const ir::Graph& from, const ir::OpRegistry& registry, Rewriter* rewriter, bool strict)
      : from_(from), registry_(registry), rewriter_(*rewriter), strict_(strict) {}

  /// For the old value `ids`, int64 or int32, where the old node `like` is.
  Result<Routed> route(const ir::Node& like, ir::Output ids, const RoutedTable& table);

 private:
  Result<ir::NodeId> unique(const ir::Node& like, ir::Output ids, const std::string& stem);

  const ir::Graph& from_;
  const ir::OpRegistry& registry_;
  Rewriter& rewriter_;
  const bool strict_;
  std::map<std::pair<ir::Output, std::string>, ir::NodeId> uniques_;       // By ids and device.
  std::map<std::tuple<ir::NodeId, int64_t, int64_t>, ir::NodeId> routes_;  // And rows and parts.
};

}  // namespace sidereal::passes
