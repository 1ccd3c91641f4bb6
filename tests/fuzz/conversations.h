#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/fuzz/call_script.h"

/// What fuzzers of calls begin with: scripts in which everything goes well. For tests.
namespace sidereal::fuzz {

/// A script, and what its calls come to: gRPC's code and the replies of each, in the order in which
/// they are opened.
struct Conversation {
  std::vector<Action> script;
  std::vector<std::pair<int, size_t>> outcomes;
};

/// Of fuzz_session_calls, by name.
std::map<std::string, Conversation> session_conversations();

/// Of fuzz_tensor_pieces: tensors in their pieces.
std::map<std::string, std::string> tensors_in_pieces();

}  // namespace sidereal::fuzz
