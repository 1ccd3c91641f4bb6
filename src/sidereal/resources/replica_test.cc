#include "sidereal/resources/replica.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sidereal/resources/variable.h"

namespace sidereal::resources {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kMany = size_t{1} << 30;

Tensor ones(int64_t rows) {
  return Tensor::of<float>(Shape{rows, 2}, std::vector<float>(static_cast<size_t>(rows) * 2, 1));
}

EntryWriter changes(uint64_t from, int lane = 0, uint64_t incarnation = 1) {
  return EntryWriter(
      {.lane = lane, .to = {.incarnation = incarnation, .cut = from + 1}, .from = from});
}

EntryWriter piece(uint64_t number, uint64_t cut, bool is_last, int lane = 0,
                  uint64_t incarnation = 1) {
  return EntryWriter({.kind = is_last ? EntryKind::kLastPiece : EntryKind::kPiece,
                      .lane = lane,
                      .to = {.incarnation = incarnation, .cut = cut},
                      .from = number});
}

/// Rows of `value`.
void put_rows(EntryWriter* to, const Tensor& value, const std::vector<int64_t>& rows,
              uint64_t home = 1) {
  const Rows from = Rows::of(value);
  to->put_rows("w", home, value.dtype(), value.shape(), rows,
               [&](size_t i) { return from.at + rows[i] * from.stride; });
}

class ReplicaTest : public ::testing::Test {
 protected:
  Status apply(EntryWriter writer) { return replica_.apply(std::move(writer).finish()); }
  /// A snapshot of cut 5 with a variable `w` of four rows.
  void start() {
    EntryWriter first = piece(0, 5, true);
    first.put_value("w", 1, ones(4));
    ASSERT_TRUE(apply(std::move(first)).ok());
  }
  void expect_w(const std::vector<float>& want) {
    const Tensor w = *replica_.value("w");
    const auto is = w.data<const float>();
    EXPECT_EQ(std::vector<float>(is.begin(), is.end()), want);
  }

  Replica replica_{kMany};
};

TEST_F(ReplicaTest, WantsASnapshotFirst) {
  EXPECT_EQ(apply(changes(0)).code(), StatusCode::kOutOfRange);
  EXPECT_FALSE(replica_.position(0).has_value());
  start();
  EXPECT_EQ(replica_.position(0)->cut, 5);
  EXPECT_TRUE(apply(changes(5)).ok());
}

TEST_F(ReplicaTest, SeesWhatIsMissing) {
  start();
  const Status gap = apply(changes(6));
  EXPECT_EQ(gap.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(base::message_of(gap), HasSubstr("from cut 6 to 7 come where those from cut 5"));
  EXPECT_EQ(replica_.position(0)->cut, 5);
  EXPECT_EQ(apply(changes(5, 0, 2)).code(), StatusCode::kOutOfRange) << "another opening";
  EXPECT_EQ(apply(changes(5, 1)).code(), StatusCode::kOutOfRange) << "another lane";
}

TEST_F(ReplicaTest, TakesAnEntryOnce) {
  start();
  EntryWriter entry = changes(5);
  put_rows(&entry, Tensor::of<float>(Shape{4, 2}, {2, 2, 3, 3, 4, 4, 5, 5}), {1, 3});
  const std::string bytes = std::move(entry).finish();
  ASSERT_TRUE(replica_.apply(bytes).ok());
  expect_w({1, 1, 3, 3, 1, 1, 5, 5});
  EntryWriter next = changes(6);
  put_rows(&next, ones(4), {1});
  ASSERT_TRUE(apply(std::move(next)).ok());
  ASSERT_TRUE(replica_.apply(bytes).ok()) << "it comes again";
  expect_w({1, 1, 1, 1, 1, 1, 5, 5});
}

TEST_F(ReplicaTest, StaysAsItIsWhenAnEntryDoesNotFit) {
  start();
  EntryWriter entry = changes(5);
  entry.put_value("v", 2, ones(1));
  put_rows(&entry, ones(9), {8});
  const Status refused = apply(std::move(entry));
  EXPECT_EQ(refused.code(), StatusCode::kDataLoss);
  EXPECT_THAT(base::message_of(refused), HasSubstr("lane 0: 'w' of home 1: its rows are those of"));
  EXPECT_THAT(replica_.names(), ElementsAre("w"));
  EXPECT_EQ(replica_.position(0)->cut, 5);
}

TEST_F(ReplicaTest, RefusesRowsOfWhatIsNotHere) {
  start();
  EntryWriter entry = changes(5);
  put_rows(&entry, ones(4), {1}, /*home=*/2);
  EXPECT_EQ(apply(std::move(entry)).code(), StatusCode::kDataLoss);
}

TEST_F(ReplicaTest, UsesASnapshotWhenItHasComeAsAWhole) {
  start();
  EntryWriter first = piece(0, 9, false);
  put_rows(&first, Tensor::of<float>(Shape{2, 2}, {7, 7, 8, 8}), {0}, 3);
  ASSERT_TRUE(apply(std::move(first)).ok());
  expect_w({1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_TRUE(apply(changes(5)).ok()) << "what it has goes on meanwhile";
  EntryWriter last = piece(1, 9, true);
  put_rows(&last, Tensor::of<float>(Shape{2, 2}, {7, 7, 8, 8}), {1}, 3);
  ASSERT_TRUE(apply(std::move(last)).ok());
  expect_w({7, 7, 8, 8});
  EXPECT_EQ(replica_.position(0)->cut, 9);
}

TEST_F(ReplicaTest, RefusesASnapshotThatLacksAPiece) {
  start();
  ASSERT_TRUE(apply(piece(0, 9, false)).ok());
  EXPECT_EQ(apply(piece(2, 9, true)).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(apply(piece(1, 9, true)).code(), StatusCode::kOutOfRange) << "it begins anew";
  ASSERT_TRUE(apply(piece(0, 9, false)).ok());
  EXPECT_EQ(apply(piece(1, 10, true)).code(), StatusCode::kOutOfRange) << "of another cut";
  expect_w({1, 1, 1, 1, 1, 1, 1, 1});
}

TEST_F(ReplicaTest, HasWhatTheLaterLaneSays) {
  start();
  EntryWriter other = piece(0, 2, true, /*lane=*/1);
  other.put_value("w", 4, ones(1));
  ASSERT_TRUE(apply(std::move(other)).ok());
  expect_w({1, 1});
  // The lane that had it before is read later.
  EntryWriter late = changes(5);
  put_rows(&late, ones(4), {1});
  ASSERT_TRUE(apply(std::move(late)).ok());
  expect_w({1, 1});
  EntryWriter gone = changes(6);
  gone.put_gone("w", 1);
  ASSERT_TRUE(apply(std::move(gone)).ok());
  expect_w({1, 1});
}

TEST_F(ReplicaTest, LeavesOutWhatGoesWhileItsSnapshotIsRead) {
  EntryWriter first = piece(0, 5, false);
  put_rows(&first, ones(4), {0});
  ASSERT_TRUE(apply(std::move(first)).ok());
  EntryWriter last = piece(1, 5, true);
  last.put_gone("w", 1);
  ASSERT_TRUE(apply(std::move(last)).ok());
  EXPECT_THAT(replica_.names(), ElementsAre());
  EntryWriter rows = changes(5);
  put_rows(&rows, ones(4), {3});
  ASSERT_TRUE(apply(std::move(rows)).ok());
  EXPECT_EQ(replica_.value("w").status().code(), StatusCode::kNotFound);
  EntryWriter gone = changes(6);
  gone.put_gone("w", 1);
  ASSERT_TRUE(apply(std::move(gone)).ok());
  EntryWriter late = changes(7);
  put_rows(&late, ones(4), {3});
  EXPECT_EQ(apply(std::move(late)).code(), StatusCode::kDataLoss);
}

TEST_F(ReplicaTest, LooksRowsUp) {
  EntryWriter all = piece(0, 5, true);
  all.put_value("w", 1, Tensor::of<float>(Shape{3, 2}, {0, 1, 2, 3, 4, 5}));
  ASSERT_TRUE(apply(std::move(all)).ok());
  std::array<float, 4> got{};
  auto* const to = reinterpret_cast<std::byte*>(got.data());
  using Picks = std::vector<Replica::Pick>;
  constexpr size_t kRow = 2 * sizeof(float);
  const auto look_up = [&](std::string_view name, DType dtype, size_t row_bytes,
                           const Picks& picks) {
    return replica_.look_up(name, dtype, row_bytes, picks, to);
  };
  ASSERT_TRUE(look_up("w", DType::kFloat32, kRow, {{.row = 2, .to = 1}, {.row = 0, .to = 0}}).ok());
  EXPECT_THAT(got, ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(base::message_of(look_up("w", DType::kFloat32, kRow, {{.row = 3, .to = 0}})),
              HasSubstr("row 3 of 'w', which has 0 to 2"));
  EXPECT_EQ(look_up("w", DType::kFloat32, kRow, {{.row = -1, .to = 0}}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(look_up("w", DType::kFloat32, 4, {}).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(look_up("w", DType::kInt32, kRow, {}).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(look_up("v", DType::kFloat32, kRow, {}).code(), StatusCode::kNotFound);
}

TEST_F(ReplicaTest, RowsAreLookedUpWholeWhileTheyChange) {
  constexpr int64_t kRows = 100;
  constexpr int64_t kDim = 64;
  constexpr int kEntries = 300;
  const auto filled = [&](float with) {
    return Tensor::of<float>(Shape{kRows, kDim}, std::vector<float>(kRows * kDim, with));
  };
  EntryWriter first = piece(0, 5, true);
  first.put_value("w", 1, filled(0));
  ASSERT_TRUE(apply(std::move(first)).ok());
  std::atomic<bool> has_ended = false;
  std::thread applying([&] {
    std::vector<int64_t> rows(kRows);
    std::iota(rows.begin(), rows.end(), 0);
    for (int i = 0; i < kEntries; ++i) {
      EntryWriter next = changes(static_cast<uint64_t>(5 + i));
      const auto with = static_cast<float>(i + 1);
      if (i % 10 == 9) {
        next.put_gone("w", static_cast<uint64_t>(i / 10 + 1));
        next.put_value("w", static_cast<uint64_t>(i / 10 + 2), filled(with));
      } else if (i % 10 == 4) {
        next.put_value("w", static_cast<uint64_t>(i / 10 + 1), filled(with));
      } else {
        put_rows(&next, filled(with), rows, static_cast<uint64_t>(i / 10 + 1));
      }
      EXPECT_TRUE(apply(std::move(next)).ok());
    }
    has_ended = true;
  });
  std::vector<Replica::Pick> picks;
  for (size_t i = 0; i < kRows; ++i) picks.push_back({.row = static_cast<int64_t>(i), .to = i});
  std::vector<float> got(kRows * kDim);
  std::vector<float> seen(kRows);
  bool is_last = false;
  while (!std::exchange(is_last, has_ended.load())) {
    const Status status = replica_.look_up("w", DType::kFloat32, kDim * sizeof(float), picks,
                                           reinterpret_cast<std::byte*>(got.data()));
    // Between its end and its next home it is not there.
    if (status.code() == StatusCode::kNotFound) continue;
    ASSERT_TRUE(status.ok()) << status;
    for (size_t row = 0; row < kRows; ++row) {
      const std::span<const float> is(got.data() + row * kDim, kDim);
      ASSERT_EQ(std::ranges::count(is, is[0]), kDim) << "row " << row << " is mixed";
      ASSERT_GE(is[0], seen[row]);
      seen[row] = is[0];
    }
  }
  applying.join();
  EXPECT_EQ(seen, std::vector<float>(kRows, kEntries));
}

TEST_F(ReplicaTest, TellsOfVariablesAndWhenTheyChange) {
  const auto told = [&] {
    std::vector<std::string> out;
    replica_.each_variable([&](const std::string& name, DType dtype, const Shape& shape) {
      out.push_back(fmt::format("{} {} {}", name, tensor::name_of(dtype), shape.to_string()));
    });
    return out;
  };
  start();
  const uint64_t version = replica_.variables_version();
  EXPECT_THAT(told(), ElementsAre("w float32 [4,2]"));
  EntryWriter rows = changes(5);
  put_rows(&rows, ones(4), {1});
  ASSERT_TRUE(apply(std::move(rows)).ok());
  EXPECT_EQ(replica_.variables_version(), version);
  EntryWriter gone = changes(6);
  gone.put_gone("w", 1);
  ASSERT_TRUE(apply(std::move(gone)).ok());
  EXPECT_NE(replica_.variables_version(), version);
  EXPECT_THAT(told(), ElementsAre());
  start();
  replica_.forget();
  EXPECT_THAT(told(), ElementsAre());
  EXPECT_FALSE(replica_.position(0).has_value());
}

TEST_F(ReplicaTest, StaysWhatItWasUntilAllLanesAreHereFromALaterOpening) {
  start();
  EntryWriter other = piece(0, 5, true, /*lane=*/1);
  other.put_value("v", 1, ones(1));
  ASSERT_TRUE(apply(std::move(other)).ok());
  // The task is started again, and has begun to say what it has.
  EntryWriter again = piece(0, 2, true, /*lane=*/0, /*incarnation=*/2);
  again.put_value("w", 1, Tensor::of<float>(Shape{1, 2}, {7, 7}));
  ASSERT_TRUE(apply(std::move(again)).ok());
  EntryWriter rows = changes(2, 0, 2);
  put_rows(&rows, Tensor::of<float>(Shape{1, 2}, {8, 8}), {0});
  ASSERT_TRUE(apply(std::move(rows)).ok());
  expect_w({1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_THAT(replica_.names(), ElementsAre("v", "w"));
  EXPECT_EQ(replica_.shown_position(0)->cut, 5);
  EXPECT_EQ(replica_.position(0)->incarnation, 2U);
  EXPECT_EQ(replica_.position(0)->cut, 3);
  EXPECT_EQ(replica_.bytes(), (4 + 1 + 1) * 2 * sizeof(float));
  // And again, before the rest of it came.
  for (const int lane : {0, 1}) {
    EntryWriter third = piece(0, 4, true, lane, /*incarnation=*/3);
    third.put_value(lane == 0 ? "w" : "v", 1, Tensor::of<float>(Shape{1, 2}, {9, 9}));
    ASSERT_TRUE(apply(std::move(third)).ok());
    if (lane == 0) expect_w({1, 1, 1, 1, 1, 1, 1, 1});
  }
  expect_w({9, 9});
  EXPECT_EQ(replica_.shown_position(0)->incarnation, 3U);
  EXPECT_EQ(replica_.shown_position(1)->incarnation, 3U);
  EXPECT_EQ(replica_.bytes(), 2 * 2 * sizeof(float));
}

TEST_F(ReplicaTest, GoesToAnotherOneInPieces) {
  std::vector<float> numbers(200);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  const std::array<NotedChange, 1> made = {{{.closure = {.client = 1, .closure = 2}, .change = 3}}};
  EntryWriter first = piece(0, 5, true);
  first.put_value("moved", 1, ones(2));
  first.put_value("w", 2, Tensor::of<float>(Shape{100, 2}, numbers));
  first.put_made("w", 2, made);
  first.put_value("names", 3, Tensor::strings(Shape{2}, std::vector<std::string>{"a", ""}));
  first.put_keys("t", 4, Tensor::of<int64_t>(Shape{3}, {-1, 8, 9}),
                 Tensor::of<float>(Shape{3}, {1, 2, 3}), Tensor::empty(DType::kInt64, Shape{0}));
  first.put_pushed({.life = 9, .lane = 0, .number = 4, .pushes = 3, .rows = 30});
  EntryWriter second = piece(0, 8, true, 1);
  second.put_value("moved", 7, ones(3));
  second.put_pushed({.life = 9, .lane = 1, .number = 6, .pushes = 6, .rows = 60});
  ASSERT_TRUE(apply(std::move(first)).ok());
  ASSERT_TRUE(apply(std::move(second)).ok());
  for (const size_t bytes_max : {size_t{1}, size_t{100}, size_t{1} << 20}) {
    Replica other(kMany);
    ReplicaPieces pieces(&replica_);
    while (const std::optional<std::string> one = pieces.next(bytes_max)) {
      ASSERT_TRUE(other.apply(*one).ok());
    }
    EXPECT_EQ(other.names(), replica_.names());
    const auto w = other.value("w")->data<const float>();
    EXPECT_EQ(std::vector<float>(w.begin(), w.end()), numbers);
    EXPECT_EQ(other.value("moved")->shape(), (Shape{3, 2})) << "of the lane that it is on";
    EXPECT_EQ(other.value("names")->data<const std::string_view>()[0], "a");
    EXPECT_EQ((*other.table("t"))->size(), 3);
    EXPECT_FALSE(*(*other.changes_made("w"))->is_due({.client = 1, .closure = 2}, 3));
    int64_t rows = 0;
    for (const PushedSoFar& one : other.pushed()) rows += one.life == 9 ? one.rows : 0;
    EXPECT_EQ(rows, 90);
    const std::vector<Replica::Taken> taken = other.take_all();
    ASSERT_EQ(taken.size(), 4);
    EXPECT_TRUE(std::ranges::any_of(
        taken, [](const auto& one) { return one.name == "moved" && one.lane == 1; }));
    EXPECT_TRUE(other.names().empty());
  }
}

/// A replica of "w", its slot "w/m" and "dense" with its slot, which all have `rows` rows, after
/// rows of the first two have changed.
class ReplicasOfTables : public ReplicaTest {
 protected:
  static constexpr int64_t kRows = 1000;
  ReplicasOfTables() {
    EntryWriter first = piece(0, 5, true);
    for (const char* const name : {"dense", "dense/m", "w", "w/m"}) {
      first.put_value(name, 1, ones(kRows));
    }
    EXPECT_TRUE(apply(std::move(first)).ok());
  }
  Status change_row(int64_t row, float value, uint64_t from) {
    EntryWriter to = changes(from);
    const std::vector<int64_t> rows = {row};
    for (const char* const name : {"w", "w/m"}) {
      const Tensor now = Tensor::of<float>(Shape{1, 2}, {value, -value});
      to.put_rows(name, 1, DType::kFloat32, Shape{kRows, 2}, rows,
                  [&](size_t) { return now.raw(); });
    }
    return apply(std::move(to));
  }
  void expect_row(const std::string& name, int64_t row, std::vector<float> want) {
    const Tensor all = *replica_.value(name);
    const auto at = all.data<const float>().subspan(static_cast<size_t>(row) * 2, 2);
    EXPECT_EQ(std::vector<float>(at.begin(), at.end()), want) << name;
  }
};

TEST_F(ReplicasOfTables, lay_out_what_changes_by_rows_before_it_is_given_away) {
  EXPECT_FALSE(replica_.lay_out_next(kMany)) << "it is not known what they are";
  ASSERT_TRUE(change_row(7, 3, 5).ok());
  EXPECT_FALSE(replica_.lay_out_next(1000)) << "it is larger";
  EXPECT_TRUE(replica_.lay_out_next(kMany));
  EXPECT_FALSE(replica_.lay_out_next(kMany));
  // It goes on.
  ASSERT_TRUE(change_row(999, 4, 6).ok());
  for (const char* const name : {"w", "w/m"}) {
    expect_row(name, 7, {3, -3});
    expect_row(name, 8, {1, 1});
    expect_row(name, 999, {4, -4});
  }
  // Another value of the same shape goes where the rows are.
  EntryWriter all = changes(7);
  all.put_value("w", 1, Tensor::zeros(DType::kFloat32, Shape{kRows, 2}));
  ASSERT_TRUE(apply(std::move(all)).ok());
  expect_row("w", 999, {0, 0});
  expect_row("w/m", 999, {4, -4});
  for (Replica::Taken& one : replica_.take_all()) {
    const bool is_table = one.name.starts_with("w");
    EXPECT_EQ(one.stride, is_table ? 4 * static_cast<int64_t>(sizeof(float)) : 0) << one.name;
    const auto variable = *Variable::make({.name = one.name});
    ASSERT_TRUE(variable->take(std::move(one.value), one.stride).ok());
    EXPECT_TRUE(variable
                    ->look([&](const Variable::Value& value) -> Status {
                      EXPECT_EQ(value.is_in_table(), is_table) << one.name;
                      return {};
                    })
                    .ok());
    const Tensor value = *variable->read();
    EXPECT_EQ(value.shape(), (Shape{kRows, 2}));
    EXPECT_EQ(value.data<const float>()[2 * 7], one.name == "w/m" ? 3 : is_table ? 0 : 1);
  }
}

TEST_F(ReplicasOfTables, that_lie_in_tables_are_read_in_pieces) {
  ASSERT_TRUE(change_row(7, 3, 5).ok());
  ASSERT_TRUE(replica_.lay_out_next(kMany));
  for (const size_t bytes_max : {size_t{1} << 10, size_t{1} << 20}) {
    Replica other(kMany);
    ReplicaPieces pieces(&replica_);
    while (const std::optional<std::string> one = pieces.next(bytes_max)) {
      ASSERT_TRUE(other.apply(*one).ok());
    }
    const auto w = other.value("w/m")->data<const float>();
    EXPECT_EQ(std::vector<float>(w.begin() + 12, w.begin() + 18),
              (std::vector<float>{1, 1, 3, -3, 1, 1}));
  }
}

TEST_F(ReplicasOfTables, of_another_shape_are_in_a_table_no_more) {
  ASSERT_TRUE(change_row(7, 3, 5).ok());
  ASSERT_TRUE(replica_.lay_out_next(kMany));
  EntryWriter all = changes(6);
  all.put_value("w", 1, ones(2));
  ASSERT_TRUE(apply(std::move(all)).ok());
  expect_row("w", 1, {1, 1});
  expect_row("w/m", 7, {3, -3});
  for (const Replica::Taken& one : replica_.take_all()) {
    EXPECT_EQ(one.stride != 0, one.name == "w/m");
  }
}

TEST_F(ReplicaTest, TakesNoMoreMemoryThanItMay) {
  Replica small(100);
  EntryWriter first = piece(0, 1, false);
  first.put_value("w", 1, ones(10));
  ASSERT_TRUE(small.apply(std::move(first).finish()).ok());
  EntryWriter huge = piece(1, 1, false);
  put_rows(&huge, ones(100), {0}, 2);
  EXPECT_EQ(small.apply(std::move(huge).finish()).code(), StatusCode::kResourceExhausted);
}

TEST(Replicas, leave_out_what_is_not_wanted) {
  Replica replica(/*bytes_max=*/64, {"w"});
  EntryWriter first = piece(0, 5, true);
  first.put_value("w", 1, ones(4));
  first.put_value("large", 2, ones(1000));
  ASSERT_TRUE(replica.apply(std::move(first).finish()).ok());
  // Rows of what it has left out are no gap.
  EntryWriter next = changes(5);
  const Tensor twos = Tensor::of<float>(Shape{4, 2}, std::vector<float>(8, 2));
  put_rows(&next, twos, {1});
  next.put_rows("large", 2, twos.dtype(), Shape{1000, 2}, std::vector<int64_t>{3},
                [&](size_t) { return Rows::of(twos).at; });
  ASSERT_TRUE(replica.apply(std::move(next).finish()).ok());
  EXPECT_THAT(replica.names(), ElementsAre("w"));
  EXPECT_EQ(replica.position(0)->cut, 6U);
  EXPECT_EQ(replica.value("w")->data<const float>()[2], 2);
}

}  // namespace
}  // namespace sidereal::resources
