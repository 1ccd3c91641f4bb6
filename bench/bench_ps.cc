// Speed of pulling and pushing embedding rows: one ps lane (process on core 0) and one worker lane
// (process on core 1) over loopback TCP, beside the same work in one thread without a network and
// the same work behind gRPC unary calls.
//
// A call takes 26 ids per sample of a batch, makes them unique and routes them; then it gathers
// those rows of a table of 10^7 rows of 16 floats into memory of the worker (pull), or applies one
// Adagrad step to them (push). Drawing ids is not timed. The in-process figure is one core's; ours
// and gRPC's use two, the worker's for unique and route. Only processes being measured run.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ps/process.h"
#include "ps/work.h"

namespace {

using namespace sidereal::bench;  // NOLINT: this is that namespace's main program.
using sidereal::Result;
using sidereal::Status;

constexpr double kReadySeconds = 60;
constexpr double kWindowSeconds = 30;
constexpr double kForeignMax = 0.10;  // Of one core.

struct Flags {
  int rounds = 5;
  int64_t window_ms = 220;
  int noisy_max = 80;
  std::string only;
  std::string json;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// What one side did in the windows of one case.
struct Samples {
  std::vector<double> ids_per_s;
  std::vector<double> rows_per_s;
  std::vector<double> calls_per_s;

  void add(const Figures& figures) {
    const double seconds = static_cast<double>(std::max<int64_t>(figures.ns, 1)) / 1e9;
    ids_per_s.push_back(static_cast<double>(figures.ids) / seconds);
    rows_per_s.push_back(static_cast<double>(figures.rows) / seconds);
    calls_per_s.push_back(static_cast<double>(figures.calls) / seconds);
  }
};

/// What all sides did in one case.
struct CaseSamples {
  Api api = Api::kSync;  // The faster one of sync and async; `spin` has its queues spinning.
  Samples ours;
  Samples grpc;
  Samples spin;
};

/// One side: the process that is asked for windows, and the one it talks to.
struct Side {
  std::unique_ptr<Process> server;  // nullptr in-process
  std::unique_ptr<Process> client;
  bool tell_server = false;  // It wants to see each Window first.

  void pause() const {
    if (server != nullptr) server->pause();
    client->pause();
  }
  void resume() const {
    if (server != nullptr) server->resume();
    client->resume();
  }
  [[nodiscard]] double cpu_seconds() const {
    return client->cpu_seconds() + (server != nullptr ? server->cpu_seconds() : 0);
  }
};

class Bench {
 public:
  explicit Bench(const Flags& flags) : flags_(flags) {}

  Status start();
  Status run();
  [[nodiscard]] const nlohmann::json& rows() const { return rows_; }

 private:
  Result<Figures> measure(Side& side, const Window& window);
  Result<Figures> measure_quietly(Side& side, const Window& window);
  Status measure_into(Side& side, const Window& window, Samples* samples);
  Result<Api> choose_api(Window window);
  Status run_group(Op op, bool skewed, int64_t batch);
  void report(const std::string& name, int64_t batch, const Samples& local,
              const CaseSamples& samples);
  void count_targets(int64_t batch, double ours, double alone, double grpc, double spin);

  Flags flags_;
  Side ours_;
  Side local_;
  Side grpc_;
  int windows_ = 0;
  int noisy_ = 0;
  int noisy_kept_ = 0;
  std::map<std::string, std::pair<int, int>> targets_;  // Met, of how many.
  nlohmann::json rows_ = nlohmann::json::array();
};

/// All processes are forked before anything here has threads. Servers first: clients get ports.
Status Bench::start() {
  SR_ASSIGN_OR_RETURN(ours_.server, Process::fork("the ps", serve_sidereal));
  SR_ASSIGN_OR_RETURN(local_.client, Process::fork("the in-process side", drive_in_process));
  int32_t port = 0;
  SR_RETURN_IF_ERROR(ours_.server->receive(&port, sizeof(port), kReadySeconds));
  SR_ASSIGN_OR_RETURN(ours_.client, Process::fork("the worker", [port](int in, int out) {
                        return drive_sidereal(in, out, port);
                      }));
  int32_t ready = 0;
  SR_RETURN_IF_ERROR(ours_.client->receive(&ready, sizeof(ready), kReadySeconds));
  ours_.pause();
  SR_RETURN_IF_ERROR(local_.client->receive(&ready, sizeof(ready), kReadySeconds));
  local_.pause();
  SR_ASSIGN_OR_RETURN(grpc_.server, Process::fork("the gRPC server", serve_grpc));
  std::array<int32_t, 2> ports = {};
  SR_RETURN_IF_ERROR(grpc_.server->receive(ports.data(), sizeof(ports), kReadySeconds));
  SR_ASSIGN_OR_RETURN(grpc_.client, Process::fork("the gRPC client", [ports](int in, int out) {
                        return drive_grpc(in, out, ports[0], ports[1]);
                      }));
  SR_RETURN_IF_ERROR(grpc_.client->receive(&ready, sizeof(ready), kReadySeconds));
  grpc_.tell_server = true;
  grpc_.pause();
  return {};
}

Result<Figures> Bench::measure(Side& side, const Window& window) {
  side.resume();
  Figures figures;
  if (side.tell_server) {
    SR_RETURN_IF_ERROR(side.server->send(&window, sizeof(window)));
    SR_RETURN_IF_ERROR(side.server->receive(&figures, sizeof(figures), kWindowSeconds));
  }
  SR_RETURN_IF_ERROR(side.client->send(&window, sizeof(window)));
  SR_RETURN_IF_ERROR(side.client->receive(&figures, sizeof(figures), kWindowSeconds));
  side.pause();
  ++windows_;
  return figures;
}

/// Measures again while other programs used more than kForeignMax of a core, within limits.
Result<Figures> Bench::measure_quietly(Side& side, const Window& window) {
  while (true) {
    const int64_t from = now_ns();
    const double busy = machine_busy_seconds();
    const double own = side.cpu_seconds();
    SR_ASSIGN_OR_RETURN(const Figures figures, measure(side, window));
    const double seconds = static_cast<double>(now_ns() - from) / 1e9;
    const double foreign = machine_busy_seconds() - busy - (side.cpu_seconds() - own);
    if (foreign <= kForeignMax * seconds) return figures;
    ++noisy_;
    if (noisy_ > flags_.noisy_max) {
      ++noisy_kept_;
      return figures;
    }
  }
}

Status Bench::measure_into(Side& side, const Window& window, Samples* samples) {
  SR_ASSIGN_OR_RETURN(const Figures figures, measure_quietly(side, window));
  samples->add(figures);
  return {};
}

/// Which way of using gRPC is the faster one for this case.
Result<Api> Bench::choose_api(Window window) {
  window.measure_ns /= 2;
  Api best = Api::kSync;
  double best_rate = 0;
  for (const Api api : {Api::kSync, Api::kAsync}) {
    window.api = api;
    SR_ASSIGN_OR_RETURN(const Figures figures, measure_quietly(grpc_, window));
    const double rate =
        static_cast<double>(figures.ids) / static_cast<double>(std::max<int64_t>(figures.ns, 1));
    if (rate > best_rate) {
      best = api;
      best_rate = rate;
    }
  }
  return best;
}

Status Bench::run_group(Op op, bool skewed, int64_t batch) {
  Window window = {.op = op,
                   .skewed = skewed ? 1 : 0,
                   .batch = batch,
                   .warm_ns = flags_.window_ms * 200'000,
                   .measure_ns = flags_.window_ms * 1'000'000};
  std::array<CaseSamples, kOutstanding.size()> cases;
  for (size_t i = 0; i < kOutstanding.size(); ++i) {
    window.outstanding = kOutstanding[i];
    SR_ASSIGN_OR_RETURN(cases[i].api, choose_api(window));
  }
  Samples local;
  for (int round = 0; round < flags_.rounds; ++round) {
    window.outstanding = 1;
    SR_RETURN_IF_ERROR(measure_into(local_, window, &local));
    for (size_t i = 0; i < kOutstanding.size(); ++i) {
      window.outstanding = kOutstanding[i];
      window.api = cases[i].api;
      SR_RETURN_IF_ERROR(measure_into(ours_, window, &cases[i].ours));
      SR_RETURN_IF_ERROR(measure_into(grpc_, window, &cases[i].grpc));
      window.api = Api::kAsyncSpin;
      SR_RETURN_IF_ERROR(measure_into(grpc_, window, &cases[i].spin));
    }
  }
  for (size_t i = 0; i < kOutstanding.size(); ++i) {
    report(fmt::format("{} {} {} N={}", op == Op::kPull ? "pull" : "push",
                       skewed ? "zipf" : "uniform", batch, kOutstanding[i]),
           batch, local, cases[i]);
  }
  return {};
}

void Bench::count_targets(int64_t batch, double ours, double alone, double grpc, double spin) {
  const auto count = [this](const std::string& target, bool met) {
    targets_[target].first += met ? 1 : 0;
    ++targets_[target].second;
  };
  count("at least 0.55 of in-process", ours >= 0.55 * alone);
  if (batch == 1024) {
    count("at least 1.5 times gRPC at batch 1024", ours >= 1.5 * grpc);
    count("at least 1.5 times spinning gRPC at batch 1024", ours >= 1.5 * spin);
  }
  if (batch == 32) {
    count("at least 4 times gRPC at batch 32", ours >= 4 * grpc);
    count("at least 4 times spinning gRPC at batch 32", ours >= 4 * spin);
  }
}

void Bench::report(const std::string& name, int64_t batch, const Samples& local,
                   const CaseSamples& samples) {
  const double ours = median(samples.ours.ids_per_s);
  const double alone = median(local.ids_per_s);
  const double grpc = median(samples.grpc.ids_per_s);
  const double spin = median(samples.spin.ids_per_s);
  const double rows = median(samples.ours.rows_per_s);
  const double bytes = rows * static_cast<double>(kRowBytes + sizeof(int64_t));
  const auto [low, high] =
      std::minmax_element(samples.ours.ids_per_s.begin(), samples.ours.ids_per_s.end());
  const char* api = kApiNames[static_cast<size_t>(samples.api)];
  fmt::print(
      "{:<21} {:>6.2f} {:>13} {:>6.2f} {:>5.2f} {:>7.0f} | {:>6.2f} {:>5.2f} | {:>6.2f} {:>6.2f} "
      "{:<5} | {:>6.2f} {:>6.2f}\n",
      name, ours / 1e6, fmt::format("[{:.2f}-{:.2f}]", *low / 1e6, *high / 1e6), rows / 1e6,
      bytes / 1e9, median(samples.ours.calls_per_s), alone / 1e6, ours / alone, grpc / 1e6,
      ours / grpc, api, spin / 1e6, ours / spin);
  std::fflush(stdout);
  count_targets(batch, ours, alone, grpc, spin);
  const auto row = [&](const std::string& peer, double figure) {
    rows_.push_back({{"case", fmt::format("{} vs {}", name, peer)},
                     {"ours", ours},
                     {"peer", figure},
                     {"unit", "ids/s"},
                     {"ratio", ours / figure},
                     {"ours_unique_rows_per_s", rows},
                     {"ours_bytes_per_s", bytes}});
  };
  row("in-process", alone);
  row(fmt::format("gRPC ({})", api), grpc);
  row("gRPC (async, spinning)", spin);
}

Status Bench::run() {
  fmt::print(
      "26 fields x batch, {} rows x {} float32, Adagrad's accumulator in the row. Server on core "
      "0, "
      "worker on core 1;\nin-process: all on one core. Ours polls always; TCP with cubic on both "
      "sides. gRPC: the faster one of sync and\nasync; then async with queues that spin. Millions "
      "of ids/s, medians of {} windows of {} ms [least-most];\nrows/s and GB/s: the distinct rows "
      "that travel, with their numbers.\n\n",
      kTableRows, kDim, flags_.rounds, flags_.window_ms);
  fmt::print(
      "{:<21} {:>6} {:>13} {:>6} {:>5} {:>7} | {:>6} {:>5} | {:>6} {:>6} {:<5} | {:>6} {:>6}\n",
      "case", "ours", "", "Mrow/s", "GB/s", "calls/s", "alone", "ratio", "gRPC", "ratio", "",
      "spin", "ratio");
  for (const Op op : {Op::kPull, Op::kPush}) {
    for (const bool skewed : {false, true}) {
      for (const int64_t batch : kBatches) {
        const std::string name = fmt::format("{} {} {}", op == Op::kPull ? "pull" : "push",
                                             skewed ? "zipf" : "uniform", batch);
        if (name.find(flags_.only) == std::string::npos) continue;
        SR_RETURN_IF_ERROR(run_group(op, skewed, batch));
      }
    }
  }
  fmt::print("\n");
  for (const auto& [target, met] : targets_) {
    fmt::print("{}: {} of {} cases\n", target, met.first, met.second);
  }
  fmt::print(
      "{} windows, {} disturbed by other programs (more than {:.0f} % of a core): {} "
      "measured again, {} kept\n",
      windows_, noisy_, kForeignMax * 100, noisy_ - noisy_kept_, noisy_kept_);
  return {};
}

Status run(const Flags& flags) {
  Bench bench(flags);
  SR_RETURN_IF_ERROR(bench.start());
  SR_RETURN_IF_ERROR(bench.run());
  if (flags.json.empty()) return {};
  std::ofstream file(flags.json);
  file << nlohmann::json{{"rows", bench.rows()}}.dump(1) << '\n';
  file.close();
  if (file.good()) return {};
  return sidereal::base::unavailable("cannot write {}", flags.json);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Pull and push of embedding rows against in-process work and gRPC");
  app.add_option("--json", flags.json, "write the figures to this file");
  app.add_option("--rounds", flags.rounds, "windows per case")->capture_default_str();
  app.add_option("--window-ms", flags.window_ms, "length of a window")->capture_default_str();
  app.add_option("--noisy-max", flags.noisy_max, "disturbed windows measured again at most")
      ->capture_default_str();
  app.add_option("--only", flags.only, "cases whose name has this, such as 'pull zipf 32'");
  CLI11_PARSE(app, argc, argv);
  const Status status = run(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "bench_ps: {}: {}\n", sidereal::base::code_name(status.code()),
             sidereal::base::message_of(status));
  return 1;
}
