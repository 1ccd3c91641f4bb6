// Round trips and bulk transfers between two lanes of one process over loopback TCP. One iteration
// is 1000 calls. Arguments: request bytes, reply bytes, calls outstanding.
#include <benchmark/benchmark.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/transport/acceptor.h"
#include "sidereal/transport/channel.h"

namespace sidereal::transport {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// Answers every call with the same tensor; receives into one tensor.
struct FixedServer : CallHandler {
  Result<Tensor> allocate(const Connection&, const wire::FrameHeader&, int, DType dtype,
                          const Shape& shape) override {
    if (!feed.defined() || !(feed.shape() == shape)) feed = Tensor::empty(dtype, shape);
    return feed;
  }
  void on_call(const Connection& from, const Call& call, std::span<Tensor>) override {
    acceptor->reply(from.id, call.header.call_id, std::span(&answer, 1));
  }
  Acceptor* acceptor = nullptr;
  Tensor feed;
  Tensor answer;
};

/// Keeps `outstanding` calls in flight until `left` have been sent and all are answered.
struct Pump : CallSink {
  Result<Tensor> allocate(int, DType dtype, const Shape& shape) override {
    if (!fetch.defined() || !(fetch.shape() == shape)) fetch = Tensor::empty(dtype, shape);
    return fetch;
  }
  void done(const Status& status, std::span<Tensor>) override {
    SR_CHECK(status.ok(), "{}", base::message_of(status));
    --in_flight;
    fill();
    if (in_flight == 0) finished.set_value();
  }
  void fill() {
    while (left > 0 && in_flight < outstanding) {
      const auto id = channel->call({.program = 1}, std::span(&feed, 1), this);
      SR_CHECK(id.ok(), "{}", base::message_of(id.status()));
      --left;
      ++in_flight;
    }
  }
  Channel* channel = nullptr;
  Tensor feed;
  Tensor fetch;
  int64_t left = 0;
  int64_t outstanding = 1;
  int64_t in_flight = 0;
  std::promise<void> finished;
};

struct Rig {
  explicit Rig(int64_t spin_us, bool one_lane = false, const Resume& resume = {}) {
    options.send_buffer_bytes_max = int64_t{1} << 30;
    client_lane = make_lane("client", spin_us, 1);
    if (!one_lane) other_lane = make_lane("server", spin_us, 0);
    lane::Lane* const server_lane = one_lane ? client_lane.get() : other_lane.get();
    server_end = Endpoint::create(server_lane, {.task = "server"}, options).value();
    client_end = Endpoint::create(client_lane.get(), {.task = "client"}, options).value();
    acceptor = Acceptor::create(server_end.get(), {"127.0.0.1", 0}, &server).value();
    server.acceptor = acceptor.get();
    channel = Channel::create(client_end.get(), {"server", 0, acceptor->address()}, resume);
    pump.channel = channel.get();
    std::promise<Status> connected;
    channel->connect(0, [&](const Status& status) { connected.set_value(status); });
    if (other_lane != nullptr) other_lane->start();
    client_lane->start();
    const Status status = connected.get_future().get();
    SR_CHECK(status.ok(), "{}", base::message_of(status));
  }
  ~Rig() {
    SR_CHECK(client_lane->stop().ok());
    if (other_lane != nullptr) SR_CHECK(other_lane->stop().ok());
  }
  std::unique_ptr<lane::Lane> make_lane(const char* name, int64_t spin_us, int cpu) {
    return lane::Lane::create({.name = name,
                               .spin_us = spin_us,
                               .cpu = cpu,
                               .network = network.get(),
                               .clock = clock.get()})
        .value();
  }
  void run(int64_t calls, int64_t outstanding) {
    pump.left = calls;
    pump.outstanding = outstanding;
    pump.finished = {};
    auto finished = pump.finished.get_future();
    SR_CHECK(client_lane->post([this] { pump.fill(); }));
    finished.wait();
  }

  config::Options options;
  std::unique_ptr<sys::Network> network = sys::posix::create_network();
  std::unique_ptr<sys::Clock> clock = sys::posix::create_clock();
  FixedServer server;
  Pump pump;
  std::unique_ptr<lane::Lane> other_lane, client_lane;
  std::unique_ptr<Endpoint> server_end, client_end;
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<Channel> channel;
};

void transfer(benchmark::State& state, int64_t spin_us) {
  Rig rig(spin_us);
  rig.pump.feed = Tensor::zeros(DType::kUInt8, {state.range(0)});
  rig.server.answer = Tensor::zeros(DType::kUInt8, {state.range(1)});
  const int64_t outstanding = state.range(2);
  rig.run(10 * outstanding, outstanding);
  for (auto _ : state) {  // a batch: starting and ending it hardly counts
    rig.run(1000, outstanding);
  }
  const int64_t calls = 1000 * state.iterations();
  state.SetItemsProcessed(calls);
  state.SetBytesProcessed(calls * (state.range(0) + state.range(1)));
  const auto calls_ns = rig.client_lane->metrics().call_ns.snapshot();
  state.counters["p50_us"] = static_cast<double>(calls_ns.quantile(0.5)) / 1e3;
  state.counters["p99_us"] = static_cast<double>(calls_ns.quantile(0.99)) / 1e3;
}

/// Both ends on one lane, so that nobody waits: the processor time of a call, for both together.
void both_ends_of(benchmark::State& state, const Resume& resume) {
  Rig rig(0, true, resume);
  rig.pump.feed = Tensor::zeros(DType::kUInt8, {state.range(0)});
  rig.server.answer = Tensor::zeros(DType::kUInt8, {state.range(1)});
  rig.run(1000, state.range(2));
  for (auto _ : state) rig.run(1000, state.range(2));
  state.SetItemsProcessed(1000 * state.iterations());
}

void both_ends(benchmark::State& state) { both_ends_of(state, {}); }
/// The same with calls that outlive their connections.
void both_ends_resuming(benchmark::State& state) {
  both_ends_of(state, {.client_high = 1, .client_low = 1});
}
void polling(benchmark::State& state) { transfer(state, -1); }
void sleeping(benchmark::State& state) { transfer(state, 0); }
void adaptive(benchmark::State& state) { transfer(state, lane::kSpinAdaptive); }

constexpr int64_t kKeys = 26 * 1024 * 8;       // 213 KB: the ids of one batch
constexpr int64_t kRows = 26 * 1024 * 16 * 4;  // 1.7 MB: their rows

void bulk_cases(benchmark::internal::Benchmark* b) {
  b->UseRealTime()->Unit(benchmark::kMillisecond);
  b->Args({64, 64, 1})->Args({64, 64, 64})->Args({4096, 16, 64})->Args({65536, 16, 16});
  b->Args({1 << 20, 16, 16})->Args({16, 1 << 20, 16});
  for (const int64_t outstanding : {1, 4}) {
    b->Args({kKeys, kRows, outstanding})->Args({kKeys + kRows, 16, outstanding});
  }
}
BENCHMARK(both_ends)
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond)
    ->Args({64, 16, 64})
    ->Args({4096, 16, 64});
BENCHMARK(both_ends_resuming)
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond)
    ->Args({64, 16, 64})
    ->Args({4096, 16, 64});
BENCHMARK(polling)->Apply(bulk_cases);
BENCHMARK(sleeping)->UseRealTime()->Unit(benchmark::kMillisecond)->Args({64, 64, 1});
BENCHMARK(adaptive)->Apply(bulk_cases);

}  // namespace
}  // namespace sidereal::transport
