#include "sidereal/store/embedding_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "sidereal/kernels/sparse.h"

namespace sidereal::store {
namespace {

using kernels::ShardLayout;

std::vector<UpdateRule> all_rules() {
  std::vector<UpdateRule> rules;
  for (const kernels::Rule* rule : kernels::all_rules())
    rules.push_back(UpdateRule::of(rule->name));
  rules.push_back(UpdateRule::of("rmsprop", {{"momentum", 0.9}, {"centered", 1}}));
  return rules;
}

EmbeddingOptions options_of(const ShardLayout& layout, int32_t shard, int64_t dim,
                            const UpdateRule& rule) {
  EmbeddingOptions options;
  options.name = "table";
  options.layout = layout;
  options.shard = shard;
  options.dim = dim;
  options.rule = rule;
  options.initializer = {Initializer::Kind::kNormal, 0.0F, 0.1F, 7, 3};
  return options;
}

std::unique_ptr<EmbeddingShard> make(const ShardLayout& layout, int32_t shard, int64_t dim,
                                     const UpdateRule& rule) {
  auto made = EmbeddingShard::create(options_of(layout, shard, dim, rule));
  EXPECT_TRUE(made.ok()) << made.status();
  return std::move(made).value();
}

/// A whole table over all its shards, driven as a worker would.
class Table {
 public:
  Table(const ShardLayout& layout, int64_t dim, const UpdateRule& rule) : layout_(layout) {
    for (int32_t s = 0; s < layout.num_shards(); ++s) {
      shards_.push_back(make(layout, s, dim, rule));
    }
  }
  void apply(const std::vector<int64_t>& rows, const std::vector<float>& grads) {
    const int64_t dim = shards_[0]->dim();
    for (size_t s = 0; s < shards_.size(); ++s) {
      std::vector<int64_t> local;
      std::vector<float> part;
      for (size_t i = 0; i < rows.size(); ++i) {
        const ShardLayout::Place place = layout_.locate(rows[i]);
        if (place.shard != static_cast<int32_t>(s)) continue;
        local.push_back(place.index);
        const auto from = grads.begin() + static_cast<std::ptrdiff_t>(i) * dim;
        part.insert(part.end(), from, from + dim);
      }
      ASSERT_TRUE(shards_[s]->apply(local, part.data()).ok());
    }
  }
  std::vector<float> all() {
    const int64_t dim = shards_[0]->dim();
    std::vector<float> out(layout_.rows() * dim);
    for (int64_t row = 0; row < layout_.rows(); ++row) {
      const ShardLayout::Place place = layout_.locate(row);
      EXPECT_TRUE(shards_[place.shard]->gather({&place.index, 1}, out.data() + row * dim).ok());
    }
    return out;
  }

 private:
  ShardLayout layout_;
  std::vector<std::unique_ptr<EmbeddingShard>> shards_;
};

TEST(EmbeddingShard, ValuesAndUpdatesDoNotDependOnTheSharding) {
  const int64_t rows = 700;
  for (const UpdateRule& rule : all_rules()) {
    for (const int64_t dim : {1, 3, 8, 16, 20}) {
      std::vector<float> want;
      for (const auto& [tasks, lanes] :
           {std::pair<int, int>{1, 1}, {2, 1}, {3, 1}, {1, 2}, {2, 2}, {3, 2}}) {
        Table table(ShardLayout(rows, tasks, lanes), dim, rule);
        std::mt19937_64 rng(5);
        std::vector<int64_t> ids(rows);
        std::iota(ids.begin(), ids.end(), 0);
        for (int step = 0; step < 4; ++step) {
          std::shuffle(ids.begin(), ids.end(), rng);
          const std::vector<int64_t> some(ids.begin(), ids.begin() + 100);
          std::vector<float> grads(some.size() * dim);
          for (float& g : grads) g = static_cast<float>(rng() % 1000) / 500.0F - 1.0F;
          table.apply(some, grads);
        }
        if (want.empty()) {
          want = table.all();
        } else {
          EXPECT_EQ(table.all(), want) << rule.to_string() << " dim " << dim << ", " << tasks
                                       << " tasks, " << lanes << " lanes";
        }
      }
    }
  }
}

TEST(EmbeddingShard, InitialValuesAreThoseOfTheWholeVariable) {
  const ShardLayout layout(1000, 2, 1);
  const auto shard = make(layout, 1, 4, UpdateRule::of("adagrad", {{"learning_rate", 0.1}}));
  const EmbeddingOptions options =
      options_of(layout, 1, 4, UpdateRule::of("adagrad", {{"learning_rate", 0.1}}));
  std::vector<float> whole(4000);
  options.initializer.fill({1000, 4}, 0, whole.data(), 4000);
  const tensor::Tensor all = shard->read_all();
  EXPECT_EQ(all.shape(), (tensor::Shape{500, 4}));
  const auto data = all.data<float>();
  EXPECT_TRUE(std::equal(data.begin(), data.end(), whole.begin() + 2000));
  std::vector<float> with_slots(500 * 8);
  ASSERT_TRUE(shard->read_rows_with_slots(0, 500, with_slots.data()).ok());
  EXPECT_EQ(with_slots[4], 0.1F);
  EXPECT_EQ(with_slots[0], whole[2000]);
}

TEST(EmbeddingShard, RowsOutsideTheShardAreRefusedAndChangeNothing) {
  const auto shard =
      make(ShardLayout(100, 1, 1), 0, 8, UpdateRule::of("adagrad", {{"learning_rate", 0.1}}));
  const tensor::Tensor before = shard->read_all();
  std::vector<float> buffer(64 * 8, 1.0F);
  for (const int64_t bad :
       {int64_t{100}, int64_t{-1}, int64_t{101}, INT64_MAX, INT64_MIN, int64_t{1} << 40}) {
    for (const size_t place : {0, 30, 63}) {
      std::vector<int64_t> rows(64);
      std::iota(rows.begin(), rows.end(), 0);
      rows[place] = bad;
      const Status read = shard->gather(rows, buffer.data());
      EXPECT_EQ(read.code(), StatusCode::kOutOfRange);
      EXPECT_NE(base::message_of(read).find(std::to_string(bad)), std::string::npos);
      EXPECT_NE(base::message_of(read).find("'table'"), std::string::npos);
      EXPECT_NE(base::message_of(read).find("100 rows"), std::string::npos);
      EXPECT_EQ(shard->apply(rows, buffer.data()).code(), StatusCode::kOutOfRange);
      EXPECT_EQ(shard->assign_rows(rows, buffer.data()).code(), StatusCode::kOutOfRange);
    }
  }
  EXPECT_EQ(shard->read_rows(90, 11, buffer.data()).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(shard->read_rows(-1, 1, buffer.data()).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(shard->read_rows(1, INT64_MAX, buffer.data()).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(shard->assign_rows_with_slots(99, 2, buffer.data()).code(), StatusCode::kOutOfRange);
  const tensor::Tensor after = shard->read_all();
  EXPECT_TRUE(std::equal(before.data<float>().begin(), before.data<float>().end(),
                         after.data<float>().begin()));
  EXPECT_EQ(shard->counters().applies, 0);
  EXPECT_EQ(shard->counters().rows_read, 0);
}

TEST(EmbeddingShard, CountsWhatItDoes) {
  const auto shard =
      make(ShardLayout(100, 1, 1), 0, 8, UpdateRule::of("sgd", {{"learning_rate", 0.1}}));
  const std::vector<int64_t> rows = {5, 1, 99};
  std::vector<float> buffer(24);
  ASSERT_TRUE(shard->gather(rows, buffer.data()).ok());
  ASSERT_TRUE(shard->gather({}, nullptr).ok());
  ASSERT_TRUE(shard->apply(rows, buffer.data()).ok());
  ASSERT_TRUE(shard->apply({}, nullptr).ok());
  EXPECT_EQ(shard->counters().gathers, 2);
  EXPECT_EQ(shard->counters().rows_read, 3);
  EXPECT_EQ(shard->counters().rows_written, 3);
  EXPECT_EQ(shard->applies(), 2);
  EXPECT_EQ(shard->bytes(), 100U * 8 * 4);
}

TEST(EmbeddingShard, AssignedRowsAreReadBackWithTheirSlots) {
  const auto shard =
      make(ShardLayout(10, 1, 1), 0, 3, UpdateRule::of("adam", {{"learning_rate", 0.1}}));
  EXPECT_EQ(shard->row_floats(), 9);
  EXPECT_EQ(shard->stride(), 16);
  const std::vector<int64_t> rows = {7, 2};
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(shard->assign_rows(rows, values.data()).ok());
  std::vector<float> got(6);
  ASSERT_TRUE(shard->gather(rows, got.data()).ok());
  EXPECT_EQ(got, values);
  std::vector<float> whole(10 * 9);
  ASSERT_TRUE(shard->read_rows_with_slots(0, 10, whole.data()).ok());
  const auto copy =
      make(ShardLayout(10, 1, 1), 0, 3, UpdateRule::of("adam", {{"learning_rate", 0.1}}));
  ASSERT_TRUE(copy->assign_rows_with_slots(0, 10, whole.data()).ok());
  ASSERT_TRUE(copy->gather(rows, got.data()).ok());
  EXPECT_EQ(got, values);
}

TEST(EmbeddingShard, AGivenStepNumberDecidesTheBiasCorrection) {
  const auto counted =
      make(ShardLayout(10, 1, 1), 0, 4, UpdateRule::of("adam", {{"learning_rate", 0.1}}));
  const auto numbered =
      make(ShardLayout(10, 1, 1), 0, 4, UpdateRule::of("adam", {{"learning_rate", 0.1}}));
  const std::vector<int64_t> rows = {3};
  const std::vector<float> grad(4, 0.5F);
  ASSERT_TRUE(counted->apply({}, nullptr).ok());
  ASSERT_TRUE(counted->apply(rows, grad.data()).ok());
  ASSERT_TRUE(numbered->apply(rows, grad.data(), 2).ok());
  std::vector<float> a(4);
  std::vector<float> b(4);
  ASSERT_TRUE(counted->gather(rows, a.data()).ok());
  ASSERT_TRUE(numbered->gather(rows, b.data()).ok());
  EXPECT_EQ(a, b);
}

TEST(EmbeddingShard, StridesArePaddedToWholeCacheLinesOrPowersOfTwo) {
  const ShardLayout layout(4, 1, 1);
  EXPECT_EQ(make(layout, 0, 1, UpdateRule::of("sgd", {{"learning_rate", 0.1}}))->stride(), 1);
  EXPECT_EQ(make(layout, 0, 1, UpdateRule::of("adam", {{"learning_rate", 0.1}}))->stride(), 4);
  EXPECT_EQ(make(layout, 0, 8, UpdateRule::of("adagrad", {{"learning_rate", 0.1}}))->stride(), 16);
  EXPECT_EQ(make(layout, 0, 16, UpdateRule::of("adam", {{"learning_rate", 0.1}}))->stride(), 48);
  EXPECT_EQ(make(layout, 0, 10, UpdateRule::of("adagrad", {{"learning_rate", 0.1}}))->stride(), 32);
}

TEST(EmbeddingShard, CreationIsBoundedAndChecked) {
  const ShardLayout huge((int64_t{1} << 40) - 1, 1, 1);
  EmbeddingOptions options =
      options_of(huge, 0, 65536, UpdateRule::of("adam", {{"learning_rate", 0.1}}));
  EXPECT_EQ(EmbeddingShard::create(options).status().code(), StatusCode::kResourceExhausted);
  options.bytes_max = std::numeric_limits<size_t>::max();
  EXPECT_EQ(EmbeddingShard::create(options).status().code(), StatusCode::kResourceExhausted);
  options =
      options_of(ShardLayout(100, 1, 1), 0, 0, UpdateRule::of("sgd", {{"learning_rate", 0.1}}));
  EXPECT_EQ(EmbeddingShard::create(options).status().code(), StatusCode::kInvalidArgument);
  options.dim = 4;
  options.shard = 1;
  EXPECT_EQ(EmbeddingShard::create(options).status().code(), StatusCode::kInvalidArgument);
  options.shard = 0;
  options.initializer.b = -1.0F;
  EXPECT_EQ(EmbeddingShard::create(options).status().code(), StatusCode::kInvalidArgument);
  options.initializer.b = 1.0F;
  options.bytes_max = 100;
  const Status status = EmbeddingShard::create(options).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(base::message_of(status).find("1.6 KiB"), std::string::npos) << status;
}

TEST(EmbeddingShard, AShardWithoutRowsWorks) {
  const auto shard =
      make(ShardLayout(2, 3, 1), 2, 4, UpdateRule::of("adagrad", {{"learning_rate", 0.1}}));
  EXPECT_EQ(shard->rows(), 0);
  ASSERT_TRUE(shard->gather({}, nullptr).ok());
  const int64_t zero = 0;
  float out[4];
  EXPECT_EQ(shard->gather({&zero, 1}, out).code(), StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace sidereal::store
