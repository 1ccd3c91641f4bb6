#include "sidereal/passes/gather_at_variables.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/passes/internal/rewrite.h"

namespace sidereal::passes {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Output;

/// Which nodes of a graph run after some others, through data and control edges.
class Followers {
 public:
  /// Of `sources`, each of which is there once.
  Followers(const ir::Graph& graph, std::vector<NodeId> sources) : sources_(std::move(sources)) {
    std::sort(sources_.begin(), sources_.end());
    const size_t words = (sources_.size() + 63) / 64;
    bits_.assign(words, std::vector<uint64_t>(graph.size()));
    for (size_t s = 0; s < sources_.size(); ++s) {
      bits_[s / 64][sources_[s].value] |= uint64_t{1} << (s % 64);
    }
    // Every node follows what it reads.
    for (std::vector<uint64_t>& word : bits_) {
      for (const Node& node : graph.nodes()) {
        uint64_t& mine = word[node.id.value];
        for (const Output& input : node.inputs) mine |= word[input.node.value];
        for (const NodeId control : node.control_inputs) mine |= word[control.value];
      }
    }
  }

  /// Whether `node` runs after `source`, which is one of the sources.
  [[nodiscard]] bool follows(NodeId node, NodeId source) const {
    const auto at = std::lower_bound(sources_.begin(), sources_.end(), source) - sources_.begin();
    const uint64_t word = bits_[static_cast<size_t>(at) / 64][node.value];
    return node != source && (word >> (at % 64) & 1) != 0;
  }

 private:
  std::vector<NodeId> sources_;
  std::vector<std::vector<uint64_t>> bits_;  // By 64 sources, by node.
};

bool takes_segments(const Node& node) {
  return node.op == "SparseSegmentSum" || node.op == "SparseSegmentMean" ||
         node.op == "SparseSegmentSqrtN";
}

class VariableGatherer {
 public:
  VariableGatherer(const StepGraph& step, const ir::OpRegistry& registry)
      : step_(step), registry_(registry), rewriter_(step.graph) {}

  Result<StepGraph> run() {
    find_reads();
    if (reads_.empty()) return step_;
    choose();
    for (const Node& node : step_.graph.nodes()) {
      SR_RETURN_IF_ERROR(
          base::with_context(rewrite(node), fmt::format("node '{}' ({})", node.name, node.op)));
    }
    return rewriter_.finish(step_);
  }

 private:
  /// A VariableRead of which rows are taken.
  struct Read {
    std::vector<NodeId> gathers;  ///< Those that take rows in the same place.
    bool has_others = false;      ///< Readers of the whole value.
  };

  /// Tells the variables of a graph apart, as far as their handles do.
  [[nodiscard]] std::string key_of(Output handle) const {
    const Node& maker = step_.graph.node(handle.node);
    if (maker.op != "Variable") return fmt::format("{}:{}", handle.node.value, handle.index);
    return fmt::format("{}|{}|{}", maker.device,
                       ir::attr_or<std::string>(maker.attrs, "container", ""),
                       ir::attr_or<std::string>(maker.attrs, "shared_name", ""));
  }

  /// Whether `node` takes rows of its input 0 alone.
  [[nodiscard]] bool takes_rows(const Node& node, const Node& read) const {
    const bool is_gather = node.op == "Gather" &&
                           ir::attr_or<int64_t>(node.attrs, "axis", 0) == 0 &&
                           ir::attr_or<int64_t>(node.attrs, "batch_dims", 0) == 0;
    if (!is_gather && (!takes_segments(node) || node.attrs.contains("gathered"))) return false;
    const Output value = {read.id, 0};
    return same_place(node, read) && node.inputs[0] == value &&
           std::count(node.inputs.begin(), node.inputs.end(), value) == 1;
  }

  void find_reads() {
    const ir::Graph& graph = step_.graph;
    std::map<NodeId, Read> all;
    for (const Node& node : graph.nodes()) {
      if (node.op == "VariableRead") all[node.id];
      for (const Output& input : node.inputs) {
        const auto at = all.find(input.node);
        if (at == all.end()) continue;
        if (takes_rows(node, graph.node(input.node))) {
          at->second.gathers.push_back(node.id);
        } else {
          at->second.has_others = true;
        }
      }
    }
    for (const Output& fetch : step_.fetches) {
      if (const auto at = all.find(fetch.node); at != all.end()) at->second.has_others = true;
    }
    for (const NodeId target : step_.targets) {
      if (const auto at = all.find(target); at != all.end()) at->second.has_others = true;
    }
    for (auto& [id, read] : all) {
      if (!read.gathers.empty()) reads_.emplace(id, std::move(read));
    }
  }

  /// The nodes that may change each variable of reads_.
  [[nodiscard]] std::map<std::string, std::vector<NodeId>> find_changes() const {
    std::map<std::string, std::vector<NodeId>> changes;
    for (const auto& [id, read] : reads_) changes[key_of(step_.graph.node(id).inputs[0])];
    for (const Node& node : step_.graph.nodes()) {
      if (node.op == "VariableRead" || node.op == "VariableIsInitialized") continue;
      for (const Output& input : node.inputs) {
        if (step_.graph.spec(input).dtype != ir::DType::kString) continue;
        const auto at = changes.find(key_of(input));
        if (at == changes.end()) continue;
        if (at->second.empty() || at->second.back() != node.id) at->second.push_back(node.id);
      }
    }
    return changes;
  }

  /// Decides which gathers go to the variable, and what must wait for them.
  void choose() {
    const auto changes = find_changes();
    std::vector<NodeId> sources;
    for (const auto& [id, read] : reads_) {
      const std::vector<NodeId>& mine = changes.at(key_of(step_.graph.node(id).inputs[0]));
      if (mine.empty()) continue;
      sources.push_back(id);
      sources.insert(sources.end(), read.gathers.begin(), read.gathers.end());
      sources.insert(sources.end(), mine.begin(), mine.end());
    }
    std::sort(sources.begin(), sources.end());
    sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
    const Followers followers(step_.graph, std::move(sources));
    for (const auto& [id, read] : reads_) {
      choose(id, read, changes.at(key_of(step_.graph.node(id).inputs[0])), followers);
    }
  }

  void choose(NodeId id, const Read& read, const std::vector<NodeId>& changes,
              const Followers& followers) {
    std::vector<NodeId> fused;
    std::vector<std::pair<NodeId, NodeId>> edges;
    // All readers of one value see the same: a change comes before all of them or after all.
    const auto comes_before = [&](NodeId reader, NodeId change) {
      if (followers.follows(change, reader)) return true;
      if (followers.follows(reader, change) || change < reader) return false;
      edges.emplace_back(reader, change);
      return true;
    };
    const bool is_only = read.gathers.size() == 1 && !read.has_others;
    const auto may_follow = [&](NodeId gather, NodeId change) {
      if (followers.follows(id, change)) return true;
      return (is_only && !followers.follows(change, id)) || comes_before(gather, change);
    };
    for (const NodeId gather : read.gathers) {
      const size_t before = edges.size();
      if (std::all_of(changes.begin(), changes.end(),
                      [&](NodeId change) { return may_follow(gather, change); })) {
        fused.push_back(gather);
      } else {
        edges.resize(before);
      }
    }
    const bool stays = read.has_others || fused.size() < read.gathers.size();
    const bool is_first = std::all_of(changes.begin(), changes.end(), [&](NodeId change) {
      return followers.follows(id, change) || comes_before(id, change);
    });
    if (stays && !is_first) return;
    for (const auto& [first, then] : edges) {
      if (first != id || stays) waits_[then].push_back(first);
    }
    for (const NodeId gather : fused) gathers_.emplace(gather, id);
    if (!stays) dropped_.insert(id);
  }

  /// What a node that waits for `controls` waits for when some of them are dropped.
  void add_kept(const std::vector<NodeId>& controls, std::vector<NodeId>* kept) const {
    for (const NodeId control : controls) {
      if (dropped_.contains(control)) {
        add_kept(step_.graph.node(control).control_inputs, kept);
      } else if (std::find(kept->begin(), kept->end(), control) == kept->end()) {
        kept->push_back(control);
      }
    }
  }

  Status rewrite(const Node& node) {
    if (dropped_.contains(node.id)) return {};
    std::vector<NodeId> controls;
    add_kept(node.control_inputs, &controls);
    if (const auto waits = waits_.find(node.id); waits != waits_.end()) {
      add_kept(waits->second, &controls);
    }
    if (const auto gather = gathers_.find(node.id); gather != gathers_.end()) {
      return rewrite_gather(node, step_.graph.node(gather->second), std::move(controls));
    }
    Node copied = node;
    copied.control_inputs = std::move(controls);
    rewriter_.copy(copied);
    return {};
  }

  Status rewrite_gather(const Node& node, const Node& read, std::vector<NodeId> controls) {
    add_kept(read.control_inputs, &controls);
    const bool is_gather = node.op == "Gather";
    Node rows;
    rows.op = "VariableGather";
    rows.name = is_gather ? node.name : node.name + "/rows";
    rows.inputs = {rewriter_.map(read.inputs[0]), rewriter_.map(node.inputs[1])};
    rows.control_inputs = rewriter_.map(controls);
    rows.attrs = read.attrs;
    if (const auto out = node.attrs.find("out_type"); out != node.attrs.end()) {
      rows.attrs["out_type"] = out->second;
    }
    put_beside(node, &rows);
    if (is_gather) {
      SR_ASSIGN_OR_RETURN(const NodeId made, rewriter_.add_as(std::move(rows), registry_));
      rewriter_.replace(node.id, made);
      return {};
    }
    SR_ASSIGN_OR_RETURN(const NodeId made, rewriter_.add(std::move(rows), registry_));
    Node sums = node;
    sums.inputs[0] = {made, 0};
    for (size_t i = 1; i < sums.inputs.size(); ++i) sums.inputs[i] = rewriter_.map(node.inputs[i]);
    sums.control_inputs = {};
    sums.attrs["gathered"] = true;
    SR_ASSIGN_OR_RETURN(const NodeId id, rewriter_.add_as(std::move(sums), registry_));
    rewriter_.replace(node.id, id);
    return {};
  }

  const StepGraph& step_;
  const ir::OpRegistry& registry_;
  Rewriter rewriter_;
  std::map<NodeId, Read> reads_;
  std::map<NodeId, NodeId> gathers_;             // Those that go to the variable: their reads.
  std::set<NodeId> dropped_;                     // Reads that nobody needs any more.
  std::map<NodeId, std::vector<NodeId>> waits_;  // By change: what it has to wait for.
};

}  // namespace

Result<StepGraph> gather_at_variables(const StepGraph& step, const ir::OpRegistry& registry) {
  return VariableGatherer(step, registry).run();
}

}  // namespace sidereal::passes
