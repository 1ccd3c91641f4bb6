#include <cstdlib>

#include "sidereal/app/testing/data_port.h"
#include "sidereal/app/testing/figures.h"

// Servers that are killed while workers push to a ps as fast as they can.

namespace sidereal::app {
namespace {

/// Seconds within which a step ends whose peer was killed.
constexpr double kNoticedIn = 10;

/// Steps that add 1 to a variable of task 1, through one master; a session that ended is replaced.
class Load {
 public:
  Load(std::string target, const ir::Graph& graph) : target_(std::move(target)) {
    options_.connect_timeout = std::chrono::seconds(1);
    thread_ = std::thread([this, &graph] {
      while (!done_) step(graph);
    });
  }
  ~Load() { stop(); }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  void stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
    session_ = nullptr;
    EXPECT_LT(worst_s_, lateness_.allows(kNoticedIn));
  }
  [[nodiscard]] int64_t attempts() const { return attempts_; }
  [[nodiscard]] int64_t successes() const { return successes_; }
  /// Waits until it has done that much more.
  bool goes_on(int64_t more) const {
    const int64_t had = successes_;
    return eventually([&] { return successes_ >= had + more; }, 40);
  }
  /// Waits until steps have failed.
  bool fails() const {
    return eventually([&] { return failures_ > 0; }, 2 * kNoticedIn);
  }

 private:
  void step(const ir::Graph& graph) {
    if (session_ == nullptr) {
      auto made = service::Session::create(target_, graph, options_);
      if (!made.ok()) {
        // Whom it needs does not live.
        poll(nullptr, 0, 20);
        return;
      }
      session_ = *std::move(made);
    }
    ++attempts_;
    const Stopwatch watch;
    const auto got = session_->run({feed_of_x(100)}, {"back"}, {"count_honest"});
    worst_s_ = std::max(worst_s_, watch.seconds());
    if (got.ok()) {
      ++successes_;
    } else {
      ++failures_;
      session_ = nullptr;
    }
  }

  const Lateness lateness_;
  const std::string target_;
  service::SessionOptions options_ = patient();
  std::unique_ptr<service::Session> session_;
  double worst_s_ = 0;
  std::atomic<int64_t> attempts_ = 0;
  std::atomic<int64_t> successes_ = 0;
  std::atomic<int64_t> failures_ = 0;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

struct LoadKind {
  cluster::Protocol protocol;
  int lanes;
};

class UnderLoad : public ::testing::TestWithParam<LoadKind> {
 protected:
  void SetUp() override {
    if (server_program().empty()) GTEST_SKIP() << "skipped: the program sidereal is not built";
    cluster_ = std::make_unique<ProcessCluster>(
        3,
        std::vector<std::string>{"--protocol", std::string(cluster::name_of(GetParam().protocol)),
                                 "--lanes", std::to_string(GetParam().lanes)});
    init();
    for (const int master : {0, 2}) {
      loads_.push_back(std::make_unique<Load>(cluster_->target(master), model_.graph()));
    }
    for (const auto& load : loads_) ASSERT_TRUE(load->goes_on(100));
  }
  void init() {
    const auto session = service::Session::create(cluster_->target(1), model_.graph(), patient());
    ASSERT_TRUE(session.ok()) << session.status();
    const auto done = (*session)->run({}, {}, {"init_honest"});
    EXPECT_TRUE(done.ok()) << done.status();
  }
  int64_t value() {
    const auto session = service::Session::create(cluster_->target(1), model_.graph(), patient());
    EXPECT_TRUE(session.ok()) << session.status();
    if (!session.ok()) return -1;
    const auto got = (*session)->run({}, {"read_honest"});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? static_cast<int64_t>(floats((*got)[0])[0]) : -1;
  }

  const CountingModel model_;
  std::unique_ptr<ProcessCluster> cluster_;
  std::vector<std::unique_ptr<Load>> loads_;
};

TEST_P(UnderLoad, a_ps_that_is_killed_ends_steps_in_time_and_is_used_again) {
  cluster_->kill(1);
  for (const auto& load : loads_) EXPECT_TRUE(load->fails());
  cluster_->start(1);
  ASSERT_TRUE(cluster_->is_up(1));
  const int64_t before = loads_[0]->attempts() + loads_[1]->attempts();
  init();
  for (const auto& load : loads_) EXPECT_TRUE(load->goes_on(50));
  for (const auto& load : loads_) load->stop();
  // Steps may have begun before that was read, one of each load.
  EXPECT_LE(value(), loads_[0]->attempts() + loads_[1]->attempts() - before + 2);
}

TEST_P(UnderLoad, a_worker_that_is_killed_takes_nobody_with_it) {
  cluster_->kill(0);
  EXPECT_TRUE(loads_[0]->fails());
  cluster_->start(0);
  for (const auto& load : loads_) EXPECT_TRUE(load->goes_on(50));
  for (const auto& load : loads_) load->stop();
  const int64_t attempts = loads_[0]->attempts() + loads_[1]->attempts();
  // What a worker has said it did, and sent one way, may die with it.
  const bool async_push = GetParam().protocol == cluster::Protocol::kStarServerLite;
  const int64_t successes = loads_[1]->successes() + (async_push ? 0 : loads_[0]->successes());
  EXPECT_TRUE(eventually([&] { return value() >= successes; })) << successes;
  EXPECT_LE(value(), attempts);
  EXPECT_TRUE(eventually([&] { return task_figure(cluster_->status(1), "sessions") == 0; }));
}

std::vector<LoadKind> kinds() {
  using cluster::Protocol;
  std::vector<LoadKind> out = {{Protocol::kStarServer, 1}, {Protocol::kStarServerLite, 3}};
  if (std::getenv("CI") == nullptr) return out;
  out.insert(out.end(), {{Protocol::kGrpc, 1},
                         {Protocol::kGrpcPlusPlus, 3},
                         {Protocol::kStarServer, 3},
                         {Protocol::kStarServerLite, 1}});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Over, UnderLoad, ::testing::ValuesIn(kinds()),
                         [](const ::testing::TestParamInfo<LoadKind>& info) {
                           return test_name({info.param.protocol, info.index}) + "_of_" +
                                  std::to_string(info.param.lanes);
                         });

}  // namespace
}  // namespace sidereal::app
