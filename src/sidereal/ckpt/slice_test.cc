#include "sidereal/ckpt/slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "sidereal/base/strings.h"

namespace sidereal::ckpt {
namespace {

using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Slice, ReadsAndWritesTheTextOfParts) {
  for (const std::string text : {"8 4 0,4:-", "8 4 -:-", "9 4 1,3,3:-", "5 4,1", "0 -",
                                 "4611686018427387904 4611686018427387903,1"}) {
    const auto parsed = parse_slice(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(format_slice(parsed->slice, parsed->whole), text);
  }
  const auto strided = parse_slice("9 4 1,3,3:-");
  EXPECT_THAT(strided->slice, ElementsAre(Range{1, 3, 3}, Range{0, 4, 1}));
  EXPECT_EQ(shape_of(strided->slice), (Shape{3, 4}));
  // Two ways to say one thing.
  EXPECT_TRUE(is_whole(parse_slice("1 0,1,7")->slice, Shape{1}));
}

TEST(Slice, RefusesPartsThatAreNotInTheTensor) {
  for (const std::string text :
       {"", "8", "-", "8 4 0,4", "8 4 0,4:-:-", "8 0,9", "8 8,1", "8 -1,2", "8 0,-1", "8 0,2,0",
        "8 0,2,-1", "9 1,4,3", "x -", "8 a,b", "-8 -", "8 0,1,2,3", "4611686018427387904 4 -:-",
        "9223372036854775807 9223372036854775806,2,1"}) {
    const auto parsed = parse_slice(text);
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(base::message_of(parsed.status()), HasSubstr("'" + text + "'"));
  }
  EXPECT_FALSE(parse_slice(base::join(std::vector<std::string>(99, "1"), " ")).ok());
}

/// Each element is its index in the whole.
Tensor indices_of(const Slice& slice, const Shape& whole) {
  Tensor out = Tensor::empty(tensor::DType::kInt64, shape_of(slice));
  std::vector<int64_t> at(slice.size());
  for (int64_t& value : out.data<int64_t>()) {
    value = 0;
    for (size_t i = 0; i < slice.size(); ++i) {
      value = value * whole.dim(static_cast<int>(i)) + slice[i].start + at[i] * slice[i].step;
    }
    for (size_t i = slice.size(); i-- > 0;) {
      if (++at[i] < slice[i].count) break;
      at[i] = 0;
    }
  }
  return out;
}

TEST(Slice, CopiesExactlyWhatTwoSlicesHaveInCommon) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 3000; ++round) {
    Shape whole;
    const int64_t rank = below(4);
    for (int64_t i = 0; i < rank; ++i) whole.append(below(12));
    const auto some = [&] {
      Slice slice;
      for (const int64_t extent : whole.dims()) {
        Range range;
        if (extent > 0) {
          range.start = below(extent);
          range.step = 1 + below(4);
          range.count = below((extent - 1 - range.start) / range.step + 2);
        }
        if (below(3) == 0) range = {.start = 0, .count = extent};
        slice.push_back(range);
      }
      EXPECT_TRUE(check_slice(slice, whole).ok());
      return slice;
    };
    const Slice from = some();
    const Slice to = some();
    const Tensor source = indices_of(from, whole);
    const Tensor wanted = indices_of(to, whole);
    Tensor got = Tensor::empty(tensor::DType::kInt64, shape_of(to));
    std::fill(got.data<int64_t>().begin(), got.data<int64_t>().end(), -1);
    const int64_t copied = copy_common(from, source, to, &got);
    EXPECT_EQ(copied, num_common(from, to));
    const auto has = source.data<int64_t>();
    int64_t common = 0;
    for (int64_t i = 0; i < got.num_elements(); ++i) {
      const int64_t want = wanted.data<int64_t>()[static_cast<size_t>(i)];
      const bool is_common = std::find(has.begin(), has.end(), want) != has.end();
      common += is_common ? 1 : 0;
      ASSERT_EQ(got.data<int64_t>()[static_cast<size_t>(i)], is_common ? want : -1)
          << format_slice(from, whole) << " to " << format_slice(to, whole);
    }
    ASSERT_EQ(common, copied);
  }
}

TEST(Slice, RowsAreOneRun) {
  const auto part = parse_slice("100 8 20,50:-");
  int runs = 0;
  const Status status =
      for_each_run(part->slice, whole_slice(part->whole), [&](const ckpt::Run& run) -> Status {
        ++runs;
        EXPECT_EQ(run.from, 0);
        EXPECT_EQ(run.to, 160);
        EXPECT_EQ(run.count, 400);
        return {};
      });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(runs, 1);
}

TEST(Slice, LargeStepsMeetWithoutOverflow) {
  const int64_t n = int64_t{1} << 62;
  const Slice a{{.start = 3, .count = 2, .step = n - 7}};
  const Slice b{{.start = n - 4, .count = 1, .step = n - 9}};
  EXPECT_EQ(num_common(a, b), 1);
  EXPECT_EQ(num_common(b, a), 1);
}

TEST(Slice, OfStringsKeepsWhatTheyShow) {
  Tensor to = Tensor::empty(tensor::DType::kString, Shape{4});
  {
    const Tensor from = Tensor::strings(Shape{2}, std::vector<std::string>{"one", "two"});
    copy_common({{.start = 1, .count = 2}}, from, whole_slice(Shape{4}), &to);
  }
  EXPECT_THAT(to.data<const std::string_view>(), ElementsAre("", "one", "two", ""));
}

}  // namespace
}  // namespace sidereal::ckpt
