#pragma once

#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/fold.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// What the passes may do.
struct PassOptions {
  bool fuse = true;             ///< Make one node of several; off to see a graph as it was made.
  Evaluate evaluate = nullptr;  ///< Folds constants; without it they are left alone.
  /// kBFloat16: float32 products read bfloat16 (passes/mixed_precision.h). Where that is fast is
  /// for the caller to know: kernels::has_bfloat_units().
  ir::DType compute_dtype = ir::DType::kFloat32;
};

/// The compute_dtype of that name: "float32" or "bfloat16"; kInvalidArgument for another one.
Result<ir::DType> parse_compute_dtype(std::string_view name);

/// Prune, inline, prune again, optimize; in bodies of functions too. The result, a graph ready to
/// be partitioned, is verified; `graph` is left as it is. The same inputs give the same plan on
/// every machine.
Result<StepGraph> run_passes(const ir::Graph& graph, const std::vector<ir::Output>& fetches,
                             const std::vector<ir::NodeId>& targets, const ir::OpRegistry& registry,
                             const PassOptions& options = {});

/// The passes of run_passes() that follow inlining: gather rows where tables are, expand look-ups
/// in them, simplify, fold, merge, lower, unite routes, drop broadcasts, fuse, split and join
/// products, lay out lookups. Nodes that ask for different devices stay different nodes, and nodes
/// stay where they are but those that gather; what is made of several nodes of one device asks for
/// that device. Does not verify.
Result<StepGraph> optimize(StepGraph step, const ir::OpRegistry& registry,
                           const PassOptions& options = {});

}  // namespace sidereal::passes
