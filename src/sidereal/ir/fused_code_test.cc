#include "sidereal/ir/fused_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sidereal::ir {
namespace {

using testing::HasSubstr;

TEST(FusedCode, reads_what_it_writes) {
  const std::vector<FusedStep> steps = {{"Mul", {0, 1}}, {"Neg", {2, -1}}, {"Add", {3, 0}}};
  std::vector<std::string> code;
  for (const FusedStep& step : steps) code.push_back(to_text(step));
  EXPECT_EQ(code, (std::vector<std::string>{"Mul %0 %1", "Neg %2", "Add %3 %0"}));
  const auto read = parse_fused_code(code, 2);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), steps.size());
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(to_text((*read)[i]), code[i]);
}

TEST(FusedCode, refuses_what_is_no_step) {
  for (const char* line : {"", "Mul", "Mul %0", "Mul %0 %2", "Neg %0 %1", "MatMul %0 %1", "Neg 0",
                           "Neg %-1", "Neg %99999999999", "Neg %0 ", "Neg  %0"}) {
    const auto read = parse_fused_code({line}, 2);
    ASSERT_FALSE(read.ok()) << line;
    EXPECT_THAT(base::message_of(read.status()), HasSubstr("step 0 is"));
  }
  EXPECT_FALSE(parse_fused_code({}, 1).ok());
  EXPECT_FALSE(parse_fused_code(std::vector<std::string>(kFusedStepsMax + 1, "Neg %0"), 1).ok());
  EXPECT_FALSE(parse_fused_code({"Neg %0"}, kFusedInputsMax + 1).ok());
}

}  // namespace
}  // namespace sidereal::ir
