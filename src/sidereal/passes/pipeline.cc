#include "sidereal/passes/pipeline.h"

#include <utility>

#include "sidereal/ir/verify.h"
#include "sidereal/passes/broadcasts.h"
#include "sidereal/passes/concat_products.h"
#include "sidereal/passes/cse.h"
#include "sidereal/passes/expand_embeddings.h"
#include "sidereal/passes/expand_lookups.h"
#include "sidereal/passes/functions.h"
#include "sidereal/passes/fuse.h"
#include "sidereal/passes/gather_at_tables.h"
#include "sidereal/passes/gather_at_variables.h"
#include "sidereal/passes/lookup_layout.h"
#include "sidereal/passes/mixed_precision.h"
#include "sidereal/passes/prune.h"
#include "sidereal/passes/simplify.h"
#include "sidereal/passes/unite_routes.h"

namespace sidereal::passes {

Result<ir::DType> parse_compute_dtype(std::string_view name) {
  if (name == "float32") return ir::DType::kFloat32;
  if (name == "bfloat16") return ir::DType::kBFloat16;
  return base::invalid_argument("compute_dtype is '{}'; it must be float32 or bfloat16", name);
}

Result<StepGraph> run_passes(const ir::Graph& graph, const std::vector<ir::Output>& fetches,
                             const std::vector<ir::NodeId>& targets, const ir::OpRegistry& registry,
                             const PassOptions& options) {
  SR_RETURN_IF_ERROR(ir::verify(graph, registry));
  const auto everywhere = [&](StepGraph from, const StepPass& pass) {
    return apply_everywhere(std::move(from), pass, registry);
  };
  SR_ASSIGN_OR_RETURN(StepGraph step, everywhere({graph, fetches, targets}, prune));
  SR_ASSIGN_OR_RETURN(
      step, everywhere(std::move(step), [&](auto& part) { return inline_calls(part, registry); }));
  SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step), prune));
  SR_ASSIGN_OR_RETURN(step, optimize(std::move(step), registry, options));
  SR_RETURN_IF_ERROR(ir::verify(step.graph, registry));
  return step;
}

Result<StepGraph> optimize(StepGraph step, const ir::OpRegistry& registry,
                           const PassOptions& options) {
  const auto everywhere = [&](StepGraph from, const StepPass& pass) {
    return apply_everywhere(std::move(from), pass, registry);
  };
  SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step), [&](auto& part) {
                        return expand_embeddings(part, registry);
                      }));
  SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step), gather_at_tables));
  SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step),
                                       [&](auto& part) { return expand_lookups(part, registry); }));
  SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step), simplify));
  if (options.evaluate) {
    SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step), [&](auto& part) {
                          return fold_constants(part, registry, options.evaluate);
                        }));
  }
  SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step), [&](auto& part) {
                        return merge_common_subexpressions(part, registry);
                      }));
  const bool lowers = options.compute_dtype == ir::DType::kBFloat16;
  if (lowers) {
    SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step), [&](auto& part) {
                          return lower_products(part, registry);
                        }));
  }
  if (options.fuse) {
    SR_ASSIGN_OR_RETURN(step, unite_routes(step, registry));
    SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step), [&](auto& part) {
                          return drop_broadcasts(part, registry);
                        }));
    SR_ASSIGN_OR_RETURN(
        step, everywhere(std::move(step), [&](auto& part) { return fuse(part, registry); }));
    SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step), [&](auto& part) {
                          return split_products(part, registry);
                        }));
    SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step), [&](auto& part) {
                          return join_products(part, registry);
                        }));
  }
  if (options.fuse && lowers) {
    SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step),
                                         [&](auto& part) { return absorb_casts(part, registry); }));
  }
  SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step), [&](auto& part) {
                        return gather_at_variables(part, registry);
                      }));
  if (options.fuse) {
    SR_ASSIGN_OR_RETURN(step, everywhere(std::move(step), [&](auto& part) {
                          return lay_out_lookups(part, registry);
                        }));
  }
  return step;
}

}  // namespace sidereal::passes
