// Ours: a lane on each core, one connection.
#include <array>
#include <future>
#include <memory>
#include <optional>

#include "../ps/work.h"
#include "sidereal/base/check.h"
#include "sidereal/lane/lane.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/transport/acceptor.h"
#include "sidereal/transport/channel.h"
#include "sides.h"

namespace sidereal::bench {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

const char* const kTask = "/job:server/task:0";

config::Options connection_options(bool shared) {
  config::Options options;
  // Processes that are not measured stand still for long.
  options.keepalive_timeout_ms = 3'600'000;
  options.call_deadline_ms = 3'600'000;
  options.shared_memory = shared ? 1 : 0;
  return options;
}

/// Answers every call with the same tensor; receives into memory that is used again.
struct Handler final : transport::CallHandler {
  Result<Tensor> allocate(const transport::Connection&, const wire::FrameHeader&, int, DType dtype,
                          const Shape& shape) override {
    if (!feed.defined() || !(feed.shape() == shape)) feed = Tensor::empty(dtype, shape);
    return feed;
  }
  void on_call(const transport::Connection& from, const transport::Call& call,
               std::span<Tensor>) override {
    acceptor->reply(from.id, call.header.call_id, std::span(&answer, 1));
  }
  transport::Acceptor* acceptor = nullptr;
  Tensor feed;
  Tensor answer = Tensor::zeros(DType::kUInt8, {kReplyBytes});
};

/// Keeps messages under way; on its lane.
class Pump {
 public:
  explicit Pump(transport::Channel* channel) : channel_(channel) {
    for (Slot& slot : slots_) slot.pump = this;
  }

  void start(const Load& load, std::promise<Outcome>* ended) {
    recorder_.emplace(load);
    ended_ = ended;
    feed_ = Tensor::zeros(DType::kUInt8, {load.bytes});
    under_way_ = static_cast<int>(load.outstanding);
    for (int i = 0; i < under_way_; ++i) send(&slots_[static_cast<size_t>(i)]);
  }

 private:
  struct Slot final : transport::CallSink {
    Result<Tensor> allocate(int, DType, const Shape&) override { return fetch; }
    void done(const Status& status, std::span<Tensor>) override {
      SR_CHECK(status.ok(), "{}", base::message_of(status));
      pump->answered(this);
    }
    Pump* pump = nullptr;
    int64_t sent = 0;
    Tensor fetch = Tensor::zeros(DType::kUInt8, {kReplyBytes});
  };

  void send(Slot* slot) {
    slot->sent = recorder_->sent();
    const Result<uint64_t> id = channel_->call({.program = 1}, std::span(&feed_, 1), slot);
    SR_CHECK(id.ok(), "{}", base::message_of(id.status()));
  }
  void answered(Slot* slot) {
    if (recorder_->answered(slot->sent)) return send(slot);
    if (--under_way_ == 0) ended_->set_value(recorder_->outcome());
  }

  transport::Channel* channel_;
  std::array<Slot, kOutstandingMax> slots_;
  std::optional<Recorder> recorder_;
  std::promise<Outcome>* ended_ = nullptr;
  Tensor feed_;
  int under_way_ = 0;
};

}  // namespace

Status serve_lane(int in, int out, int64_t spin_us, bool shared) {
  const auto network = sys::posix::create_network();
  const auto clock = sys::posix::create_clock();
  SR_ASSIGN_OR_RETURN(const auto lane, lane::Lane::create({.name = "server",
                                                           .spin_us = spin_us,
                                                           .cpu = 0,
                                                           .network = network.get(),
                                                           .clock = clock.get()}));
  SR_ASSIGN_OR_RETURN(const auto endpoint, transport::Endpoint::create(lane.get(), {.task = kTask},
                                                                       connection_options(shared)));
  Handler handler;
  SR_ASSIGN_OR_RETURN(const auto acceptor,
                      transport::Acceptor::create(endpoint.get(), {"127.0.0.1", 0}, &handler));
  handler.acceptor = acceptor.get();
  lane->start();
  pin_to(0);
  const int32_t port = acceptor->address().port;
  write_all(out, &port, sizeof(port));
  char ignored = 0;
  (void)read_all(in, &ignored, 1);  // Returns when the other end closes.
  return lane->stop();
}

Status drive_lane(int in, int out, int port, int64_t spin_us, bool shared) {
  pin_to(1);
  const auto network = sys::posix::create_network();
  const auto clock = sys::posix::create_clock();
  SR_ASSIGN_OR_RETURN(const auto lane, lane::Lane::create({.name = "client",
                                                           .spin_us = spin_us,
                                                           .cpu = 1,
                                                           .network = network.get(),
                                                           .clock = clock.get()}));
  SR_ASSIGN_OR_RETURN(
      const auto endpoint,
      transport::Endpoint::create(lane.get(), {.task = "client"}, connection_options(shared)));
  const auto channel = transport::Channel::create(endpoint.get(), {kTask, 0, {"127.0.0.1", port}});
  std::promise<Status> connected;
  channel->connect(0, [&connected](const Status& status) { connected.set_value(status); });
  Pump pump(channel.get());
  lane->start();
  SR_RETURN_IF_ERROR(connected.get_future().get());
  const int32_t ready = 0;
  write_all(out, &ready, sizeof(ready));
  Load load;
  while (read_all(in, &load, sizeof(load))) {
    std::promise<Outcome> ended;
    SR_CHECK(lane->post([&] { pump.start(load, &ended); }));
    const Outcome outcome = ended.get_future().get();
    write_all(out, &outcome, sizeof(outcome));
  }
  return lane->stop();
}

}  // namespace sidereal::bench
