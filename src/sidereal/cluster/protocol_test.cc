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

TEST(Protocol, of_two_places_is_one) {
  const auto agreed = [](const char* given, const char* rpc_layer) {
    const auto both = agree_on_protocol(given, rpc_layer, "TF_CONFIG");
    return both.ok() ? *both : std::string(base::message_of(both.status()));
  };
  EXPECT_EQ(agreed("", ""), "");
  EXPECT_EQ(agreed("grpc++", ""), "grpc++");
  EXPECT_EQ(agreed("", "star_server"), "star_server");
  EXPECT_EQ(agreed("star_server", "star_server"), "star_server");
  EXPECT_EQ(agreed("grpc", "star_server"),
            "the protocol is \"grpc\" and TF_CONFIG says \"star_server\" (rpc_layer); say the "
            "same, or leave one out");
  EXPECT_THAT(agreed("", "rdma"), ::testing::StartsWith("TF_CONFIG: rpc_layer: there is no"));
  EXPECT_THAT(agreed("rdma", ""), ::testing::HasSubstr("\"rdma\""));
}

}  // namespace
}  // namespace sidereal::cluster
