#pragma once

#include <string>
#include <string_view>

#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::ir {

/// First line of a text: "sidereal-graph 1". A reader takes its own version only.
inline constexpr std::string_view kTextMagic = "sidereal-graph";
inline constexpr int kTextVersion = 1;

/// What from_text() takes at most.
inline constexpr size_t kMaxTextNodes = 1'000'000;
inline constexpr size_t kMaxTextVariables = 100'000;
inline constexpr size_t kMaxTextFunctions = 100'000;
inline constexpr size_t kMaxTextTensorBytes = size_t{64} << 20;

/// The graph as text, one line per variable and node, the same bytes for equal graphs. Functions
/// stand first, each once, before those that hold them. The format is in
/// docs/formats/graph_text.md. Floats are written so that they read back exactly.
std::string to_text(const Graph& graph);

/// A function as to_text() writes it, after those it holds. Without the first line of a graph.
std::string to_text(const Function& function);

/// One node's line of to_text(), without the newline.
std::string to_text(const Graph& graph, const Node& node);

/// Attributes as to_text() writes them: "{axis=1, keep_dims=true}", or "" when there are none.
std::string to_text(const AttrMap& attrs);

/// Parses to_text()'s format and verifies the result. Text from anyone: errors name line, column
/// and what was expected; sizes are bounded.
Result<Graph> from_text(std::string_view text, const OpRegistry& registry);

}  // namespace sidereal::ir
