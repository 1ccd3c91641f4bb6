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
  int64_t window_ms = 250;
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
  Result<Api> choose_api(Window window);
  Status run_group(Op op, bool skewed, int64_t batch);
  void report(const std::string& name, int64_t batch, const Samples& ours, const Samples& local,
              const Samples& grpc, Api api);

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

/// Which way of using gRPC is the fastest for this case.
Result<Api> Bench::choose_api(Window window) {
  window.measure_ns /= 2;
  Api best = Api::kSync;
  double best_rate = 0;
  for (const Api api : {Api::kSync, Api::kAsync, Api::kAsyncSpin}) {
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
  std::array<Api, kOutstanding.size()> apis = {};
  for (size_t i = 0; i < kOutstanding.size(); ++i) {
    window.outstanding = kOutstanding[i];
    SR_ASSIGN_OR_RETURN(apis[i], choose_api(window));
  }
  Samples local;
  std::array<Samples, kOutstanding.size()> ours;
  std::array<Samples, kOutstanding.size()> grpc;
  for (int round = 0; round < flags_.rounds; ++round) {
    window.outstanding = 1;
    SR_ASSIGN_OR_RETURN(const Figures alone, measure_quietly(local_, window));
    local.add(alone);
    for (size_t i = 0; i < kOutstanding.size(); ++i) {
      window.outstanding = kOutstanding[i];
      window.api = apis[i];
      SR_ASSIGN_OR_RETURN(const Figures mine, measure_quietly(ours_, window));
      ours[i].add(mine);
      SR_ASSIGN_OR_RETURN(const Figures theirs, measure_quietly(grpc_, window));
      grpc[i].add(theirs);
    }
  }
  for (size_t i = 0; i < kOutstanding.size(); ++i) {
    report(fmt::format("{} {} {:>4} N={}", op == Op::kPull ? "pull" : "push",
                       skewed ? "zipf   " : "uniform", batch, kOutstanding[i]),
           batch, ours[i], local, grpc[i], apis[i]);
  }
  return {};
}

void Bench::report(const std::string& name, int64_t batch, const Samples& ours,
                   const Samples& local, const Samples& grpc, Api api) {
  const double mine = median(ours.ids_per_s);
  const double alone = median(local.ids_per_s);
  const double theirs = median(grpc.ids_per_s);
  const double rows = median(ours.rows_per_s);
  const double bytes = rows * static_cast<double>(kRowBytes + sizeof(int64_t));
  const auto [low, high] = std::minmax_element(ours.ids_per_s.begin(), ours.ids_per_s.end());
  fmt::print(
      "{:<22} {:>8.2f} {:>13} {:>8.2f} {:>6.2f} {:>9.0f} | {:>8.2f} {:>5.2f} | {:>7.2f} "
      "{:>6.2f}  {}\n",
      name, mine / 1e6, fmt::format("[{:.2f}-{:.2f}]", *low / 1e6, *high / 1e6), rows / 1e6,
      bytes / 1e9, median(ours.calls_per_s), alone / 1e6, mine / alone, theirs / 1e6, mine / theirs,
      kApiNames[static_cast<size_t>(api)]);
  std::fflush(stdout);
  const auto count = [this](const std::string& target, bool met) {
    targets_[target].first += met ? 1 : 0;
    ++targets_[target].second;
  };
  count("at least 0.55 of in-process", mine >= 0.55 * alone);
  if (batch == 1024) count("at least 1.5 times gRPC at batch 1024", mine >= 1.5 * theirs);
  if (batch == 32) count("at least 4 times gRPC at batch 32", mine >= 4 * theirs);
  const auto row = [&](const std::string& peer, double figure, double peer_rows) {
    rows_.push_back({{"case", name + " vs " + peer},
                     {"ours", mine},
                     {"peer", figure},
                     {"unit", "ids/s"},
                     {"ratio", mine / figure},
                     {"ours_unique_rows_per_s", rows},
                     {"ours_bytes_per_s", bytes},
                     {"peer_unique_rows_per_s", peer_rows}});
  };
  row("in-process", alone, median(local.rows_per_s));
  row(std::string("gRPC ") + kApiNames[static_cast<size_t>(api)], theirs, median(grpc.rows_per_s));
}

Status Bench::run() {
  fmt::print(
      "26 fields x batch, {} rows x {} float32 with Adagrad's accumulator in the row. ps on core "
      "0, worker on core 1.\nOurs polls always, TCP cubic on both sides; gRPC is the best of sync, "
      "async and async with a spinning queue.\nMillions of ids/s, medians of {} windows of {} ms "
      "[least-most]; unique rows/s and bytes/s are what travels.\n\n",
      kTableRows, kDim, flags_.rounds, flags_.window_ms);
  fmt::print("{:<22} {:>8} {:>13} {:>8} {:>6} {:>9} | {:>8} {:>5} | {:>7} {:>6}  {}\n", "case",
             "ours", "", "unique M", "GB/s", "calls/s", "in-proc.", "ratio", "gRPC", "ratio",
             "gRPC's API");
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
