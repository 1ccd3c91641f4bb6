#include "sidereal/tensor/slicing.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace sidereal::tensor {
namespace {

using Ints = std::vector<int64_t>;

/// What x[begin:end:stride] takes of a sequence, by Python's definition of a slice.
Ints taken_by_definition(int64_t n, const int64_t* begin, const int64_t* end, int64_t stride) {
  const auto within = [&](int64_t index) {
    if (index < 0) index += n;
    if (stride > 0) return std::min(std::max<int64_t>(index, 0), n);
    return std::min(std::max<int64_t>(index, -1), n - 1);
  };
  const int64_t first = begin != nullptr ? within(*begin) : (stride > 0 ? 0 : n - 1);
  const int64_t last = end != nullptr ? within(*end) : (stride > 0 ? n : -1);
  Ints out;
  for (int64_t i = first; stride > 0 ? i < last : i > last; i += stride) out.push_back(i);
  return out;
}

TEST(Slicing, takes_what_python_takes) {
  std::mt19937 dice(7);
  const auto number = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(dice);
  };
  for (int round = 0; round < 20'000; ++round) {
    const int64_t n = number(0, 7);
    const int64_t begin = number(-9, 9);
    const int64_t end = number(-9, 9);
    int64_t stride = number(-4, 4);
    if (stride == 0) stride = 1;
    SliceTerms terms;
    terms.begin = {&begin, 1};
    terms.end = {&end, 1};
    terms.strides = {&stride, 1};
    terms.begin_mask = number(0, 1);
    terms.end_mask = number(0, 1);
    const Ints expected = taken_by_definition(n, terms.begin_mask ? nullptr : &begin,
                                              terms.end_mask ? nullptr : &end, stride);
    const auto got = resolve_slice(terms, Shape{n});
    ASSERT_TRUE(got.ok()) << got.status();
    Ints taken;
    for (int64_t i = 0; i < got->extent[0]; ++i)
      taken.push_back(got->begin[0] + i * got->stride[0]);
    EXPECT_EQ(taken, expected) << n << " [" << begin << ":" << end << ":" << stride << "] masks "
                               << terms.begin_mask << terms.end_mask;
  }
}

TEST(Slicing, knows_ellipsis_new_axis_and_single_index) {
  // x[1:, ..., None, 3, ::-1]
  const Ints begin = {1, 0, 0, 3, 0};
  const Ints end = {0, 0, 0, 0, 0};
  const Ints strides = {1, 1, 1, 1, -1};
  const SliceTerms terms = {.begin = begin,
                            .end = end,
                            .strides = strides,
                            .begin_mask = 0b10000,
                            .end_mask = 0b10001,
                            .ellipsis_mask = 0b00010,
                            .new_axis_mask = 0b00100,
                            .shrink_axis_mask = 0b01000};
  const auto got = resolve_slice(terms, Shape{3, 4, 5, 6, 7});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->shape, (Shape{2, 4, 5, 1, 7}));
  EXPECT_EQ(got->begin[3], 3);
  EXPECT_EQ(got->begin[4], 6);
  EXPECT_EQ(got->stride[4], -1);
  const auto unknown = resolve_slice(terms, Shape{-1, 4, -1, 6, 7});
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_EQ(unknown->shape, (Shape{-1, 4, -1, 1, 7}));
  EXPECT_EQ(*shape_of_unknown_slice(5, terms, Shape{3, 4, 5, 6, 7}), (Shape{-1, 4, 5, 1, -1}));
}

TEST(Slicing, says_what_does_not_fit) {
  const Ints zero = {0, 0};
  const Ints one = {1, 1};
  const Ints far = {5, 0};
  const auto code = [](const SliceTerms& terms, const Shape& shape) {
    return resolve_slice(terms, shape).status().code();
  };
  EXPECT_EQ(code({.begin = zero, .end = one, .strides = zero}, Shape{3, 3}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.begin = zero, .end = one, .strides = one}, Shape{3}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.begin = zero, .end = one, .strides = one, .ellipsis_mask = 3}, Shape{3}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.begin = far, .end = one, .strides = one, .shrink_axis_mask = 1}, Shape{3, 3}),
            StatusCode::kInvalidArgument);
  const Ints huge = {INT64_MIN, INT64_MAX};
  EXPECT_TRUE(resolve_slice({.begin = huge, .end = huge, .strides = huge}, Shape{3, 3}).ok());
}

}  // namespace
}  // namespace sidereal::tensor
