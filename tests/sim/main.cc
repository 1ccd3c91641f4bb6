#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <string>

#include "sidereal/base/log.h"
#include "tests/sim/coordinator.h"
#include "tests/sim/moves.h"
#include "tests/sim/simulation.h"
#include "tests/sim/views.h"

/// Runs simulations of workers and parameter servers: `./dev sim --help`.
namespace sidereal::sim {
namespace {

struct Arguments {
  uint64_t seed = 0;
  Wishes wishes;
  int runs = 1;
  bool trace = false;
};

template <class Scenario, class Run>
bool run_one(const Arguments& arguments, const Scenario& scenario, const Run& run) {
  fmt::print("seed {}: {}\n", scenario.seed, scenario.to_string());
  std::fflush(stdout);  // Should the run not come back.
  const auto began = std::chrono::steady_clock::now();
  std::function<void(int64_t, std::string_view)> trace;
  if (arguments.trace) {
    trace = [](int64_t now_ns, std::string_view what) {
      fmt::print("{:14.6f} ms  {}\n", static_cast<double>(now_ns) / 1e6, what);
    };
  }
  const auto report = run(scenario, trace);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  fmt::print("  {}; {:.2f} s\n", report.to_string(), took.count());
  for (const std::string& complaint : report.complaints) fmt::print("  WRONG: {}\n", complaint);
  if (!report.complaints.empty()) {
    fmt::print("  again: ./dev sim --seed {}{}\n", scenario.seed, arguments.wishes.to_string());
  }
  std::fflush(stdout);
  return report.complaints.empty();
}

bool run_seed(const Arguments& arguments, uint64_t seed) {
  if (arguments.wishes.kind == Kind::kCoordinator) {
    return run_one(arguments, draw_coordinator(seed, arguments.wishes),
                   [](const auto& scenario, const auto& trace) {
                     return run_coordinator(scenario, make_scheduler<coord::Scheduler>, trace);
                   });
  }
  if (arguments.wishes.kind == Kind::kMoves) {
    return run_one(arguments, draw_moves(seed, arguments.wishes), run_moves);
  }
  if (arguments.wishes.kind == Kind::kViews) {
    return run_one(arguments, draw_views(seed, arguments.wishes), run_views);
  }
  return run_one(arguments, draw(seed, arguments.wishes), run);
}

int main_of(int argc, char** argv) {
  CLI::App app("Workers and parameter servers over a simulated network, with faults.", "./dev sim");
  Arguments arguments;
  auto* const seed = app.add_option("--seed", arguments.seed, "What all follows from; else drawn");
  app.add_option("--workers", arguments.wishes.workers, "How many workers; else drawn")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--seconds", arguments.wishes.seconds, "Of virtual time; else drawn")
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--kind", arguments.wishes.kind, "What peers are made of; else lanes or tasks")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, Kind>{{"lanes", Kind::kLanes},
                                                              {"tasks", Kind::kTasks},
                                                              {"coordinator", Kind::kCoordinator},
                                                              {"moves", Kind::kMoves},
                                                              {"views", Kind::kViews}}))
      ->option_text("lanes|tasks|coordinator|moves|views");
  app.add_option("--secret", arguments.wishes.secret, "Whether the cluster has one; else drawn");
  app.add_option("--standby", arguments.wishes.standby,
                 "Whether parameter servers, of tasks, have one; else drawn");
  app.add_option("--runs", arguments.runs, "Runs with this seed, the next one, and so on")
      ->check(CLI::Range(1, 1'000'000'000));
  app.add_flag("--trace", arguments.trace, "Write down everything that happens");
  CLI11_PARSE(app, argc, argv);
  base::set_log_level(base::LogLevel::kError);
  if (seed->count() == 0) arguments.seed = std::random_device()() % 1'000'000'000;
  int failed = 0;
  for (int i = 0; i < arguments.runs; ++i) {
    if (!run_seed(arguments, arguments.seed + static_cast<uint64_t>(i))) ++failed;
  }
  fmt::print("{} runs, {} failed\n", arguments.runs, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sidereal::sim

int main(int argc, char** argv) { return sidereal::sim::main_of(argc, argv); }
