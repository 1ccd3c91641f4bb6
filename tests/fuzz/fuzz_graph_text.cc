#include "sidereal/base/check.h"
#include "sidereal/ir/text.h"
#include "sidereal/ops/ops.h"
#include "tests/fuzz/fuzz.h"

namespace {

const sidereal::ir::OpRegistry& registry() {
  static const auto* const all = [] {
    auto* made = new sidereal::ir::OpRegistry;
    sidereal::ops::register_all(made);
    return made;
  }();
  return *all;
}

}  // namespace

/// A text that is taken is written as a text that reads as the same graph.
SR_FUZZ_TARGET(graph_text) {
  namespace ir = sidereal::ir;
  const auto graph = ir::from_text(input, registry());
  if (!graph.ok()) return;
  const std::string text = ir::to_text(*graph);
  const auto again = ir::from_text(text, registry());
  SR_CHECK(again.ok(), "{}", sidereal::base::message_of(again.status()));
  SR_CHECK(ir::to_text(*again) == text, "a graph reads back as another one");
}
