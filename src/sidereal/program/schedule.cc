#include "sidereal/program/internal/schedule.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <set>
#include <utility>

#include "sidereal/base/check.h"

namespace sidereal::program {
namespace {

using ir::Node;
using ir::NodeId;

/// What runs first among nodes that can run: calls, then what leads to the earliest round, then the
/// order of the graph.
struct Priority {
  bool is_compute = true;
  int32_t round = 0;
  int32_t index = 0;
  friend auto operator<=>(const Priority&, const Priority&) = default;
};

bool is_call(const Node& node) { return node.op == "Call"; }

class Scheduler {
 public:
  Scheduler(const ir::Graph& graph, const std::vector<int32_t>& rounds)
      : graph_(graph),
        sources_(graph.size()),
        readers_(graph.size()),
        priority_(graph.size()),
        unrun_(graph.size(), 0),
        unanswered_(graph.size(), 0),
        answered_(graph.size(), false) {
    find_edges();
    find_priorities(rounds);
  }

  std::vector<Scheduled> run() {
    for (const Node& node : graph_.nodes()) {
      if (unrun_[node.id.value] == 0) make_ready(node.id.value);
    }
    while (!ready_.empty() || !blocked_.empty()) {
      // Wait only when nothing else is left to do.
      if (ready_.empty()) wait_for_sources_of(blocked_.begin()->index);
      const int32_t index = ready_.begin()->index;
      ready_.erase(ready_.begin());
      start(index);
    }
    for (const Node& node : graph_.nodes()) {
      if (is_call(node) && !answered_[node.id.value]) wait_for(node.id.value);
    }
    return std::move(out_);
  }

 private:
  void find_edges() {
    for (const Node& node : graph_.nodes()) {
      std::set<int32_t> sources;
      for (const ir::Output& input : node.inputs) sources.insert(input.node.value);
      for (const NodeId control : node.control_inputs) sources.insert(control.value);
      sources_[node.id.value].assign(sources.begin(), sources.end());
      for (const int32_t source : sources) {
        readers_[source].push_back(node.id.value);
        ++unrun_[node.id.value];
        if (is_call(graph_.nodes()[source])) ++unanswered_[node.id.value];
      }
    }
  }

  void find_priorities(const std::vector<int32_t>& rounds) {
    for (size_t i = graph_.size(); i-- > 0;) {
      const Node& node = graph_.nodes()[i];
      int32_t round = std::numeric_limits<int32_t>::max();
      for (const int32_t reader : readers_[i]) round = std::min(round, priority_[reader].round);
      if (is_call(node)) {
        const auto call = ir::attr_or<int64_t>(node.attrs, "call", -1);
        SR_CHECK(call >= 0 && static_cast<size_t>(call) < rounds.size());
        round = rounds[call];
      }
      priority_[i] = {!is_call(node), round, static_cast<int32_t>(i)};
    }
  }

  void make_ready(int32_t index) {
    (unanswered_[index] == 0 ? ready_ : blocked_).insert(priority_[index]);
  }

  void start(int32_t index) {
    const Node& node = graph_.nodes()[index];
    out_.push_back(
        {is_call(node) ? InstructionKind::kCallStart : InstructionKind::kCompute, node.id});
    for (const int32_t reader : readers_[index]) {
      if (--unrun_[reader] == 0) make_ready(reader);
    }
  }

  void wait_for_sources_of(int32_t index) {
    for (const int32_t source : sources_[index]) {
      if (is_call(graph_.nodes()[source]) && !answered_[source]) wait_for(source);
    }
  }

  void wait_for(int32_t call) {
    answered_[call] = true;
    out_.push_back({InstructionKind::kCallWait, graph_.nodes()[call].id});
    for (const int32_t reader : readers_[call]) {
      // A reader that has not all its sources yet is not among the blocked ones.
      const bool was_blocked = blocked_.erase(priority_[reader]) > 0;
      --unanswered_[reader];
      if (was_blocked) make_ready(reader);
    }
  }

  const ir::Graph& graph_;
  std::vector<std::vector<int32_t>> sources_;
  std::vector<std::vector<int32_t>> readers_;
  std::vector<Priority> priority_;
  std::vector<int32_t> unrun_;       // Sources that have not been started.
  std::vector<int32_t> unanswered_;  // Sources that are calls not yet waited for.
  std::vector<bool> answered_;
  std::set<Priority> ready_;
  std::set<Priority> blocked_;  // Could run but for an answer.
  std::vector<Scheduled> out_;
};

}  // namespace

std::vector<Scheduled> schedule(const ir::Graph& graph, const std::vector<int32_t>& rounds) {
  return Scheduler(graph, rounds).run();
}

}  // namespace sidereal::program
