#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "sidereal/cli/commands.h"
#include "sidereal/eager/context.h"
#include "sidereal/ir/schema.h"
#include "sidereal/ops/ops.h"
#include "sidereal/ops/signature.h"
#include "sidereal/service/worker_service.h"

namespace sidereal::cli {

namespace {

struct OpsArguments {
  std::string name;
  bool markdown = false;
};

Status print_ops(const OpsArguments& arguments) {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  if (arguments.markdown) {
    fmt::print("{}", ops::ops_page(registry));
    return {};
  }
  if (!arguments.name.empty()) {
    SR_ASSIGN_OR_RETURN(const ir::OpSchema* schema, eager::find_op(registry, arguments.name));
    fmt::print("{}", ops::describe_op(*schema));
    return {};
  }
  for (const std::string& name : registry.names()) {
    fmt::print("{}", ops::describe_op(*registry.find(name)));
  }
  return {};
}

// The package's `sidereal` runs it before it comes to this program, which is told of it by its
// help alone.
void add_python(CLI::App* app, Action* action, const std::string& name, const std::string& about,
                const std::string& reason) {
  CLI::App* command = app->add_subcommand(name, about);
  command->set_help_flag();
  command->prefix_command();
  command->final_callback([=] {
    const std::vector<std::string> rest = command->remaining();
    const bool help = std::any_of(rest.begin(), rest.end(), [](const std::string& word) {
      return word == "--help" || word == "-h";
    });
    *action = [=]() -> Status {
      const std::string what =
          fmt::format("{} {} and is a part of the Python package: write `python -m sidereal {} {}`",
                      name, reason, name, help ? "--help" : "...");
      if (!help) return base::failed_precondition("{}", what);
      fmt::print("sidereal {}: {}\n{}\n", name, about, what);
      return {};
    };
  });
}

}  // namespace

void add_ops(CLI::App* app, Action* action) {
  CLI::App* command = app->add_subcommand("ops", "list the operations of graphs, or show one");
  auto arguments = std::make_shared<OpsArguments>();
  command->add_option("name", arguments->name, "the operation to show; all without one")
      ->type_name("NAME");
  command->add_flag("--markdown", arguments->markdown, "all of them as docs/ops.md has them");
  command->final_callback(
      [arguments, action] { *action = [arguments] { return print_ops(*arguments); }; });
}

void add_launch(CLI::App* app, Action* action) {
  add_python(app, action, "launch", "run a Python script on every task of a cluster",
             "starts Python scripts");
}

void add_plot(CLI::App* app, Action* action) {
  add_python(app, action, "plot", "draw learning curves of runs as a picture",
             "draws by matplotlib");
}

void add_models_out(CLI::App* app, Action* action) {
  add_python(app, action, "export", "make a file for programs that serve of a checkpoint",
             "makes models without a cluster");
  add_python(app, action, "predict", "write what a model predicts for the rows of a file",
             "runs models without a cluster");
  add_python(app, action, "runs", "list the trainings whose files are in a folder",
             "compares models without a cluster");
  add_python(app, action, "compare", "say in what two trainings and their figures differ",
             "compares models without a cluster");
  add_python(app, action, "evaluate", "say how good a model, or each checkpoint that comes, is",
             "runs models without a cluster");
  add_python(app, action, "serve-model", "answer requests for predictions over HTTP and gRPC",
             "serves models without a cluster");
}

void add_completion(CLI::App* app, Action* action) {
  add_python(app, action, "completion", "print what completes these commands in bash, zsh or fish",
             "knows the commands of both parts");
}

std::string version_number() { return SIDEREAL_VERSION; }

std::string version_text() {
  return fmt::format("sidereal {} (session protocol {})\n", SIDEREAL_VERSION,
                     service::kSessionVersion);
}

void add_version(CLI::App* app, Action* action) {
  CLI::App* command = app->add_subcommand("version", "print the version");
  command->final_callback([action] {
    *action = []() -> Status {
      fmt::print("{}", version_text());
      return {};
    };
  });
}

}  // namespace sidereal::cli
