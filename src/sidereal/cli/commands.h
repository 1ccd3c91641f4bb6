#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sidereal/base/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace sidereal::cli {

/// What a command line asks for, to be done after it has been read in full.
using Action = std::function<Status()>;

// Each adds one subcommand to `app`; when it is the one given, `*action` becomes its work.
void add_train(CLI::App* app, Action* action);
void add_demo(CLI::App* app, Action* action);
void add_serve(CLI::App* app, Action* action);
void add_launch(CLI::App* app, Action* action);
void add_plot(CLI::App* app, Action* action);
/// export, predict, runs, compare, evaluate, serve-model.
void add_models_out(CLI::App* app, Action* action);
void add_events(CLI::App* app, Action* action);
void add_follow(CLI::App* app, Action* action);
/// scale, drain, rebalance.
void add_job_commands(CLI::App* app, Action* action);
void add_top(CLI::App* app, Action* action);
void add_certificate(CLI::App* app, Action* action);
void add_ckpt(CLI::App* app, Action* action);
void add_graph(CLI::App* app, Action* action);
void add_ops(CLI::App* app, Action* action);
void add_version(CLI::App* app, Action* action);
/// Hidden: all commands of `app` and their options, of which completions of shells are made.
void add_options(CLI::App* app, Action* action);
/// --version, of `app` and of each of its commands.
void add_version_flags(CLI::App* app);
void add_completion(CLI::App* app, Action* action);
/// "sidereal 0.1.0 (...)", on one line.
std::string version_text();
/// "0.1.0".
std::string version_number();
// Adds the subcommand `placement` of `graph`.
void add_graph_placement(CLI::App* graph, Action* action);

/// Result of reading a command line: an action, or something to print and an exit code.
struct Parsed {
  Action action;
  std::string out;    ///< For standard output (help).
  std::string error;  ///< For standard error.
  int exit_code = 0;
};

/// Reads a command line without the program's name. Nothing is done yet.
Parsed parse(std::vector<std::string> arguments);

/// "sidereal: error: NOT_FOUND: no file ..." on one line.
std::string format_error(const Status& status);

/// The whole program. Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted, 143 SIGTERM.
int run(int argc, char** argv);

}  // namespace sidereal::cli
