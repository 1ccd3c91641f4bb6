#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "sidereal/base/strings.h"
#include "sidereal/partition/pull_push.h"

namespace sidereal::partition {
namespace {

/// A line such as "    2 feeds: int64[?], float32[?,8]".
std::string describe(const std::string& one, const std::string& many,
                     const std::vector<ir::TensorSpec>& specs) {
  std::vector<std::string> texts;
  texts.reserve(specs.size());
  for (const ir::TensorSpec& spec : specs) texts.push_back(ir::to_string(spec));
  const std::string& what = specs.size() == 1 ? one : many;
  return fmt::format("    {} {}{}{}\n", specs.size(), what, specs.empty() ? "" : ": ",
                     base::join(texts, ", "));
}

std::string describe_call(size_t call, const RemoteGraph& remote) {
  std::map<std::string, int> ops;
  std::vector<ir::TensorSpec> feeds;
  std::vector<ir::TensorSpec> fetches;
  for (const ir::Node& node : remote.graph.nodes()) {
    if (node.op == "Arg") {
      feeds.push_back(node.outputs[0]);
    } else if (node.op == "Ret") {
      fetches.push_back(remote.graph.spec(node.inputs[0]));
    } else {
      ++ops[node.op];
    }
  }
  std::vector<std::string> counts;
  counts.reserve(ops.size());
  for (const auto& [op, count] : ops) counts.push_back(fmt::format("{} {}", count, op));
  return fmt::format("  round {}, call {}: {}\n", remote.level, call, base::join(counts, ", ")) +
         describe("feed", "feeds", feeds) + describe("fetch", "fetches", fetches);
}

}  // namespace

std::string summary(const PartitionedGraph& partitioned) {
  std::map<ir::Location, std::string> by_location;
  int32_t rounds = 0;
  for (size_t call = 0; call < partitioned.remotes.size(); ++call) {
    const RemoteGraph& remote = partitioned.remotes[call];
    rounds = std::max(rounds, remote.level);
    by_location[remote.location] += describe_call(call, remote);
  }
  std::string out = fmt::format("{} calls in {} rounds to {} locations; {} nodes on the worker\n",
                                partitioned.remotes.size(), rounds, by_location.size(),
                                partitioned.worker.size() - partitioned.remotes.size());
  for (const auto& [location, calls] : by_location) {
    out += ir::to_string(location) + "\n" + calls;
  }
  return out;
}

}  // namespace sidereal::partition
