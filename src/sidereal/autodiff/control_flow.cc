#include "sidereal/autodiff/internal/control_flow.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "sidereal/autodiff/internal/body_gradient.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"

namespace sidereal::autodiff {
namespace {

using ir::CutInput;
using ir::FunctionPtr;
using ir::GradContext;
using ir::Node;
using ir::NodeId;
using ir::Output;

FunctionPtr function_of(const GradContext& c, std::string_view attr) {
  return c.builder.graph().find_function(ir::attr_or<std::string>(c.node.attrs, attr, ""));
}

/// Which outputs have a gradient.
std::vector<bool> valid(const std::vector<Output>& outputs) {
  std::vector<bool> out;
  for (const Output& output : outputs) out.push_back(output.valid());
  return out;
}

/// Lets the node call `functions` (attribute, function) instead of those it has; they return more.
/// Returns the outputs that are new.
Result<std::vector<Output>> extend_node(
    GradContext& c, const std::vector<std::pair<std::string, FunctionPtr>>& functions) {
  ir::Graph& graph = c.builder.graph();
  Node node = graph.node(c.node.id);
  const size_t had = node.outputs.size();
  for (const auto& [attr, function] : functions) {
    const auto before = ir::attr_or<std::string>(node.attrs, attr, attr);
    node.attrs[attr] = graph.hold_function(before, function);
  }
  SR_RETURN_IF_ERROR(ir::infer_node(graph, *c.builder.registry().find(node.op), &node));
  graph.mutable_node(c.node.id) = node;
  std::vector<Output> out;
  for (size_t i = had; i < node.outputs.size(); ++i) {
    out.push_back({c.node.id, static_cast<int32_t>(i)});
  }
  return out;
}

template <class T>
void append(std::vector<T>* to, const std::vector<T>& more) {
  to->insert(to->end(), more.begin(), more.end());
}

Status function_call_gradient(GradContext& c, const std::vector<bool>& wanted) {
  BodyGradient body(function_of(c, "function"), &c.builder.registry());
  SR_RETURN_IF_ERROR(body.run(wanted, valid(c.output_grads)));
  std::vector<Output> results;
  std::vector<size_t> result_of;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i] || !body.input_grad(i).valid()) continue;
    results.push_back(body.input_grad(i));
    result_of.push_back(i);
  }
  if (results.empty()) return {};
  const BodyGradient::Needs needs = body.needs_of(results);
  std::vector<CutInput> cuts;
  std::vector<Output> args;
  for (size_t i = 0; i < needs.inputs.size(); ++i) {
    if (!needs.inputs[i]) continue;
    cuts.push_back(body.cut_input(body.input(i)));
    args.push_back(c.node.inputs[i]);
  }
  std::vector<Output> more;
  for (const Output& record : needs.records) {
    cuts.push_back(body.cut_input(record));
    const int32_t had = body.find_output(record, 0);
    if (had < 0) more.push_back(record);
    // Behind what the call returns now.
    const auto next = static_cast<int32_t>(c.node.outputs.size() + more.size() - 1);
    args.push_back({c.node.id, had < 0 ? next : had});
  }
  if (!more.empty()) {
    SR_ASSIGN_OR_RETURN(const FunctionPtr forward, body.cut_forward(more));
    SR_RETURN_IF_ERROR(extend_node(c, {{"function", forward}}).status());
  }
  for (size_t i = 0; i < c.output_grads.size(); ++i) {
    if (!c.output_grads[i].valid()) continue;
    cuts.push_back(body.cut_input(body.output_grad(i)));
    args.push_back(c.output_grads[i]);
  }
  SR_ASSIGN_OR_RETURN(const FunctionPtr reverse, body.cut_reverse(cuts, results));
  const NodeId call = ops::function_call(c.builder, reverse, args, "call");
  for (size_t i = 0; i < result_of.size(); ++i) {
    (*c.input_grads)[result_of[i]] = {call, static_cast<int32_t>(i)};
  }
  return {};
}

/// The gradient of an If: the reverse functions of its branches take the same inputs, each reads
/// its own.
class IfGradient {
 public:
  IfGradient(GradContext* c, const std::vector<bool>& wanted)
      : c_(*c),
        wanted_(wanted.begin() + 1, wanted.end()),
        bodies_{BodyGradient(function_of(*c, "then_branch"), &c->builder.registry()),
                BodyGradient(function_of(*c, "else_branch"), &c->builder.registry())} {}

  Status run() {
    for (BodyGradient& body : bodies_)
      SR_RETURN_IF_ERROR(body.run(wanted_, valid(c_.output_grads)));
    find_results();
    if (result_of_.empty()) return {};
    for (size_t s = 0; s < 2; ++s) needs_[s] = bodies_[s].needs_of(results_[s]);
    SR_RETURN_IF_ERROR(add_args());
    std::array<FunctionPtr, 2> reverse;
    for (size_t s = 0; s < 2; ++s) {
      SR_ASSIGN_OR_RETURN(reverse[s], bodies_[s].cut_reverse(cuts_[s], results_[s]));
    }
    const NodeId node =
        ops::branch(c_.builder, c_.node.inputs[0], reverse[0], reverse[1], args_, "branch");
    for (size_t i = 0; i < result_of_.size(); ++i) {
      (*c_.input_grads)[result_of_[i] + 1] = {node, static_cast<int32_t>(i)};
    }
    return {};
  }

 private:
  /// An input that gets a gradient in one branch gets zeros in the other.
  void find_results() {
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (!wanted_[i]) continue;
      if (!bodies_[0].input_grad(i).valid() && !bodies_[1].input_grad(i).valid()) continue;
      result_of_.push_back(i);
      for (size_t s = 0; s < 2; ++s) {
        const Output grad = bodies_[s].input_grad(i);
        results_[s].push_back(grad.valid() ? grad : bodies_[s].zeros_like_input(i));
      }
    }
  }

  /// `value` of branch `side` is an input of both reverse functions; the other does not read it.
  void add_cut(size_t side, Output value) {
    const CutInput mine = bodies_[side].cut_input(value);
    cuts_[side].push_back(mine);
    // It gets whatever stands for what was not calculated.
    cuts_[1 - side].push_back({Output{}, {mine.spec.dtype, ir::Shape::unknown_rank()}});
  }

  Status add_args() {
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (!needs_[0].inputs[i] && !needs_[1].inputs[i]) continue;
      for (size_t s = 0; s < 2; ++s) cuts_[s].push_back(bodies_[s].cut_input(bodies_[s].input(i)));
      args_.push_back(c_.node.inputs[i + 1]);
    }
    if (!needs_[0].records.empty() || !needs_[1].records.empty()) {
      SR_RETURN_IF_ERROR(keep_records());
    }
    for (size_t i = 0; i < c_.output_grads.size(); ++i) {
      if (!c_.output_grads[i].valid()) continue;
      for (size_t s = 0; s < 2; ++s) {
        cuts_[s].push_back(bodies_[s].cut_input(bodies_[s].output_grad(i)));
      }
      args_.push_back(c_.output_grads[i]);
    }
    return {};
  }

  /// Each branch returns what it is to keep and, for what the other is to keep, a placeholder.
  Status keep_records() {
    std::array<std::vector<Output>, 2> more;
    for (size_t side = 0; side < 2; ++side) {
      for (const Output& record : needs_[side].records) {
        more[side].push_back(record);
        const ir::Tensor nothing =
            ir::Tensor::zeros(bodies_[side].graph().spec(record).dtype, ir::Shape());
        more[1 - side].push_back(
            ops::constant(bodies_[1 - side].builder(), nothing, "not_calculated"));
        add_cut(side, record);
      }
    }
    SR_ASSIGN_OR_RETURN(const FunctionPtr yes, bodies_[0].cut_forward(more[0]));
    SR_ASSIGN_OR_RETURN(const FunctionPtr no, bodies_[1].cut_forward(more[1]));
    SR_ASSIGN_OR_RETURN(const std::vector<Output> kept,
                        extend_node(c_, {{"then_branch", yes}, {"else_branch", no}}));
    append(&args_, kept);
    return {};
  }

  GradContext& c_;
  std::vector<bool> wanted_;  // By argument of the branches.
  std::array<BodyGradient, 2> bodies_;
  std::array<BodyGradient::Needs, 2> needs_;
  std::array<std::vector<Output>, 2> results_;
  std::array<std::vector<CutInput>, 2> cuts_;
  std::vector<size_t> result_of_;
  std::vector<Output> args_;
};

/// The gradient of a While or Scan: a Scan the other way. See docs/design/0001-functions.md.
class LoopGradient {
 public:
  LoopGradient(GradContext* c, const std::vector<bool>& wanted)
      : c_(*c),
        b_(c->builder),
        function_(function_of(*c, "body")),
        wanted_(wanted),
        num_variables_(ir::attr_or<int64_t>(c->node.attrs, "variables", 0)),
        num_sequences_(ir::attr_or<int64_t>(c->node.attrs, "sequences", 0)),
        body_(function_, &c->builder.registry()) {}

  Status run() {
    find_active();
    SR_RETURN_IF_ERROR(body_.run(active_, given_));
    SR_RETURN_IF_ERROR(add_sums());
    add_results();
    if (results_.empty()) return {};
    needs_ = body_.needs_of(results_);
    SR_RETURN_IF_ERROR(add_sequences());
    add_captured();
    std::vector<CutInput> cuts = state_cuts_;
    append(&cuts, sequence_cuts_);
    append(&cuts, captured_cuts_);
    SR_ASSIGN_OR_RETURN(const FunctionPtr reverse, body_.cut_reverse(cuts, results_));
    ops::ScanOptions options;
    options.reverse = !ir::attr_or<bool>(c_.node.attrs, "reverse", false);
    if (sequences_.empty()) options.length = ir::attr_or<int64_t>(c_.node.attrs, "length", -1);
    const NodeId node = ops::scan(b_, reverse, state_, sequences_, captured_, options, "scan");
    for (size_t i = 0; i < result_of_.size(); ++i) {
      const size_t input = result_of_[i];
      if (wanted_[input]) (*c_.input_grads)[input] = {node, static_cast<int32_t>(i)};
    }
    return {};
  }

 private:
  [[nodiscard]] bool is_variable(size_t input) const { return input < num_variables_; }
  [[nodiscard]] bool is_sequence(size_t input) const {
    return input >= num_variables_ && input < num_variables_ + num_sequences_;
  }

  /// A variable is active when what is wanted reaches it, in the first or a later iteration.
  void find_active() {
    active_ = wanted_;
    std::vector<bool> reached;
    for (bool changed = true; changed;) {
      changed = false;
      reached = reached_outputs(*function_, active_);
      for (size_t i = 0; i < num_variables_; ++i) {
        if (!reached[i] || active_[i]) continue;
        active_[i] = true;
        changed = true;
      }
    }
    // A variable's gradient is carried even where the body does not pass the variable on: it is
    // that of the iteration's result.
    given_.assign(function_->num_outputs(), false);
    for (size_t i = 0; i < num_variables_; ++i) given_[i] = active_[i];
    for (size_t i = num_variables_; i < given_.size(); ++i) {
      given_[i] = reached[i] && c_.output_grads[i].valid();
    }
  }

  void add_state(CutInput cut, Output first, Output result, size_t input) {
    state_cuts_.push_back(std::move(cut));
    state_.push_back(first);
    results_.push_back(result);
    result_of_.push_back(input);
  }

  /// The variables of the reverse loop: gradients of variables, sums of gradients of captured ones.
  Status add_sums() {
    for (size_t i = 0; i < num_variables_; ++i) {
      if (!active_[i]) continue;
      const Output here{c_.node.id, static_cast<int32_t>(i)};
      const Output first =
          c_.output_grads[i].valid() ? c_.output_grads[i] : ops::zeros_like(b_, here);
      const Output grad = body_.input_grad(i);
      CutInput cut{body_.output_grad(i), function_->input(i)};
      add_state(cut, first, grad.valid() ? grad : body_.zeros_like_input(i), i);
    }
    for (size_t i = num_variables_ + num_sequences_; i < wanted_.size(); ++i) {
      if (!wanted_[i] || !body_.input_grad(i).valid()) continue;
      SR_ASSIGN_OR_RETURN(const Output sum, body_.add_input(function_->input(i)));
      add_state(body_.cut_input(sum), ops::zeros_like(b_, c_.node.inputs[i]),
                ops::add(body_.builder(), sum, body_.input_grad(i)), i);
    }
    return {};
  }

  /// What stands at every row of a sequence gets its gradient there.
  void add_results() {
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (!is_sequence(i) || !wanted_[i] || !body_.input_grad(i).valid()) continue;
      results_.push_back(body_.input_grad(i));
      result_of_.push_back(i);
    }
  }

  void add_sequence(Output stacked, CutInput cut) {
    sequences_.push_back(stacked);
    sequence_cuts_.push_back(std::move(cut));
  }

  Status add_sequences() {
    for (size_t i = num_variables_; i < given_.size(); ++i) {
      if (given_[i]) add_sequence(c_.output_grads[i], body_.cut_input(body_.output_grad(i)));
    }
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (is_sequence(i) && needs_.inputs[i]) {
        add_sequence(c_.node.inputs[i], body_.cut_input(body_.input(i)));
      }
    }
    SR_RETURN_IF_ERROR(add_records());
    if (sequences_.empty() && num_sequences_ > 0) {
      // Read by nobody; says how many rows there are.
      add_sequence(c_.node.inputs[num_variables_], body_.cut_input(body_.input(num_variables_)));
    }
    return {};
  }

  /// What the forward loop has to keep of each iteration.
  Status add_records() {
    std::vector<Output> records;
    for (size_t i = 0; i < num_variables_; ++i) {
      if (needs_.inputs[i]) records.push_back(body_.input(i));
    }
    append(&records, needs_.records);
    const bool count_only = records.empty() && sequences_.empty() && c_.node.op == "While";
    if (count_only) {
      // Nothing but the number of iterations is needed; a stack of anything has it.
      records.push_back(
          ops::constant(body_.builder(), ir::Tensor::scalar<bool>(true), "iteration"));
    }
    std::vector<Output> more;
    for (const Output& record : records) {
      if (body_.find_output(record, num_variables_) < 0) more.push_back(record);
    }
    std::vector<Output> kept;
    if (!more.empty()) {
      SR_ASSIGN_OR_RETURN(const FunctionPtr forward, body_.cut_forward(more));
      SR_ASSIGN_OR_RETURN(kept, extend_node(c_, {{"body", forward}}));
    }
    size_t next = 0;
    for (const Output& record : records) {
      const int32_t had = body_.find_output(record, num_variables_);
      const Output stacked = had < 0 ? kept[next++] : Output{c_.node.id, had};
      add_sequence(stacked, body_.cut_input(record));
    }
    return {};
  }

  void add_captured() {
    for (size_t i = num_variables_ + num_sequences_; i < wanted_.size(); ++i) {
      if (!needs_.inputs[i]) continue;
      captured_.push_back(c_.node.inputs[i]);
      captured_cuts_.push_back(body_.cut_input(body_.input(i)));
    }
  }

  GradContext& c_;
  ir::Builder& b_;
  FunctionPtr function_;
  std::vector<bool> wanted_;  // By input.
  size_t num_variables_;
  size_t num_sequences_;
  BodyGradient body_;
  BodyGradient::Needs needs_;
  std::vector<bool> active_;       // By input: takes a gradient in some iteration.
  std::vector<bool> given_;        // By output of the body.
  std::vector<Output> results_;    // Of the reverse body.
  std::vector<size_t> result_of_;  // By output of the reverse Scan: whose gradient it is.
  std::vector<Output> state_;      // Inputs of the reverse Scan, and what they are in the body.
  std::vector<CutInput> state_cuts_;
  std::vector<Output> sequences_;
  std::vector<CutInput> sequence_cuts_;
  std::vector<Output> captured_;
  std::vector<CutInput> captured_cuts_;
};

}  // namespace

bool is_control_flow(std::string_view op) {
  return op == "FunctionCall" || op == "If" || op == "While" || op == "Scan";
}

Status add_control_gradient(GradContext& c, const std::vector<bool>& wanted) {
  if (c.node.op == "FunctionCall") return function_call_gradient(c, wanted);
  if (c.node.op == "If") return IfGradient(&c, wanted).run();
  return LoopGradient(&c, wanted).run();
}

}  // namespace sidereal::autodiff
