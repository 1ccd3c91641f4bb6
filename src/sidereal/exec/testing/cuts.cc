#include "sidereal/exec/testing/cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "sidereal/ir/verify.h"

namespace sidereal::exec {

using ir::Graph;
using ir::Output;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

const std::vector<std::string>& four_devices() {
  static const std::vector<std::string> devices = {
      "/job:ps/replica:0/task:0/device:CPU:0", "/job:ps/replica:0/task:1/device:CPU:0",
      "/job:worker/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:1/device:CPU:0"};
  return devices;
}

Steps::~Steps() = default;

// --- The whole graph.

Status WholeGraph::make(const ControlModel& model) {
  SR_ASSIGN_OR_RETURN(program::Program made, compile_for_test(model.graph, model.fetches,
                                                              model.targets, passes_of(false)));
  SR_ASSIGN_OR_RETURN(bound_,
                      BoundProgram::bind(std::move(made), all_kernels(), {.resources = &manager_}));
  step_ = std::make_unique<Step>(bound_.get(), &pool_, nullptr);
  return {};
}

Result<std::vector<Tensor>> WholeGraph::run(const reference::Values& feeds, uint64_t id) {
  SR_ASSIGN_OR_RETURN(const auto got, run_step(step_.get(), bound_->program(), feeds, id));
  std::vector<Tensor> out;
  for (const Tensor& t : got) out.push_back(t.clone());
  return out;
}

// --- Parts that meet at Send and Recv.

/// A rendezvous where tensors are late now and then. Fails the test when the memory of one changes
/// on its way.
class DeviceParts::SlowRendezvous final : public ports::Rendezvous {
 public:
  explicit SlowRendezvous(Dice* dice) : dice_(*dice) {}

  Status send(const ports::RendezvousKey& key, std::span<const Tensor> values) override {
    ++moves;
    ports::TensorGroup& copies = copies_[key];
    for (const Tensor& value : values) {
      copies.push_back(value.dtype() == DType::kString ? value : value.clone());
    }
    return local_.send(key, values);
  }
  Result<std::span<Tensor>> receive(const ports::RendezvousKey& key,
                                    const ports::TensorSource& source, size_t count) override {
    if (dice_.chance(30)) {
      ++moves;
      return std::span<Tensor>();
    }
    SR_ASSIGN_OR_RETURN(const std::span<Tensor> values, local_.receive(key, source, count));
    if (values.empty()) return values;
    ++moves;
    expect_same({values.begin(), values.end()}, copies_[key]);
    copies_.erase(key);
    return values;
  }
  [[nodiscard]] size_t size() const { return local_.size(); }

  int64_t moves = 0;  ///< What was sent, received, or not received though it may be there.

 private:
  Dice& dice_;
  LocalRendezvous local_;
  std::map<ports::RendezvousKey, ports::TensorGroup> copies_;
};

DeviceParts::DeviceParts(Dice* dice)
    : rendezvous_(std::make_unique<SlowRendezvous>(dice)), dice_(*dice) {}
DeviceParts::~DeviceParts() = default;

Status DeviceParts::make(const Graph& graph, const std::vector<Output>& fetches,
                         const partition::ByDeviceOptions& options) {
  num_fetches_ = fetches.size();
  SR_ASSIGN_OR_RETURN(parts_, partition::by_device(graph, fetches, {}, test_registry(), options));
  for (const partition::DevicePartition& part : parts_) {
    SR_RETURN_IF_ERROR(ir::verify(part.graph, test_registry()));
    SR_ASSIGN_OR_RETURN(const program::Program made, program::compile(part));
    SR_ASSIGN_OR_RETURN(program::Program read, program::decode(program::encode(made)));
    managers_.push_back(std::make_unique<resources::Manager>());
    peers_.emplace_back();
    SR_ASSIGN_OR_RETURN(auto bound, BoundProgram::bind(std::move(read), all_kernels(),
                                                       {.resources = managers_.back().get()}));
    pools_.push_back(std::make_unique<BufferPool>(size_t{1} << 30));
    steps_.push_back(std::make_unique<Step>(bound.get(), pools_.back().get(), nullptr));
    steps_.back()->set_rendezvous(rendezvous_.get());
    for (const std::string& peer : part.peers) peers_.back().push_back({.device = peer});
    steps_.back()->set_peers(peers_.back());
    bound_.push_back(std::move(bound));
  }
  return {};
}

Result<std::vector<Tensor>> DeviceParts::run(const reference::Values& feeds, uint64_t id) {
  for (size_t p = 0; p < steps_.size(); ++p) {
    const program::Program& program = bound_[p]->program();
    steps_[p]->begin(id);
    for (size_t i = 0; i < program.feeds.size(); ++i) {
      SR_RETURN_IF_ERROR(steps_[p]->feed(static_cast<int>(i), feeds.at(program.feed_names[i])));
    }
  }
  std::vector<bool> done(steps_.size(), false);
  for (size_t left = steps_.size(); left > 0;) {
    const int64_t before = rendezvous_->moves;
    const size_t left_before = left;
    const auto first = static_cast<size_t>(dice_.number(0, 100));
    for (size_t i = 0; i < steps_.size(); ++i) {
      const size_t p = (first + i) % steps_.size();
      if (done[p]) continue;
      SR_ASSIGN_OR_RETURN(const Step::Progress progress, steps_[p]->advance());
      done[p] = progress == Step::Progress::kDone;
      if (done[p]) --left;
    }
    if (rendezvous_->moves == before && left == left_before) return stuck(done);
  }
  EXPECT_EQ(rendezvous_->size(), 0U);
  std::vector<Tensor> out(num_fetches_);
  for (size_t p = 0; p < steps_.size(); ++p) {
    for (size_t i = 0; i < parts_[p].fetches.size(); ++i) {
      out[parts_[p].fetch_indices[i]] = steps_[p]->fetch(static_cast<int>(i)).clone();
    }
  }
  return out;
}

Status DeviceParts::stuck(const std::vector<bool>& done) const {
  std::string text = "all parts wait:";
  for (size_t p = 0; p < done.size(); ++p) {
    if (!done[p]) text += fmt::format(" {} for {};", parts_[p].device, steps_[p]->waits_for());
  }
  return base::internal("{}", text);
}

// --- A driver and calls.

/// One call that was started. Thread: core-local.
struct DrivenCalls::Call {
  int number = 0;
  const program::CallSpec* spec = nullptr;
  std::vector<Tensor> feeds;  ///< As they were sent.
  std::vector<Tensor> copies;
  ports::CallCompletion* completion = nullptr;
  std::unique_ptr<Step> step;
  uint64_t id = 0;
  bool began = false;
};

/// Gets the answer of a call before a step wants it, or after. Thread: core-local.
class DrivenCalls::Ahead final : public ports::CallCompletion {
 public:
  /// A step makes the call.
  void give(ports::CallCompletion* taker) {
    taker_ = taker;
    if (has_answer_) taker_->done({}, answer_);
  }
  [[nodiscard]] bool is_taken() const { return taker_ != nullptr; }

  Result<Tensor> allocate(int position, DType dtype, const Shape& shape) override {
    if (taker_ != nullptr) return taker_->allocate(position, dtype, shape);
    return Tensor::empty(dtype, shape);
  }
  void done(const Status& status, std::span<Tensor> fetches) override {
    EXPECT_TRUE(status.ok()) << status;
    if (taker_ != nullptr) return taker_->done(status, fetches);
    answer_.assign(fetches.begin(), fetches.end());
    has_answer_ = true;
  }

 private:
  ports::CallCompletion* taker_ = nullptr;
  bool has_answer_ = false;
  std::vector<Tensor> answer_;
};

DrivenCalls::DrivenCalls(Dice* dice, partition::PullPushOptions::Mode mode)
    : dice_(*dice), mode_(mode) {}
DrivenCalls::~DrivenCalls() = default;

Status DrivenCalls::make(const Graph& graph, const std::string& driver,
                         const std::vector<Output>& fetches,
                         const std::vector<ir::NodeId>& targets) {
  SR_ASSIGN_OR_RETURN(parts_, partition::pull_push_by_device(graph, driver, fetches, targets,
                                                             test_registry(), {.mode = mode_}));
  SR_RETURN_IF_ERROR(ir::verify(parts_.worker, test_registry()));
  for (const auto& remote : parts_.remotes) {
    SR_RETURN_IF_ERROR(ir::verify(remote.graph, test_registry()));
  }
  SR_ASSIGN_OR_RETURN(compiled_, program::compile(parts_));
  const auto bind = [&](const program::Program& program,
                        const std::string& device) -> Result<std::unique_ptr<BoundProgram>> {
    SR_ASSIGN_OR_RETURN(program::Program read, program::decode(program::encode(program)));
    return BoundProgram::bind(std::move(read), all_kernels(), {.resources = &manager(device)});
  };
  for (const program::RemoteProgram& remote : compiled_.remotes) {
    SR_ASSIGN_OR_RETURN(remotes_.emplace_back(), bind(remote.program, remote.device));
  }
  SR_ASSIGN_OR_RETURN(bound_, bind(compiled_.worker, driver));
  step_ = std::make_unique<Step>(bound_.get(), &pool_, static_cast<ports::Exchange*>(this));
  return {};
}

Status DrivenCalls::start(int call, uint64_t step, std::span<const Tensor> feeds,
                          ports::CallCompletion* completion) {
  ++calls;
  const auto ahead = ahead_.find(call);
  if (ahead != ahead_.end()) {
    EXPECT_FALSE(ahead->second->is_taken());
    ahead->second->give(completion);
    return {};
  }
  std::unique_ptr<Call> made = make_call(call, step, completion);
  made->feeds.assign(feeds.begin(), feeds.end());
  for (const Tensor& feed : feeds) made->copies.push_back(feed.clone());
  started_.push_back(std::move(made));
  return {};
}

std::unique_ptr<DrivenCalls::Call> DrivenCalls::make_call(int number, uint64_t step,
                                                          ports::CallCompletion* completion) {
  auto made = std::make_unique<Call>();
  made->number = number;
  made->spec = program::all_calls(bound_->program())[number];
  EXPECT_EQ(made->spec->program, compiled_.remotes[number].hash);
  made->completion = completion;
  made->id = step;
  made->step = std::make_unique<Step>(remotes_[number].get(), &pool_, nullptr);
  return made;
}

void DrivenCalls::send_ahead(uint64_t step) {
  ahead_.clear();
  for (size_t i = 0; i < bound_->program().calls.size(); ++i) {
    if (!bound_->program().calls[i].ahead || dice_.chance(30)) continue;
    const auto number = static_cast<int>(i);
    std::unique_ptr<Ahead>& made = ahead_[number] = std::make_unique<Ahead>();
    started_.push_back(make_call(number, step, made.get()));
    ++prefetched;
  }
}

bool DrivenCalls::may_begin(const Call& call) const {
  for (const auto& other : started_) {
    if (other.get() == &call) return true;
    if (other->spec->device == call.spec->device && !other->began) return false;
  }
  return true;
}

Result<bool> DrivenCalls::advance_any() {
  const auto first = static_cast<size_t>(dice_.number(0, 100));
  for (size_t i = 0; i < started_.size(); ++i) {
    const size_t at = (first + i) % started_.size();
    Call* const call = started_[at].get();
    const bool hands_over = call->spec->async_push && call->completion != nullptr;
    if (hands_over && dice_.chance(50)) {
      // What it holds is its own from now on.
      call->feeds = call->copies;
      std::exchange(call->completion, nullptr)->done({}, {});
      return true;
    }
    if (!call->began) {
      if (!may_begin(*call)) continue;
      call->began = true;
      call->step->begin(call->id);
      expect_same(call->feeds, call->copies);
      for (size_t f = 0; f < call->feeds.size(); ++f) {
        SR_RETURN_IF_ERROR(call->step->feed(static_cast<int>(f), call->feeds[f]));
      }
    }
    const size_t before = call->step->position();
    SR_ASSIGN_OR_RETURN(const Step::Progress progress, call->step->advance());
    if (progress != Step::Progress::kDone) {
      EXPECT_TRUE(call->spec->waits) << call->step->waits_for();
      if (call->step->position() != before) return true;
      continue;
    }
    const std::unique_ptr<Call> done = std::move(started_[at]);
    started_.erase(started_.begin() + static_cast<std::ptrdiff_t>(at));
    SR_RETURN_IF_ERROR(answer(done.get()));
    return true;
  }
  return false;
}

Status DrivenCalls::answer(Call* call) {
  expect_same(call->feeds, call->copies);
  std::vector<Tensor> out;
  for (size_t i = 0; i < remotes_[call->number]->program().fetches.size(); ++i) {
    const Tensor& value = call->step->fetch(static_cast<int>(i));
    SR_RETURN_IF_ERROR(
        call->completion->allocate(static_cast<int>(i), value.dtype(), value.shape()).status());
    out.push_back(value.clone());
  }
  if (call->completion != nullptr) call->completion->done({}, out);
  return {};
}

Result<std::vector<Tensor>> DrivenCalls::run(const reference::Values& feeds, uint64_t id) {
  const program::Program& program = bound_->program();
  step_->begin(id);
  for (size_t i = 0; i < program.feeds.size(); ++i) {
    SR_RETURN_IF_ERROR(step_->feed(static_cast<int>(i), feeds.at(program.feed_names[i])));
  }
  while (true) {
    const size_t before = step_->position();
    SR_ASSIGN_OR_RETURN(const Step::Progress progress, step_->advance());
    if (progress == Step::Progress::kDone) break;
    SR_ASSIGN_OR_RETURN(const bool moved, advance_any());
    // It may have brought itself what it waits for.
    if (!moved && step_->position() == before) {
      return base::internal("the driver waits for {}, and {} calls are waiting", step_->waits_for(),
                            started_.size());
    }
  }
  std::vector<Tensor> out;
  for (size_t i = 0; i < program.fetches.size(); ++i) {
    out.push_back(step_->fetch(static_cast<int>(i)).clone());
  }
  step_->end();
  send_ahead(id);
  return out;
}

Status DrivenCalls::make_way() {
  while (!started_.empty()) {
    SR_ASSIGN_OR_RETURN(const bool moved, advance_any());
    if (!moved) return base::internal("a call that nobody waits for does not end");
  }
  ahead_.clear();
  return {};
}

}  // namespace sidereal::exec
