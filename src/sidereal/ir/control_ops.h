#pragma once

#include <cstddef>
#include <string_view>

namespace sidereal::ir {

/// True for the ops that run functions: FunctionCall, If, While and Scan. (WithGradient only names
/// one.)
inline bool runs_functions(std::string_view op) {
  return op == "FunctionCall" || op == "If" || op == "While" || op == "Scan";
}

/// True for the ops that run functions again and again.
inline bool is_loop(std::string_view op) { return op == "While" || op == "Scan"; }

/// The input of such a node that is the first input of its functions; the others follow.
inline size_t first_argument(std::string_view op) { return op == "If" ? 1 : 0; }

}  // namespace sidereal::ir
