#include <fmt/format.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

#include "sidereal/cli/arguments.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/partition_report.h"
#include "sidereal/cli/report.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/cluster/protocol.h"
#include "sidereal/exec/one_op.h"
#include "sidereal/ir/dot.h"
#include "sidereal/ir/saved_model.h"
#include "sidereal/ir/text.h"
#include "sidereal/master/placement.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/partition/lanes.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/program/compile.h"
#include "sidereal/train/distribute.h"
#include "sidereal/train/models.h"

namespace sidereal::cli {

namespace {

using base::invalid_argument;

constexpr const char* kDumpFooter = R"(Examples:
  sidereal graph dump --model deepfm --hidden 32,16 --ps 2 --stage plan --output deepfm.svg
  sidereal graph dump model.srsm
  sidereal graph dump model.srsm --function predict --stage program
  sidereal graph dump model.graph.txt --partition star_server --cluster cluster.json --target train
Pictures are drawn by Graphviz (the Debian package graphviz); --format dot needs nothing.)";

struct DumpArguments {
  TrainArguments model;
  std::string file;
  std::string function;
  std::string stage = "model";
  std::string format;
  std::string output;
  bool no_constants = false;
  PartitionArguments partition;
};

/// Where worker 0 of a built-in model's cluster runs what no other task does.
constexpr const char* kDriver = "/job:worker/replica:0/task:0/device:CPU:0";

/// A graph and what is asked of it.
struct Asked {
  std::string title;
  ir::Graph graph;
  std::vector<ir::Output> fetches;
  std::vector<ir::NodeId> targets;
  std::string driver;  ///< The device that calls the others; "": there are no others.
  int ps = 0;
  int ps_lanes = 1;
  train::PlacementOptions placement = {};
};

/// Spreads a built-in model over its cluster, as worker 0 runs it.
Status place_model(const train::CompiledModel& model, const ir::OpRegistry& registry,
                   Asked* asked) {
  SR_ASSIGN_OR_RETURN(
      const train::Placement placement,
      train::first_placement(model, {.ps = asked->ps, .lanes = asked->ps_lanes}, asked->placement));
  SR_ASSIGN_OR_RETURN(const train::DistributedModel spread,
                      train::distribute(model, placement, registry));
  cluster::ClusterSpec cluster;
  SR_RETURN_IF_ERROR(cluster.add_job(
      "ps", std::vector<std::string>(static_cast<size_t>(asked->ps), "127.0.0.1:1")));
  SR_RETURN_IF_ERROR(cluster.add_job("worker", std::vector<std::string>{"127.0.0.1:1"}));
  SR_ASSIGN_OR_RETURN(asked->graph,
                      master::place_on_cluster(train::on_worker(spread.graph, 0, registry), cluster,
                                               {.master = "/job:worker/task:0"}, registry));
  asked->driver = kDriver;
  return {};
}

Result<Asked> built_in_model(const DumpArguments& a, const ir::OpRegistry& registry) {
  SR_ASSIGN_OR_RETURN(const TrainingJob job, plan_demo(a.model));
  SR_ASSIGN_OR_RETURN(const train::CompiledModel model, train::build_model(job.model));
  Asked asked;
  asked.title = fmt::format("{}: a training step", job.model.kind);
  asked.ps = a.model.ps;
  asked.ps_lanes = a.model.ps_lanes;
  asked.placement = job.placement;
  if (a.stage == "model") {
    asked.graph = model.graph;
  } else {
    SR_RETURN_IF_ERROR(place_model(model, registry, &asked));
  }
  for (const std::string& name : {model.loss, model.prediction}) {
    SR_ASSIGN_OR_RETURN(asked.fetches.emplace_back(), asked.graph.find_output(name));
  }
  for (const std::string& name : model.targets) {
    asked.targets.push_back(asked.graph.find(name)->id);
  }
  return asked;
}

Result<Asked> saved_function(const DumpArguments& a, const ir::OpRegistry& registry) {
  std::ifstream file(a.file, std::ios::binary);
  if (!file) return base::not_found("cannot read {}", a.file);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  Result<ir::SavedModel> model = ir::decode_saved_model(bytes, registry);
  if (!model.ok()) return base::with_context(model.status(), a.file);
  std::vector<std::string> names;
  ir::SavedFunction* found = nullptr;
  for (ir::SavedFunction& function : model->functions) {
    names.push_back(function.name);
    if (found == nullptr && (a.function.empty() || a.function == function.name)) found = &function;
  }
  if (found == nullptr || (a.function.empty() && names.size() > 1)) {
    return invalid_argument("{} holds {} functions: {}; choose one with --function", a.file,
                            names.size(), fmt::join(names, ", "));
  }
  Asked asked;
  asked.title = fmt::format("{}: {}", a.file, found->name);
  asked.graph = std::move(found->graph);
  asked.fetches = std::move(found->outputs);
  asked.targets = std::move(found->targets);
  return asked;
}

Result<passes::StepGraph> plan_of(const Asked& asked, const ir::OpRegistry& registry) {
  exec::KernelTable kernels;
  exec::register_kernels(&kernels);
  const auto evaluate = [&](const ir::Node& node, const std::vector<ir::Tensor>& inputs) {
    return exec::run_one_op(node, inputs, kernels);
  };
  return passes::run_passes(asked.graph, asked.fetches, asked.targets, registry,
                            {.evaluate = evaluate});
}

Result<std::string> program_text(const Asked& asked, const ir::OpRegistry& registry) {
  SR_ASSIGN_OR_RETURN(passes::StepGraph plan, plan_of(asked, registry));
  if (asked.driver.empty()) {
    SR_ASSIGN_OR_RETURN(
        const program::Program program,
        program::compile(partition::undivided(plan.graph, plan.fetches, plan.targets)));
    return program::to_text(program);
  }
  const auto lanes = [&](const std::string& device) -> partition::DeviceLanes {
    if (device == asked.driver) return {};
    return {.lanes = asked.ps_lanes, .tasks = asked.ps};
  };
  partition::assign_lanes(&plan.graph, lanes, partition::leading_names(plan.graph));
  SR_ASSIGN_OR_RETURN(
      const partition::PartitionedGraph parts,
      partition::pull_push_by_device(plan.graph, asked.driver, plan.fetches, plan.targets, registry,
                                     {.mode = partition::PullPushOptions::Mode::kLayers}));
  SR_ASSIGN_OR_RETURN(const program::CompiledStep step, program::compile(parts));
  std::string out = partition::summary(parts) + "\nworker:\n" + program::to_text(step.worker);
  for (const program::RemoteProgram& remote : step.remotes) {
    SR_ASSIGN_OR_RETURN(const program::Program program, program::decode(remote.bytes));
    out += fmt::format("\n{}:\n{}", remote.device, program::to_text(program));
  }
  return out;
}

/// 'text' for a shell.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

/// Has Graphviz draw `dot`.
Status draw(const std::string& dot, const std::string& path) {
  const std::string target = path.empty() ? "" : " -o " + shell_quoted(path);
  // NOLINTNEXTLINE(bugprone-command-processor): the path is quoted, the rest is fixed.
  std::FILE* pipe = popen(("dot -Tsvg" + target).c_str(), "w");
  if (pipe == nullptr) return base::unavailable("cannot start Graphviz");
  const bool written = std::fwrite(dot.data(), 1, dot.size(), pipe) == dot.size();
  const int ended = pclose(pipe);
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == 127) {
    return base::unavailable(
        "pictures are drawn by Graphviz, which is not installed: install the package graphviz, or "
        "write --format dot");
  }
  if (!written || ended != 0) return base::unavailable("Graphviz could not draw the graph");
  return {};
}

std::string format_of(const DumpArguments& a) {
  if (!a.format.empty()) return a.format;
  for (const char* format : {"svg", "dot"}) {
    if (a.output.ends_with(std::string(".") + format)) return format;
  }
  return "text";
}

Status print_or_write(const std::string& text, const std::string& path) {
  if (!path.empty()) return write_file(path, text);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

/// What a step of a session sends; the graph is a text.
Status dump_partition(const DumpArguments& a, const ir::OpRegistry& registry) {
  std::ifstream file(a.file, std::ios::binary);
  if (!file) return base::not_found("--partition: cannot read the graph '{}'", a.file);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Result<ir::Graph> graph = ir::from_text(text, registry);
  if (!graph.ok()) return base::with_context(graph.status(), a.file);
  PartitionArguments arguments = a.partition;
  arguments.cluster = a.model.cluster;
  SR_ASSIGN_OR_RETURN(const std::string report, partition_report(*graph, arguments, registry));
  return print_or_write(report, a.output);
}

Status dump(const DumpArguments& a) {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  if (!a.partition.protocol.empty()) return dump_partition(a, registry);
  SR_ASSIGN_OR_RETURN(Asked asked,
                      a.file.empty() ? built_in_model(a, registry) : saved_function(a, registry));
  const std::string format = format_of(a);
  if (a.stage == "program") {
    if (format != "text") return invalid_argument("a program has no picture; use --stage plan");
    SR_ASSIGN_OR_RETURN(const std::string text, program_text(asked, registry));
    return print_or_write(text, a.output);
  }
  if (a.stage == "plan") {
    SR_ASSIGN_OR_RETURN(passes::StepGraph plan, plan_of(asked, registry));
    asked.graph = std::move(plan.graph);
    asked.title += ", as it is planned";
  }
  if (format == "text") return print_or_write(ir::to_text(asked.graph), a.output);
  SR_ASSIGN_OR_RETURN(
      const std::string dot,
      ir::to_dot(asked.graph, {.title = asked.title, .constants = !a.no_constants}));
  return format == "dot" ? print_or_write(dot, a.output) : draw(dot, a.output);
}

}  // namespace

void add_graph(CLI::App* app, Action* action) {
  CLI::App* graph = app->add_subcommand("graph", "show graphs of models and saved functions");
  graph->require_subcommand(1);
  CLI::App* command = graph->add_subcommand("dump", "print a graph, or draw it");
  command->option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  auto arguments = std::make_shared<DumpArguments>();
  DumpArguments* a = arguments.get();
  command->add_option("file", a->file, "a saved model; without one, a built-in model is shown")
      ->type_name("FILE");
  command->add_option("--function", a->function, "which function of the file")->type_name("NAME");
  command
      ->add_option("--stage", a->stage,
                   "model: as it was made; plan: placed and optimised; program: instructions")
      ->check(CLI::IsMember({"model", "plan", "program"}).description(""))
      ->type_name("model|plan|program");
  command
      ->add_option("--format", a->format,
                   "text, dot (Graphviz) or svg, with devices as colours; by default what the end "
                   "of --output says, else text")
      ->check(CLI::IsMember({"text", "dot", "svg"}).description(""))
      ->default_str("")
      ->type_name("text|dot|svg");
  command->add_option("--output,-o", a->output, "write to this file")->type_name("FILE");
  command
      ->add_option("--partition", a->partition.protocol,
                   "show what a step of a session of this protocol sends on the --cluster; FILE is "
                   "its graph as text (session.graph_def in Python)")
      ->check(CLI::IsMember(std::vector<std::string>(cluster::protocol_names().begin(),
                                                     cluster::protocol_names().end()))
                  .description(""))
      ->default_str("")
      ->type_name("grpc|grpc++|star_server|star_server_lite");
  command
      ->add_option("--master", a->partition.master,
                   "with --partition: the task of the session's server, which drives steps; "
                   "without it, the cluster's first")
      ->type_name("/job:NAME/task:N")
      ->default_str("");
  command
      ->add_option("--fetch", a->partition.fetches,
                   "with --partition: what is fetched, as name:0; may be repeated")
      ->type_name("NAME")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->default_str("");
  command
      ->add_option("--target", a->partition.targets,
                   "with --partition: a node that is run; may be repeated. Without --fetch and "
                   "--target, all nodes that nothing reads")
      ->type_name("NAME")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->default_str("");
  command->add_flag("--tensor-fuse", a->partition.tensor_fuse,
                    "with --partition grpc or grpc++: as sessions with tensor_fuse send it");
  command
      ->add_option("--lanes", a->partition.lanes,
                   "with --partition star_server or star_server_lite: threads of each task but the "
                   "master's, each of which is called by itself")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N");
  command->add_flag("--no-constants", a->no_constants, "leave constants out of pictures");
  add_model_options(command, &a->model);
  command->add_option("--ps", a->model.ps, "parameter servers that a built-in model is planned for")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  command->add_option("--ps-lanes", a->model.ps_lanes, "threads of each of them")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N");
  command
      ->add_option("--cluster", a->model.cluster,
                   "with --partition: who is in the cluster, a JSON file or text")
      ->type_name("JSON|FILE")
      ->default_str("");
  add_graph_placement(graph, action);
  command->footer(kDumpFooter);
  command->final_callback(
      [arguments, action] { *action = [arguments] { return dump(*arguments); }; });
}

}  // namespace sidereal::cli
