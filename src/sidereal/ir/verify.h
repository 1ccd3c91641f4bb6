#pragma once

#include <string_view>

#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::ir {

/// Longest node or function name, in bytes.
inline constexpr size_t kMaxNameBytes = 1024;

/// What is_legal_name() wants, for messages.
inline constexpr std::string_view kNameRule =
    "names are a letter, digit or '.', then letters, digits or any of _ . \\ / > -, at most 1024 "
    "characters";

/// True for `[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*` of at most kMaxNameBytes (TensorFlow's rule for op
/// names).
bool is_legal_name(std::string_view name);

/// Checks a whole graph: names legal and unique, ops known, edges to earlier nodes and existing
/// outputs, attributes and shapes as the schemas say. Functions are checked in the same way, each
/// once. The message names the node and prints it. Ok for every graph a Builder made.
Status verify(const Graph& graph, const OpRegistry& registry);

}  // namespace sidereal::ir
