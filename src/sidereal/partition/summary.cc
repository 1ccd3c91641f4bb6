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
  std::string marks;
  if (remote.async_push) marks += ", asynchronous";
  if (remote.ahead) marks += ", prefetched";
  if (remote.waits) marks += ", may wait";
  if (!remote.within.empty()) marks += fmt::format(", in '{}'", remote.within);
  return fmt::format("  round {}, call {}{}: {}\n", remote.level, call, marks,
                     base::join(counts, ", ")) +
         describe("feed", "feeds", feeds) + describe("fetch", "fetches", fetches);
}

bool gives_results(const RemoteGraph& remote) {
  return std::any_of(remote.graph.nodes().begin(), remote.graph.nodes().end(),
                     [](const ir::Node& node) { return node.op == "Ret"; });
}

}  // namespace

std::string summary(const PartitionedGraph& partitioned) {
  std::map<std::string, std::string> by_device;
  std::map<std::string, int32_t> rounds_of;
  int32_t rounds = 0;
  int pulls = 0;  // What a step begins with.
  int ahead = 0;
  for (size_t call = 0; call < partitioned.remotes.size(); ++call) {
    const RemoteGraph& remote = partitioned.remotes[call];
    if (remote.within.empty()) rounds = std::max(rounds, remote.level);
    int32_t& inner = rounds_of[remote.within];
    inner = std::max(inner, remote.level);
    by_device[remote.device] += describe_call(call, remote);
    if (remote.within.empty() && remote.level == 1 && gives_results(remote)) ++pulls;
    if (remote.ahead) ++ahead;
  }
  const auto calls = static_cast<size_t>(
      std::count_if(partitioned.worker.nodes().begin(), partitioned.worker.nodes().end(),
                    [](const ir::Node& node) { return node.op == "Call"; }));
  std::string out = fmt::format("{} calls in {} rounds to {} devices; {} nodes on the driver\n",
                                partitioned.remotes.size(), rounds, by_device.size(),
                                partitioned.worker.size() - calls);
  if (ahead > 0) out += fmt::format("prefetched: {} of {} pulls\n", ahead, pulls);
  for (const auto& [within, count] : rounds_of) {
    if (!within.empty()) out += fmt::format("rounds in each run of '{}': {}\n", within, count);
  }
  for (const auto& [device, calls] : by_device) out += fmt::format("{}\n{}", device, calls);
  return out;
}

}  // namespace sidereal::partition
