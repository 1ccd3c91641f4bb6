#include "sidereal/resources/change_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/hash.h"
#include "sidereal/resources/replica.h"
#include "sidereal/resources/row_layout.h"
#include "sidereal/resources/table.h"
#include "sidereal/resources/variable.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::resources {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kIncarnation = 1234;
constexpr size_t kMany = size_t{1} << 30;

/// Lanes whose logs are open, all on the thread of the test.
class LoggedLanes final : public Lanes {
 public:
  explicit LoggedLanes(int count)
      : opened_(static_cast<size_t>(count)), logs_(static_cast<size_t>(count)) {}
  bool post(int /*lane*/, std::function<void()> fn) override {
    posted.push_back(std::move(fn));
    return true;
  }
  [[nodiscard]] std::span<ChangeLog* const> logs(int lane) const override {
    const auto index = static_cast<size_t>(lane);
    return {&logs_[index], logs_[index] == nullptr ? size_t{0} : size_t{1}};
  }
  [[nodiscard]] ChangeLog* log(int lane) const { return logs_[static_cast<size_t>(lane)]; }
  void open(Manager* manager, size_t bytes_max, uint64_t incarnation = kIncarnation) {
    const auto group = std::make_shared<LogGroup>(incarnation);
    for (size_t i = 0; i < opened_.size(); ++i) {
      opened_[i] =
          ChangeLog::open({.lane = static_cast<int>(i), .bytes_max = bytes_max}, group, manager);
      logs_[i] = opened_[i].get();
    }
  }
  void run_one() {
    const auto fn = std::move(posted.front());
    posted.pop_front();
    fn();
  }

  std::deque<std::function<void()>> posted;

 private:
  std::vector<std::shared_ptr<ChangeLog>> opened_;
  std::vector<ChangeLog*> logs_;
};

/// What a variable or table is, for comparisons.
std::string bytes_of(const Tensor& value) {
  const uint64_t hash = value.dtype() == DType::kString
                            ? base::hash64(tensor::strings_to_bytes(value))
                            : base::hash64(value.raw(), value.nbytes());
  return fmt::format("{} {:016x} ", value.to_string(), hash);
}

std::string bytes_of(const Table& table) {
  const auto [keys, values] = table.contents();
  return bytes_of(keys) + bytes_of(values);
}

using State = std::map<std::string, std::string>;

/// Everything in `manager` that belongs to `lane`; -1: to any.
State state_of(const Manager& manager, int lane) {
  State out;
  for (const std::string& name : manager.names()) {
    if (const auto table = manager.find<Table>(name); table.ok()) {
      if (lane <= 0) out[name] = bytes_of(**table);
      continue;
    }
    const auto variable = *manager.find<Variable>(name);
    if (!variable->is_initialized() || (lane >= 0 && variable->owner()->lane() != lane)) continue;
    out[name] = bytes_of(*variable->read()) + variable->changes_made()->encode();
  }
  return out;
}

State state_of(const Replica& replica) {
  State out;
  for (const std::string& name : replica.names()) {
    const auto table = replica.table(name);
    out[name] = table.ok()
                    ? bytes_of(**table)
                    : bytes_of(*replica.value(name)) + (*replica.changes_made(name))->encode();
  }
  return out;
}

Tensor floats(const Shape& shape, float first) {
  Tensor out = Tensor::empty(DType::kFloat32, shape);
  for (float& x : out.data<float>()) x = first++;
  return out;
}

/// Has all entries of `log` that `replica` has not.
Status follow(const ChangeLog& log, Replica* replica) {
  SR_ASSIGN_OR_RETURN(const auto entries, log.read(*replica->position(log.lane()), kMany));
  for (const auto& entry : entries) SR_RETURN_IF_ERROR(replica->apply(*entry));
  return {};
}

/// Has a snapshot of `log`; `between` is called between its pieces.
Status take_snapshot(
    ChangeLog* log, Replica* replica, size_t piece, const std::function<void()>& between = [] {}) {
  SR_ASSIGN_OR_RETURN(const auto snapshot, log->snapshot());
  while (true) {
    SR_ASSIGN_OR_RETURN(const std::optional<std::string> bytes, snapshot->next(piece));
    if (!bytes.has_value()) return {};
    SR_RETURN_IF_ERROR(replica->apply(*bytes));
    between();
  }
}

class ChangeLogTest : public ::testing::Test {
 protected:
  std::shared_ptr<Variable> make(const std::string& name, const Tensor& value, int lane = 0,
                                 std::shared_ptr<Owner> owner = nullptr) {
    if (owner == nullptr) owner = std::make_shared<Owner>(&lanes_, lane);
    auto out = *manager_.find_or_create<Variable>(
        name, [&] { return *Variable::make({.name = name, .dtype = value.dtype()}, owner); });
    EXPECT_TRUE(out->assign(value).ok());
    return out;
  }
  ChangeLog* log(int lane = 0) { return lanes_.log(lane); }
  /// The sections of the entries after `after`.
  std::vector<std::string> names_after(const LogPosition& after) {
    std::vector<std::string> out;
    const auto entries = *log()->read(after, kMany);
    for (const auto& bytes : entries) {
      const Entry entry = *decode_entry(*bytes);
      for (const Section& section : entry.sections) {
        out.push_back(fmt::format("{}:{}", section.name, static_cast<int>(section.kind)));
      }
    }
    return out;
  }

  Manager manager_;
  LoggedLanes lanes_{2};
};

/// Adds 1 to `rows` of variables that change together.
void add_one(const std::vector<Variable*>& variables, const std::vector<int64_t>& rows) {
  ASSERT_TRUE(Variable::change(variables, [&](std::span<Variable::Value* const> values) {
                for (Variable::Value* const value : values) {
                  const Rows to = value->own(rows);
                  for (const int64_t row : rows) {
                    auto* const at = reinterpret_cast<float*>(to.at + row * to.stride);
                    for (int64_t i = 0; i < to.width; ++i) at[i] += 1;
                  }
                }
                return Status();
              }).ok());
}

void lay_out(const std::vector<Variable*>& variables) {
  ASSERT_TRUE(Variable::change(variables, [&](std::span<Variable::Value* const> values) {
                auto layout = RowLayout::plan(values);
                if (layout.has_value()) {
                  layout->move(0, layout->rows());
                  layout->finish();
                }
                return Status();
              }).ok());
}

TEST_F(ChangeLogTest, HasEachRowOnceAsItIsAtTheCut) {
  const auto w = make("w", floats({1000, 4}, 0));
  lanes_.open(&manager_, kMany);
  const LogPosition before = log()->end();
  EXPECT_EQ(log()->cut(), before) << "nothing has changed";
  add_one({w.get()}, {7, 900});
  add_one({w.get()}, {3, 7});
  const LogPosition after = log()->cut();
  EXPECT_EQ(after.cut, before.cut + 1);
  add_one({w.get()}, {7});
  const auto entries = *log()->read(before, kMany);
  ASSERT_EQ(entries.size(), 1);
  const Entry entry = *decode_entry(*entries[0]);
  EXPECT_EQ(entry.head.to, after);
  EXPECT_EQ(entry.head.from, before.cut);
  ASSERT_EQ(entry.sections.size(), 1);
  EXPECT_THAT(entry.sections[0].rows, ElementsAre(3, 7, 900));
  float row_7 = 0;
  std::memcpy(&row_7, entry.sections[0].bytes.data() + 16, sizeof(row_7));
  EXPECT_EQ(row_7, 7 * 4 + 2);
}

TEST_F(ChangeLogTest, OfWeightsAndSlotsNamesRowsOnce) {
  const auto w = make("w", floats({1000, 4}, 0));
  const auto slot = make("w/slot", floats({1000, 4}, 0), 0, w->owner());
  lay_out({w.get(), slot.get()});
  lanes_.open(&manager_, kMany);
  add_one({w.get(), slot.get()}, {1, 5});
  const LogPosition before = log()->end();
  log()->cut();
  EXPECT_THAT(names_after(before), ElementsAre("w:2", "w/slot:2"));
  const auto entries = *log()->read(before, kMany);
  // Two rows of 16 bytes of each, and no second list of rows.
  EXPECT_LT(entries[0]->size(), 64 + 200);
}

TEST_F(ChangeLogTest, OfManyRowsTakesABitForEach) {
  constexpr int64_t kRows = 100'000;
  const auto w = make("w", floats({kRows, 1}, 0));
  lanes_.open(&manager_, kMany);
  Replica replica(kMany);
  ASSERT_TRUE(take_snapshot(log(), &replica, kMany).ok());
  std::vector<int64_t> rows(kRows / 2);
  std::iota(rows.begin(), rows.end(), 0);
  for (int i = 0; i < 3; ++i) add_one({w.get()}, rows);
  log()->cut();
  ASSERT_TRUE(follow(*log(), &replica).ok());
  EXPECT_EQ(state_of(replica), state_of(manager_, -1));
}

TEST_F(ChangeLogTest, HasWhatIsMadeAndDestroyed) {
  lanes_.open(&manager_, kMany);
  LogPosition before = log()->end();
  make("w", floats({2, 2}, 0));
  log()->cut();
  EXPECT_THAT(names_after(before), ElementsAre("w:1"));
  before = log()->end();
  EXPECT_TRUE(manager_.erase("w"));
  lanes_.run_one();
  make("w", floats({3}, 0));
  log()->cut();
  EXPECT_THAT(names_after(before), ElementsAre("w:3", "w:1"));
}

TEST_F(ChangeLogTest, HasKeysOfTablesThatWereRemoved) {
  const auto table =
      *manager_.find_or_create<Table>("t", [] { return *Table::make({.name = "t"}); });
  const auto keys = [](std::vector<int64_t> all) {
    return Tensor::of(Shape{static_cast<int64_t>(all.size())}, all);
  };
  ASSERT_TRUE(table->insert(keys({1, 2, 3}), keys({10, 20, 30})).ok());
  lanes_.open(&manager_, kMany);
  Replica replica(kMany);
  ASSERT_TRUE(take_snapshot(log(), &replica, kMany).ok());
  ASSERT_TRUE(table->insert(keys({4}), keys({40})).ok());
  ASSERT_TRUE(table->remove(keys({1, 4, 99})).ok());
  log()->cut();
  ASSERT_TRUE(follow(*log(), &replica).ok());
  EXPECT_EQ(state_of(replica), state_of(manager_, -1));
  EXPECT_EQ((*replica.table("t"))->size(), 2);
  EXPECT_EQ((*replica.table("t"))->bytes(), table->bytes());
  ASSERT_TRUE(manager_.erase("t"));
  log()->cut();
  ASSERT_TRUE(follow(*log(), &replica).ok());
  EXPECT_THAT(replica.names(), ElementsAre());
}

TEST_F(ChangeLogTest, KeepsTheLatestEntriesWithinItsBound) {
  const auto w = make("w", floats({1000, 4}, 0));
  lanes_.open(&manager_, 10'000);
  const LogPosition before = log()->end();
  for (int i = 0; i < 1000; ++i) {
    add_one({w.get()}, {i});
    log()->cut();
    EXPECT_LE(log()->kept_bytes(), 10'000);
  }
  EXPECT_GT(log()->kept_bytes(), 9'000);
  const auto lost = log()->read(before, kMany);
  EXPECT_EQ(lost.status().code(), StatusCode::kOutOfRange);
  EXPECT_THAT(base::message_of(lost.status()), HasSubstr("take a snapshot"));
  LogPosition last = log()->end();
  EXPECT_EQ(log()->read(last, kMany)->size(), 0);
  last.cut -= 3;
  EXPECT_EQ(log()->read(last, kMany)->size(), 3);
  EXPECT_EQ(log()->read(last, 1)->size(), 1) << "at least one";
  last.cut += 4;
  EXPECT_EQ(log()->read(last, kMany).status().code(), StatusCode::kOutOfRange) << "not made yet";
}

TEST_F(ChangeLogTest, HasNoEntryThatIsLargerThanItsBound) {
  const auto w = make("w", floats({1000, 4}, 0));
  lanes_.open(&manager_, 10'000);
  add_one({w.get()}, {1});
  const LogPosition before = log()->cut();
  ASSERT_TRUE(w->assign(floats({1000, 4}, 5)).ok());
  const LogPosition after = log()->cut();
  EXPECT_GT(after.cut, before.cut);
  EXPECT_EQ(log()->read(before, kMany).status().code(), StatusCode::kOutOfRange);
  add_one({w.get()}, {1});
  log()->cut();
  EXPECT_EQ(log()->read(after, kMany)->size(), 1) << "it goes on";
}

TEST_F(ChangeLogTest, MakesNoEntryOfWhatIsSkipped) {
  const auto w = make("w", floats({8, 2}, 0));
  lanes_.open(&manager_, kMany);
  Replica replica(kMany);
  ASSERT_TRUE(take_snapshot(log(), &replica, kMany).ok());
  log()->skip();
  EXPECT_TRUE(follow(*log(), &replica).ok()) << "nothing had changed";
  add_one({w.get()}, {1, 2});
  log()->skip();
  EXPECT_EQ(log()->kept_bytes(), 0U);
  EXPECT_EQ(log()->pending_bytes(), 0U);
  EXPECT_EQ(follow(*log(), &replica).code(), StatusCode::kOutOfRange);
  ASSERT_TRUE(take_snapshot(log(), &replica, kMany).ok());
  add_one({w.get()}, {1});
  log()->cut();
  ASSERT_TRUE(follow(*log(), &replica).ok());
  EXPECT_EQ(state_of(replica), state_of(manager_, -1));
}

TEST_F(ChangeLogTest, RefusesPositionsOfAnotherOpening) {
  const auto w = make("w", floats({1000, 4}, 0));
  lanes_.open(&manager_, kMany, 1);
  add_one({w.get()}, {1});
  const LogPosition old = log()->cut();
  log()->close();
  EXPECT_EQ(log()->read(old, kMany).status().code(), StatusCode::kOutOfRange);
  add_one({w.get()}, {1});
  lanes_.open(&manager_, kMany, 2);
  add_one({w.get()}, {2});
  EXPECT_EQ(log()->cut().cut, 1) << "changes are noted again";
  EXPECT_THAT(base::message_of(log()->read(old, kMany).status()), HasSubstr("another opening"));
}

TEST_F(ChangeLogTest, FollowsAVariableToAnotherLane) {
  const auto w = make("w", floats({1000, 4}, 0));
  const auto slot = make("w/slot", floats({1000, 4}, 0), 0, w->owner());
  lanes_.open(&manager_, kMany);
  Replica replica(kMany);
  for (const int lane : {0, 1}) ASSERT_TRUE(take_snapshot(log(lane), &replica, kMany).ok());
  add_one({w.get()}, {1});
  w->owner()->give_to(1);
  add_one({w.get()}, {2});
  lanes_.run_one();
  add_one({slot.get()}, {3});
  for (const int lane : {0, 1}) log(lane)->cut();
  for (const int lane : {1, 0}) ASSERT_TRUE(follow(*log(lane), &replica).ok());
  EXPECT_EQ(state_of(replica), state_of(manager_, -1));
  // The lane that had it has nothing of it any more.
  Replica of_0(kMany);
  ASSERT_TRUE(take_snapshot(log(0), &of_0, kMany).ok());
  EXPECT_THAT(of_0.names(), ElementsAre());
}

// --- Random calls.

struct Case {
  const char* name;
  bool gives_away;  ///< Variables go from lane to lane.
  size_t bytes_max;
};

/// A lane's states at its cuts, or of all lanes in the end, are those of a replica that follows,
/// whatever is called, lost on the way, or falls out of the log.
class RandomCallsTest : public ChangeLogTest, public ::testing::WithParamInterface<Case> {
 protected:
  size_t pick(size_t n) { return random_() % n; }
  bool is_one_in(size_t n) { return pick(n) == 0; }

  std::vector<std::shared_ptr<Variable>> variables(int lane) {
    std::vector<std::shared_ptr<Variable>> out;
    for (const std::string& name : manager_.names()) {
      const auto found = manager_.find<Variable>(name);
      if (!found.ok() || !(*found)->is_initialized()) continue;
      if ((*found)->owner()->lane() == lane) out.push_back(*found);
    }
    return out;
  }

  void make_some(int lane) {
    const std::string name = fmt::format("v{}", pick(6));
    if (const auto known = manager_.find<Variable>(name); known.ok()) return;
    if (manager_.find<Variable>(name + "/slot").ok()) return;
    if (is_one_in(6)) {
      const auto names = Tensor::strings(Shape{2}, std::vector<std::string>{name, ""});
      make(name, names, lane);
      return;
    }
    // Large enough that some are read row by row.
    const Shape shape =
        is_one_in(5) ? Shape() : Shape{static_cast<int64_t>(100 + pick(3) * 1200), 16};
    const auto w = make(name, floats(shape, static_cast<float>(pick(1000))), lane);
    if (shape.rank() == 0 || is_one_in(2)) return;
    const auto slot = make(name + "/slot", floats(shape, 0), lane, w->owner());
    if (is_one_in(2)) lay_out({w.get(), slot.get()});
  }

  void change(int lane) {
    const auto all = variables(lane);
    if (all.empty()) return make_some(lane);
    const std::shared_ptr<Variable> w = all[pick(all.size())];
    DType dtype = DType::kInvalid;
    Shape shape;
    ASSERT_TRUE(w->look([&](const Variable::Value& value) {
                   dtype = value.dtype();
                   shape = value.shape();
                   return Status();
                 }).ok());
    if (dtype == DType::kString) {
      const std::vector<std::string> values(1 + pick(3), fmt::format("{}", random_() % 99));
      const Shape count{static_cast<int64_t>(values.size())};
      ASSERT_TRUE(w->assign(Tensor::strings(count, values)).ok());
      return;
    }
    const auto slot = manager_.find<Variable>(w->def().name + "/slot");
    const bool has_slot = slot.ok() || w->def().name.ends_with("/slot");
    if (is_one_in(12)) {
      if (!has_slot && is_one_in(3)) shape = Shape{static_cast<int64_t>(1 + pick(50)), 2};
      ASSERT_TRUE(w->assign(floats(shape, static_cast<float>(pick(1000)))).ok());
      return;
    }
    if (shape.rank() == 0 || is_one_in(20)) {
      Variable* const one = w.get();
      ASSERT_TRUE(Variable::change({&one, 1}, [](std::span<Variable::Value* const> values) {
                    reinterpret_cast<float*>(values[0]->own().at)[0] += 1;
                    return Status();
                  }).ok());
      return;
    }
    std::vector<Variable*> together = {w.get()};
    if (slot.ok() && (*slot)->is_initialized()) together.push_back(slot->get());
    std::vector<int64_t> rows(pick(30));
    for (int64_t& row : rows) row = static_cast<int64_t>(pick(static_cast<size_t>(shape.dim(0))));
    add_one(together, rows);
    if (is_one_in(4)) {
      w->note_made({.client = 1 + pick(2), .closure = closure_number(pick(3), pick(5))}, random_());
    }
  }

  void change_table() {
    const auto name = fmt::format("t{}", pick(2));
    if (is_one_in(30)) return static_cast<void>(manager_.erase(name));
    const auto table = *manager_.find_or_create<Table>(name, [&] {
      return *Table::make({.name = name, .value = DType::kFloat32, .row = Shape{2}});
    });
    std::vector<int64_t> keys(pick(5));
    for (int64_t& key : keys) key = static_cast<int64_t>(pick(40));
    const Shape count{static_cast<int64_t>(keys.size())};
    if (is_one_in(2)) {
      ASSERT_TRUE(table->remove(Tensor::of(count, keys)).ok());
    } else {
      ASSERT_TRUE(table
                      ->insert(Tensor::of(count, keys),
                               floats(Shape{count.dim(0), 2}, static_cast<float>(pick(99))))
                      .ok());
    }
  }

  void destroy(int lane) {
    const auto all = variables(lane);
    if (all.empty()) return;
    has_destroyed_ = true;
    ASSERT_TRUE(manager_.erase(all[pick(all.size())]->def().name));
    // It is destroyed on its lane: soon, and before what comes later there.
    while (!lanes_.posted.empty()) lanes_.run_one();
  }

  void call(int lane) {
    switch (pick(40)) {
      case 0:
      case 1:
        return make_some(lane);
      case 2:
        if (is_one_in(3)) destroy(lane);
        return;
      case 3:
      case 4:
      case 5:
        return change_table();
      case 6: {
        const auto all = variables(lane);
        if (GetParam().gives_away && !all.empty())
          all[pick(all.size())]->owner()->give_to(1 - lane);
        return;
      }
      case 7:
        if (!lanes_.posted.empty()) lanes_.run_one();
        return;
      default:
        return change(lane);
    }
  }

  void cut(int lane) {
    const LogPosition at = log(lane)->cut();
    if (!GetParam().gives_away) at_cuts_[{lane, at.cut}] = state_of(manager_, lane);
  }

  /// A replica of the lane alone is what the lane was at that cut.
  void compare(int lane) {
    if (GetParam().gives_away) return;
    const uint64_t cut = replica_of(lane).position(lane)->cut;
    if (cut < compared_from_[lane]) return;
    const auto at = at_cuts_.find({lane, cut});
    if (at == at_cuts_.end()) return;
    ASSERT_EQ(state_of(replica_of(lane)), at->second)
        << "lane " << lane << " cut " << at->first.second;
  }

  Replica& replica_of(int lane) {
    return *replicas_[static_cast<size_t>(GetParam().gives_away ? 0 : lane)];
  }

  void read(int lane) {
    Replica& replica = replica_of(lane);
    const auto position = replica.position(lane);
    if (!position.has_value()) return start(lane);
    const auto entries = log(lane)->read(*position, pick(100'000));
    if (!entries.ok()) {
      ASSERT_EQ(entries.status().code(), StatusCode::kOutOfRange) << entries.status();
      ++lost_;
      return start(lane);
    }
    bool is_lost = false;
    for (const auto& entry : *entries) {
      if (is_one_in(20)) {
        is_lost = true;
        continue;
      }
      const Status applied = replica.apply(*entry);
      if (is_lost) {
        ASSERT_EQ(applied.code(), StatusCode::kOutOfRange) << applied;
        return start(lane);
      }
      ASSERT_TRUE(applied.ok()) << applied;
      if (is_one_in(10)) {
        ASSERT_TRUE(replica.apply(*entry).ok()) << "once more";
      }
      compare(lane);
    }
  }

  void start(int lane) {
    ++snapshots_;
    cut(lane);
    has_destroyed_ = false;
    const Status taken = take_snapshot(log(lane), &replica_of(lane), 1 + pick(200'000), [&] {
      for (size_t i = pick(4); i > 0; --i) call(lane);
      if (is_one_in(3)) cut(lane);
    });
    ASSERT_TRUE(taken.ok()) << taken;
    // It lacks what was destroyed before it was read, until entries say that too.
    if (has_destroyed_) compared_from_[lane] = log(lane)->cut().cut;
    compare(lane);
  }

  bool has_destroyed_ = false;
  std::map<int, uint64_t> compared_from_;  // By lane, a cut.
  std::mt19937_64 random_;
  std::map<std::pair<int, uint64_t>, State> at_cuts_;
  std::array<std::unique_ptr<Replica>, 2> replicas_;
  int lost_ = 0;
  int snapshots_ = 0;
};

TEST_P(RandomCallsTest, LeaveAReplicaThatIsTheLane) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    random_.seed(seed);
    manager_.clear();
    lanes_ = LoggedLanes(2);
    at_cuts_.clear();
    compared_from_.clear();
    for (auto& replica : replicas_) replica = std::make_unique<Replica>(kMany);
    for (int i = 0; i < 10; ++i) call(static_cast<int>(pick(2)));
    while (!lanes_.posted.empty()) lanes_.run_one();
    lanes_.open(&manager_, GetParam().bytes_max, seed + 1);
    for (int i = 0; i < 600 && !HasFatalFailure(); ++i) {
      const int lane = static_cast<int>(pick(2));
      for (size_t calls = pick(5); calls > 0; --calls) call(lane);
      if (is_one_in(2)) cut(lane);
      if (is_one_in(4)) read(lane);
    }
    while (!lanes_.posted.empty()) lanes_.run_one();
    for (const int lane : {1, 0}) {
      cut(lane);
      do {
        read(lane);
      } while (!HasFatalFailure() && !(replica_of(lane).position(lane) == log(lane)->cut()));
    }
    State all = state_of(replica_of(0));
    all.merge(state_of(replica_of(1)));
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(all, state_of(manager_, -1));
  }
  EXPECT_GT(snapshots_, 12) << "of each seed and lane";
  const bool is_small = GetParam().bytes_max < kMany;
  EXPECT_GE(lost_, is_small ? 5 : 0) << "entries fall out of the log";
}

INSTANTIATE_TEST_SUITE_P(All, RandomCallsTest,
                         ::testing::Values(Case{"stay", false, kMany},
                                           Case{"fall_out", false, 20'000},
                                           Case{"move", true, kMany}),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace sidereal::resources
