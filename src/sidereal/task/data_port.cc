#include "sidereal/task/data_port.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sidereal/base/bytes.h"
#include "sidereal/base/log.h"
#include "sidereal/base/slot_map.h"
#include "sidereal/exec/buffer_pool.h"
#include "sidereal/metrics/lane_metrics.h"
#include "sidereal/task/failure.h"
#include "sidereal/task/failure.pb.h"
#include "sidereal/task/idle_list.h"
#include "sidereal/transport/acceptor.h"
#include "sidereal/wire/frame.h"

namespace sidereal::task {

using tensor::Tensor;
using transport::Connection;
using transport::ConnectionId;

std::string encode_run(const RunExtra& extra) {
  base::ByteWriter out;
  out.put<int32_t>(extra.trace);
  const auto lane = static_cast<uint32_t>(extra.lane);
  out.put<uint32_t>(extra.whole ? 1 | (lane << 8) : 0);
  out.put(extra.number);
  if (extra.closure.client != 0) {
    out.put(extra.closure.client);
    out.put(extra.closure.closure);
  }
  return out.take();
}

Result<RunExtra> decode_run(std::string_view bytes) {
  base::ByteReader in(bytes);
  RunExtra out;
  uint32_t flags = 0;
  SR_RETURN_IF_ERROR(in.get(&out.trace));
  SR_RETURN_IF_ERROR(in.get(&flags));
  SR_RETURN_IF_ERROR(in.get(&out.number));
  if (in.remaining() > 0) {
    SR_RETURN_IF_ERROR(in.get(&out.closure.client));
    SR_RETURN_IF_ERROR(in.get(&out.closure.closure));
  }
  out.whole = (flags & 1) != 0;
  out.lane = static_cast<int>(flags >> 8);
  const uint32_t known = out.whole ? 0xff01 : 0;
  if (in.remaining() > 0 || (flags & ~known) != 0 || out.trace < 0) {
    return base::data_loss("a call to run a program has wrong bytes beside its feeds");
  }
  return out;
}

std::string encode_tensors(const TensorsExtra& extra) {
  base::ByteWriter out;
  out.put(extra.incarnation);
  for (const ports::RendezvousKey& key : extra.keys) {
    out.put(key.edge);
    out.put(key.step);
  }
  return out.take();
}

std::array<char, 24> encode_tensors(uint64_t incarnation, const ports::RendezvousKey& key) {
  std::array<char, 24> out;
  std::memcpy(out.data(), &incarnation, 8);
  std::memcpy(out.data() + 8, &key.edge, 8);
  std::memcpy(out.data() + 16, &key.step, 8);
  return out;
}

Status decode_tensors(std::string_view bytes, TensorsExtra* out) {
  if (bytes.size() % 16 != 8) return base::data_loss("a receive request of {} bytes", bytes.size());
  if (bytes.size() / 16 > static_cast<size_t>(kReceiveRequestKeysMax)) {
    return base::resource_exhausted("a receive request has {} keys; {} are allowed",
                                    bytes.size() / 16, kReceiveRequestKeysMax);
  }
  base::ByteReader in(bytes);
  SR_RETURN_IF_ERROR(in.get(&out->incarnation));
  out->keys.resize(bytes.size() / 16);
  for (ports::RendezvousKey& key : out->keys) {
    SR_RETURN_IF_ERROR(in.get(&key.edge));
    SR_RETURN_IF_ERROR(in.get(&key.step));
  }
  return {};
}

namespace {

/// Parts of steps and receive requests that a data port has open, and tensors that the receive
/// requests ask for.
constexpr size_t kPartsMax = 65'536;
constexpr size_t kReceiveRequestsMax = 65'536;
constexpr size_t kOpenKeysMax = size_t{1} << 18;
/// Of what an answer says beside its tensors, which stand before it.
constexpr size_t kTailBytesMax = transport::Endpoint::kMetaBytesMax - (size_t{128} << 10);
/// Memory for feeds that a task keeps for the next ones.
constexpr size_t kFeedBytesKept = size_t{256} << 20;

/// Receive requests that have been answered and are kept for others, and the most keys of these.
constexpr size_t kIdleReceiveRequestsMax = 4096;
constexpr size_t kIdleKeysMax = 64;

}  // namespace

class DataPort::Impl final : public transport::CallHandler {
 public:
  Impl(Task* task, int lane)
      : task_(task),
        lane_(lane),
        next_whole_(task->incarnation() + (static_cast<uint64_t>(lane) << 48)),
        feed_memory_(kFeedBytesKept / static_cast<size_t>(task->lanes())) {}

  Status listen(transport::Endpoint* endpoint, const sys::Address& address) {
    SR_ASSIGN_OR_RETURN(acceptor_, transport::Acceptor::create(endpoint, address, this));
    return {};
  }
  [[nodiscard]] int port() const { return acceptor_->address().port; }
  void drain() { draining_ = true; }
  [[nodiscard]] const metrics::Figures& figures() const { return figures_; }

 private:
  /// Answers the receive request of a peer when all of its tensor groups are there; then it serves
  /// for another one.
  class ReceiveRequest final : public Task::Receiver {
   public:
    explicit ReceiveRequest(Impl* port) : port_(port) {}

    /// `elsewhere`: the step is on another lane of the task.
    void begin(ConnectionId from, uint64_t call_id, uint64_t step, size_t keys, bool elsewhere) {
      from_ = from;
      call_id_ = call_id;
      step_ = step;
      keys_ = keys;
      is_elsewhere_ = elsewhere;
      is_answered_ = false;
      tensor_groups_.resize(std::max<size_t>(keys, 1));
    }
    [[nodiscard]] ConnectionId from() const { return from_; }
    [[nodiscard]] uint64_t call_id() const { return call_id_; }
    [[nodiscard]] uint64_t step() const { return step_; }
    [[nodiscard]] size_t keys() const { return keys_; }
    [[nodiscard]] bool is_elsewhere() const { return is_elsewhere_; }
    void clear() {
      for (ports::TensorGroup& tensor_group : tensor_groups_) tensor_group.clear();
    }

    void give(size_t index, std::span<const Tensor> values) override {
      if (keys_ == 1 && !is_elsewhere_) return answer({}, values);
      tensor_groups_[index].assign(values.begin(), values.end());
    }
    void end(Status status) override {
      if (is_answered_) return;
      ports::TensorGroup& all = tensor_groups_[0];
      for (size_t i = 1; i < tensor_groups_.size(); ++i) {
        all.insert(all.end(), tensor_groups_[i].begin(), tensor_groups_[i].end());
      }
      if (!is_elsewhere_) return answer(status, all);
      port_->task_->post_urgent(
          port_->lane_, [self = base::RefPtr<ReceiveRequest>::share(this), status] {
            self->port_->answer_receive_request(*self, status, self->tensor_groups_[0]);
          });
    }

   private:
    void answer(const Status& status, std::span<const Tensor> values) {
      is_answered_ = true;
      port_->answer_receive_request(*this, status, values);
    }

    Impl* const port_;
    ConnectionId from_;
    uint64_t call_id_ = 0;
    uint64_t step_ = 0;
    size_t keys_ = 0;
    bool is_elsewhere_ = false;
    bool is_answered_ = false;
    std::vector<ports::TensorGroup> tensor_groups_;
  };

  /// A number of a call or a step, and the connection that it came over.
  using Name = std::pair<uint64_t, uint64_t>;
  static Name name_of(ConnectionId from, uint64_t number) { return {from.value, number}; }
  /// A step that is here: a part that runs or left tensors for others.
  struct OpenStep {
    uint64_t number = 0;  ///< By which the task knows it.
    int lane = 0;         ///< Of a whole one.
    bool whole = false;   ///< It is one call alone.
  };
  /// A call whose answer is not to be sent twice: one of these.
  struct OpenCall {
    uint64_t run = 0;  ///< Of a step that is this call alone, in open_runs_; 0: none.
    base::RefPtr<ReceiveRequest> receive_request;
  };
  using Calls = absl::flat_hash_map<Name, OpenCall>;
  /// A call that runs.
  struct OpenRun {
    ConnectionId from;
    uint64_t call_id = 0;
    uint64_t step = 0;
    bool whole = false;  ///< The step is this call alone.
  };

  void on_call(const Connection& from, const transport::Call& call,
               std::span<Tensor> feeds) override {
    const Status status = take(from, call, feeds);
    if (status.ok()) return;
    if (status.code() != StatusCode::kUnavailable && status.code() != StatusCode::kAborted) {
      refused_.add();
    }
    acceptor_->reply_error(from.id, call.header.call_id, status);
  }

  Status take(const Connection& from, const transport::Call& call, std::span<Tensor> feeds) {
    const uint64_t step = call.header.step;
    switch (static_cast<DataCall>(call.header.kind)) {
      case DataCall::kRun:
        return run(from, call, feeds);
      case DataCall::kTensors:
        return give_tensors(from, call);
      case DataCall::kEndStep:
        end_step(from.id, step);
        acceptor_->reply(from.id, call.header.call_id, {});
        return {};
      case DataCall::kCancelStep:
        cancel_step(from.id, step);
        acceptor_->reply(from.id, call.header.call_id, {});
        return {};
    }
    return base::unimplemented("{} knows no call of kind {}", task_->name(), call.header.kind);
  }

  void cancel_step(ConnectionId from, uint64_t step) {
    const auto open = steps_.find(name_of(from, step));
    if (open == steps_.end()) return;
    if (open->second.whole) return task_->cancel(open->second.number, open->second.lane);
    task_->cancel(step);
  }

  void end_step(ConnectionId from, uint64_t step) {
    const auto open = steps_.find(name_of(from, step));
    if (open == steps_.end() || open->second.whole) return;
    steps_.erase(open);
    task_->end_step(step);
  }

  /// True when the lane of this hint is not this one; counts it.
  bool is_elsewhere(int hint) {
    if (hint % task_->lanes() == lane_) return false;
    forwarded_.add();
    return true;
  }

  Result<Tensor> allocate(const Connection& /*from*/, const wire::FrameHeader& /*header*/,
                          int /*position*/, tensor::DType dtype,
                          const tensor::Shape& shape) override {
    return feed_memory_.try_tensor(dtype, shape);
  }

  Status run(const Connection& from, const transport::Call& call, std::span<Tensor> feeds) {
    Status begun = begin_run(from, call, feeds);
    call_.feeds.clear();
    return begun;
  }

  Status begin_run(const Connection& from, const transport::Call& call, std::span<Tensor> feeds) {
    if (draining_) return is_stopping(task_->name());
    SR_ASSIGN_OR_RETURN(const RunExtra extra, decode_run(call.extra));
    const bool is_repeatable = (call.header.flags & wire::kRepeatable) != 0;
    ProgramCall& what = call_;
    what.feeds.resize(feeds.size());
    what = {.session = call.header.session,
            .program = call.header.program,
            .step = call.header.step,
            .feeds = std::move(what.feeds),
            .trace = extra.trace,
            .whole = extra.whole,
            .goes_on = extra.whole && !is_repeatable,
            .number = extra.number,
            .closure = extra.closure,
            .lane = extra.lane};
    for (size_t i = 0; i < feeds.size(); ++i) {
      const uint32_t slot = call.slots[i].slot;
      if (slot >= feeds.size() || what.feeds[slot].defined() || !feeds[i].defined()) {
        return base::invalid_argument("feed {} of a call is dead, or there twice", slot);
      }
      what.feeds[slot] = std::move(feeds[i]);
    }
    const uint64_t step = call.header.step;
    const uint64_t id = call.header.call_id;
    // Sent again while it runs, over a new connection: that gets the one answer.
    if (is_repeatable && calls_.contains(name_of(from.id, id))) return {};
    SR_RETURN_IF_ERROR(check_new(from.id, id));
    if (steps_.size() >= kPartsMax) {
      return base::resource_exhausted("{} runs {} steps for others, as many as it takes",
                                      task_->name(), kPartsMax);
    }
    // A whole one has a number of this port. The client's would be there twice where a call is sent
    // again over another connection before the end of the first one has been noticed.
    if (extra.whole) what.step = next_whole_++;
    const OpenStep open_step = {.number = what.step, .lane = extra.lane, .whole = extra.whole};
    if (!steps_.try_emplace(name_of(from.id, step), open_step).second) {
      return base::make_status(StatusCode::kAlreadyExists, "the step is here already");
    }
    // A number for all of it, as a larger closure would take memory.
    const uint64_t open =
        open_runs_.add({.from = from.id, .call_id = id, .step = step, .whole = extra.whole});
    if (extra.whole) calls_[name_of(from.id, id)].run = open;
    if (is_elsewhere(extra.whole ? extra.lane : lane_hint(step))) {
      task_->run(&what, [this, open](ProgramResult& result) {
        auto held = std::make_shared<ProgramResult>(std::move(result));
        task_->post_urgent(lane_, [this, open, held] { answer(open, *held); });
      });
    } else {
      task_->run(&what, [this, open](ProgramResult& result) { answer(open, result); });
    }
    return {};
  }

  void answer(uint64_t open, ProgramResult& result) {
    const OpenRun run = *open_runs_.find(open);
    open_runs_.erase(open);
    if (run.whole) forget_whole(run);
    std::string& extra = extra_;
    encode_pushed(result.pushed, &extra);
    if (!result.status.ok() || !result.trace.empty()) {
      session::v1::ProgramTail tail;
      result.pushed.clear();
      to_proto(&result, &tail);
      // A trace that fits no message is left out, not the answer.
      if (tail.ByteSizeLong() > kTailBytesMax) tail.clear_trace();
      extra += tail.SerializeAsString();
    }
    acceptor_->reply(run.from, run.call_id, result.fetches, {.extra = extra});
  }

  /// It has run, or its connection has gone.
  void forget_whole(const OpenRun& run) {
    calls_.erase(name_of(run.from, run.call_id));
    steps_.erase(name_of(run.from, run.step));
  }

  Status give_tensors(const Connection& from, const transport::Call& call) {
    SR_RETURN_IF_ERROR(decode_tensors(call.extra, &tensors_));
    if (tensors_.incarnation != 0 && tensors_.incarnation != task_->incarnation()) {
      return wrong_incarnation(task_->name(), task_->name(), task_->incarnation(),
                               tensors_.incarnation);
    }
    const uint64_t id = call.header.call_id;
    SR_RETURN_IF_ERROR(check_new(from.id, id));
    const size_t keys = tensors_.keys.size();
    if (receive_requests_ >= kReceiveRequestsMax || open_keys_ + keys > kOpenKeysMax) {
      return base::resource_exhausted(
          "{} was asked for {} tensors more; {} in all and {} receive requests are allowed",
          task_->name(), keys, kOpenKeysMax, kReceiveRequestsMax);
    }
    const uint64_t step = call.header.step;
    base::RefPtr<ReceiveRequest> receive_request = idle_receive_requests_.take();
    if (receive_request == nullptr) receive_request = base::RefPtr<ReceiveRequest>::make(this);
    receive_request->begin(from.id, id, step, keys, is_elsewhere(lane_hint(step)));
    ++receive_requests_;
    open_keys_ += keys;
    calls_[name_of(from.id, id)].receive_request = receive_request;
    task_->ask(step, tensors_.keys, receive_request);
    return {};
  }

  void answer_receive_request(const ReceiveRequest& receive_request, const Status& status,
                              std::span<const Tensor> values) {
    const ConnectionId to = receive_request.from();
    const uint64_t id = receive_request.call_id();
    if (status.ok()) {
      acceptor_->reply(to, id, values);
    } else {
      acceptor_->reply_error(to, id, status, true);
    }
    const auto open = calls_.find(name_of(to, id));
    if (open == calls_.end() || open->second.receive_request.get() != &receive_request) return;
    base::RefPtr<ReceiveRequest> idle = forget_receive_request(open);
    if (idle->keys() > kIdleKeysMax || idle_receive_requests_.size() >= kIdleReceiveRequestsMax)
      return;
    // Another lane may still have it in its hands.
    if (idle->is_elsewhere()) return;
    idle->clear();
    idle_receive_requests_.put(std::move(idle));
  }

  base::RefPtr<ReceiveRequest> forget_receive_request(Calls::iterator open) {
    base::RefPtr<ReceiveRequest> receive_request = std::move(open->second.receive_request);
    calls_.erase(open);
    --receive_requests_;
    open_keys_ -= receive_request->keys();
    return receive_request;
  }

  /// A call that is open has its id alone.
  [[nodiscard]] Status check_new(ConnectionId from, uint64_t call_id) const {
    if (!calls_.contains(name_of(from, call_id))) return {};
    return base::make_status(StatusCode::kAlreadyExists, "a call has the id of one that is open");
  }

  void on_cancel(const Connection& from, uint64_t call_id) override {
    const auto open = calls_.find(name_of(from.id, call_id));
    if (open == calls_.end()) return;
    if (open->second.run != 0) {
      return cancel_step(from.id, open_runs_.find(open->second.run)->step);
    }
    withdraw(open);
  }

  /// The peer does not want it any more.
  void withdraw(Calls::iterator open) {
    const base::RefPtr<ReceiveRequest> receive_request = forget_receive_request(open);
    task_->withdraw(receive_request->step(), receive_request);
  }

  void on_closed(const Connection& from, const Status& why) override {
    base::log_debug("data connection closed peer={} task={} why=\"{}\"", from.task, task_->name(),
                    base::message_of(why));
    std::vector<Name> steps;
    for (const auto& [name, step] : steps_) {
      if (name.first == from.id.value) steps.push_back(name);
    }
    std::vector<Name> calls;
    for (const auto& [name, call] : calls_) {
      if (name.first == from.id.value) calls.push_back(name);
    }
    // What is told first is sent first: the order of the maps is another one in each run.
    std::sort(calls.begin(), calls.end());
    std::sort(steps.begin(), steps.end());
    for (const Name& name : calls) {
      const auto open = calls_.find(name);
      if (open->second.receive_request == nullptr) {
        calls_.erase(open);
      } else {
        withdraw(open);
      }
    }
    for (const Name& name : steps) {
      const OpenStep step = steps_.find(name)->second;
      steps_.erase(name);
      if (step.whole) {
        task_->cancel(step.number, step.lane);
      } else {
        task_->end_step(name.second);
      }
    }
  }

  Task* const task_;
  const int lane_;
  uint64_t next_whole_;
  exec::BufferPool feed_memory_;
  ProgramCall call_;   // While it is begun; then the memory of its list of feeds.
  std::string extra_;  // Of an answer, while it is sent; then its memory.
  base::SlotMap<OpenRun> open_runs_;
  std::atomic<bool> draining_ = false;
  metrics::Figures figures_;
  metrics::Counter forwarded_{
      &figures_, metrics::counter("sidereal_task_calls_forwarded_total", metrics::Unit::kCount,
                                  "Calls that came to another lane than that they were for.")};
  metrics::Counter refused_{&figures_, metrics::refused("requests")};
  TensorsExtra tensors_;  // Of the receive request that is begun; then its memory.
  size_t receive_requests_ = 0;
  size_t open_keys_ = 0;  // Of these receive requests.
  // Those of all connections are together: of a thousand workers the few that run are in the
  // caches.
  absl::flat_hash_map<Name, OpenStep> steps_;
  Calls calls_;
  IdleList<ReceiveRequest, base::RefPtr<ReceiveRequest>> idle_receive_requests_;
  std::unique_ptr<transport::Acceptor> acceptor_;
};

DataPort::DataPort(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DataPort::~DataPort() = default;

Result<std::unique_ptr<DataPort>> DataPort::create(Task* task, int lane,
                                                   transport::Endpoint* endpoint,
                                                   const sys::Address& address) {
  auto impl = std::make_unique<Impl>(task, lane);
  SR_RETURN_IF_ERROR(impl->listen(endpoint, address));
  return std::unique_ptr<DataPort>(new DataPort(std::move(impl)));
}

int DataPort::port() const { return impl_->port(); }
void DataPort::drain() { impl_->drain(); }
const metrics::Figures& DataPort::figures() const { return impl_->figures(); }

}  // namespace sidereal::task
