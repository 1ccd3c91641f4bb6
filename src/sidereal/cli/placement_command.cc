#include "sidereal/cli/placement_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

#include "sidereal/cli/cluster_option.h"
#include "sidereal/cli/commands.h"
#include "sidereal/ir/text.h"
#include "sidereal/master/placement.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/placement_report.h"

namespace sidereal::cli {

namespace {

constexpr const char* kFooter =
    R"(The graph is that of a session as text: session.graph_def in Python.
Nobody in the cluster is asked. Python has the same as sidereal.v1.placement_report().

Example:
  sidereal graph placement model.graph.txt --cluster cluster.json --master /job:worker/task:0)";

}  // namespace

Result<std::string> placement_text(const PlacementArguments& a) {
  std::ifstream file(a.file, std::ios::binary);
  if (!file) return base::not_found("cannot read '{}'", a.file);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ir::OpRegistry registry;
  ops::register_all(&registry);
  Result<ir::Graph> graph = ir::from_text(text, registry);
  if (!graph.ok()) return base::with_context(graph.status(), a.file);
  SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec cluster, read_cluster(a.cluster));
  const master::PlacementOptions options = {.master = a.master,
                                            .allow_soft_placement = a.soft_placement};
  SR_ASSIGN_OR_RETURN(const ir::Graph placed,
                      master::place_on_cluster(*graph, cluster, options, registry));
  std::string out = passes::to_text(passes::placement_report(placed));
  if (a.nodes) out += "\n" + master::placement_lines(placed);
  return out;
}

void add_graph_placement(CLI::App* graph, Action* action) {
  CLI::App* command = graph->add_subcommand(
      "placement", "which task of a cluster would run which nodes and hold which variables");
  command->option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  auto a = std::make_shared<PlacementArguments>();
  command->add_option("file", a->file, "a graph as text")
      ->type_name("FILE")
      ->default_str("")
      ->required();
  command->add_option("--cluster", a->cluster, "the cluster, a JSON file or text")
      ->type_name("FILE|JSON")
      ->default_str("")
      ->required();
  command
      ->add_option("--master", a->master,
                   "the task of the session's server, where nodes without a device run; without "
                   "it, the cluster's first")
      ->type_name("/job:NAME/task:N")
      ->default_str("");
  command->add_flag("--soft-placement", a->soft_placement,
                    "as a session with allow_soft_placement");
  command->add_flag("--nodes", a->nodes, "print the device of every node, too");
  command->footer(kFooter);
  command->final_callback([a, action] {
    *action = [a]() -> Status {
      SR_ASSIGN_OR_RETURN(const std::string text, placement_text(*a));
      std::fwrite(text.data(), 1, text.size(), stdout);
      return {};
    };
  });
}

}  // namespace sidereal::cli
