#include "sidereal/train/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sidereal::train {
namespace {

using ::testing::HasSubstr;

CompiledModel model_of(std::vector<ModelVariable> variables) {
  CompiledModel out;
  out.variables = std::move(variables);
  return out;
}

cluster::ClusterSpec cluster_of(const std::vector<std::string>& ps) {
  cluster::ClusterSpec out;
  EXPECT_TRUE(out.add_job("ps", ps).ok());
  return out;
}

TEST(MemoryPlan, CountsVariablesAndSlots) {
  const CompiledModel model = model_of({{.name = "table",
                                         .shape = {1000, 16},
                                         .slots = {{.name = "table/m", .shape = {1000, 16}},
                                                   {.name = "table/rows", .shape = {1000}}}},
                                        {.name = "bias", .shape = {1}}});
  const MemoryPlan plan = memory_plan(model);
  EXPECT_EQ(plan.bytes, 4 * (1000 * 16 * 2 + 1000 + 1));
  EXPECT_THAT(plan.largest, HasSubstr("'table' [1000,16] with 2 slots"));
}

TEST(MemoryPlan, WhatDoesNotFitIsRefusedWithItsSizes) {
  const CompiledModel model = model_of({{.name = "table", .shape = {1 << 20, 64}}});
  const auto here = cluster_of({"127.0.0.1:1", "127.0.0.1:2"});
  EXPECT_TRUE(check_memory(model, here, 0).ok());
  EXPECT_TRUE(check_memory(model, here, int64_t{1} << 30).ok());
  EXPECT_TRUE(check_memory(model, cluster_of({"ps0:1"}), 1000).ok());
  const Status refused = check_memory(model, here, 100 << 20);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  for (const char* part : {"256", "2 ps", "100", "'table' [1048576,64]"}) {
    EXPECT_THAT(std::string(base::message_of(refused)), HasSubstr(part));
  }
}

}  // namespace
}  // namespace sidereal::train
