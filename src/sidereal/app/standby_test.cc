// Synchronous standbys of a task: what is pushed is answered when they have it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "sidereal/app/testing/processes.h"
#include "sidereal/program/program.h"
#include "sidereal/resources/replica.h"
#include "sidereal/sys/clock.h"
#include "sidereal/task/change_reading.h"
#include "sidereal/task/task.h"

namespace sidereal::app {
namespace {

using program::Instruction;
using program::Program;
using resources::Replica;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kPatience = 60s;

class NoPeers final : public task::Peers {
 public:
  base::RefPtr<ReceiveRequest> ask(const ports::TensorSource& /*source*/, uint64_t /*step*/,
                                   std::span<const Wanted> /*wanted*/,
                                   Requester* /*requester*/) override {
    return nullptr;
  }
};

/// What reads the log of one lane, and acknowledges when it is told to. Thread: any.
class StandbyLane final : public task::ChangesSink {
 public:
  explicit StandbyLane(int lane) : lane_(lane) {}

  void begun(uint64_t /*incarnation*/) override {}
  void give(const std::shared_ptr<const std::string>& bytes, uint64_t /*end*/) override {
    change([&] {
      EXPECT_TRUE(replica_.apply(*bytes).ok());
      taken_ += bytes->size();
    });
  }
  void at(uint64_t /*end*/, uint64_t /*mark*/) override {
    change([] {});
  }
  void in_sync(uint64_t /*end*/) override {
    change([&] { is_in_sync_ = true; });
  }
  void ended(const Status& status) override {
    change([&] { ended_ = status; });
  }

  void read_by(std::shared_ptr<task::ChangesReader> reader) {
    change([&] { reader_ = std::move(reader); });
  }
  /// From here on it acknowledges what it has, or nothing.
  void acknowledge(bool does) {
    change([&] { acknowledges_ = does; });
  }
  /// That it has so much, whatever it has.
  void acknowledge_cut(uint64_t cut) {
    const std::lock_guard lock(mutex_);
    reader_->took(taken_, cut);
  }
  void cancel() {
    const std::lock_guard lock(mutex_);
    reader_->cancel();
  }
  template <class Is>
  [[nodiscard]] bool wait(Is is) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return is(*this); });
  }
  template <class Is>
  [[nodiscard]] bool look(Is is) {
    const std::lock_guard lock(mutex_);
    return is(*this);
  }
  /// With the lock, in wait() and look().
  [[nodiscard]] bool is_in_sync() const { return is_in_sync_; }
  /// The snapshot has come.
  [[nodiscard]] bool has_all() const { return replica_.position(lane_).has_value(); }
  [[nodiscard]] uint64_t cut() const { return replica_.position(lane_)->cut; }
  [[nodiscard]] const std::optional<Status>& ended() const { return ended_; }
  [[nodiscard]] bool has(const std::string& variable, float value) const {
    const Result<Tensor> found = replica_.value(variable);
    return found.ok() && found->defined() && found->data<const float>()[0] == value;
  }

 private:
  template <class Change>
  void change(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
    if (reader_ == nullptr || !acknowledges_) return;
    const auto position = replica_.position(lane_);
    reader_->took(taken_, position.has_value() ? position->cut : 0);
  }

  const int lane_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<task::ChangesReader> reader_;
  Replica replica_{size_t{1} << 30};
  uint64_t taken_ = 0;
  bool acknowledges_ = true;
  bool is_in_sync_ = false;
  std::optional<Status> ended_;
};
/// Of all lanes of a task.
using Standby = std::vector<std::shared_ptr<StandbyLane>>;

/// A task with as many variables as lanes, which sessions on lane 0 read and push to: some of them
/// belong to other lanes.
class Standbys : public ::testing::TestWithParam<int> {
 protected:
  using Answer = std::future<task::ProgramResult>;

  void start(std::chrono::milliseconds timeout) {
    for (Answer& answer : begin_task(timeout, 1)) EXPECT_TRUE(status_of(&answer).ok());
  }
  /// The answers of what gives the variables their first values.
  std::vector<Answer> begin_task(std::chrono::milliseconds timeout, int min_insync_replicas) {
    std::vector<Answer> out;
    auto task = task::Task::create({.name = "/job:ps/replica:0/task:0",
                                    .incarnation = 7,
                                    .lanes = GetParam(),
                                    .standby_timeout_ns = timeout.count() * sys::kMillisecond,
                                    .min_insync_replicas = min_insync_replicas});
    EXPECT_TRUE(task.ok()) << task.status();
    if (!task.ok()) return out;
    task_ = *std::move(task);
    task_->start({&peers_});
    EXPECT_TRUE(task_->open_session(kSession).ok());
    for (int i = 0; i < GetParam(); ++i) {
      out.push_back(begin(add("VariableAssign", name(i)), 0));
      pushes_.push_back(add("VariableAssignAdd", name(i)));
      pulls_.push_back(add("VariableRead", name(i)));
    }
    return out;
  }
  void TearDown() override {
    if (task_ != nullptr) task_->stop();
  }

  static std::string name(int variable) { return "v" + std::to_string(variable); }

  /// A program that does `op` to a variable.
  uint64_t add(const std::string& op, const std::string& variable) {
    const bool reads = op == "VariableRead";
    Program out;
    out.slots = {{DType::kString, Shape{}, -1},
                 {DType::kFloat32, Shape{2}, -1},
                 {DType::kFloat32, Shape{2}, -1}};
    Instruction& handle = out.instructions.emplace_back();
    handle.op = "Variable";
    handle.name = variable;
    handle.attrs["shared_name"] = variable;
    handle.attrs["dtype"] = DType::kFloat32;
    handle.attrs["shape"] = Shape{2};
    handle.outputs = {0};
    Instruction& done = out.instructions.emplace_back();
    done.op = op;
    done.name = op;
    done.inputs = {0};
    if (reads) {
      done.attrs["dtype"] = DType::kFloat32;
      done.attrs["shape"] = Shape{2};
      done.outputs = {1};
      out.fetches = {1};
      out.fetch_names = {"value"};
    } else {
      done.inputs.push_back(1);
      done.outputs = {2};
      out.feeds = {1};
      out.feed_names = {"value"};
    }
    if (op == "VariableAssign") assign_ = program::encode(out);
    const auto added = task_->register_program(
        kSession, {.bytes = program::encode(out), .lane = task::lane_hint(kSession)});
    EXPECT_TRUE(added.ok()) << added.status();
    return added.ok() ? *added : 0;
  }

  Answer begin(uint64_t program, std::optional<float> value, uint64_t session = kSession) {
    auto ended = std::make_shared<std::promise<task::ProgramResult>>();
    const uint64_t step = task::step_number(session, ++steps_ << 8);
    task::ProgramCall call = {.session = session, .program = program, .step = step, .feeds = {}};
    if (value.has_value()) {
      call.feeds.push_back(Tensor::of(Shape{2}, std::vector<float>{*value, *value}));
    }
    task_->run(&call,
               [ended](task::ProgramResult& result) { ended->set_value(std::move(result)); });
    return ended->get_future();
  }
  static Status status_of(Answer* answer) {
    if (answer->wait_for(kPatience) != std::future_status::ready) {
      return base::deadline_exceeded("it is not answered");
    }
    return answer->get().status;
  }
  Answer push(int variable) { return begin(pushes_[static_cast<size_t>(variable)], 1); }
  /// Also of what a push has changed that waits.
  float pull(int variable) {
    Answer answer = begin(pulls_[static_cast<size_t>(variable)], std::nullopt);
    if (answer.wait_for(kPatience) != std::future_status::ready) return -1;
    const task::ProgramResult result = answer.get();
    EXPECT_TRUE(result.status.ok()) << result.status;
    return result.status.ok() ? result.fetches[0].data<const float>()[0] : -1;
  }
  static bool is_answered(const Answer& answer) {
    return answer.wait_for(0s) == std::future_status::ready;
  }

  /// `is_quiet`: it acknowledges nothing, and is not in sync.
  Standby attach(bool is_synchronous = true, bool is_quiet = false) {
    Standby out;
    for (int lane = 0; lane < GetParam(); ++lane) {
      out.push_back(std::make_shared<StandbyLane>(lane));
      out.back()->acknowledge(!is_quiet);
      auto reader = task_->read_changes(
          {.lane = lane, .cut_ns = sys::kMillisecond, .is_synchronous = is_synchronous},
          out.back());
      EXPECT_TRUE(reader.ok()) << reader.status();
      if (reader.ok()) out.back()->read_by(*reader);
    }
    for (const auto& lane : out) {
      EXPECT_TRUE(lane->wait([&](const StandbyLane& one) {
        return one.has_all() && one.is_in_sync() == (is_synchronous && !is_quiet);
      }));
    }
    return out;
  }
  static void acknowledge(const Standby& standby, bool does) {
    for (const auto& lane : standby) lane->acknowledge(does);
  }
  /// Waits until a lane of the standby was given that the variable is `value`.
  static void wait_until_given(const Standby& standby, int variable, float value) {
    bool has = false;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!has && std::chrono::steady_clock::now() < end) {
      has = std::ranges::any_of(standby, [&](const auto& lane) {
        return lane->look([&](const StandbyLane& one) { return one.has(name(variable), value); });
      });
      std::this_thread::yield();
    }
    EXPECT_TRUE(has);
  }
  /// The standbys have what it pushed, and do not say so.
  Answer push_that_waits(std::initializer_list<Standby> standbys, int variable = 0) {
    for (const Standby& standby : standbys) acknowledge(standby, false);
    Answer answer = push(variable);
    for (const Standby& standby : standbys) wait_until_given(standby, variable, 1);
    return answer;
  }
  int64_t figure(const char* name) { return task_->figures().value(name); }

  static constexpr uint64_t kSession = 256;
  NoPeers peers_;
  std::unique_ptr<task::Task> task_;
  std::string assign_;  // A program.
  std::vector<uint64_t> pushes_;
  std::vector<uint64_t> pulls_;
  uint64_t steps_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Lanes, Standbys, ::testing::Values(1, 3),
                         ::testing::PrintToStringParamName());

TEST_P(Standbys, have_a_push_before_it_is_answered_and_pulls_do_not_wait) {
  start(1h);
  const Standby standby = attach();
  EXPECT_EQ(figure("sidereal_standbys"), GetParam());
  for (int variable = 0; variable < GetParam(); ++variable) {
    Answer answer = push_that_waits({standby}, variable);
    EXPECT_EQ(pull(variable), 1);
    EXPECT_FALSE(is_answered(answer));
    EXPECT_GT(figure("sidereal_standby_waiting"), 0);
    acknowledge(standby, true);
    EXPECT_TRUE(status_of(&answer).ok());
  }
  EXPECT_EQ(figure("sidereal_standby_waiting"), 0);
}

TEST_P(Standbys, are_all_waited_for) {
  start(1h);
  const Standby one = attach();
  const Standby other = attach();
  Answer answer = push_that_waits({one, other});
  acknowledge(one, true);
  EXPECT_EQ(pull(0), 1);
  EXPECT_FALSE(is_answered(answer));
  acknowledge(other, true);
  EXPECT_TRUE(status_of(&answer).ok());
}

TEST_P(Standbys, that_say_nothing_are_let_go) {
  start(100ms);
  const Standby standby = attach();
  acknowledge(standby, false);
  Answer answer = push(0);
  EXPECT_TRUE(status_of(&answer).ok());
  int ended = 0;
  for (const auto& lane : standby) {
    ended += lane->look([](const StandbyLane& one) {
      if (!one.ended().has_value()) return false;
      EXPECT_EQ(one.ended()->code(), StatusCode::kDeadlineExceeded);
      EXPECT_THAT(base::message_of(*one.ended()), HasSubstr("in 100 ms"));
      return true;
    });
  }
  EXPECT_EQ(ended, 1) << "only the one that was waited for";
  // What comes next waits for nothing, until another one is there.
  Answer next = push(0);
  EXPECT_TRUE(status_of(&next).ok());
  const Standby another = attach();
  Answer last = push(0);
  EXPECT_TRUE(status_of(&last).ok());
}

TEST_P(Standbys, that_go_are_not_waited_for) {
  start(1h);
  const Standby standby = attach();
  Answer answer = push_that_waits({standby});
  EXPECT_EQ(pull(0), 1);
  EXPECT_FALSE(is_answered(answer));
  for (const auto& lane : standby) lane->cancel();
  EXPECT_TRUE(status_of(&answer).ok());
  for (const auto& lane : standby) {
    EXPECT_TRUE(lane->wait([](const StandbyLane& one) { return one.ended().has_value(); }));
  }
}

TEST_P(Standbys, are_in_sync_when_they_have_what_was_answered_before) {
  start(1h);
  const Standby standby = attach(/*is_synchronous=*/true, /*is_quiet=*/true);
  std::vector<uint64_t> before;
  for (const auto& lane : standby) {
    before.push_back(lane->look([](const StandbyLane& one) { return one.cut(); }));
  }
  for (int variable = 0; variable < GetParam(); ++variable) {
    Answer answer = push(variable);
    EXPECT_TRUE(status_of(&answer).ok());
    wait_until_given(standby, variable, 1);
  }
  // Near enough to be waited for.
  for (size_t i = 0; i < standby.size(); ++i) {
    standby[i]->acknowledge_cut(before[i]);
    std::promise<void> heard;
    ASSERT_TRUE(task_->post(static_cast<int>(i), [&heard] { heard.set_value(); }));
    heard.get_future().wait();
  }
  Answer waits = push(0);
  EXPECT_EQ(pull(0), 2);
  EXPECT_FALSE(is_answered(waits));
  for (const auto& lane : standby) {
    EXPECT_FALSE(lane->look([](const StandbyLane& one) { return one.is_in_sync(); }));
  }
  EXPECT_EQ(figure("sidereal_standbys"), 0);
  acknowledge(standby, true);
  EXPECT_TRUE(status_of(&waits).ok());
  for (const auto& lane : standby) {
    EXPECT_TRUE(lane->wait([](const StandbyLane& one) { return one.is_in_sync(); }));
  }
}

TEST_P(Standbys, are_waited_for_until_there_are_enough_of_them) {
  std::vector<Answer> made = begin_task(100ms, /*min_insync_replicas=*/2);
  ASSERT_EQ(made.size(), static_cast<size_t>(GetParam()));
  for (int i = 0; i < GetParam(); ++i) EXPECT_EQ(pull(i), 0);
  for (const Answer& answer : made) EXPECT_FALSE(is_answered(answer));
  EXPECT_GT(figure("sidereal_standbys_missing"), 0);
  const Standby standby = attach();
  for (Answer& answer : made) EXPECT_TRUE(status_of(&answer).ok());
  EXPECT_EQ(figure("sidereal_standbys_missing"), 0);
  Answer first = push(0);
  EXPECT_TRUE(status_of(&first).ok());
  // One that has gone, and one that says nothing.
  for (const auto& lane : standby) lane->cancel();
  for (const auto& lane : standby) {
    EXPECT_TRUE(lane->wait([](const StandbyLane& one) { return one.ended().has_value(); }));
  }
  Answer second = push(0);
  EXPECT_EQ(pull(0), 2);
  EXPECT_FALSE(is_answered(second));
  const Standby silent = attach();
  EXPECT_TRUE(status_of(&second).ok());
  acknowledge(silent, false);
  Answer third = push(0);
  wait_until_given(silent, 0, 3);
  const auto has_let_go = [&] {
    return std::ranges::any_of(silent, [](const auto& lane) {
      return lane->look([](const StandbyLane& one) { return one.ended().has_value(); });
    });
  };
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!has_let_go() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_TRUE(has_let_go());
  EXPECT_EQ(pull(0), 3);
  EXPECT_FALSE(is_answered(third));
  const Standby last = attach();
  EXPECT_TRUE(status_of(&third).ok());
  wait_until_given(last, 0, 3);
}

TEST_P(Standbys, are_not_waited_for_by_a_session_whose_variables_are_its_own) {
  const std::vector<Answer> made = begin_task(1h, /*min_insync_replicas=*/2);
  constexpr uint64_t kOwn = 512;
  ASSERT_TRUE(task_->open_session(kOwn, *task::session_state(/*isolated=*/true, "")).ok());
  const auto program = task_->register_program(kOwn, {.bytes = assign_, .lane = 0});
  ASSERT_TRUE(program.ok()) << program.status();
  Answer answer = begin(*program, 1, kOwn);
  EXPECT_TRUE(status_of(&answer).ok());
  EXPECT_FALSE(is_answered(made[0]));
}

TEST_P(Standbys, that_have_not_come_are_not_waited_for_by_sessions_that_are_closed) {
  std::vector<Answer> made = begin_task(1h, /*min_insync_replicas=*/2);
  EXPECT_EQ(pull(0), 0);
  task_->close_session(kSession);
  for (Answer& answer : made) EXPECT_EQ(status_of(&answer).code(), StatusCode::kCancelled);
}

TEST_P(Standbys, are_not_followers_that_ask_for_nothing) {
  start(1h);
  const Standby follower = attach(/*is_synchronous=*/false);
  acknowledge(follower, false);
  Answer answer = push(0);
  EXPECT_TRUE(status_of(&answer).ok());
  EXPECT_EQ(figure("sidereal_standbys"), 0);
}

TEST_P(Standbys, have_maybe_not_what_a_session_pushed_that_is_closed) {
  start(1h);
  const Standby standby = attach();
  Answer answer = push_that_waits({standby});
  task_->close_session(kSession);
  EXPECT_EQ(status_of(&answer).code(), StatusCode::kCancelled);
}

TEST_P(Standbys, have_maybe_not_what_a_step_pushed_that_is_cancelled) {
  start(1h);
  const Standby standby = attach();
  Answer answer = push_that_waits({standby});
  task_->cancel(task::step_number(kSession, steps_ << 8));
  EXPECT_EQ(status_of(&answer).code(), StatusCode::kCancelled);
  acknowledge(standby, true);
  EXPECT_EQ(pull(0), 1);
}

TEST_P(Standbys, have_maybe_not_what_a_task_had_that_stops) {
  start(1h);
  const Standby standby = attach();
  Answer answer = push_that_waits({standby});
  task_->stop();
  EXPECT_EQ(status_of(&answer).code(), StatusCode::kCancelled);
}

TEST_P(Standbys, of_a_task_that_is_deposed_have_not_what_it_is_asked_for) {
  start(1h);
  const Standby standby = attach();
  Answer answer = push_that_waits({standby});
  task_->depose(base::aborted("another start has its place"));
  EXPECT_EQ(status_of(&answer).code(), StatusCode::kAborted);
  // Acknowledged or not, and without a standby.
  acknowledge(standby, true);
  for (const auto& lane : standby) lane->cancel();
  Answer next = push(0);
  EXPECT_EQ(status_of(&next).code(), StatusCode::kAborted);
  Answer read = begin(pulls_[0], std::nullopt);
  EXPECT_EQ(status_of(&read).code(), StatusCode::kAborted);
  EXPECT_EQ(task_->open_session(kSession + 1).code(), StatusCode::kAborted);
  EXPECT_EQ(task_->read_changes({}, std::make_shared<StandbyLane>(0)).status().code(),
            StatusCode::kAborted);
}

}  // namespace
}  // namespace sidereal::app
