#include "sidereal/runtime/data_port.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "sidereal/base/bytes.h"
#include "sidereal/base/log.h"
#include "sidereal/base/slot_map.h"
#include "sidereal/exec/buffer_pool.h"
#include "sidereal/runtime/failure.h"
#include "sidereal/runtime/session.pb.h"
#include "sidereal/transport/acceptor.h"
#include "sidereal/wire/frame.h"

namespace sidereal::runtime {

using tensor::Tensor;
using transport::Connection;
using transport::ConnectionId;

std::string encode_run(const RunExtra& extra) {
  base::ByteWriter out;
  out.put<int32_t>(extra.trace);
  const auto lane = static_cast<uint32_t>(extra.lane);
  out.put<uint32_t>(extra.whole ? 1 | (lane << 8) : 0);
  out.put(extra.number);
  return out.take();
}

Result<RunExtra> decode_run(std::string_view bytes) {
  base::ByteReader in(bytes);
  RunExtra out;
  uint32_t flags = 0;
  SR_RETURN_IF_ERROR(in.get(&out.trace));
  SR_RETURN_IF_ERROR(in.get(&flags));
  SR_RETURN_IF_ERROR(in.get(&out.number));
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

Result<TensorsExtra> decode_tensors(std::string_view bytes) {
  if (bytes.size() % 16 != 8) return base::data_loss("a question of {} bytes", bytes.size());
  if (bytes.size() / 16 > static_cast<size_t>(kQuestionKeysMax)) {
    return base::resource_exhausted("a question has {} keys; {} are allowed", bytes.size() / 16,
                                    kQuestionKeysMax);
  }
  base::ByteReader in(bytes);
  TensorsExtra out;
  SR_RETURN_IF_ERROR(in.get(&out.incarnation));
  out.keys.resize(bytes.size() / 16);
  for (ports::RendezvousKey& key : out.keys) {
    SR_RETURN_IF_ERROR(in.get(&key.edge));
    SR_RETURN_IF_ERROR(in.get(&key.step));
  }
  return out;
}

namespace {

/// Parts of steps and questions that a data port has open, and tensors that the questions ask for.
constexpr size_t kPartsMax = 65'536;
constexpr size_t kQuestionsMax = 65'536;
constexpr size_t kOpenKeysMax = size_t{1} << 18;
/// Memory for feeds that a task keeps for the next ones.
constexpr size_t kFeedBytesKept = size_t{256} << 20;

/// Answers a question when all of its parcels are there.
class Question final : public Task::Taker {
 public:
  using Answer = std::function<void(const Status&, std::span<const Tensor>)>;
  Question(size_t count, Answer answer)
      : size_(count), parcels_(count), answer_(std::move(answer)) {}
  [[nodiscard]] size_t size() const { return size_; }
  void give(size_t index, ports::Parcel values) override { parcels_[index] = std::move(values); }
  void end(Status status) override {
    const auto answer = std::exchange(answer_, nullptr);
    if (!answer) return;
    ports::Parcel all = std::move(parcels_.empty() ? parcels_.emplace_back() : parcels_[0]);
    for (size_t i = 1; i < parcels_.size(); ++i) {
      all.insert(all.end(), parcels_[i].begin(), parcels_[i].end());
    }
    answer(status, all);
  }

 private:
  const size_t size_;
  std::vector<ports::Parcel> parcels_;
  Answer answer_;
};

}  // namespace

class DataPort::Impl final : public transport::CallHandler {
 public:
  Impl(Task* task, int lane)
      : task_(task),
        lane_(lane),
        feed_memory_(kFeedBytesKept / static_cast<size_t>(task->lanes())) {}

  Status listen(transport::Endpoint* endpoint, const sys::Address& address) {
    SR_ASSIGN_OR_RETURN(acceptor_, transport::Acceptor::create(endpoint, address, this));
    return {};
  }
  [[nodiscard]] int port() const { return acceptor_->address().port; }
  void drain() { draining_ = true; }
  [[nodiscard]] int64_t forwarded() const { return forwarded_; }
  [[nodiscard]] int64_t refused() const { return refused_; }

 private:
  /// What one connection has open here, beside steps that are one call alone.
  struct Client {
    absl::flat_hash_set<uint64_t> steps;  ///< Parts that run or left tensors for others.
    absl::flat_hash_map<uint64_t, std::pair<uint64_t, std::shared_ptr<Question>>> questions;
  };
  /// A number of a call or a step, and the connection that it came over.
  using Name = std::pair<uint64_t, uint64_t>;
  static Name name_of(ConnectionId from, uint64_t number) { return {from.value, number}; }
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
      ++refused_;
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
        if (clients_[from.id.value].steps.erase(step) > 0) {
          --parts_;
          task_->end_step(step);
        }
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
    const auto whole = whole_steps_.find(name_of(from, step));
    if (whole != whole_steps_.end()) return task_->cancel(step, whole->second);
    const auto client = clients_.find(from.value);
    if (client != clients_.end() && client->second.steps.contains(step)) task_->cancel(step);
  }

  /// True when the lane of this hint is not this one; counts it.
  bool is_elsewhere(int hint) {
    if (hint % task_->lanes() == lane_) return false;
    forwarded_.store(forwarded_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
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
    // What was let go of last is in the caches.
    feed_memory_.rewind();
    return begun;
  }

  Status begin_run(const Connection& from, const transport::Call& call, std::span<Tensor> feeds) {
    if (draining_) return base::unavailable("{} is stopping", task_->name());
    SR_ASSIGN_OR_RETURN(const RunExtra extra, decode_run(call.extra));
    ProgramCall& what = call_;
    what.feeds.resize(feeds.size());
    what = {.session = call.header.session,
            .program = call.header.program,
            .step = call.header.step,
            .feeds = std::move(what.feeds),
            .trace = extra.trace,
            .whole = extra.whole,
            .number = extra.number,
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
    const bool is_repeatable = (call.header.flags & wire::kRepeatable) != 0;
    // Sent again while it runs, over a new connection: that gets the one answer.
    if (is_repeatable && whole_runs_.contains(name_of(from.id, id))) return {};
    SR_RETURN_IF_ERROR(check_new(from.id, id));
    if (parts_ >= kPartsMax) {
      return base::resource_exhausted("{} runs {} steps for others, as many as it takes",
                                      task_->name(), kPartsMax);
    }
    // Those of all connections are together: of a thousand workers the few that run are in the
    // caches.
    const bool is_new = extra.whole
                            ? whole_steps_.try_emplace(name_of(from.id, step), extra.lane).second
                            : clients_[from.id.value].steps.insert(step).second;
    if (!is_new) return base::make_status(StatusCode::kAlreadyExists, "the step is here already");
    ++parts_;
    // A number for all of it, as a larger closure would take memory.
    const uint64_t open =
        open_runs_.add({.from = from.id, .call_id = id, .step = step, .whole = extra.whole});
    if (extra.whole) whole_runs_[name_of(from.id, id)] = open;
    if (is_elsewhere(extra.whole ? extra.lane : lane_hint(step))) {
      task_->run(&what, [this, open](ProgramResult& result) {
        auto held = std::make_shared<ProgramResult>(std::move(result));
        task_->post(lane_, [this, open, held] { answer(open, *held); });
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
    std::string extra;
    if (!result.status.ok() || !result.trace.empty()) {
      session::v1::ProgramTail tail;
      to_proto(&result, &tail);
      extra = tail.SerializeAsString();
    }
    acceptor_->reply(run.from, run.call_id, result.fetches, {.extra = extra});
  }

  /// It has run, or its connection has gone.
  void forget_whole(const OpenRun& run) {
    whole_runs_.erase(name_of(run.from, run.call_id));
    parts_ -= whole_steps_.erase(name_of(run.from, run.step));
  }

  Status give_tensors(const Connection& from, const transport::Call& call) {
    SR_ASSIGN_OR_RETURN(const TensorsExtra extra, decode_tensors(call.extra));
    if (extra.incarnation != 0 && extra.incarnation != task_->incarnation()) {
      return wrong_incarnation(task_->name(), task_->incarnation(), extra.incarnation);
    }
    const ConnectionId to = from.id;
    const uint64_t id = call.header.call_id;
    SR_RETURN_IF_ERROR(check_new(to, id));
    if (questions_ >= kQuestionsMax || open_keys_ + extra.keys.size() > kOpenKeysMax) {
      return base::resource_exhausted(
          "{} was asked for {} tensors more; {} in all and {} questions are allowed", task_->name(),
          extra.keys.size(), kOpenKeysMax, kQuestionsMax);
    }
    Question::Answer answer = [this, to, id](const Status& status, std::span<const Tensor> values) {
      answer_question(to, id, status, values);
    };
    if (is_elsewhere(lane_hint(call.header.step))) {
      answer = [this, to, id](const Status& status, std::span<const Tensor> values) {
        task_->post(lane_, [this, to, id, status,
                            held = std::vector<Tensor>(values.begin(), values.end())] {
          answer_question(to, id, status, held);
        });
      };
    }
    auto question = std::make_shared<Question>(extra.keys.size(), std::move(answer));
    ++questions_;
    open_keys_ += question->size();
    clients_[to.value].questions[id] = {call.header.step, question};
    task_->ask(call.header.step, extra.keys, std::move(question));
    return {};
  }

  void answer_question(ConnectionId to, uint64_t id, const Status& status,
                       std::span<const Tensor> values) {
    const auto client = clients_.find(to.value);
    if (client != clients_.end()) forget_question(&client->second, id);
    if (status.ok()) {
      acceptor_->reply(to, id, values);
    } else {
      acceptor_->reply_error(to, id, status, true);
    }
  }

  /// A call that is open has its id alone.
  [[nodiscard]] Status check_new(ConnectionId from, uint64_t call_id) const {
    const auto client = questions_ == 0 ? clients_.end() : clients_.find(from.value);
    const bool asks = client != clients_.end() && client->second.questions.contains(call_id);
    if (!asks && !whole_runs_.contains(name_of(from, call_id))) return {};
    return base::make_status(StatusCode::kAlreadyExists, "a call has the id of one that is open");
  }

  void forget_question(Client* client, uint64_t call_id) {
    const auto question = client->questions.extract(call_id);
    if (question.empty()) return;
    --questions_;
    open_keys_ -= question.mapped().second->size();
  }

  void on_cancel(const Connection& from, uint64_t call_id) override {
    const auto run = whole_runs_.find(name_of(from.id, call_id));
    if (run != whole_runs_.end()) cancel_step(from.id, open_runs_.find(run->second)->step);
    const auto client = clients_.find(from.id.value);
    if (client == clients_.end()) return;
    const auto question = client->second.questions.find(call_id);
    if (question == client->second.questions.end()) return;
    task_->withdraw(question->second.first, question->second.second);
    forget_question(&client->second, call_id);
  }

  void on_closed(const Connection& from, const Status& why) override {
    base::log_debug("data connection closed peer={} task={} why=\"{}\"", from.task, task_->name(),
                    base::message_of(why));
    std::vector<OpenRun> runs;
    for (const auto& [name, open] : whole_runs_) {
      if (name.first == from.id.value) runs.push_back(*open_runs_.find(open));
    }
    for (const OpenRun& run : runs) {
      cancel_step(from.id, run.step);
      forget_whole(run);
    }
    const auto client = clients_.extract(from.id.value);
    if (client.empty()) return;
    parts_ -= client.mapped().steps.size();
    for (const uint64_t step : client.mapped().steps) task_->end_step(step);
    for (const auto& [id, question] : client.mapped().questions) {
      --questions_;
      open_keys_ -= question.second->size();
      task_->withdraw(question.first, question.second);
    }
  }

  Task* const task_;
  const int lane_;
  exec::BufferPool feed_memory_;
  ProgramCall call_;  // While it is begun; then the memory of its list of feeds.
  base::SlotMap<OpenRun> open_runs_;
  std::atomic<bool> draining_ = false;
  std::atomic<int64_t> forwarded_ = 0;  // Written by the lane only.
  std::atomic<int64_t> refused_ = 0;
  size_t parts_ = 0;      // Steps and whole steps of all clients.
  size_t questions_ = 0;  // Of all clients.
  size_t open_keys_ = 0;  // Of these questions.
  // Of steps that are one call alone: their lanes, by step, and their places in open_runs_, by
  // call.
  absl::flat_hash_map<Name, int> whole_steps_;
  absl::flat_hash_map<Name, uint64_t> whole_runs_;
  absl::flat_hash_map<uint64_t, Client> clients_;  // By the connection's id.
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
int64_t DataPort::forwarded() const { return impl_->forwarded(); }
int64_t DataPort::refused() const { return impl_->refused(); }

}  // namespace sidereal::runtime
