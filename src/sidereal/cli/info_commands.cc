#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "sidereal/app/cluster.h"
#include "sidereal/cli/commands.h"
#include "sidereal/ir/schema.h"
#include "sidereal/ops/ops.h"

namespace sidereal::cli {

namespace {

std::string inputs_of(const ir::OpSchema& schema) {
  if (schema.min_inputs == schema.max_inputs) return std::to_string(schema.min_inputs);
  if (schema.max_inputs < 0) return fmt::format("{} or more", schema.min_inputs);
  return fmt::format("{} to {}", schema.min_inputs, schema.max_inputs);
}

Status print_ops() {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  for (const std::string& name : registry.names()) {
    const ir::OpSchema& schema = *registry.find(name);
    fmt::print("{}\n    {}\n    inputs: {}{}{}\n", name, schema.doc, inputs_of(schema),
               schema.on_ps ? "; runs where its variable lives" : "",
               schema.differentiable ? "" : "; has no gradient");
    for (const ir::AttrSpec& attr : schema.attrs) {
      fmt::print("    {}: {}{}. {}\n", attr.name, attr.type, attr.required ? "" : ", optional",
                 attr.doc);
    }
  }
  return {};
}

Status print_version() {
  fmt::print("sidereal {} (control protocol {})\n", SIDEREAL_VERSION, app::kControlVersion);
  return {};
}

}  // namespace

void add_ops(CLI::App* app, Action* action) {
  CLI::App* command = app->add_subcommand("ops", "list the operations of graphs");
  command->final_callback([action] { *action = print_ops; });
}

void add_version(CLI::App* app, Action* action) {
  CLI::App* command = app->add_subcommand("version", "print the version");
  command->final_callback([action] { *action = print_version; });
}

}  // namespace sidereal::cli
