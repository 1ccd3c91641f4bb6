// Programs of sessions that differ in their peers only: what is shared, and whom each one asks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "sidereal/app/testing/processes.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/ir/component_specs.h"
#include "sidereal/program/program.h"
#include "sidereal/service/channels.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/task/idle_list.h"
#include "sidereal/task/task.h"

namespace sidereal::app {
namespace {

using program::Instruction;
using program::Program;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string worker(int number) { return cluster::task_name("worker", number) + "/device:CPU:0"; }

/// Each has one number for whoever asks; those without one never answer.
class AnsweringPeers final : public task::Peers {
 public:
  base::RefPtr<ReceiveRequest> ask(const ports::TensorSource& source, uint64_t step,
                                   std::span<const Wanted> wanted, Requester* requester) override {
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(source.incarnation);
    }
    const auto found = values.find(source.device);
    if (found == values.end()) return nullptr;
    for (const Wanted& one : wanted) {
      ports::TensorGroup values = {Tensor::of(Shape{1}, std::vector<float>{found->second})};
      requester->arrived(step, one.key, values);
    }
    requester->ended(step, nullptr, {});
    return nullptr;
  }
  std::vector<uint64_t> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

  const std::map<std::string, float> values = {{worker(1), 10}, {worker(2), 20}, {worker(3), 30}};

 private:
  std::mutex mutex_;
  std::vector<uint64_t> asked_;  // The incarnations.
};

/// A program that fetches what it receives from its peers.
std::string receiver(const std::vector<int64_t>& peers) {
  Program out;
  for (size_t i = 0; i < peers.size(); ++i) {
    const auto slot = static_cast<int32_t>(i);
    out.slots.push_back({DType::kFloat32, Shape{1}, -1});
    Instruction& recv = out.instructions.emplace_back();
    recv.op = "Recv";
    recv.name = fmt::format("recv_{}", i);
    recv.attrs = ir::component_attrs({{DType::kFloat32, Shape{1}}});
    recv.attrs["edge"] = static_cast<int64_t>(i);
    recv.attrs["peer"] = peers[i];
    recv.attrs["tensor_name"] = fmt::format("x{}:0", i);
    recv.outputs = {slot};
    out.fetches.push_back(slot);
    out.fetch_names.push_back(fmt::format("x{}", i));
  }
  return program::encode(out);
}

class ProgramsOfATask : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    auto task = task::Task::create({.name = "/job:ps/replica:0/task:0", .lanes = GetParam()});
    ASSERT_TRUE(task.ok()) << task.status();
    task_ = *std::move(task);
    task_->start({&peers_});
  }

  /// A session on lane 0.
  void open(uint64_t session) {
    const Status status = task_->open_session(session);
    ASSERT_TRUE(status.ok()) << status;
  }
  Result<uint64_t> add(uint64_t session, const std::vector<int>& workers,
                       const std::vector<int64_t>& peers = {0}) {
    task::NewProgram program = {.bytes = receiver(peers), .lane = task::lane_hint(session)};
    for (const int one : workers) {
      program.peers.push_back({.device = worker(one), .incarnation = static_cast<uint64_t>(one)});
    }
    return task_->register_program(session, std::move(program));
  }
  task::ProgramResult run(uint64_t session, uint64_t program) {
    auto ended = std::make_shared<std::promise<task::ProgramResult>>();
    const uint64_t step = task::step_number(session, ++steps_ << 8);
    task::ProgramCall call = {.session = session, .program = program, .step = step, .feeds = {}};
    task_->run(&call,
               [ended](task::ProgramResult& result) { ended->set_value(std::move(result)); });
    std::future<task::ProgramResult> future = ended->get_future();
    if (future.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      return {.status = base::deadline_exceeded("it does not end")};
    }
    task_->end_step(step);
    return future.get();
  }
  std::vector<float> values(uint64_t session, uint64_t program) {
    const task::ProgramResult result = run(session, program);
    EXPECT_TRUE(result.status.ok()) << result.status;
    std::vector<float> out;
    for (const Tensor& one : result.fetches) out.push_back(one.data<const float>()[0]);
    return out;
  }

  AnsweringPeers peers_;
  std::unique_ptr<task::Task> task_;
  uint64_t steps_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Lanes, ProgramsOfATask, ::testing::Values(1, 3),
                         ::testing::PrintToStringParamName());

TEST_P(ProgramsOfATask, sessions_share_one_and_each_asks_its_own_peers) {
  const uint64_t sessions[] = {256, 512, 768};
  std::vector<uint64_t> programs;
  for (int i = 0; i < 3; ++i) {
    open(sessions[i]);
    const auto program = add(sessions[i], {i + 1});
    ASSERT_TRUE(program.ok()) << program.status();
    programs.push_back(*program);
  }
  EXPECT_EQ(task_->figures().value("sidereal_task_programs"), 1);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(values(sessions[i], programs[i]), ElementsAre(10.0F * static_cast<float>(i + 1)));
    }
  }
  EXPECT_THAT(peers_.asked(), ElementsAre(1, 2, 3, 1, 2, 3, 1, 2, 3));
  // Who leaves takes nothing from the others.
  task_->close_session(sessions[0]);
  EXPECT_THAT(values(sessions[1], programs[1]), ElementsAre(20));
  EXPECT_EQ(task_->figures().value("sidereal_task_programs"), 1);
}

TEST_P(ProgramsOfATask, a_session_may_have_the_same_one_with_other_peers) {
  open(256);
  const auto one = add(256, {1, 2}, {0, 1});
  const auto other = add(256, {2, 3}, {0, 1});
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(task_->figures().value("sidereal_task_programs"), 1);
  EXPECT_EQ(add(256, {1, 2}, {0, 1}), one);
  for (int round = 0; round < 2; ++round) {
    EXPECT_THAT(values(256, *one), ElementsAre(10, 20));
    EXPECT_THAT(values(256, *other), ElementsAre(20, 30));
  }
}

TEST_P(ProgramsOfATask, a_step_that_begins_when_its_session_has_closed_is_cancelled) {
  open(256);
  const auto program = add(256, {1});
  ASSERT_TRUE(program.ok()) << program.status();
  std::promise<void> go;
  ASSERT_TRUE(task_->post(0, [may_go = go.get_future().share()] {
    EXPECT_EQ(may_go.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  }));
  std::promise<task::ProgramResult> ended;
  task::ProgramCall call = {.session = 256, .program = *program, .step = 256, .feeds = {}};
  task_->run(&call, [&ended](task::ProgramResult& result) { ended.set_value(std::move(result)); });
  task_->close_session(256);
  go.set_value();
  const task::ProgramResult result = ended.get_future().get();
  EXPECT_EQ(result.status.code(), StatusCode::kCancelled) << result.status;
  EXPECT_TRUE(result.derived);
}

TEST_P(ProgramsOfATask, one_runs_on_the_lane_that_it_was_registered_for) {
  // The number of the session says lane 2, modulo the lanes.
  open(258);
  for (const int lane : {0, 2}) {
    const auto program = task_->register_program(
        258, {.bytes = receiver({0}), .lane = lane, .peers = {{.device = worker(2)}}});
    ASSERT_TRUE(program.ok()) << program.status();
    if (lane % GetParam() == 2 % GetParam()) {
      EXPECT_THAT(values(258, *program), ElementsAre(20));
    } else {
      EXPECT_EQ(run(258, *program).status.code(), StatusCode::kNotFound);
    }
  }
  EXPECT_EQ(task_->figures().value("sidereal_task_programs"), GetParam() == 1 ? 1 : 2);
}

TEST_P(ProgramsOfATask, there_must_be_as_many_peers_as_it_names) {
  open(256);
  for (const bool is_known : {false, true}) {
    if (is_known) {
      ASSERT_TRUE(add(256, {1, 2, 3}, {2}).ok());
    }
    const Status few = add(256, {1, 2}, {2}).status();
    EXPECT_EQ(few.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(base::message_of(few), HasSubstr("names 3 peers, and was registered with 2"));
  }
  for (const int64_t peer : {int64_t{-1}, static_cast<int64_t>(task::kPeersMax)}) {
    const Status wrong = add(256, {1}, {peer}).status();
    EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(base::message_of(wrong), HasSubstr(fmt::format("names peer {}", peer)));
  }
  const std::vector<int> many(task::kPeersMax + 1, 1);
  EXPECT_EQ(add(256, many, {0}).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(ProgramsOfATask, who_waits_says_for_which_peer) {
  for (const int number : {7, 8}) {
    const uint64_t session = 256 * static_cast<uint64_t>(number);
    open(session);
    const auto program = add(session, {number});
    ASSERT_TRUE(program.ok()) << program.status();
    auto ended = std::make_shared<std::promise<task::ProgramResult>>();
    task::ProgramCall call = {
        .session = session, .program = *program, .step = session, .feeds = {}};
    task_->run(&call,
               [ended](task::ProgramResult& result) { ended->set_value(std::move(result)); });
    ASSERT_TRUE(
        eventually([&] { return task_->figures().value("sidereal_task_steps_blocked") == 1; }));
    task_->cancel(session);
    std::future<task::ProgramResult> future = ended->get_future();
    ASSERT_EQ(future.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    const task::ProgramResult result = future.get();
    EXPECT_EQ(result.status.code(), StatusCode::kCancelled);
    EXPECT_EQ(result.waits_for, "tensor 'x0:0' from " + worker(number));
  }
}

/// Calls that come while the lane has something else to do.
class CallsOfATask : public ProgramsOfATask {
 protected:
  /// From here to go_on() lane 0 stands still.
  void stand_still() {
    std::promise<void> stands;
    ASSERT_TRUE(task_->post(0, [&stands, may_go = go_.get_future().share()] {
      stands.set_value();
      EXPECT_EQ(may_go.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    }));
    // What is asked for before that may be taken in its turn, and what comes later in the next one.
    ASSERT_EQ(stands.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  }
  void go_on() { go_.set_value(); }

  /// Calls it `name`, and remembers when it ended.
  void call(const std::string& name, uint64_t session, bool goes_on) {
    open_once(session);
    const uint64_t step = task::step_number(session, ++steps_ << 8);
    numbers_[name] = step;
    task::ProgramCall call = {.session = session,
                              .program = programs_[session],
                              .step = step,
                              .feeds = {},
                              .whole = true,
                              .goes_on = goes_on};
    task_->run(&call, [this, name](task::ProgramResult& result) {
      const std::lock_guard lock(mutex_);
      ended_.push_back(name);
      results_[name] = result.status.code();
    });
  }
  std::vector<std::string> ended(size_t count) {
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex_);
      return ended_.size() >= count;
    }));
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  std::map<std::string, uint64_t> numbers_;
  std::map<std::string, StatusCode> results_;

 private:
  void open_once(uint64_t session) {
    if (programs_.contains(session)) return;
    open(session);
    const auto program = add(session, {1});
    ASSERT_TRUE(program.ok()) << program.status();
    programs_[session] = *program;
  }

  std::promise<void> go_;
  std::map<uint64_t, uint64_t> programs_;
  std::mutex mutex_;
  std::vector<std::string> ended_;
};
INSTANTIATE_TEST_SUITE_P(Lanes, CallsOfATask, ::testing::Values(1, 3),
                         ::testing::PrintToStringParamName());

TEST_P(CallsOfATask, those_that_go_on_come_before_those_that_begin) {
  stand_still();
  call("pull 1", 256, false);
  call("pull 2", 512, false);
  call("push 3", 768, true);
  call("pull 4", 1024, false);
  call("push 5", 1280, true);
  go_on();
  EXPECT_THAT(ended(5), ElementsAre("push 3", "push 5", "pull 1", "pull 2", "pull 4"));
  EXPECT_EQ(task_->figures().value("sidereal_task_steps_running"), 0);
}

TEST_P(CallsOfATask, those_of_one_session_keep_their_order) {
  stand_still();
  call("pull", 256, false);
  call("push", 256, true);
  call("other push", 512, true);
  call("next pull", 256, false);
  go_on();
  EXPECT_THAT(ended(4), ElementsAre("other push", "pull", "push", "next pull"));
}

TEST_P(CallsOfATask, one_that_waits_is_cancelled) {
  stand_still();
  call("first", 256, false);
  call("cancelled", 512, false);
  call("ended", 768, false);
  call("last", 1024, false);
  task_->cancel(numbers_["cancelled"], 0);
  task_->end_step(numbers_["ended"]);
  EXPECT_EQ(task_->figures().value("sidereal_task_steps_total"), 0);
  go_on();
  EXPECT_EQ(ended(4).size(), 4U);
  EXPECT_EQ(results_["first"], StatusCode::kOk);
  EXPECT_EQ(results_["cancelled"], StatusCode::kCancelled);
  EXPECT_EQ(results_["ended"], StatusCode::kCancelled);
  EXPECT_EQ(results_["last"], StatusCode::kOk);
  EXPECT_EQ(task_->figures().value("sidereal_task_steps_running"), 0);
}

TEST_P(CallsOfATask, nothing_is_left_of_a_session_that_closes_while_some_wait) {
  stand_still();
  for (const char* name : {"first", "second", "third"}) {
    call(name, 256, false);
    call(std::string("other ") + name, 512, false);
  }
  // From the lane: it has taken the calls, and has had no time for them.
  ASSERT_TRUE(task_->post(0, [this] { task_->close_session(256); }));
  ASSERT_TRUE(task_->post(0, [this] { task_->close_session(512); }));
  go_on();
  EXPECT_EQ(ended(6).size(), 6U);
  for (const auto& [name, code] : results_) EXPECT_EQ(code, StatusCode::kCancelled) << name;
  EXPECT_TRUE(eventually([&] { return task_->figures().value("sidereal_task_programs") == 0; }));
  EXPECT_EQ(task_->figures().value("sidereal_task_steps_running"), 0);
}

TEST_P(CallsOfATask, those_that_wait_when_it_stops_are_ended) {
  stand_still();
  for (uint64_t i = 1; i <= 20; ++i) call(fmt::format("call {}", i), 256 * i, false);
  std::thread stopping([&] { task_->stop(); });
  go_on();
  stopping.join();
  EXPECT_EQ(ended(20).size(), 20U);
  EXPECT_EQ(task_->figures().value("sidereal_task_steps_running"), 0);
}

TEST(IdleListOfSteps, those_that_were_not_needed_are_destroyed) {
  task::IdleList<int> idle;
  EXPECT_EQ(idle.take(), nullptr);
  for (int i = 0; i < 5; ++i) idle.put(std::make_unique<int>(i));
  idle.trim();
  EXPECT_EQ(idle.size(), 5U);
  for (int round = 0; round < 3; ++round) {
    // Two are needed at once.
    auto first = idle.take();
    auto second = idle.take();
    EXPECT_EQ(*first + *second, 3 + 4);
    idle.put(std::move(first));
    idle.put(std::move(second));
  }
  idle.trim();
  EXPECT_EQ(idle.size(), 2U);
  idle.trim();
  EXPECT_EQ(idle.size(), 0U);
  // However many were in use at once: those of a thousand workers are all used again.
  for (int i = 0; i < 1000; ++i) idle.put(std::make_unique<int>(0));
  EXPECT_EQ(idle.size(), 1000U);
}

TEST(SteppedTask, RunsWhereItIsSteppedAndNowhereElse) {
  const auto network = sys::posix::create_network();
  const auto clock = sys::posix::create_clock();
  const std::vector<task::LaneSystem> stepped(2, {.network = network.get(), .clock = clock.get()});
  EXPECT_EQ(task::Task::create({.name = "/job:ps/task:0", .lanes = 1, .stepped = stepped})
                .status()
                .code(),
            StatusCode::kInvalidArgument);
  const auto task =
      task::Task::create({.name = "/job:ps/task:0", .lanes = 2, .stepped = stepped}).value();
  AnsweringPeers peers;
  task->start({&peers});
  constexpr uint64_t kSession = 0x101;  // On lane 1.
  ASSERT_TRUE(task->open_session(kSession).ok());
  const task::NewProgram program = {
      .bytes = receiver({0}), .lane = 1, .peers = {{.device = worker(2), .incarnation = 2}}};
  const uint64_t number = task->register_program(kSession, program).value();
  std::vector<float> got;
  ASSERT_TRUE(task->lane(0)->post([&] {
    task::ProgramCall call = {.session = kSession, .program = number, .step = 0x201, .feeds = {}};
    task->run(&call, [&](task::ProgramResult& result) {
      got.push_back(result.fetches.at(0).data<const float>()[0]);
    });
  }));
  EXPECT_TRUE(task->lane(0)->step());
  EXPECT_TRUE(got.empty());
  EXPECT_EQ(task->lane(1)->next_wake(), INT64_MIN);
  while (task->lane(1)->step()) {
  }
  EXPECT_THAT(got, ElementsAre(20));
}

/// Their runs end a while after they were dropped.
class LatePeers final : public task::Peers {
 public:
  struct Late final : Run {
    void cancel() override {}
    void drop() override { is_dropped = true; }
    RunDone* done = nullptr;
    bool is_dropped = false;
  };
  base::RefPtr<ReceiveRequest> ask(const ports::TensorSource& /*source*/, uint64_t /*step*/,
                                   std::span<const Wanted> /*wanted*/,
                                   Requester* /*requester*/) override {
    return nullptr;
  }
  std::shared_ptr<Run> run(const std::string& /*task*/, const Call& /*call*/,
                           std::span<const Tensor> /*feeds*/, RunDone* done) override {
    last = std::make_shared<Late>();
    last->done = done;
    return last;
  }
  [[nodiscard]] bool can_run() const override { return true; }

  std::shared_ptr<Late> last;
};

TEST(SteppedTask, AProgramGoesWhenTheCallsOfItsStepsHaveEnded) {
  const auto network = sys::posix::create_network();
  const auto clock = sys::posix::create_clock();
  const auto task =
      task::Task::create({.name = "/job:worker/task:0",
                          .stepped = {{.network = network.get(), .clock = clock.get()}}})
          .value();
  LatePeers peers;
  task->start({&peers});
  const auto step_all = [&] {
    while (task->lane(0)->step()) {
    }
  };
  Program program;
  program.slots.push_back({DType::kFloat32, Shape{1}, -1});
  program.calls.push_back(
      {.device = "/job:ps/task:0/device:CPU:0", .program = 7, .feeds = {}, .fetches = {0}});
  using Kind = program::InstructionKind;
  program.instructions.resize(2);
  program.instructions[0] = {Kind::kCallStart, "", "call_0", {}, {}, {}, {}, 0, {}};
  program.instructions[1] = {Kind::kCallWait, "", "call_0", {}, {}, {}, {0}, 0, {}};
  constexpr uint64_t kSession = 0x100;
  ASSERT_TRUE(task->open_session(kSession).ok());
  const auto number = task->register_program(kSession, {.bytes = program::encode(program)});
  ASSERT_TRUE(number.ok()) << number.status();
  Status ended;
  task::ProgramCall call = {.session = kSession, .program = *number, .step = 0x200, .feeds = {}};
  task->run(&call, [&](task::ProgramResult& result) { ended = result.status; });
  step_all();
  ASSERT_NE(peers.last, nullptr);
  task->end_step(0x200);
  task->close_session(kSession);
  step_all();
  EXPECT_EQ(ended.code(), StatusCode::kCancelled);
  EXPECT_TRUE(peers.last->is_dropped);
  ASSERT_TRUE(
      task->post(0, [&] { peers.last->done->done({.status = base::cancelled("dropped")}, {}); }));
  step_all();
  EXPECT_EQ(task->figures().value("sidereal_task_programs"), 0);
}

}  // namespace
}  // namespace sidereal::app
