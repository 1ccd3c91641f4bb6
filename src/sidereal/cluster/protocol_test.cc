#include "sidereal/cluster/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sidereal::cluster {
namespace {

TEST(Protocol, names_are_read_back) {
  for (const std::string_view name : protocol_names()) {
    const Result<Protocol> parsed = parse_protocol(name);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(name_of(*parsed), name);
  }
  EXPECT_EQ(*parse_protocol("grpc++"), Protocol::kGrpcPlusPlus);
}

TEST(Protocol, an_unknown_name_is_answered_with_those_that_there_are) {
  const Result<Protocol> parsed = parse_protocol("star_servr");
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(parsed.status()), ::testing::HasSubstr("\"star_server_lite\""));
  EXPECT_FALSE(parse_protocol("").ok());
  EXPECT_FALSE(parse_protocol("GRPC").ok());
}

}  // namespace
}  // namespace sidereal::cluster
