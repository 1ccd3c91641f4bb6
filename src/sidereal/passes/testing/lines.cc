#include "sidereal/passes/testing/lines.h"

#include <gtest/gtest.h>

#include "sidereal/ir/verify.h"

namespace sidereal::passes {

std::vector<std::string> lines_of(const Result<StepGraph>& step, const ir::OpRegistry& registry,
                                  ShowDtypes show) {
  EXPECT_TRUE(step.ok()) << step.status();
  std::vector<std::string> out;
  if (!step.ok()) return out;
  const Status status = ir::verify(step->graph, registry);
  EXPECT_TRUE(status.ok()) << base::message_of(status);
  for (const ir::Node& node : step->graph.nodes()) {
    if (node.op == "Placeholder" || node.op == "Const") continue;
    std::string line = node.name;
    if (show == ShowDtypes::kYes) {
      line += node.outputs[0].dtype == ir::DType::kBFloat16 ? " b16" : " f32";
    }
    line += " = " + node.op;
    for (const ir::Output& in : node.inputs) line += " " + step->graph.output_name(in);
    const auto* code = ir::find_attr<std::vector<std::string>>(node.attrs, "code");
    if (code != nullptr) {
      for (const std::string& one : *code) line += "; " + one;
    }
    if (ir::attr_or(node.attrs, "relu", false)) line += "; Relu";
    out.push_back(line);
  }
  return out;
}

}  // namespace sidereal::passes
