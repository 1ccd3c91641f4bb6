#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sidereal/ckpt/checkpoint_reader.h"
#include "sidereal/exec/buffer_pool.h"
#include "sidereal/exec/restoring.h"
#include "sidereal/exec/saving.h"
#include "sidereal/resources/row_layout.h"
#include "sidereal/resources/variable.h"
#include "sidereal/sys/sim/disk.h"

namespace sidereal::exec {
namespace {

using resources::Variable;
using sys::sim::SimDisk;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::HasSubstr;

/// Lanes that one thread runs, piece by piece, as the test says.
class TestLanes final : public VariableLanes {
 public:
  bool post(int lane, std::function<void()> fn) override {
    if (is_stopping) return false;
    posted_.emplace_back(lane, std::move(fn));
    return true;
  }
  bool answer(int lane, uint64_t /*step*/, std::function<void()> fn) override {
    return post(lane, std::move(fn));
  }
  [[nodiscard]] int count() const override { return 3; }
  [[nodiscard]] bool are_planned() const override { return true; }
  int next() override { return 0; }
  BufferPool* pool(int /*lane*/) override { return &pool_; }
  Workers* workers(int /*lane*/) override { return nullptr; }

  /// Runs what was posted first; false when nothing was.
  bool run_one() {
    if (posted_.empty()) return false;
    auto next = std::move(posted_.front());
    posted_.pop_front();
    next.second();
    return true;
  }
  void forget() { posted_.clear(); }

  bool is_stopping = false;

 private:
  std::deque<std::pair<int, std::function<void()>>> posted_;
  BufferPool pool_{size_t{1} << 20};
};

/// Says when a thread has something for the step. Thread: any.
class Bell {
 public:
  void ring() {
    const std::lock_guard lock(mutex_);
    ++rings_;
    rang_.notify_all();
  }
  /// Waits for the next ring, for a moment.
  void listen() {
    std::unique_lock lock(mutex_);
    rang_.wait_for(lock, std::chrono::milliseconds(2), [&] { return rings_ > heard_; });
    heard_ = rings_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable rang_;
  uint64_t rings_ = 0;
  uint64_t heard_ = 0;
};

/// What tables there are. Value type.
struct Tables {
  int64_t dim = 0;
  int64_t first_rows = 0;  ///< Of those of the first lane.
  int64_t rows = 0;        ///< Of the others.
  int64_t pushed = 0;      ///< Rows of a push.
  /// Whether those of the first lane have columns of a table: then they are read piece by piece,
  /// however small they are.
  bool has_layout = false;

  [[nodiscard]] int64_t rows_of(size_t lane) const { return lane == 0 ? first_rows : rows; }
};
/// Those of the first lane are large enough to be read piece by piece.
constexpr Tables kLarge = {.dim = 64, .first_rows = 5000, .rows = 300, .pushed = 20};
/// A save costs little.
constexpr Tables kSmall = {
    .dim = 4, .first_rows = 300, .rows = 20, .pushed = 6, .has_layout = true};

/// A table that counts: a push adds 1 to rows of it and of its slot, and to the counter of its
/// client. Each lane has one.
class CountingTables {
 public:
  CountingTables(VariableLanes* lanes, const Tables& of) : of_(of) {
    for (int lane = 0; lane < lanes->count(); ++lane) {
      auto owner = std::make_shared<resources::Owner>(lanes, lane);
      const auto make = [&](const char* what, DType dtype, const Shape& of) {
        auto out = Variable::make({.name = fmt::format("{}_{}", what, lane), .dtype = dtype}, owner)
                       .value();
        EXPECT_TRUE(out->assign(Tensor::zeros(dtype, of)).ok());
        all_.push_back(out);
        return out;
      };
      const Shape shape{of.rows_of(static_cast<size_t>(lane)), of.dim};
      weights_.push_back(make("w", DType::kFloat32, shape));
      slots_.push_back(make("w_slot", DType::kFloat32, shape));
      counts_.push_back(make("pushes", DType::kInt64, Shape()));
    }
  }

  /// One push to every lane, of which the rows follow from the number of the push.
  void push(int64_t number) {
    for (size_t lane = 0; lane < weights_.size(); ++lane) push_to(lane, number);
  }
  void push_to(size_t lane, int64_t number) {
    const std::vector<int64_t> rows = rows_of(lane, number);
    const std::array<Variable*, 3> some = {weights_[lane].get(), slots_[lane].get(),
                                           counts_[lane].get()};
    ASSERT_TRUE(Variable::change(some, [&](std::span<Variable::Value* const> values) {
                  if (of_.has_layout && lane == 0) lay_out(values.first(2));
                  for (int i = 0; i < 2; ++i) {
                    const resources::Rows to = values[static_cast<size_t>(i)]->own(rows);
                    for (const int64_t row : rows) {
                      auto* const at = reinterpret_cast<float*>(to.at + row * to.stride);
                      for (int64_t j = 0; j < of_.dim; ++j) at[j] += 1;
                    }
                  }
                  *reinterpret_cast<int64_t*>(values[2]->own().at) += 1;
                  return Status();
                }).ok());
  }
  [[nodiscard]] std::vector<int64_t> rows_of(size_t lane, int64_t number) const {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < of_.pushed; ++i)
      out.push_back((number * 7919 + i * 104'729) % of_.rows_of(lane));
    std::ranges::sort(out);
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  [[nodiscard]] std::vector<SavedTensor> tensors() const {
    std::vector<SavedTensor> out;
    for (const auto& variable : all_) {
      out.push_back({.name = variable->def().name,
                     .shape = Shape::unknown_rank(),
                     .slice = {},
                     .variable = variable});
    }
    return out;
  }

  /// Whether every lane is what its first pushes, as many as its counter says, make of it; how many
  /// they are.
  [[nodiscard]] std::vector<int64_t> check() const {
    std::vector<int64_t> out;
    for (size_t lane = 0; lane < weights_.size(); ++lane) {
      const int64_t pushes = counts_[lane]->read()->data<const int64_t>()[0];
      std::vector<float> expected(static_cast<size_t>(of_.rows_of(lane)));
      for (int64_t number = 0; number < pushes; ++number) {
        for (const int64_t row : rows_of(lane, number)) expected[static_cast<size_t>(row)] += 1;
      }
      for (const auto& variable : {weights_[lane], slots_[lane]}) {
        const Tensor value = variable->read().value();
        const float* at = value.data<const float>().data();
        for (int64_t row = 0; row < of_.rows_of(lane); ++row, at += of_.dim) {
          const float wanted = expected[static_cast<size_t>(row)];
          bool is_good = true;
          for (int64_t j = 0; j < of_.dim; ++j) is_good &= at[j] == wanted;
          if (is_good) continue;
          ADD_FAILURE() << variable->def().name << " row " << row << " has " << at[0]
                        << " pushes, not " << wanted;
          return {};
        }
      }
      out.push_back(pushes);
    }
    return out;
  }

 private:
  static void lay_out(std::span<Variable::Value* const> values) {
    std::optional<resources::RowLayout> layout = resources::RowLayout::plan(values);
    if (!layout.has_value()) return;
    layout->move(0, layout->rows());
    layout->finish();
  }

  const Tables of_;
  std::vector<std::shared_ptr<Variable>> all_;
  std::vector<std::shared_ptr<Variable>> weights_;
  std::vector<std::shared_ptr<Variable>> slots_;
  std::vector<std::shared_ptr<Variable>> counts_;
};

class CheckpointTest : public ::testing::Test {
 protected:
  SaveRequest request(const std::string& prefix, uint64_t cut) {
    SaveRequest out{.disk = disk_, .wake = [bell = bell_] { bell->ring(); }, .prefix = prefix};
    out.cut = cut;
    out.piece_bytes = of_.has_layout ? kSmallPiece : out.piece_bytes;
    out.tensors = tables_->tensors();
    return out;
  }

  /// Saves, while `meanwhile` is called between what lanes do for it.
  Status save(SaveRequest asked, const std::function<void()>& meanwhile) {
    const std::string prefix = asked.prefix;
    const std::string base = std::exchange(base_name_, "");
    const auto work = SaveWork::start(std::move(asked), &lanes_);
    std::optional<Result<std::string>> done;
    while (!done.has_value()) {
      meanwhile();
      if (!lanes_.run_one()) bell_->listen();
      done = work->step();
    }
    SR_RETURN_IF_ERROR(done->status());
    SR_ASSIGN_OR_RETURN(const ckpt::Index part, ckpt::decode(**done, "a part"));
    SR_ASSIGN_OR_RETURN(const ckpt::Index index, ckpt::merge({&part, 1}, base));
    return ckpt::write_index(disk_.get(), prefix, index, part.cuts[0]);
  }

  Status restore(const std::string& prefix) {
    const auto work = RestoreWork::start(
        disk_, [bell = bell_] { bell->ring(); }, prefix, tables_->tensors(), &lanes_);
    std::optional<Result<std::vector<Tensor>>> done;
    while (!done.has_value()) {
      if (!lanes_.run_one()) bell_->listen();
      done = work->step();
    }
    return done->status();
  }

  void make_tables() { tables_ = std::make_unique<CountingTables>(&lanes_, of_); }

  /// Saves `rounds` times while pushes go on, and restores.
  void save_and_restore(uint64_t rounds, int64_t pushes_max);

  /// Some rows of the small tables.
  static constexpr size_t kSmallPiece = 1024;

  Tables of_ = kLarge;

  TestLanes lanes_;
  std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::shared_ptr<SimDisk> disk_ = std::make_shared<SimDisk>(1);
  std::unique_ptr<CountingTables> tables_;
  std::string base_name_;
};

uint64_t number_of(const char* variable, uint64_t usual) {
  const char* const wanted = std::getenv(variable);
  return wanted == nullptr ? usual : std::stoull(wanted);
}
/// How many times, `usual` but where SIDEREAL_SAVES says more.
uint64_t rounds_or(uint64_t usual) { return number_of("SIDEREAL_SAVES", usual); }
/// The seed of the first of them: several processes may share many.
uint64_t first_round() { return number_of("SIDEREAL_FIRST_SAVE", 0); }

/// What is restored is, of each lane, exactly the pushes before one instant: for weights, slots and
/// counters the same one.
void CheckpointTest::save_and_restore(uint64_t rounds, int64_t pushes_max) {
  make_tables();
  disk_ = std::make_shared<SimDisk>(first_round() + 1);
  int64_t pushes = 0;
  for (uint64_t round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const int64_t before = pushes;
    ASSERT_TRUE(save(request("d/c", round + 1), [&] { tables_->push(pushes++); }).ok());
    const int64_t after = pushes;
    make_tables();
    ASSERT_TRUE(restore("d/c").ok());
    const std::vector<int64_t> restored = tables_->check();
    ASSERT_EQ(restored.size(), 3U);
    for (const int64_t one : restored) {
      EXPECT_GE(one, before);
      EXPECT_LE(one, after);
    }
    // What was not in the cut is sent again.
    for (size_t lane = 0; lane < 3; ++lane) {
      for (int64_t number = restored[lane]; number < pushes; ++number) {
        tables_->push_to(lane, number);
      }
    }
    EXPECT_EQ(tables_->check(), (std::vector<int64_t>{pushes, pushes, pushes}));
    if (pushes > pushes_max) {
      make_tables();
      pushes = 0;
    }
  }
}

TEST_F(CheckpointTest, HasOneInstantOfEachLaneWhilePushesGoOn) {
  of_ = kSmall;
  save_and_restore(rounds_or(1000), 100);
}

TEST_F(CheckpointTest, HasOneInstantOfLargeTables) { save_and_restore(10, 400); }

/// The machine stops at a random operation of the disk; what is found then is a cut.
TEST_F(CheckpointTest, AnyStopOfTheMachineLeavesACut) {
  of_ = kSmall;
  uint64_t cut = 0;
  uint64_t from_new = 0;
  const uint64_t rounds = rounds_or(1000);
  for (uint64_t i = 0; i < rounds && !HasFailure(); ++i) {
    const uint64_t round = first_round() + i;
    SCOPED_TRACE(round);
    std::mt19937_64 random(round);
    disk_ = std::make_shared<SimDisk>(round);
    make_tables();
    int64_t pushes = 0;
    ASSERT_TRUE(save(request("d/c", ++cut), [&] { tables_->push(pushes++); }).ok());
    const int64_t acknowledged = pushes;
    disk_->stop_after(disk_->operations() + random() % 24);
    const Status second = save(request("d/c", ++cut), [&] { tables_->push(pushes++); });
    lanes_.forget();
    disk_ = disk_->restart();
    make_tables();
    ASSERT_TRUE(restore("d/c").ok());
    const std::vector<int64_t> restored = tables_->check();
    ASSERT_EQ(restored.size(), 3U);
    from_new += restored[0] >= acknowledged ? 1 : 0;
    EXPECT_TRUE(!second.ok() || restored[0] >= acknowledged);
    for (size_t lane = 0; lane < 3; ++lane) {
      for (int64_t number = restored[lane]; number < pushes; ++number) {
        tables_->push_to(lane, number);
      }
    }
    ASSERT_EQ(tables_->check(), (std::vector<int64_t>{pushes, pushes, pushes}));
  }
  EXPECT_GT(from_new, rounds / 20);
  EXPECT_LT(from_new, rounds - rounds / 20);
}

TEST_F(CheckpointTest, IncrementsStandOnEachOther) {
  make_tables();
  int64_t pushes = 0;
  SaveRequest full = request("d/c-0", 1);
  full.tracks = true;
  // What is pushed behind its cut, however long it takes, is in the first increment.
  const auto push_some = [&] {
    if (pushes < 10) tables_->push(pushes++);
  };
  ASSERT_TRUE(save(std::move(full), push_some).ok());
  const uint64_t full_bytes = disk_->contents("d/c-0.data-00000-of-00001.00000001")->size();
  for (uint64_t i = 1; i <= 20; ++i) {
    tables_->push(pushes++);
    SaveRequest next = request(fmt::format("d/c-{}", i), i + 1);
    next.bases = {i};
    next.tracks = true;
    base_name_ = fmt::format("c-{}", i - 1);
    int pushed = 0;
    const auto push_a_few = [&] {
      if (++pushed <= 3) tables_->push(pushes++);
    };
    ASSERT_TRUE(save(std::move(next), push_a_few).ok());
    const auto size = disk_->contents(fmt::format("d/c-{}.data-00000-of-00001.{:08x}", i, i + 1));
    EXPECT_LT(size->size(), full_bytes / 4);
    auto live = std::move(tables_);
    make_tables();
    ASSERT_TRUE(restore(fmt::format("d/c-{}", i)).ok());
    EXPECT_EQ(tables_->check().size(), 3U);
    tables_ = std::move(live);
  }
  EXPECT_EQ(ckpt::bases_of(disk_.get(), "d/c-2"), (std::vector<std::string>{"d/c-1", "d/c-0"}));
  EXPECT_TRUE(ckpt::bases_of(disk_.get(), "d/c-0").empty());
  EXPECT_TRUE(ckpt::bases_of(disk_.get(), "d/none").empty());
  ASSERT_TRUE(disk_->remove("d/c-1.index").ok());
  EXPECT_EQ(ckpt::bases_of(disk_.get(), "d/c-2"), (std::vector<std::string>{"d/c-1"}));
}

TEST_F(CheckpointTest, AVariableThatIsGivenToAnotherLaneMeanwhileIsSaved) {
  make_tables();
  int64_t pushes = 0;
  std::vector<SavedTensor> tensors = tables_->tensors();
  int calls = 0;
  ASSERT_TRUE(save(request("d/c", 1), [&] {
                tables_->push(pushes++);
                if (++calls % 3 == 0) tensors[3].variable->owner()->give_to(calls % 2);
              }).ok());
  make_tables();
  ASSERT_TRUE(restore("d/c").ok());
  EXPECT_EQ(tables_->check().size(), 3U);
}

TEST_F(CheckpointTest, ErrorsNameTheFileAndLeaveWhatWasGood) {
  make_tables();
  const auto nothing = [] {};
  ASSERT_TRUE(save(request("d/c", 1), nothing).ok());
  disk_->set_capacity(4'000'000);
  const Status full = save(request("d/c", 2), nothing);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("d/c.data-00000-of-00001.00000002"));
  EXPECT_EQ(disk_->list("d")->size(), 2U) << "nothing half-written stays";
  ASSERT_TRUE(restore("d/c").ok());

  disk_->set_capacity(UINT64_MAX);
  disk_->set_fault([](std::string_view operation, const std::string& path) {
    return operation == "create" ? base::permission_denied("cannot create {}", path) : Status();
  });
  EXPECT_EQ(save(request("d/c", 3), nothing).code(), StatusCode::kPermissionDenied);
  disk_->set_fault(nullptr);

  EXPECT_EQ(restore("d/other").code(), StatusCode::kNotFound);
  ASSERT_TRUE(disk_->damage("d/c.data-00000-of-00001.00000001", 100, 1));
  EXPECT_EQ(restore("d/c").code(), StatusCode::kDataLoss);

  lanes_.is_stopping = true;
  EXPECT_EQ(save(request("d/c", 4), nothing).code(), StatusCode::kUnavailable);
}

TEST_F(CheckpointTest, LettingGoEndsItAndLeavesNoFile) {
  make_tables();
  {
    const auto work = SaveWork::start(request("d/c", 1), &lanes_);
    for (int i = 0; i < 6; ++i) {
      static_cast<void>(work->step());
      lanes_.run_one();
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!disk_->list("d")->empty() && std::chrono::steady_clock::now() < deadline) {
    lanes_.run_one();
    bell_->listen();
  }
  EXPECT_TRUE(disk_->list("d")->empty());
}

}  // namespace
}  // namespace sidereal::exec
