#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::partition {

/// Where a node runs: an index into the places that calls go to, or kDriver.
using PlaceIndex = int32_t;
inline constexpr PlaceIndex kDriver = -1;

/// Ops that find or make what they name, and change nothing when they run again.
bool makes_handle(std::string_view op);

/// What is the same for all regions of one cut into calls.
struct CallRules {
  const ir::OpRegistry& registry;
  /// Where a node without functions runs.
  std::function<PlaceIndex(const ir::Node&)> place_of;
  /// Whether to merge and delay calls.
  bool lite = false;
  size_t function_nodes_max = 0;
};

/// A node that is made again where it is read: a Const, or the maker of a handle. nullptr: none.
struct Made {
  const ir::Node* node = nullptr;
  PlaceIndex place = kDriver;
};

/// One input of a node, as it is read at the node's place. Nothing: it is not read.
struct Read {
  ir::Output value;                ///< What is read,
  const ir::Node* copy = nullptr;  ///< or the node of which a copy is.
};

/// One call of a region.
struct CallGroup {
  PlaceIndex place = 0;
  int32_t round = 0;              ///< Longest chain of calls of the region that ends with it.
  bool waits = false;             ///< It holds a node that may wait.
  bool async_push = false;        ///< See pull_push.h.
  bool ahead = false;             ///< The same.
  std::vector<ir::NodeId> nodes;  ///< In the graph's order.
  std::set<ir::Output> args;      ///< Made elsewhere, read here.
  std::set<ir::Output> rets;      ///< Made here, read elsewhere.
};

struct CallRegion;

/// A call, branch or loop that the driver runs, with nodes of other places in its functions.
struct SplitControl {
  std::vector<std::string> attrs;  ///< Those that name its functions.
  std::vector<std::unique_ptr<CallRegion>> regions;
  std::vector<bool> taken;  ///< By argument of the functions: it is still one.
};

/// A graph or the body of a function in one use, and the calls that the driver makes for it.
struct CallRegion {
  const CallRules* rules = nullptr;
  const ir::Graph* graph = nullptr;
  const ir::Function* function = nullptr;  ///< nullptr: the whole graph.
  std::vector<ir::Output> outputs;         ///< What is fetched, or returned.
  std::vector<ir::NodeId> targets;
  std::vector<Made> known;  ///< By Arg: what made it.

  std::vector<PlaceIndex> places;              ///< By node.
  std::vector<bool> live;                      ///< By node: it is there by itself.
  std::vector<bool> waits;                     ///< By node: it may wait for other steps.
  std::vector<std::vector<Read>> reads;        ///< By node and input.
  std::vector<std::vector<ir::NodeId>> after;  ///< By node: what it waits for.
  std::vector<Read> results;                   ///< By output, at the driver.
  std::map<ir::NodeId, SplitControl> split;
  std::vector<bool> args_read;  ///< By Arg: its value is.

  std::vector<int32_t> owner;  ///< By node: its group; -1: the driver, or not live.
  std::vector<CallGroup> groups;
  /// By item, which are the nodes of the driver, then the groups: what must have run.
  std::vector<std::vector<int32_t>> before;
  std::vector<int32_t> rounds;  ///< By item: the longest chain of calls to it.

  [[nodiscard]] int32_t item_of(ir::NodeId id) const {
    const int32_t group = owner[id.value];
    return group < 0 ? id.value : static_cast<int32_t>(graph->size()) + group;
  }
  [[nodiscard]] bool is_arg(ir::NodeId id) const { return graph->node(id).op == ir::kArgOp; }
  /// True for what only stands for others that run before: it has no place.
  [[nodiscard]] bool is_order(ir::NodeId id) const {
    return !live[id.value] || graph->node(id).op == "NoOp";
  }
  /// What stands behind a node that is_order().
  [[nodiscard]] std::vector<ir::NodeId> order_of(ir::NodeId id) const;
  /// What has a place among `from` and what stands behind them, in the graph's order.
  [[nodiscard]] std::vector<ir::NodeId> expand(const std::vector<ir::NodeId>& from) const;
  /// What `value` can be a copy of. Appends to `behind` what that would wait for.
  [[nodiscard]] Made resolve(ir::Output value, std::vector<ir::NodeId>* behind) const;
  /// What a handle names, as text that is equal for equal resources; what begins with '?' may be
  /// equal to anything.
  [[nodiscard]] std::string resource_of(ir::Output handle) const;
  /// The queues, accumulators and tables that a node works on: a step may have to wait at them.
  [[nodiscard]] std::set<std::string> awaited_by(const ir::Node& node) const;
};

/// Finds regions and their calls. Thread: core-local. Borrows the rules and all graphs.
class CallPlanner {
 public:
  explicit CallPlanner(const CallRules& rules) : rules_(rules) {}

  /// The whole graph, which passes ir::verify().
  Result<std::unique_ptr<CallRegion>> plan(const ir::Graph& graph,
                                           const std::vector<ir::Output>& fetches,
                                           const std::vector<ir::NodeId>& targets);

 private:
  /// What is in a function, those it calls included.
  struct Facts {
    std::set<PlaceIndex> places;  ///< But for nodes that can be anywhere.
    bool waits = false;           ///< A node may wait.
  };

  const Facts& facts_of(const ir::FunctionPtr& function);
  Facts facts_of(const ir::Graph& graph, const ir::Node& node);
  Status fill(CallRegion* region);
  void find_places(CallRegion* region);
  Status find_reads(CallRegion* region);
  Status read_inputs(CallRegion* region, const ir::Node& node);
  Status split(CallRegion* region, const ir::Node& node);
  void order_effects(CallRegion* region);
  void order_changes(CallRegion* region);

  const CallRules& rules_;
  std::map<const ir::Function*, Facts> facts_;
  size_t function_nodes_ = 0;
};

/// The group that each node outside of the driver is in by layers, -1 for others; see pull_push.h.
std::vector<int32_t> layers_of(const CallRegion& region);

/// Fills owner, groups, before and rounds from a group for each live node outside of the driver.
/// False when calls would wait for each other in a circle; then they are as they were.
bool regroup(CallRegion* region, const std::vector<int32_t>& group_of);

/// With kLite, merges and delays calls of a region where that is proven to be safe.
void merge_calls(CallRegion* region);

/// Marks the asynchronous pushes of the whole graph, and in its functions; see pull_push.h.
void mark_async_pushes(CallRegion* whole);

/// True when a call only reads what lasts, if anything: run again, it does no harm.
bool only_reads(const CallRegion& region, const CallGroup& group);

/// Marks those that may be sent before their step begins; see pull_push.h.
void mark_ahead(CallRegion* whole);

}  // namespace sidereal::partition
