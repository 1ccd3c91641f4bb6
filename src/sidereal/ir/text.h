#pragma once

#include <string>
#include <string_view>

#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::ir {

/// The graph as text, one line per variable and node, the same bytes for equal graphs. The format
/// is in docs/formats/graph_text.md. Floats are written so that they read back exactly.
std::string to_text(const Graph& graph);

/// One node's line of to_text(), without the newline.
std::string to_text(const Graph& graph, const Node& node);

/// Parses to_text()'s format and verifies the result. Text from anyone: errors name line, column
/// and what was expected; sizes are bounded.
Result<Graph> from_text(std::string_view text, const OpRegistry& registry);

}  // namespace sidereal::ir
