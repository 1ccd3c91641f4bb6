#include "sidereal/ops/control.h"

#include <utility>

#include "sidereal/ops/internal.h"

/// Functions, branches and loops.
namespace sidereal::ops {

using ir::FunctionPtr;
using ir::NodeId;
using ir::Output;

namespace internal {
namespace {

/// The function that attribute `attr` names; infer_node() has checked that it is there.
Result<FunctionPtr> function_of(const InferContext& c, std::string_view attr) {
  SR_ASSIGN_OR_RETURN(const std::string name, ir::get_attr<std::string>(c.attrs, attr));
  FunctionPtr found = c.graph.find_function(name);
  if (found == nullptr) return base::not_found("the graph holds no function '{}'", name);
  return found;
}

/// An error unless a value of `given` may stand where `wanted` is said.
Status check_fit(const TensorSpec& given, const TensorSpec& wanted, std::string_view what,
                 std::string_view hint = {}) {
  if (given.dtype == wanted.dtype && merge_shapes(given.shape, wanted.shape).ok()) return {};
  return base::invalid_argument("{} is {}, but {} is needed{}", what, ir::to_string(given),
                                ir::to_string(wanted), hint);
}

/// Ok when inputs [first, ...) of the node may be those of `function`.
Status check_args(const InferContext& c, size_t first, const ir::Function& function,
                  std::string_view what) {
  const size_t given = c.inputs.size() - first;
  if (given != function.num_inputs()) {
    return base::invalid_argument("the {} takes {} inputs; it gets {}", what, function.num_inputs(),
                                  given);
  }
  for (size_t i = 0; i < given; ++i) {
    SR_RETURN_IF_ERROR(check_fit(c.inputs[first + i], function.input(i),
                                 fmt::format("input {} of the {}", i, what)));
  }
  return {};
}

Status check_flag(const TensorSpec& spec, std::string_view what) {
  return check_fit(spec, {DType::kBool, Shape()}, what);
}

/// What is known of a value that is either `a` or `b`.
Shape either_shape(const Shape& a, const Shape& b) {
  if (!a.has_rank() || !b.has_rank() || a.rank() != b.rank()) return Shape::unknown_rank();
  Shape out = a;
  for (int i = 0; i < a.rank(); ++i) {
    if (a.dim(i) != b.dim(i)) out.set_dim(i, -1);
  }
  return out;
}

Status infer_function_call(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const FunctionPtr function, function_of(c, "function"));
  SR_RETURN_IF_ERROR(check_args(c, 0, *function, "function"));
  for (size_t i = 0; i < function->num_outputs(); ++i) c.outputs->push_back(function->output(i));
  return {};
}

Status infer_if(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const FunctionPtr yes, function_of(c, "then_branch"));
  SR_ASSIGN_OR_RETURN(const FunctionPtr no, function_of(c, "else_branch"));
  SR_RETURN_IF_ERROR(check_flag(c.inputs[0], "the predicate"));
  SR_RETURN_IF_ERROR(check_args(c, 1, *yes, "then branch"));
  SR_RETURN_IF_ERROR(check_args(c, 1, *no, "else branch"));
  if (yes->num_outputs() != no->num_outputs()) {
    return base::invalid_argument("the branches return {} and {} values; they must return the same",
                                  yes->num_outputs(), no->num_outputs());
  }
  for (size_t i = 0; i < yes->num_outputs(); ++i) {
    const TensorSpec& a = yes->output(i);
    const TensorSpec& b = no->output(i);
    if (a.dtype != b.dtype) {
      return base::invalid_argument("output {} is {} in one branch and {} in the other", i,
                                    ir::to_string(a), ir::to_string(b));
    }
    c.outputs->push_back({a.dtype, either_shape(a.shape, b.shape)});
  }
  return {};
}

/// The attribute `name`, a count of at most `max`.
Result<size_t> count_attr(const InferContext& c, std::string_view name, size_t max) {
  SR_ASSIGN_OR_RETURN(const int64_t count, ir::get_attr<int64_t>(c.attrs, name));
  if (count >= 0 && static_cast<size_t>(count) <= max) return static_cast<size_t>(count);
  return base::invalid_argument("attribute '{}' is {}; there are {} inputs", name, count,
                                c.inputs.size());
}

/// Checks the variables of a loop and puts its outputs: variables, then stacks of `length` rows.
Status put_loop_outputs(const InferContext& c, const ir::Function& body, size_t variables,
                        int64_t length) {
  if (body.num_outputs() < variables) {
    return base::invalid_argument("the body returns {} values for {} loop variables",
                                  body.num_outputs(), variables);
  }
  for (size_t i = 0; i < variables; ++i) {
    SR_RETURN_IF_ERROR(check_fit(body.output(i), body.input(i),
                                 fmt::format("loop variable {} after an iteration", i),
                                 "; name the extents that change in shape_invariants"));
    c.outputs->push_back(body.input(i));
  }
  for (size_t i = variables; i < body.num_outputs(); ++i) {
    const TensorSpec& row = body.output(i);
    if (!row.shape.has_rank()) {
      c.outputs->push_back(row);
      continue;
    }
    Shape stacked{length};
    for (const int64_t extent : row.shape.dims()) stacked.append(extent);
    c.outputs->push_back({row.dtype, std::move(stacked)});
  }
  return {};
}

Status infer_while(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const FunctionPtr cond, function_of(c, "cond"));
  SR_ASSIGN_OR_RETURN(const FunctionPtr body, function_of(c, "body"));
  SR_ASSIGN_OR_RETURN(const size_t variables, count_attr(c, "variables", c.inputs.size()));
  if (ir::attr_or<int64_t>(c.attrs, "maximum_iterations", -1) < -1) {
    return base::invalid_argument("maximum_iterations is negative; leave it out for no bound");
  }
  SR_RETURN_IF_ERROR(check_args(c, 0, *body, "body"));
  SR_RETURN_IF_ERROR(check_args(c, 0, *cond, "condition"));
  if (cond->num_outputs() != 1) {
    return base::invalid_argument("the condition returns {} values; it must return one bool",
                                  cond->num_outputs());
  }
  SR_RETURN_IF_ERROR(check_flag(cond->output(0), "the condition"));
  for (size_t i = 0; i < variables; ++i) {
    SR_RETURN_IF_ERROR(check_fit(body->input(i), cond->input(i),
                                 fmt::format("loop variable {} of the condition", i)));
  }
  return put_loop_outputs(c, *body, variables, -1);
}

/// What the body sees of sequence `i`, whose rows it gets one by one; `length` takes its extent.
Result<TensorSpec> row_of(const InferContext& c, size_t i, int64_t* length) {
  const TensorSpec& sequence = c.inputs[i];
  if (!sequence.shape.has_rank()) return sequence;
  if (sequence.shape.rank() == 0) {
    return base::invalid_argument("input {} is a scalar; a sequence has rows", i);
  }
  const Result<int64_t> merged = merge_extent(*length, sequence.shape.dim(0));
  if (!merged.ok()) {
    return base::invalid_argument("input {} has {} rows where another sequence, or length, has {}",
                                  i, sequence.shape.dim(0), *length);
  }
  *length = *merged;
  return TensorSpec{sequence.dtype, Shape(sequence.shape.dims().subspan(1))};
}

Status infer_scan(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const FunctionPtr body, function_of(c, "body"));
  SR_ASSIGN_OR_RETURN(const size_t variables, count_attr(c, "variables", c.inputs.size()));
  SR_ASSIGN_OR_RETURN(const size_t sequences,
                      count_attr(c, "sequences", c.inputs.size() - variables));
  auto length = ir::attr_or<int64_t>(c.attrs, "length", -1);
  if (length < -1 || length > ir::kMaxElements || (length < 0 && sequences == 0)) {
    return base::invalid_argument("length is {}; without sequences it must be given", length);
  }
  if (body->num_inputs() != c.inputs.size()) {
    return base::invalid_argument("the body takes {} inputs; it gets {}", body->num_inputs(),
                                  c.inputs.size());
  }
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    TensorSpec given = c.inputs[i];
    if (i >= variables && i < variables + sequences) {
      SR_ASSIGN_OR_RETURN(given, row_of(c, i, &length));
    }
    SR_RETURN_IF_ERROR(check_fit(given, body->input(i), fmt::format("input {} of the body", i)));
  }
  return put_loop_outputs(c, *body, variables, length);
}

/// Stands where rules stand; autodiff builds these gradients, which need more than one rule sees.
Status gradient_elsewhere(GradContext& /*c*/) {
  return base::unimplemented(
      "the gradient of control flow is made by autodiff::gradients, not by a rule of the op");
}

ir::AttrSpec function_attr(std::string name, std::string doc) {
  return {std::move(name), "function", true, std::move(doc)};
}

}  // namespace

void register_control(OpRegistry* registry) {
  const ir::AttrSpec variables = {"variables", "int", true, "How many inputs are loop variables."};
  registry->add({.name = "FunctionCall",
                 .doc = "The outputs of a function for the inputs.",
                 .max_inputs = -1,
                 .attrs = {function_attr("function", "What is called.")},
                 .infer = infer_function_call,
                 .gradient = gradient_elsewhere});
  registry->add({.name = "If",
                 .doc = "(predicate, args) -> the outputs of one of two functions for args.",
                 .min_inputs = 1,
                 .max_inputs = -1,
                 .attrs = {function_attr("then_branch", "Runs where the predicate is true."),
                           function_attr("else_branch", "Runs where it is false.")},
                 .infer = infer_if,
                 .gradient = gradient_elsewhere});
  registry->add({.name = "While",
                 .doc = "(variables, captured) -> the variables after the last iteration, and what "
                        "else the body returned, stacked over the iterations.",
                 .max_inputs = -1,
                 .attrs = {function_attr("cond", "(variables, captured) -> go on?"),
                           function_attr("body", "(variables, captured) -> (variables, ys)."),
                           variables,
                           {"maximum_iterations", "int", false, "At most so many; -1: no bound."}},
                 .infer = infer_while,
                 .gradient = gradient_elsewhere});
  registry->add({.name = "Scan",
                 .doc = "(variables, sequences, captured) -> the variables after the last row of "
                        "the sequences, and what else the body returned, stacked over the rows.",
                 .max_inputs = -1,
                 .attrs = {function_attr("body", "(variables, rows, captured) -> (variables, ys)."),
                           variables,
                           {"sequences", "int", true, "How many inputs are given row by row."},
                           {"reverse", "bool", false, "Begin with the last row."},
                           {"length", "int", false, "Rows; needed when there are no sequences."}},
                 .infer = infer_scan,
                 .gradient = gradient_elsewhere});
}

}  // namespace internal

std::vector<Output> outputs_of(const ir::Builder& b, NodeId node) {
  std::vector<Output> out;
  if (!node.valid()) return out;
  for (int32_t i = 0; b.spec({node, i}).dtype != ir::DType::kInvalid; ++i) {
    out.push_back({node, i});
  }
  return out;
}

NodeId function_call(ir::Builder& b, const FunctionPtr& function, const std::vector<Output>& args,
                     std::string_view name) {
  const std::string held = b.graph().hold_function(name.empty() ? "function" : name, function);
  return b.add_node("FunctionCall", args, {{"function", held}}, {}, name);
}

NodeId branch(ir::Builder& b, Output predicate, const FunctionPtr& then_branch,
              const FunctionPtr& else_branch, const std::vector<Output>& args,
              std::string_view name) {
  const std::string base(name.empty() ? "If" : name);
  ir::AttrMap attrs = {{"then_branch", b.graph().hold_function(base + "/then", then_branch)},
                       {"else_branch", b.graph().hold_function(base + "/else", else_branch)}};
  std::vector<Output> inputs = {predicate};
  inputs.insert(inputs.end(), args.begin(), args.end());
  return b.add_node("If", inputs, std::move(attrs), {}, name);
}

NodeId while_loop(ir::Builder& b, const FunctionPtr& cond, const FunctionPtr& body,
                  const std::vector<Output>& variables, const std::vector<Output>& captured,
                  int64_t maximum_iterations, std::string_view name) {
  const std::string base(name.empty() ? "While" : name);
  ir::AttrMap attrs = {{"cond", b.graph().hold_function(base + "/cond", cond)},
                       {"body", b.graph().hold_function(base + "/body", body)},
                       {"variables", static_cast<int64_t>(variables.size())}};
  if (maximum_iterations >= 0) attrs["maximum_iterations"] = maximum_iterations;
  std::vector<Output> inputs = variables;
  inputs.insert(inputs.end(), captured.begin(), captured.end());
  return b.add_node("While", inputs, std::move(attrs), {}, name);
}

NodeId scan(ir::Builder& b, const FunctionPtr& body, const std::vector<Output>& variables,
            const std::vector<Output>& sequences, const std::vector<Output>& captured,
            const ScanOptions& options, std::string_view name) {
  const std::string base(name.empty() ? "Scan" : name);
  ir::AttrMap attrs = {{"body", b.graph().hold_function(base + "/body", body)},
                       {"variables", static_cast<int64_t>(variables.size())},
                       {"sequences", static_cast<int64_t>(sequences.size())}};
  if (options.reverse) attrs["reverse"] = true;
  if (options.length >= 0) attrs["length"] = options.length;
  std::vector<Output> inputs = variables;
  inputs.insert(inputs.end(), sequences.begin(), sequences.end());
  inputs.insert(inputs.end(), captured.begin(), captured.end());
  return b.add_node("Scan", inputs, std::move(attrs), {}, name);
}

}  // namespace sidereal::ops
