#include "sidereal/cli/security_options.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace sidereal::cli {
namespace {

/// Sets variables of the environment for one test.
class SecurityOptionsTest : public testing::Test {
 protected:
  void SetUp() override { TearDown(); }
  void TearDown() override {
    unsetenv("SIDEREAL_SECRET_FILE");
    unsetenv("SIDEREAL_SECRET");
  }
};

TEST_F(SecurityOptionsTest, WithoutOptionsTheEnvironmentNamesTheSecret) {
  setenv("SIDEREAL_SECRET_FILE", "cluster.secret", 1);
  const auto all = complete_security_options({});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->secret_file, "cluster.secret");
}

TEST_F(SecurityOptionsTest, ASecretItselfMayStandInTheEnvironment) {
  setenv("SIDEREAL_SECRET", "sixteen bytes or", 1);
  const auto all = complete_security_options({});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->secret, "sixteen bytes or");
}

TEST_F(SecurityOptionsTest, WhatIsSaidInArgumentsCountsAlone) {
  setenv("SIDEREAL_SECRET_FILE", "cluster.secret", 1);
  EXPECT_EQ(complete_security_options({.insecure = true})->secret_file, "");
  EXPECT_EQ(complete_security_options({.secret_file = "other"})->secret_file, "other");
}

TEST_F(SecurityOptionsTest, TwoSecretsInTheEnvironmentAreOneTooMany) {
  setenv("SIDEREAL_SECRET_FILE", "cluster.secret", 1);
  setenv("SIDEREAL_SECRET", "sixteen bytes or", 1);
  const auto all = complete_security_options({});
  EXPECT_EQ(all.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(base::message_of(all.status()).find("sixteen"), std::string::npos);
}

}  // namespace
}  // namespace sidereal::cli
