#include "sidereal/kernels/strided.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "sidereal/kernels/grid.h"
#include "sidereal/kernels/rows.h"
#include "sidereal/kernels/sort.h"

namespace sidereal::kernels {
namespace {

using tensor::Shape;

/// Elements of the view, one by one.
std::vector<int64_t> offsets_of(const StridedView& view) {
  std::vector<int64_t> out = {view.start};
  for (size_t d = 0; d < view.dims.size(); ++d) {
    std::vector<int64_t> next;
    for (const int64_t at : out) {
      for (int64_t i = 0; i < view.dims[d]; ++i) next.push_back(at + i * view.strides[d]);
    }
    out = next;
  }
  return out;
}

/// A view of a random dense array with permuted, reversed and skipped dimensions.
StridedView random_view(std::mt19937& dice, Shape* shape) {
  const auto number = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(dice);
  };
  const int64_t rank = number(0, 4);
  for (int64_t i = 0; i < rank; ++i) shape->append(number(0, 12) == 0 ? 0 : number(1, 20));
  StridedView view = StridedView::dense(*shape);
  for (int i = 0; i < rank; ++i) {
    const int64_t extent = shape->dim(i);
    if (extent > 1 && number(0, 2) == 0) view.slice(i, extent - 1, -1, extent);
    if (extent > 3 && number(0, 2) == 0) view.slice(i, 1, 2, (extent - 1) / 2);
  }
  for (int64_t i = rank; i-- > 1;) {
    const int64_t j = number(0, i);
    std::swap(view.dims[i], view.dims[j]);
    std::swap(view.strides[i], view.strides[j]);
  }
  return view;
}

template <class T>
void check_view(const StridedView& view, const Shape& shape) {
  std::vector<T> from(std::max<int64_t>(shape.num_elements(), 1));
  std::iota(from.begin(), from.end(), T(1));
  std::vector<T> to(view.num_elements());
  const std::vector<int64_t> offsets = offsets_of(view);
  gather_strided(reinterpret_cast<const std::byte*>(from.data()), view, sizeof(T),
                 reinterpret_cast<std::byte*>(to.data()));
  ASSERT_EQ(offsets.size(), to.size());
  for (size_t i = 0; i < to.size(); ++i) ASSERT_EQ(to[i], from[offsets[i]]);
  std::vector<T> back(from.size(), T(0));
  scatter_strided(reinterpret_cast<const std::byte*>(to.data()), view, sizeof(T),
                  reinterpret_cast<std::byte*>(back.data()));
  std::vector<T> expected(from.size(), T(0));
  for (size_t i = 0; i < to.size(); ++i) expected[offsets[i]] = to[i];
  EXPECT_EQ(back, expected);
}

TEST(Strided, gathers_and_scatters_every_element_of_random_views) {
  std::mt19937 dice(3);
  for (int round = 0; round < 400; ++round) {
    Shape shape;
    const StridedView view = random_view(dice, &shape);
    check_view<uint8_t>(view, shape);
    check_view<uint16_t>(view, shape);
    check_view<uint32_t>(view, shape);
    check_view<uint64_t>(view, shape);
    if (HasFailure()) return;
  }
}

TEST(Strided, repeats_elements_at_a_stride_of_zero) {
  StridedView view;
  view.dims = {2, 3, 2};
  view.strides = {0, 1, 0};
  const std::vector<int32_t> from = {7, 8, 9};
  std::vector<int32_t> to(12);
  gather_strided(reinterpret_cast<const std::byte*>(from.data()), view, 4,
                 reinterpret_cast<std::byte*>(to.data()));
  EXPECT_EQ(to, (std::vector<int32_t>{7, 7, 8, 8, 9, 9, 7, 7, 8, 8, 9, 9}));
}

TEST(Grid, gathers_by_tables_and_adds_back) {
  Grid grid;
  grid.reset(2);
  const std::vector<int64_t> rows = {2, 0, 2};
  std::span<int64_t> table = grid.add_dimension(3);
  for (size_t i = 0; i < 3; ++i) table[i] = rows[i] * 2;
  const std::vector<float> from = {1, 2, 3, 4, 5, 6};
  std::vector<float> to(6);
  gather_grid(reinterpret_cast<const std::byte*>(from.data()), grid, 4,
              reinterpret_cast<std::byte*>(to.data()));
  EXPECT_EQ(to, (std::vector<float>{5, 6, 1, 2, 5, 6}));
  std::vector<float> sums(6, 0);
  scatter_add_grid<float>(to.data(), grid, sums.data());
  EXPECT_EQ(sums, (std::vector<float>{1, 2, 0, 0, 10, 12}));
}

TEST(Rows, are_combined_in_order_and_negative_ones_left_out) {
  const std::vector<int64_t> rows = {1, -1, 0, 1};
  const std::vector<float> from = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> sums(4, 0);
  combine_rows<float>(RowOp::kAdd, from.data(), rows, 2, sums.data());
  EXPECT_EQ(sums, (std::vector<float>{5, 6, 8, 10}));
  std::vector<float> most(4, neutral<float>(RowOp::kMax));
  combine_rows<float>(RowOp::kMax, from.data(), rows, 2, most.data());
  EXPECT_EQ(most, (std::vector<float>{5, 6, 7, 8}));
  EXPECT_EQ(first_outside<int64_t>(std::span<const int64_t>(rows), 1, true), 0);
  EXPECT_EQ(first_outside<int64_t>(std::span<const int64_t>(rows), 2, false), 1);
  EXPECT_EQ(first_outside<int64_t>(std::span<const int64_t>(rows), 2, true), -1);
}

TEST(Sort, is_stable_and_puts_nan_last) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {2, nan, 1, 2, 0};
  std::vector<float> values(5);
  std::vector<int32_t> indices(5);
  std::vector<uint64_t> keys;
  sort_rows<float>(x.data(), 1, 5, false, values.data(), indices.data(), &keys);
  EXPECT_EQ(indices, (std::vector<int32_t>{4, 2, 0, 3, 1}));
  sort_rows<float>(x.data(), 1, 5, true, values.data(), indices.data(), &keys);
  EXPECT_EQ(indices, (std::vector<int32_t>{1, 0, 3, 2, 4}));
  std::vector<int32_t> scratch;
  top_k<float>(x.data(), 1, 5, 3, values.data(), indices.data(), &scratch);
  EXPECT_EQ((std::vector<int32_t>(indices.begin(), indices.begin() + 3)),
            (std::vector<int32_t>{1, 0, 3}));
}

template <class T>
void check_sort(std::mt19937& dice, bool descending) {
  std::vector<T> x(200);
  for (T& value : x) value = static_cast<T>(std::uniform_int_distribution<int>(-40, 40)(dice));
  if constexpr (std::is_floating_point_v<T>) {
    x[3] = std::numeric_limits<T>::infinity();
    x[4] = -x[3];
    x[5] = -T(0);
    x[6] = std::numeric_limits<T>::denorm_min();
  }
  std::vector<int32_t> expected(x.size());
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(),
                   [&](int32_t a, int32_t b) { return descending ? x[a] > x[b] : x[a] < x[b]; });
  std::vector<T> values(x.size());
  std::vector<int32_t> indices(x.size());
  std::vector<uint64_t> keys;
  sort_rows<T>(x.data(), 1, 200, descending, values.data(), indices.data(), &keys);
  EXPECT_EQ(indices, expected);
}

TEST(Sort, is_that_of_the_standard_library_for_every_kind_of_number) {
  std::mt19937 dice(11);
  for (const bool descending : {false, true}) {
    check_sort<float>(dice, descending);
    check_sort<double>(dice, descending);
    check_sort<int8_t>(dice, descending);
    check_sort<int16_t>(dice, descending);
    check_sort<int32_t>(dice, descending);
    check_sort<int64_t>(dice, descending);
    check_sort<uint8_t>(dice, descending);
    check_sort<uint32_t>(dice, descending);
    check_sort<uint64_t>(dice, descending);
  }
}

}  // namespace
}  // namespace sidereal::kernels
