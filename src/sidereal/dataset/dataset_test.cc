#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sidereal/data/testing/files.h"
#include "sidereal/dataset/definition.h"
#include "sidereal/dataset/definition_text.h"
#include "sidereal/dataset/feed.h"
#include "sidereal/dataset/iterator.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ops/ops.h"

namespace sidereal::dataset {
namespace {

using ir::DType;
using testing::ElementsAre;
using testing::HasSubstr;

const ir::OpRegistry& registry() {
  static const auto* const made = [] {
    auto* filled = new ir::OpRegistry();
    ops::register_all(filled);
    register_dataset_ops(filled);
    return filled;
  }();
  return *made;
}

Parameter number(int64_t value) { return Parameter::of(Tensor::scalar(value)); }

DatasetPtr range(int64_t count) {
  return *Dataset::make({.op = "Range",
                         .attrs = {{"dtype", DType::kInt64}},
                         .parameters = {number(0), number(count), number(1)}});
}

DatasetPtr with(const std::string& op, const DatasetPtr& input,
                const std::vector<int64_t>& numbers = {}, ir::AttrMap attrs = {}) {
  DatasetDef def{.op = op, .attrs = std::move(attrs), .inputs = {input}};
  for (const int64_t n : numbers) def.parameters.push_back(number(n));
  return *Dataset::make(std::move(def));
}

/// A function of one int64 that gives it times `factor`.
ir::FunctionPtr times(int64_t factor) {
  ir::Graph body;
  const ir::Output x = *ir::add_arg(&body, registry(), {DType::kInt64, {}});
  ir::Builder b(&body, &registry());
  const ir::Output by = b.add("Const", {}, {{"value", Tensor::scalar(factor)}});
  const ir::Output made = b.add("Mul", {x, by});
  return *ir::Function::make(std::move(body), {made});
}

DatasetPtr mapped(const DatasetPtr& input, int64_t factor, int64_t threads) {
  return *Dataset::make({.op = "Map",
                         .attrs = {{"parallel", threads}},
                         .inputs = {input},
                         .function = times(factor)});
}

Result<std::unique_ptr<Iterator>> open(const DatasetPtr& dataset) {
  return Iterator::make(dataset, {});
}

/// The elements, each a scalar or the numbers of a vector, until the end or an error.
Result<std::vector<std::vector<int64_t>>> read(Iterator* iterator) {
  std::vector<std::vector<int64_t>> out;
  Element element;
  for (;;) {
    SR_ASSIGN_OR_RETURN(const bool some, iterator->next(&element));
    if (!some) return out;
    const auto data = element[0].tensor.data<const int64_t>();
    out.emplace_back(data.begin(), data.end());
  }
}

std::vector<std::vector<int64_t>> read(const DatasetPtr& dataset) {
  return *read(open(dataset)->get());
}

std::vector<int64_t> numbers(const DatasetPtr& dataset) {
  std::vector<int64_t> out;
  for (const std::vector<int64_t>& element : read(dataset)) out.push_back(element[0]);
  return out;
}

StatusCode code_of(const DatasetDef& def) { return Dataset::make(def).status().code(); }

TEST(Dataset, GivesOutWhatItsStagesMake) {
  const std::vector<int64_t> factor = {0, 3, 6, 9, 12};
  EXPECT_EQ(numbers(mapped(range(5), 3, 1)), factor);
  EXPECT_EQ(numbers(mapped(range(5), 3, 3)), factor);
  EXPECT_THAT(read(with("Batch", range(5), {2})),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
  EXPECT_THAT(numbers(with("Prefetch", with("Repeat", range(2), {2}), {3})),
              ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(numbers(with("Take", with("Skip", range(9), {3}), {2})), ElementsAre(3, 4));
}

TEST(Dataset, RefusesWhatIsNoDataset) {
  EXPECT_EQ(code_of({.op = "Nothing"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.op = "Batch"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.op = "Batch", .inputs = {nullptr}, .parameters = {number(1)}}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.op = "Batch", .inputs = {range(1)}, .parameters = {number(0)}}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.op = "Batch", .inputs = {range(1)}, .parameters = {Parameter()}}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.op = "Map", .inputs = {range(1)}}), StatusCode::kInvalidArgument);
  const DatasetPtr batches = with("Batch", range(4), {2});
  EXPECT_EQ(code_of({.op = "Map", .inputs = {batches}, .function = times(2)}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.op = "Range",
                     .attrs = {{"dtype", DType::kString}},
                     .parameters = {number(0), number(1), number(1)}}),
            StatusCode::kInvalidArgument);
}

TEST(Dataset, BoundsHowManyStandOnEachOther) {
  DatasetPtr deep = range(1);
  Result<DatasetPtr> made = deep;
  for (int i = 0; made.ok() && i < 2 * kMaxDepth; ++i) {
    deep = *made;
    made = Dataset::make({.op = "Cache", .inputs = {deep}});
  }
  EXPECT_THAT(base::message_of(made.status()), HasSubstr("deep"));
  // Twice itself, again and again.
  DatasetPtr wide = range(1);
  made = wide;
  for (int i = 0; made.ok() && i < 64; ++i) {
    wide = *made;
    made = Dataset::make({.op = "Zip", .inputs = {wide, wide}});
  }
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
}

TEST(Dataset, CountsRangesWithoutOverflow) {
  EXPECT_EQ(range_length(0, 10, 3), 4);
  EXPECT_EQ(range_length(10, 0, -3), 4);
  EXPECT_EQ(range_length(0, 10, -1), 0);
  EXPECT_EQ(range_length(0, 10, 0), 0);
  EXPECT_EQ(range_length(INT64_MIN, INT64_MAX, INT64_MAX), 3);
  EXPECT_EQ(range_length(INT64_MIN, INT64_MAX, 1), INT64_MAX);
}

TEST(DatasetText, ReadsBackAsTheSameDataset) {
  const DatasetPtr dataset =
      with("Shuffle", with("Batch", mapped(with("Repeat", range(7), {2}), 3, 2), {2}), {3},
           {{"seed", int64_t{5}}});
  const std::string text = *to_text(*dataset, registry());
  const Result<DatasetPtr> back = from_text(text, registry());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ((*back)->outputs(), dataset->outputs());
  EXPECT_EQ(*to_text(**back, registry()), text);
  EXPECT_EQ(read(*back), read(dataset));
}

TEST(DatasetText, RefusesGraphsThatAreNoDataset) {
  for (const char* text : {"", "sidereal-graph 2\n", "sidereal-graph 2\na = NoOp()\n"}) {
    EXPECT_FALSE(from_text(text, registry()).ok()) << text;
  }
  const DatasetPtr generator =
      *Dataset::make({.op = "Generator",
                      .attrs = {{"number", int64_t{1}},
                                {"dtypes", std::vector<std::string>{"int64"}},
                                {"shapes", std::vector<int64_t>{0}}}});
  const Result<std::string> text = to_text(*with("Batch", generator, {2}), registry());
  EXPECT_EQ(text.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::message_of(text.status()), HasSubstr("Python code"));
  EXPECT_EQ(open(generator).status().code(), StatusCode::kFailedPrecondition);
}

TEST(Datasets, OpenWithValuesThatTheDefinitionLeavesOpen) {
  const ir::TensorSpec spec{DType::kInt64, {}};
  const DatasetPtr shard =
      *Dataset::make({.op = "Shard",
                      .inputs = {range(7)},
                      .parameters = {number(3), Parameter::from_slot(0, spec)}});
  const std::string text = *to_text(*shard, registry());
  const std::shared_ptr<ports::Datasets> datasets = make_datasets(1);
  std::mutex mutex;
  std::condition_variable changed;
  bool has_changed = false;
  const auto opened = datasets->open(text, {Tensor::scalar<int64_t>(2)}, [&] {
    const std::lock_guard lock(mutex);
    has_changed = true;
    changed.notify_all();
  });
  ASSERT_TRUE(opened.ok()) << opened.status();
  std::vector<int64_t> found;
  while (true) {
    const auto element = (*opened)->take();
    if (!element.ok()) break;
    if (*element) {
      found.push_back((**element)[0].data<const int64_t>()[0]);
      continue;
    }
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return std::exchange(has_changed, false); });
  }
  EXPECT_THAT(found, ElementsAre(2, 5));
  const auto error = [&](const std::vector<Tensor>& values) {
    return std::string(base::message_of(datasets->open(text, values, [] {}).status()));
  };
  EXPECT_THAT(error({}), HasSubstr("0 values are given; value 0 is used"));
  EXPECT_THAT(error({Tensor::scalar(1.0F)}), HasSubstr("int64[] is expected"));
}

TEST(DatasetText, StandsAnyChange) {
  const DatasetPtr dataset = with("Batch", mapped(with("Shuffle", range(7), {2}), 3, 2), {2});
  const std::string text = *to_text(*dataset, registry());
  std::mt19937 random(1);
  int good = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string changed = text;
    const size_t at = text.find('\n') + random() % (text.size() - text.find('\n'));
    changed[at] = static_cast<char>(32 + random() % 95);
    const Result<DatasetPtr> read_back = from_text(changed, registry());
    if (!read_back.ok()) continue;
    ++good;
    auto iterator = open(*read_back);
    Element element;
    for (int n = 0; iterator.ok() && n < 5; ++n) {
      if (const auto some = (*iterator)->next(&element); !some.ok() || !*some) break;
    }
  }
  EXPECT_GT(good, 20);
}

TEST(Iterator, GoesOnWhereAPositionWasSaved) {
  const DatasetPtr dataset =
      with("Prefetch", mapped(with("Shuffle", range(30), {7}, {{"seed", int64_t{1}}}), 2, 3), {4});
  auto iterator = *open(dataset);
  Element element;
  for (int i = 0; i < 11; ++i) ASSERT_TRUE(*iterator->next(&element));
  const std::string position = *iterator->save();
  auto other = *open(dataset);
  ASSERT_TRUE(other->restore(position).ok());
  EXPECT_EQ(*read(other.get()), *read(iterator.get()));
  EXPECT_EQ((*open(range(30)))->restore(position).code(), StatusCode::kInvalidArgument);
}

TEST(Iterator, RefusesPositionsThatCannotBe) {
  const DatasetPtr dataset = with(
      "Batch", with("Shuffle", with("Repeat", range(9), {2}), {4}, {{"seed", int64_t{1}}}), {2});
  auto iterator = *open(dataset);
  Element element;
  ASSERT_TRUE(*iterator->next(&element));
  const std::string position = *iterator->save();
  for (size_t size = 0; size < position.size(); ++size) {
    EXPECT_FALSE((*open(dataset))->restore(position.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE((*open(dataset))->restore(position + "x").ok());
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::string changed = position;
    changed[random() % changed.size()] = static_cast<char>(random());
    auto other = *open(dataset);
    if (!other->restore(changed).ok()) continue;
    for (int n = 0; n < 30 && other->next(&element).value_or(false); ++n) {
    }
  }
}

/// A source that gives numbers, and waits before each one after the first until it is let go.
class Waiting final : public ElementSource {
 public:
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_open = false;
  };
  explicit Waiting(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  Result<bool> next(Element* out) override {
    if (given_ > 0) {
      std::unique_lock lock(gate_->mutex);
      gate_->changed.wait(lock, [&] { return gate_->is_open; });
    }
    out->push_back({Tensor::scalar(given_++), nullptr});
    return true;
  }

 private:
  std::shared_ptr<Gate> gate_;
  int64_t given_ = 0;
};

class NoFunctions final : public ports::HostFunctions {
 public:
  Result<std::vector<Tensor>> call(int64_t /*function*/,
                                   std::span<const Tensor> /*inputs*/) override {
    return base::not_found("there are no functions");
  }
};

TEST(Iterator, CancelEndsACallThatWaits) {
  const DatasetPtr generator =
      *Dataset::make({.op = "Generator",
                      .attrs = {{"number", int64_t{1}},
                                {"dtypes", std::vector<std::string>{"int64"}},
                                {"shapes", std::vector<int64_t>{0}}}});
  const auto gate = std::make_shared<Waiting::Gate>();
  IteratorOptions options;
  options.host_functions = std::make_shared<NoFunctions>();
  options.generators = [gate](int64_t /*number*/) -> Result<std::unique_ptr<ElementSource>> {
    return std::make_unique<Waiting>(gate);
  };
  auto iterator = *Iterator::make(with("Prefetch", generator, {2}), options);
  Element element;
  ASSERT_TRUE(*iterator->next(&element));
  Status status;
  std::thread consumer([&] { status = iterator->next(&element).status(); });
  iterator->cancel();
  consumer.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  {
    const std::lock_guard lock(gate->mutex);
    gate->is_open = true;
  }
  gate->changed.notify_all();
  iterator = nullptr;
}

TEST(Iterator, EndsWithThreadsAtWork) {
  for (int i = 0; i < 20; ++i) {
    auto iterator = *open(with("Prefetch", mapped(with("Repeat", range(100), {-1}), 2, 4), {10}));
    Element element;
    for (int n = 0; n < i; ++n) ASSERT_TRUE(*iterator->next(&element));
  }
}

TEST(Iterator, HasNoMoreThreadsThanItMay) {
  std::vector<DatasetPtr> many(20, mapped(range(50), 2, 64));
  const DatasetPtr all = *Dataset::make({.op = "Zip", .inputs = many});
  auto iterator = *open(all);
  Element element;
  EXPECT_EQ(iterator->next(&element).status().code(), StatusCode::kResourceExhausted);
  many.resize(8);
  EXPECT_EQ(numbers(*Dataset::make({.op = "Zip", .inputs = many})).size(), 50);
}

TEST(Iterator, ReadsLinesOfFiles) {
  const data::TestFolder folder;
  const DatasetPtr lines = *Dataset::make(
      {.op = "TextLines",
       .parameters = {Parameter::of(Tensor::strings(
           {2}, std::vector<std::string>{folder.write("a", "x\n\ny"), folder.path("none")}))}});
  auto iterator = *open(lines);
  Element element;
  for (const char* expected : {"x", "", "y"}) {
    ASSERT_TRUE(*iterator->next(&element));
    EXPECT_EQ(element[0].tensor.data<const std::string_view>()[0], expected);
  }
  EXPECT_EQ(iterator->next(&element).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(*iterator->next(&element));
}

}  // namespace
}  // namespace sidereal::dataset
