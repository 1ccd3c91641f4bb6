// Messages between two processes over loopback TCP: lanes, gRPC unary calls, ZeroMQ, and as limits
// a loop that knows small messages only and a stream without messages; and lanes through shared
// memory. The server runs on core 0, the client on core 1; the client keeps so many messages of
// some size under way, each is answered with 16 bytes. Sides take turns within each round, all
// others stand still, and figures are medians of the rounds.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ps/process.h"
#include "ps/work.h"
#include "transport/sides.h"

namespace {

using namespace sidereal::bench;  // NOLINT: this is that namespace's main program.
namespace base = sidereal::base;
using sidereal::Result;
using sidereal::Status;

constexpr double kReadySeconds = 60;
constexpr double kLoadSeconds = 60;
constexpr double kForeignMax = 0.10;  // Of one core.
constexpr int64_t kSpinAlways = -1;
constexpr int64_t kSpinDefault = 50;
constexpr int64_t kSpinNever = 0;

struct Flags {
  int rounds = 7;
  int64_t window_ms = 300;
  int noisy_max = 60;
  std::string only;
  std::string side;
  std::string json;
};

struct Case {
  std::string name;
  int64_t bytes;
  int64_t outstanding;
};

const std::array<Case, 5> kCases = {
    Case{"64 B, one at a time", 64, 1}, Case{"64 B, 64 at a time", 64, 64},
    Case{"4 KiB, 64 at a time", 4 << 10, 64}, Case{"64 KiB, 16 at a time", 64 << 10, 16},
    Case{"1 MiB, 16 at a time", 1 << 20, 16}};

/// Two processes of one kind.
struct Side {
  std::string name;
  std::unique_ptr<Process> server;
  std::unique_ptr<Process> client;

  void pause() const {
    client->pause();
    server->pause();
  }
  void resume() const {
    server->resume();
    client->resume();
  }
  [[nodiscard]] double cpu_seconds() const { return client->cpu_seconds() + server->cpu_seconds(); }
};

struct Sample {
  double messages_per_s = 0;
  double p50_us = 0;
  double p99_us = 0;
  double client_cpu = 0;  // Of a core.
  double server_cpu = 0;
  double per_core = 0;  // Messages for each second of the processor that was busier.
};

double median_of(const std::vector<Sample>& samples, double Sample::*member) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(sample.*member);
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

class Bench {
 public:
  explicit Bench(const Flags& flags) : flags_(flags) {}

  Status start();
  Status run();
  [[nodiscard]] const nlohmann::json& rows() const { return rows_; }

 private:
  using Serve = std::function<Status(int in, int out)>;
  using Drive = std::function<Status(int in, int out, int port)>;
  Status add(const std::string& name, const Serve& serve, const Drive& drive);
  Result<Sample> measure(Side& side, const Load& load);
  Result<Sample> measure_quietly(Side& side, const Load& load);
  Status run_case(const Case& one);
  void report(const Case& one, const std::vector<std::vector<Sample>>& samples);
  void count_targets(const Case& one, const std::vector<std::vector<Sample>>& samples);
  [[nodiscard]] double rate(const std::vector<std::vector<Sample>>& samples,
                            const std::string& name, double Sample::*member) const;

  Flags flags_;
  std::vector<Side> sides_;
  int loads_ = 0;
  int noisy_ = 0;
  int noisy_kept_ = 0;
  std::vector<std::string> targets_;
  nlohmann::json rows_ = nlohmann::json::array();
};

/// Servers first: clients get ports. Everything is forked before this process has threads.
Status Bench::add(const std::string& name, const Serve& serve, const Drive& drive) {
  if (name.find(flags_.side) == std::string::npos) return {};
  Side side;
  side.name = name;
  SR_ASSIGN_OR_RETURN(side.server, Process::fork(name + ", server", serve));
  int32_t port = 0;
  SR_RETURN_IF_ERROR(side.server->receive(&port, sizeof(port), kReadySeconds));
  SR_ASSIGN_OR_RETURN(side.client, Process::fork(name + ", client", [&](int in, int out) {
                        return drive(in, out, port);
                      }));
  int32_t ready = 0;
  SR_RETURN_IF_ERROR(side.client->receive(&ready, sizeof(ready), kReadySeconds));
  side.pause();
  sides_.push_back(std::move(side));
  return {};
}

Status Bench::start() {
  const auto add_lanes = [this](const std::string& name, int64_t spin_us, bool shared) {
    return add(
        name, [=](int in, int out) { return serve_lane(in, out, spin_us, shared); },
        [=](int in, int out, int port) { return drive_lane(in, out, port, spin_us, shared); });
  };
  for (const bool shared : {false, true}) {
    const std::string how = shared ? "lanes, shared memory, " : "lanes, ";
    SR_RETURN_IF_ERROR(add_lanes(how + "polling", kSpinAlways, shared));
    SR_RETURN_IF_ERROR(add_lanes(how + "spin 50 us", kSpinDefault, shared));
    SR_RETURN_IF_ERROR(add_lanes(how + "blocking", kSpinNever, shared));
  }
  for (const bool queue : {false, true}) {
    SR_RETURN_IF_ERROR(add(
        queue ? "gRPC, queues" : "gRPC, callbacks",
        [=](int in, int out) { return serve_grpc_echo(in, out, queue); },
        [=](int in, int out, int port) { return drive_grpc_echo(in, out, port, queue); }));
  }
  if (has_zmq()) {
    for (const bool polling : {true, false}) {
      SR_RETURN_IF_ERROR(add(
          polling ? "ZeroMQ, polling" : "ZeroMQ, blocking",
          [=](int in, int out) { return serve_zmq(in, out, polling); },
          [=](int in, int out, int port) { return drive_zmq(in, out, port, polling); }));
    }
  }
  SR_RETURN_IF_ERROR(add("hand-written loop", serve_hand_loop, drive_hand_loop));
  return add("TCP stream", serve_stream, drive_stream);
}

Result<Sample> Bench::measure(Side& side, const Load& load) {
  const double client = side.client->cpu_seconds();
  const double server = side.server->cpu_seconds();
  const int64_t from = now_ns();
  side.resume();
  Outcome outcome;
  SR_RETURN_IF_ERROR(side.client->send(&load, sizeof(load)));
  SR_RETURN_IF_ERROR(side.client->receive(&outcome, sizeof(outcome), kLoadSeconds));
  side.pause();
  ++loads_;
  const double all = static_cast<double>(now_ns() - from) / 1e9;
  const double seconds = static_cast<double>(std::max<int64_t>(outcome.ns, 1)) / 1e9;
  Sample sample = {.messages_per_s = static_cast<double>(outcome.messages) / seconds,
                   .p50_us = static_cast<double>(outcome.p50_ns) / 1e3,
                   .p99_us = static_cast<double>(outcome.p99_ns) / 1e3,
                   .client_cpu = (side.client->cpu_seconds() - client) / all,
                   .server_cpu = (side.server->cpu_seconds() - server) / all};
  // Hardly changes with what else the machine does; a client that only waits costs little.
  const double busier = std::max({sample.client_cpu, sample.server_cpu, 0.01});
  sample.per_core = sample.messages_per_s / busier;
  return sample;
}

/// Measures again while other programs used more than kForeignMax of a core, within limits.
Result<Sample> Bench::measure_quietly(Side& side, const Load& load) {
  while (true) {
    const int64_t from = now_ns();
    const double busy = machine_busy_seconds();
    const double own = side.cpu_seconds();
    SR_ASSIGN_OR_RETURN(const Sample sample, measure(side, load));
    const double seconds = static_cast<double>(now_ns() - from) / 1e9;
    const double foreign = machine_busy_seconds() - busy - (side.cpu_seconds() - own);
    if (foreign <= kForeignMax * seconds) return sample;
    ++noisy_;
    if (noisy_ > flags_.noisy_max) {
      ++noisy_kept_;
      return sample;
    }
  }
}

double Bench::rate(const std::vector<std::vector<Sample>>& samples, const std::string& name,
                   double Sample::*member) const {
  for (size_t i = 0; i < sides_.size(); ++i) {
    if (sides_[i].name == name && !samples[i].empty()) return median_of(samples[i], member);
  }
  return 0;
}

void Bench::count_targets(const Case& one, const std::vector<std::vector<Sample>>& samples) {
  const auto say = [this](const std::string& what, double figure, double wanted, bool at_most) {
    if (!std::isnormal(figure)) return;  // One of the sides was left out.
    const bool met = at_most ? figure <= wanted : figure >= wanted;
    targets_.push_back(fmt::format("{:<52} {:>8.2f} (wanted: at {} {}) {}", what, figure,
                                   at_most ? "most" : "least", wanted, met ? "met" : "NOT met"));
  };
  const auto of = [&](const std::string& name) {
    return rate(samples, name, &Sample::messages_per_s);
  };
  const double ours = of("lanes, polling");
  const double grpc = std::max(of("gRPC, callbacks"), of("gRPC, queues"));
  if (one.bytes == 64 && one.outstanding == 64) {
    say("64 B, 64 at a time: times the faster gRPC", ours / grpc, 20, false);
    say("64 B, 64 at a time: millions of messages/s", ours / 1e6, 2.5, false);
    const double limit = of("hand-written loop");
    if (limit > 0) {
      targets_.push_back(fmt::format(
          "{:<52} {:>8.2f}", "64 B, 64 at a time: part of the hand-written loop", ours / limit));
    }
  }
  if (one.bytes == 64 << 10)
    say("64 KiB, 16 at a time: times the faster gRPC", ours / grpc, 3, false);
  if (one.bytes == 1 << 20) {
    say("1 MiB, 16 at a time: part of the TCP stream", ours / of("TCP stream"), 0.8, false);
  }
  if (one.outstanding == 1) {
    const double p50 = std::min(rate(samples, "gRPC, callbacks", &Sample::p50_us),
                                rate(samples, "gRPC, queues", &Sample::p50_us));
    say("64 B round trip: part of the faster gRPC's",
        rate(samples, "lanes, polling", &Sample::p50_us) / p50, 1.0 / 9, true);
  }
}

void Bench::report(const Case& one, const std::vector<std::vector<Sample>>& samples) {
  const double ours = rate(samples, "lanes, polling", &Sample::messages_per_s);
  for (size_t i = 0; i < sides_.size(); ++i) {
    if (samples[i].empty()) continue;
    const double all = median_of(samples[i], &Sample::messages_per_s);
    const auto less = [](const Sample& a, const Sample& b) {
      return a.messages_per_s < b.messages_per_s;
    };
    const auto [low, high] = std::minmax_element(samples[i].begin(), samples[i].end(), less);
    const double gigabytes = all * static_cast<double>(one.bytes) / 1e9;
    fmt::print(
        "{:<21} {:<30} {:>8.1f} {:>17} {:>6.2f} {:>8.1f} {:>8.1f} {:>4.0f} {:>4.0f} {:>8.1f} "
        "{:>7.2f}\n",
        one.name, sides_[i].name, all / 1e3,
        fmt::format("[{:.1f}-{:.1f}]", low->messages_per_s / 1e3, high->messages_per_s / 1e3),
        gigabytes, median_of(samples[i], &Sample::p50_us), median_of(samples[i], &Sample::p99_us),
        median_of(samples[i], &Sample::client_cpu) * 100,
        median_of(samples[i], &Sample::server_cpu) * 100,
        median_of(samples[i], &Sample::per_core) / 1e3, ours / all);
    rows_.push_back({{"case", fmt::format("{} vs {}", one.name, sides_[i].name)},
                     {"ours", ours},
                     {"peer", all},
                     {"unit", "messages/s"},
                     {"ratio", ours / all},
                     {"peer_bytes_per_s", gigabytes * 1e9},
                     {"peer_p50_us", median_of(samples[i], &Sample::p50_us)},
                     {"peer_p99_us", median_of(samples[i], &Sample::p99_us)},
                     {"peer_messages_per_core_s", median_of(samples[i], &Sample::per_core)}});
  }
  std::fflush(stdout);
}

Status Bench::run_case(const Case& one) {
  const Load load = {.bytes = one.bytes,
                     .outstanding = one.outstanding,
                     .warm_ns = flags_.window_ms * 200'000,
                     .measure_ns = flags_.window_ms * 1'000'000};
  std::vector<std::vector<Sample>> samples(sides_.size());
  for (int round = 0; round < flags_.rounds; ++round) {
    for (size_t i = 0; i < sides_.size(); ++i) {
      // A stream has no messages; small ones would be the same figure again. The loop has no more.
      const bool is_small = one.bytes < 64 << 10;
      if (sides_[i].name == (is_small ? "TCP stream" : "hand-written loop")) continue;
      SR_ASSIGN_OR_RETURN(const Sample sample, measure_quietly(sides_[i], load));
      samples[i].push_back(sample);
    }
  }
  report(one, samples);
  count_targets(one, samples);
  return {};
}

Status Bench::run() {
  fmt::print(
      "Server on core 0, client on core 1, loopback TCP; each message is answered with 16 bytes. "
      "Congestion control: cubic on\nevery socket of every side (this machine's default: {}). "
      "Medians of {} windows of {} ms [least-most]; k/core: messages for each\nsecond of processor "
      "time of the "
      "busier side; ratio: lanes that poll to this side.{}\n\n",
      default_congestion_control(), flags_.rounds, flags_.window_ms,
      has_zmq() ? "" : " Built without ZeroMQ (libzmq3-dev): skipped.");
  fmt::print("{:<21} {:<30} {:>8} {:>17} {:>6} {:>8} {:>8} {:>4} {:>4} {:>8} {:>7}\n", "messages",
             "side", "k/s", "", "GB/s", "p50 us", "p99 us", "cl %", "sv %", "k/core", "ratio");
  for (const Case& one : kCases) {
    if (one.name.find(flags_.only) == std::string::npos) continue;
    SR_RETURN_IF_ERROR(run_case(one));
  }
  fmt::print("\n");
  for (const std::string& target : targets_) fmt::print("{}\n", target);
  fmt::print(
      "{} windows, {} disturbed by other programs (more than {:.0f} % of a core): {} measured "
      "again, {} kept\n",
      loads_, noisy_, kForeignMax * 100, noisy_ - noisy_kept_, noisy_kept_);
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
  return base::unavailable("cannot write {}", flags.json);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Messages between two processes: lanes, gRPC, ZeroMQ, a TCP stream");
  app.add_option("--json", flags.json, "write the figures to this file");
  app.add_option("--rounds", flags.rounds, "windows per case")->capture_default_str();
  app.add_option("--window-ms", flags.window_ms, "length of a window")->capture_default_str();
  app.add_option("--noisy-max", flags.noisy_max, "disturbed windows measured again at most")
      ->capture_default_str();
  app.add_option("--only", flags.only, "cases whose name has this, such as '64 KiB'");
  app.add_option("--side", flags.side, "sides whose name has this, such as 'lanes'");
  CLI11_PARSE(app, argc, argv);
  const Status status = run(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "bench_transport: {}: {}\n", base::code_name(status.code()),
             base::message_of(status));
  return 1;
}
