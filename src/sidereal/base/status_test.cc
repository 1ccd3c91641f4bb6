#include "sidereal/base/status.h"

#include <gtest/gtest.h>

namespace sidereal::base {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return invalid_argument("{} is odd", n);
  return n / 2;
}

Result<int> quarter(int n) {
  SR_ASSIGN_OR_RETURN(const int h, half(n));
  return half(h);
}

TEST(Status, ContextIsPutBeforeTheMessageAndTheCodeStays) {
  const Status status = with_context(not_found("table '{}'", "user"), "while restoring");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(message_of(status), "while restoring: table 'user'");
  EXPECT_TRUE(with_context(Status(), "x").ok());
}

TEST(Status, AssignOrReturnPassesErrorsUp) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).status().code(), StatusCode::kInvalidArgument);
  EXPECT_STREQ(code_name(quarter(6).status().code()), "INVALID_ARGUMENT");
}

}  // namespace
}  // namespace sidereal::base
