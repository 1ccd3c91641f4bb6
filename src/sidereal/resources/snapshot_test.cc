#include "sidereal/resources/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "sidereal/resources/row_layout.h"
#include "sidereal/resources/variable.h"

namespace sidereal::resources {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;

constexpr int64_t kRows = 20'000;
constexpr int64_t kDim = 16;

TEST(RowSetTest, FindsItsRowsInOrder) {
  RowSet set(200);
  for (const int64_t row : {199, 0, 64, 63}) set.add(row);
  std::vector<int64_t> rows;
  for (int64_t r = set.next(0); r < set.rows(); r = set.next(r + 1)) rows.push_back(r);
  EXPECT_THAT(rows, ElementsAre(0, 63, 64, 199));
  EXPECT_EQ(set.count(), 4);
  EXPECT_TRUE(set.has(64));
  EXPECT_FALSE(set.has(65));
  EXPECT_EQ(RowSet(0).next(0), 0);
}

Tensor numbered(int64_t rows, float first) {
  Tensor out = Tensor::empty(DType::kFloat32, Shape{rows, kDim});
  for (float& x : out.data<float>()) x = first++;
  return out;
}

/// Adds 1 to every element of `rows` in all `variables`, as an update of rows does.
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

/// Reads what is left of a snapshot to `rows`, by their numbers; at most `rows_max` of it.
bool read_some(Variable* variable, Snapshot* snapshot, int64_t rows_max,
               std::vector<std::vector<float>>* rows, int64_t* next) {
  std::vector<float> piece(static_cast<size_t>(rows_max * kDim));
  std::vector<int64_t> which(static_cast<size_t>(rows_max));
  auto* const to = reinterpret_cast<std::byte*>(piece.data());
  const Result<int64_t> read = snapshot->whole().defined()
                                   ? snapshot->read_whole(rows_max, to, which.data())
                                   : variable->read_on(snapshot, rows_max, to, which.data());
  EXPECT_TRUE(read.ok()) << read.status();
  for (int64_t i = 0; i < read.value_or(0); ++i) {
    const int64_t row = snapshot->is_increment() ? which[static_cast<size_t>(i)] : (*next)++;
    auto& to_row = (*rows)[static_cast<size_t>(row)];
    EXPECT_TRUE(to_row.empty()) << "row " << row << " came twice";
    to_row.assign(piece.begin() + i * kDim, piece.begin() + (i + 1) * kDim);
  }
  return read.value_or(0) > 0;
}

std::vector<float> row_of(const Tensor& value, int64_t row) {
  const auto all = value.data<const float>();
  return {all.begin() + row * kDim, all.begin() + (row + 1) * kDim};
}

struct Case {
  const char* name;
  bool is_in_table;
  bool holds_readers;  ///< Somebody has the value, so that changes copy it.
};

class SnapshotTest : public ::testing::TestWithParam<Case> {
 protected:
  SnapshotTest() {
    w_ = *Variable::make({.name = "w"});
    slot_ = *Variable::make({.name = "w/slot"});
    EXPECT_TRUE(w_->assign(numbered(kRows, 0)).ok());
    EXPECT_TRUE(slot_->assign(numbered(kRows, 1e6F)).ok());
    if (GetParam().is_in_table) lay_out({w_.get(), slot_.get()});
  }
  [[nodiscard]] std::vector<int64_t> some_rows() {
    std::vector<int64_t> out(random_() % 50);
    for (int64_t& row : out) row = static_cast<int64_t>(random_() % kRows);
    return out;
  }
  Tensor now(Variable* variable) { return variable->read()->clone(); }

  std::mt19937_64 random_{7};
  std::shared_ptr<Variable> w_;
  std::shared_ptr<Variable> slot_;
};

TEST_P(SnapshotTest, IsOfOneInstantWhileRowsChange) {
  for (int round = 0; round < 20; ++round) {
    const Tensor w = now(w_.get());
    const Tensor slot = now(slot_.get());
    const auto of_w = *w_->snapshot();
    const auto of_slot = *slot_->snapshot();
    EXPECT_EQ(of_w->rows(), kRows);
    EXPECT_FALSE(of_w->is_increment());
    std::vector<std::vector<float>> w_rows(kRows);
    std::vector<std::vector<float>> slot_rows(kRows);
    int64_t next_w = 0;
    int64_t next_slot = 0;
    bool more = true;
    while (more) {
      std::optional<Tensor> held;
      if (GetParam().holds_readers) held = *w_->read();
      add_one({w_.get(), slot_.get()}, some_rows());
      const auto rows_max = static_cast<int64_t>(random_() % 3000 + 1);
      more = read_some(w_.get(), of_w.get(), rows_max, &w_rows, &next_w);
      more |= read_some(slot_.get(), of_slot.get(), rows_max, &slot_rows, &next_slot);
      if (random_() % 40 == 0) {
        // All of it at once.
        ASSERT_TRUE(w_->assign(numbered(kRows, static_cast<float>(random_() % 1000))).ok());
      }
    }
    for (int64_t r = 0; r < kRows; ++r) {
      ASSERT_EQ(w_rows[static_cast<size_t>(r)], row_of(w, r)) << "row " << r;
      ASSERT_EQ(slot_rows[static_cast<size_t>(r)], row_of(slot, r)) << "row " << r;
    }
    EXPECT_EQ(of_slot->copied_bytes(), 0);
  }
}

TEST_P(SnapshotTest, IncrementsHaveWhatChangedSince) {
  Tensor before = now(w_.get());
  static_cast<void>(*w_->snapshot({}, 1));
  for (uint64_t cut = 2; cut < 12; ++cut) {
    for (int i = 0; i < 20; ++i) add_one({w_.get(), slot_.get()}, some_rows());
    const Tensor at_cut = now(w_.get());
    const std::array<uint64_t, 2> bases = {99, cut - 1};
    const auto snapshot = *w_->snapshot(bases, cut);
    ASSERT_TRUE(snapshot->is_increment());
    std::vector<std::vector<float>> rows(kRows);
    int64_t next = 0;
    while (read_some(w_.get(), snapshot.get(), 100, &rows, &next)) {
      add_one({w_.get(), slot_.get()}, some_rows());
    }
    int64_t changed = 0;
    for (int64_t r = 0; r < kRows; ++r) {
      const auto& row = rows[static_cast<size_t>(r)];
      changed += row.empty() ? 0 : 1;
      ASSERT_EQ(row.empty() ? row_of(before, r) : row, row_of(at_cut, r)) << "row " << r;
    }
    EXPECT_EQ(changed, snapshot->rows());
    EXPECT_LT(changed, 2000);
    before = at_cut;
  }
  const std::array<uint64_t, 1> other = {5};
  EXPECT_FALSE((*w_->snapshot(other, 20))->is_increment()) << "of another chain: all of it";
  ASSERT_TRUE(w_->assign(numbered(kRows, 3)).ok());
  const std::array<uint64_t, 1> last = {20};
  EXPECT_FALSE((*w_->snapshot(last, 21))->is_increment()) << "all has changed";
  const std::array<uint64_t, 1> nothing = {21};
  EXPECT_EQ((*w_->snapshot(nothing, 22))->rows(), 0);
}

TEST_P(SnapshotTest, SeveralAtOnceAreEachOfItsInstant) {
  const Tensor first = now(w_.get());
  const auto a = *w_->snapshot();
  add_one({w_.get(), slot_.get()}, {1, 2, 3});
  const Tensor second = now(w_.get());
  const auto b = *w_->snapshot();
  add_one({w_.get(), slot_.get()}, {2, 3, 19'999});
  for (const auto& [snapshot, was] : {std::pair(a, first), std::pair(b, second)}) {
    std::vector<std::vector<float>> rows(kRows);
    int64_t next = 0;
    while (read_some(w_.get(), snapshot.get(), 4096, &rows, &next)) {
    }
    for (int64_t r = 0; r < kRows; ++r) {
      ASSERT_EQ(rows[static_cast<size_t>(r)], row_of(was, r)) << "row " << r;
    }
  }
}

TEST_P(SnapshotTest, ALayoutThatComesMeanwhileChangesNothing) {
  const Tensor was = now(w_.get());
  const auto snapshot = *w_->snapshot();
  std::vector<std::vector<float>> rows(kRows);
  int64_t next = 0;
  read_some(w_.get(), snapshot.get(), 1000, &rows, &next);
  lay_out({w_.get(), slot_.get()});
  add_one({w_.get(), slot_.get()}, {500, 5000});
  while (read_some(w_.get(), snapshot.get(), 1000, &rows, &next)) {
  }
  for (int64_t r = 0; r < kRows; ++r) {
    ASSERT_EQ(rows[static_cast<size_t>(r)], row_of(was, r)) << "row " << r;
  }
}

TEST_P(SnapshotTest, EndsWithItsVariable) {
  const auto snapshot = *w_->snapshot();
  w_->cancel();
  std::array<std::byte, kDim * 4> to;
  EXPECT_EQ(w_->read_on(snapshot.get(), 1, to.data(), nullptr).status().code(),
            StatusCode::kAborted);
  EXPECT_EQ(w_->snapshot().status().code(), StatusCode::kFailedPrecondition);
}

INSTANTIATE_TEST_SUITE_P(All, SnapshotTest,
                         ::testing::Values(Case{"alone", false, false}, Case{"read", false, true},
                                           Case{"table", true, false}),
                         [](const auto& c) { return std::string(c.param.name); });

TEST(SmallSnapshotTest, IsTheValueItself) {
  const auto counter = *Variable::make({.name = "step", .dtype = DType::kInt64});
  ASSERT_TRUE(counter->assign(Tensor::scalar(int64_t{41})).ok());
  const auto snapshot = *counter->snapshot({}, 1);
  ASSERT_TRUE(counter->assign(Tensor::scalar(int64_t{42})).ok());
  EXPECT_EQ(snapshot->whole().data<const int64_t>()[0], 41);
  const std::array<uint64_t, 1> bases = {1};
  const auto next = *counter->snapshot(bases, 2);
  EXPECT_FALSE(next->is_increment());
  EXPECT_EQ(next->whole().data<const int64_t>()[0], 42);
}

TEST(SmallSnapshotTest, HasStrings) {
  const auto names = *Variable::make({.name = "names", .dtype = DType::kString});
  ASSERT_TRUE(names->assign(Tensor::strings(Shape{2}, std::vector<std::string>{"a", "bc"})).ok());
  const auto snapshot = *names->snapshot({}, 1);
  EXPECT_EQ(snapshot->whole().data<const std::string_view>()[1], "bc");
  const std::array<uint64_t, 1> bases = {1};
  EXPECT_EQ((*names->snapshot(bases, 2))->rows(), 0) << "nothing has changed";
}

TEST(TakenValueTest, KeepsItsMemory) {
  const auto w = *Variable::make({.name = "w"});
  Tensor value = numbered(kRows, 5);
  const std::byte* const at = value.raw();
  ASSERT_TRUE(w->take(std::move(value)).ok());
  EXPECT_EQ(w->read()->raw(), at);
  EXPECT_EQ(w->take(Tensor::scalar(1.0)).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::resources
