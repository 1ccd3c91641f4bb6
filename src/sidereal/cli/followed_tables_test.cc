#include "sidereal/cli/followed_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sidereal::cli {
namespace {

using service::Parts;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<Tables> tables_of(const std::map<std::string, Tensor>& values, Parts parts,
                         const std::vector<std::string>& wanted) {
  service::PartsSeen seen;
  return cli::tables_of(values, parts, wanted, &seen);
}

/// [rows, 2], whose elements count from `first` on.
Tensor table_of(int64_t rows, float first) {
  Tensor out = Tensor::empty(DType::kFloat32, Shape{rows, 2});
  for (float& x : out.data<float>()) x = first++;
  return out;
}

std::vector<float> elements(const Tensor& table) {
  const auto all = table.data<float>();
  return {all.begin(), all.end()};
}

TEST(FollowedTablesTest, PartsArePutTogetherByTurnsOrInBlocks) {
  const std::map<std::string, Tensor> values = {{"e/part_0", table_of(2, 0)},
                                                {"e/part_1", table_of(1, 10)},
                                                {"b", Tensor::zeros(DType::kFloat32, Shape{3})}};
  const Result<Tables> modulo = tables_of(values, Parts::kModulo, {});
  ASSERT_TRUE(modulo.ok()) << modulo.status();
  ASSERT_EQ(modulo->size(), 1);
  EXPECT_THAT(elements(modulo->at("e")), ElementsAre(0, 1, 10, 11, 2, 3));
  const Result<Tables> blocks = tables_of(values, Parts::kBlocks, {"e"});
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  EXPECT_THAT(elements(blocks->at("e")), ElementsAre(0, 1, 2, 3, 10, 11));
  const Result<Tables> apart = tables_of(values, Parts::kApart, {});
  ASSERT_TRUE(apart.ok()) << apart.status();
  EXPECT_EQ(apart->size(), 2);
}

TEST(FollowedTablesTest, WhatIsNotThereIsNamed) {
  const std::map<std::string, Tensor> values = {{"e/part_1", table_of(1, 0)},
                                                {"b", Tensor::zeros(DType::kFloat32, Shape{3})}};
  const auto why = [&](Parts parts, const std::vector<std::string>& wanted) {
    return base::message_of(tables_of(values, parts, wanted).status());
  };
  EXPECT_THAT(why(Parts::kModulo, {}), HasSubstr("table 'e' lacks its part 0"));
  EXPECT_THAT(why(Parts::kApart, {"x"}), HasSubstr("there is no table 'x'"));
  EXPECT_THAT(why(Parts::kApart, {"b"}), HasSubstr("'b' is no table"));
}

TEST(FollowedTablesTest, PartsThatDoNotFitAreRefused) {
  const Result<Tables> uneven =
      tables_of({{"e/part_0", table_of(1, 0)}, {"e/part_1", table_of(4, 0)}}, Parts::kModulo, {});
  EXPECT_THAT(base::message_of(uneven.status()), HasSubstr("do not take turns"));
  const Result<Tables> kinds = tables_of(
      {{"e/part_0", table_of(1, 0)}, {"e/part_1", Tensor::zeros(DType::kFloat32, Shape{1, 3})}},
      Parts::kBlocks, {});
  EXPECT_EQ(kinds.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::cli
