#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/ir/builder.h"
#include "sidereal/ir/function.h"

/// Functions, branches and loops as nodes; see docs/design/0001-functions.md. Values that a body
/// captures are inputs like others. The graph of the builder comes to hold the functions.
namespace sidereal::ops {

/// Every output of `node`, or nothing after an error.
std::vector<ir::Output> outputs_of(const ir::Builder& b, ir::NodeId node);

/// The outputs of `function` for `args`.
ir::NodeId function_call(ir::Builder& b, const ir::FunctionPtr& function,
                         const std::vector<ir::Output>& args, std::string_view name = {});

/// The outputs of `then_branch` where the bool scalar `predicate` is true, else those of
/// `else_branch`. Only the function taken runs. tf.cond.
ir::NodeId branch(ir::Builder& b, ir::Output predicate, const ir::FunctionPtr& then_branch,
                  const ir::FunctionPtr& else_branch, const std::vector<ir::Output>& args,
                  std::string_view name = {});

/// Repeats `body`: (variables, captured) -> (variables, ys) while `cond`: (variables, captured) ->
/// bool scalar holds, at most `maximum_iterations` times (-1: no bound). Outputs: the variables,
/// then each y stacked over the iterations. The shapes of the body's inputs are the invariants.
/// tf.while_loop.
ir::NodeId while_loop(ir::Builder& b, const ir::FunctionPtr& cond, const ir::FunctionPtr& body,
                      const std::vector<ir::Output>& variables,
                      const std::vector<ir::Output>& captured, int64_t maximum_iterations = -1,
                      std::string_view name = {});

/// How a scan() goes.
struct ScanOptions {
  bool reverse = false;  ///< From the last row to the first; ys stand at the row they came from.
  int64_t length = -1;   ///< Number of iterations; to be given when there are no sequences.
};

/// Runs `body`: (variables, row t of each sequence, captured) -> (variables, ys) for every t.
/// Outputs: the variables, then each y stacked: row t is that of iteration t. tf.scan.
ir::NodeId scan(ir::Builder& b, const ir::FunctionPtr& body,
                const std::vector<ir::Output>& variables, const std::vector<ir::Output>& sequences,
                const std::vector<ir::Output>& captured, const ScanOptions& options = {},
                std::string_view name = {});

}  // namespace sidereal::ops
