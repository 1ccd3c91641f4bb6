#include "sidereal/service/table_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sidereal::service {
namespace {

using tensor::DType;
using tensor::Shape;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TableLayouts layouts_of(const std::map<std::string, VariableForm>& variables, Parts parts) {
  PartsSeen seen;
  return layouts_of(variables, parts, &seen);
}

std::map<std::string, VariableForm> parts_of_e(const std::vector<int64_t>& rows) {
  std::map<std::string, VariableForm> out;
  for (size_t k = 0; k < rows.size(); ++k) {
    out["e/part_" + std::to_string(k)] = {DType::kFloat32, Shape{rows[k], 2}};
  }
  return out;
}

std::vector<std::string> places(const TableLayout& layout) {
  std::vector<std::string> out;
  for (int64_t row = 0; row < layout.rows; ++row) {
    const TableLayout::Place place = layout.place(row);
    out.push_back(std::to_string(place.part) + ":" + std::to_string(place.row));
  }
  return out;
}

TEST(TableLayoutTest, SlotsAreLeftOut) {
  EXPECT_THAT(without_slots({"a/b", "a/b/Adagrad", "c", "c/d/m", "e/part_0", "e/part_0/v"}),
              ElementsAre("a/b", "c", "e/part_0"));
}

TEST(TableLayoutTest, RowsAreInPartsByTurnsOrInBlocks) {
  const TableLayouts modulo = layouts_of(parts_of_e({2, 2, 1}), Parts::kModulo);
  const Result<TableLayout>& turns = modulo.tables.at("e");
  ASSERT_TRUE(turns.ok()) << turns.status();
  EXPECT_THAT(places(*turns), ElementsAre("0:0", "1:0", "2:0", "0:1", "1:1"));
  const TableLayouts blocks = layouts_of(parts_of_e({2, 0, 1}), Parts::kBlocks);
  const Result<TableLayout>& pieces = blocks.tables.at("e");
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  EXPECT_THAT(places(*pieces), ElementsAre("0:0", "0:1", "2:0"));
  const TableLayouts apart = layouts_of(parts_of_e({2, 1}), Parts::kApart);
  ASSERT_EQ(apart.tables.size(), 2);
  EXPECT_THAT(places(*apart.tables.at("e/part_1")), ElementsAre("0:0"));
}

TEST(TableLayoutTest, WhatIsNamedAsNoPartIsATableOfItsOwn) {
  std::map<std::string, VariableForm> variables = parts_of_e({1, 1});
  const std::vector<std::string> others = {"/part_0", "e/part_0/Adagrad", "e/part_0_1",
                                           "e/part_99999999999999999999", "e/part_x"};
  for (const std::string& name : others) variables[name] = {DType::kFloat32, Shape{7, 2}};
  const TableLayouts found = layouts_of(variables, Parts::kModulo);
  EXPECT_EQ(found.tables.size(), others.size() + 1);
  EXPECT_EQ(found.tables.at("e")->rows, 2);
  for (const std::string& name : others) EXPECT_EQ(found.tables.at(name)->rows, 7) << name;
}

TEST(TableLayoutTest, ATableThatIsNotWholeLeavesTheOthers) {
  std::map<std::string, VariableForm> variables = parts_of_e({1, 1, 1});
  variables.erase("e/part_1");
  variables["t"] = {DType::kInt64, Shape{3, 1}};
  variables["b"] = {DType::kFloat32, Shape{3}};
  variables["s"] = {DType::kString, Shape{3, 1}};
  const TableLayouts found = layouts_of(variables, Parts::kModulo);
  EXPECT_THAT(base::message_of(found.tables.at("e").status()),
              HasSubstr("table 'e' lacks its part 1"));
  EXPECT_TRUE(found.tables.at("t").ok());
  EXPECT_THAT(found.others, ElementsAre("b", "s"));
  const TableLayouts uneven = layouts_of(parts_of_e({1, 4}), Parts::kModulo);
  EXPECT_THAT(base::message_of(uneven.tables.at("e").status()), HasSubstr("do not take turns"));
}

TEST(TableLayoutTest, ATableDoesNotLoseItsLastParts) {
  PartsSeen seen;
  EXPECT_EQ(layouts_of(parts_of_e({2, 2}), Parts::kModulo, &seen).tables.at("e")->rows, 4);
  const TableLayouts less = layouts_of(parts_of_e({2}), Parts::kModulo, &seen);
  EXPECT_THAT(base::message_of(less.tables.at("e").status()), HasSubstr("lacks its part 1"));
  EXPECT_EQ(layouts_of(parts_of_e({2, 2}), Parts::kModulo, &seen).tables.at("e")->rows, 4);
  // It is another one after it was gone.
  EXPECT_TRUE(layouts_of({}, Parts::kModulo, &seen).tables.empty());
  EXPECT_EQ(layouts_of(parts_of_e({2}), Parts::kModulo, &seen).tables.at("e")->rows, 2);
}

TEST(TableLayoutTest, PartsHaveNames) {
  EXPECT_EQ(*parts_of("blocks"), Parts::kBlocks);
  EXPECT_THAT(base::message_of(parts_of("halves").status()),
              HasSubstr("'apart', 'modulo', 'blocks', and not 'halves'"));
}

}  // namespace
}  // namespace sidereal::service
