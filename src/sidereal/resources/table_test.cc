#include "sidereal/resources/table.h"

#include <gtest/gtest.h>

namespace sidereal::resources {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

TEST(Table, finds_what_was_put_in_by_key) {
  const auto table = *Table::make({.name = "t", .key = DType::kString, .row = Shape{2}});
  const Tensor keys = Tensor::strings(Shape{2}, {"b", std::string("a\0", 2)});
  ASSERT_TRUE(table->insert(keys, Tensor::of<int64_t>(Shape{2, 2}, {1, 2, 3, 4})).ok());
  const Tensor asked = Tensor::strings(Shape{3}, {"a", "b", std::string("a\0", 2)});
  const Tensor missing = Tensor::of<int64_t>(Shape{2}, {-1, -2});
  const auto found = table->find(asked, missing);
  ASSERT_TRUE(found.ok()) << found.status();
  const auto data = found->data<const int64_t>();
  EXPECT_EQ((std::vector<int64_t>(data.begin(), data.end())),
            (std::vector<int64_t>{-1, -2, 1, 2, 3, 4}));
  ASSERT_TRUE(table->remove(Tensor::strings(Shape{1}, {"b"})).ok());
  EXPECT_EQ(table->size(), 1);
  EXPECT_EQ(table->contents().first.data<const std::string_view>()[0], std::string_view("a\0", 2));
}

TEST(Table, holds_strings_of_its_own) {
  const auto table = *Table::make({.name = "t", .key = DType::kInt64, .value = DType::kString});
  {
    const Tensor values = Tensor::strings(Shape{2}, {"one", "a string too long to lie in place"});
    ASSERT_TRUE(table->insert(Tensor::of<int64_t>(Shape{2}, {1, 2}), values).ok());
  }
  const auto found = table->find(Tensor::scalar<int64_t>(2), Tensor::strings(Shape(), {"none"}));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->data<const std::string_view>()[0], "a string too long to lie in place");
}

TEST(Table, refuses_what_does_not_fit) {
  EXPECT_FALSE(Table::make({.name = "t", .key = DType::kFloat32}).ok());
  EXPECT_FALSE(Table::make({.name = "t", .value = DType::kString, .row = Shape{2}}).ok());
  const auto table = *Table::make({.name = "t"});
  const Tensor keys = Tensor::of<int64_t>(Shape{2}, {1, 2});
  EXPECT_FALSE(table->insert(keys, Tensor::scalar<int64_t>(1)).ok());
  EXPECT_FALSE(table->insert(Tensor::scalar(1.0F), Tensor::scalar<int64_t>(1)).ok());
  EXPECT_FALSE(table->find(keys, keys).ok());
}

}  // namespace
}  // namespace sidereal::resources
