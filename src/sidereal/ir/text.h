#pragma once

#include <string>
#include <string_view>

#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::ir {

/// First line of a text: "sidereal-graph 1", or 2 where elements are written in base64. A reader
/// takes all versions up to its own.
inline constexpr std::string_view kTextMagic = "sidereal-graph";
inline constexpr int kTextVersion = 2;

/// Tensors of numbers with more elements than this are written in base64.
inline constexpr int64_t kDecimalElementsMax = 64;

/// What from_text() takes at most.
inline constexpr size_t kMaxTextNodes = 1'000'000;
inline constexpr size_t kMaxTextFunctions = 100'000;
inline constexpr size_t kMaxTextTensorBytes = size_t{2} << 30;

/// The graph as text, one line per node, the same bytes for equal graphs. Functions stand first,
/// each once, before those that hold them. The format is in docs/formats/graph_text.md. Floats are
/// written so that they read back exactly.
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
