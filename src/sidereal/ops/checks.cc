#include "sidereal/ops/internal.h"
#include "sidereal/ops/rule.h"

/// Ops that look at values while a step runs: checks that end it, and printing.
namespace sidereal::ops::internal {
namespace {

Status grad_check_numerics(GradContext& c) {
  Rule r(c);
  return r.flow(r.op("CheckNumerics", {r.dy()},
                     {{"message", "gradient of " + ir::attr_or<std::string>(c.node.attrs, "message",
                                                                            c.node.name)}}));
}

Status infer_assert(const InferContext& c) { return require_dtype(c, 0, DType::kBool); }

Status infer_print(const InferContext& /*c*/) { return {}; }

}  // namespace

void register_checks(OpRegistry* registry) {
  const ir::AttrSpec summarize = {
      "summarize", "int", false,
      "Elements shown at each end of a dimension; 3 if absent, -1: all."};
  registry->add({.name = "CheckNumerics",
                 .doc = "x; the step ends with an error when an element is NaN or infinite.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"message", "string", false, "What the error begins with."}},
                 .infer = infer_like_first,
                 .gradient = grad_check_numerics});
  registry->add({.name = "Assert",
                 .doc = "(condition, data...): the step ends with an error that shows the data "
                        "unless all elements of the condition hold.",
                 .min_inputs = 1,
                 .max_inputs = -1,
                 .attrs = {{"message", "string", false, "What the error begins with."}, summarize},
                 .infer = infer_assert,
                 .gradient = no_flow,
                 .stateful = true});
  registry->add(
      {.name = "Print",
       .doc = "Writes its inputs to standard error, in one line after a message.",
       .min_inputs = 0,
       .max_inputs = -1,
       .attrs = {{"template", "string", false,
                  "Text in which each {} stands for an input; absent: all after another."},
                 summarize},
       .infer = infer_print,
       .gradient = no_flow,
       .stateful = true});
}

}  // namespace sidereal::ops::internal
