#include "sidereal/resources/row_layout.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sidereal::resources {
namespace {

using tensor::Buffer;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr int64_t kRows = 100'000;
constexpr int64_t kDim = 16;

Tensor numbered(float first) {
  Tensor out = Tensor::empty(DType::kFloat32, Shape{kRows, kDim});
  for (float& x : out.data<float>()) x = first++;
  return out;
}

class RowLayoutTest : public ::testing::Test {
 protected:
  ~RowLayoutTest() override {
    Buffer::limit_memory(static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                         static_cast<size_t>(sysconf(_SC_PAGE_SIZE)));
  }

  std::shared_ptr<Variable> variable(const Tensor& value) {
    auto made = *Variable::make({.name = "v" + std::to_string(all_.size())});
    EXPECT_TRUE(made->assign(value).ok());
    all_.push_back(made.get());
    return made;
  }
  /// Puts all variables into one table; false when that is not done.
  bool lay_out(const std::function<void(RowLayout&)>& move = [](RowLayout& layout) {
    layout.move(0, layout.rows());
  }) {
    bool is_done = false;
    const Status status =
        Variable::change(all_, [&](std::span<Variable::Value* const> values) -> Status {
          std::optional<RowLayout> layout = RowLayout::plan(values);
          if (!layout.has_value()) return {};
          move(*layout);
          layout->finish();
          is_done = true;
          return {};
        });
    EXPECT_TRUE(status.ok());
    return is_done;
  }
  static Rows rows_of(const Variable& variable) {
    Rows out;
    EXPECT_TRUE(variable
                    .look([&](const Variable::Value& value) -> Status {
                      out = value.rows();
                      return {};
                    })
                    .ok());
    return out;
  }
  static void expect_numbers(const Tensor& value, float first) {
    for (const float x : value.data<const float>()) ASSERT_EQ(x, first++);
  }

  std::vector<Variable*> all_;
};

TEST_F(RowLayoutTest, rows_of_weights_and_slots_lie_side_by_side) {
  const auto w = variable(numbered(0));
  const auto slot = variable(numbered(5));
  ASSERT_TRUE(lay_out([](RowLayout& layout) {
    layout.move(60'000, layout.rows());
    layout.move(0, 60'000);
  }));
  EXPECT_EQ(rows_of(*w).stride, 2 * kDim * 4);
  EXPECT_EQ(rows_of(*slot).at - rows_of(*w).at, kDim * 4);
  expect_numbers(*w->read(), 0);
  expect_numbers(*slot->read(), 5);
  EXPECT_EQ(w->bytes(), kRows * kDim * 4);
  ASSERT_TRUE(w->assign(numbered(9)).ok());
  expect_numbers(*w->read(), 9);
  expect_numbers(*slot->read(), 5);
  EXPECT_FALSE(lay_out());
}

TEST_F(RowLayoutTest, moving_needs_no_more_memory_than_the_variables_had) {
  const auto w = variable(numbered(0));
  const auto slot = variable(numbered(1));
  // Nothing else of this process is that large.
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t each = (kRows * kDim * 4 + kHugePage - 1) / kHugePage * kHugePage;
  Buffer::limit_memory(2 * each);
  ASSERT_TRUE(lay_out());
  expect_numbers(*w->read([](DType, const Shape& shape) {
    Buffer::limit_memory(SIZE_MAX);
    return Tensor::empty(DType::kFloat32, shape);
  }),
                 0);
  expect_numbers(*slot->read(), 1);
}

TEST_F(RowLayoutTest, what_has_no_memory_stays_as_it_is) {
  const auto w = variable(numbered(0));
  const auto slot = variable(numbered(1));
  const Tensor held = *w->read();
  const Tensor also = *slot->read();
  Buffer::limit_memory(size_t{4} << 20);
  EXPECT_FALSE(lay_out());
  Buffer::limit_memory(SIZE_MAX);
  EXPECT_FALSE(lay_out());
  expect_numbers(*w->read(), 0);
  EXPECT_EQ(rows_of(*w).stride, kDim * 4);
}

TEST_F(RowLayoutTest, what_others_hold_is_copied) {
  const auto w = variable(numbered(0));
  const auto slot = variable(numbered(1));
  const Tensor held = *w->read();
  ASSERT_TRUE(lay_out());
  expect_numbers(held, 0);
  Variable* const one = w.get();
  ASSERT_TRUE(Variable::change({&one, 1}, [](std::span<Variable::Value* const> values) -> Status {
                *reinterpret_cast<float*>(values[0]->own().at) = 7;
                return {};
              }).ok());
  EXPECT_EQ(w->read()->data<const float>()[0], 7);
  expect_numbers(held, 0);
  expect_numbers(*slot->read(), 1);
}

TEST_F(RowLayoutTest, slots_of_other_rows_or_dtypes_stay_out) {
  const auto w = variable(numbered(0));
  const auto per_row = variable(Tensor::zeros(DType::kFloat32, Shape{kRows}));
  const auto other = variable(Tensor::zeros(DType::kFloat32, Shape{kRows / 2, 2 * kDim}));
  const auto scalar = variable(Tensor::scalar(1.0F));
  ASSERT_TRUE(lay_out());
  EXPECT_EQ(rows_of(*per_row).at - rows_of(*w).at, kDim * 4);
  EXPECT_EQ(rows_of(*per_row).width, 1);
  EXPECT_EQ(rows_of(*other).stride, 2 * kDim * 4);
  EXPECT_EQ(rows_of(*scalar).stride, 4);
}

}  // namespace
}  // namespace sidereal::resources
