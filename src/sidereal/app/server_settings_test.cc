#include "sidereal/app/server_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "sidereal/sys/posix/cpus.h"

namespace sidereal::app {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

Result<ServerOptions> complete(const std::string& job, const ServerSettings& given,
                               const Variables& variables,
                               cluster::Protocol protocol = cluster::Protocol::kStarServer) {
  ServerOptions options{.cluster = {}, .job = job, .protocol = protocol};
  const Environment environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  SR_RETURN_IF_ERROR(complete_settings(given, environment, &options));
  return options;
}

/// "lanes=2 (NETWORK_PS_CORE_NUMBER) ..."
std::string report(const Result<ServerOptions>& options) {
  EXPECT_TRUE(options.ok()) << options.status();
  std::string out;
  for (const SettingReport& one : report_settings(*options)) {
    out += fmt::format("{}={} ({}) ", one.name, one.value, one.from);
  }
  return out;
}

std::string error_of(const Variables& variables, const ServerSettings& given = {}) {
  const auto options = complete("ps", given, variables);
  EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument);
  return std::string(base::message_of(options.status()));
}

TEST(ServerSettings, without_a_word_are_the_defaults) {
  EXPECT_EQ(report(complete("worker", {}, {})),
            "lanes=1 (default) spin_us=adaptive (default) pin_cores=false (default) "
            "connect_deadline_ms=10000 (default) endpoint_map_path=none (default) "
            "shared_memory=true (default) ");
  // An empty variable says nothing.
  EXPECT_THAT(report(complete("ps", {}, {{"PS_ENABLE_POLLING", ""}})),
              HasSubstr("spin_us=adaptive (default)"));
}

TEST(ServerSettings, of_the_environment_are_those_of_the_job) {
  const Variables all = {{"WORKER_ENABLE_POLLING", "TRUE"},
                         {"PS_ENABLE_POLLING", "False"},
                         {"NETWORK_PS_CORE_NUMBER", "1"},
                         {"WORKER_DISABLE_PIN_CORES", "1"},
                         {"PS_DISABLE_PIN_CORES", "0"},
                         {"NETWORK_MAX_CONNECTION_TIMEOUT", "120000"},
                         {"TF_SEASTAR_ENDPOINT_MAP_PATH", "/maps"}};
  for (const char* job : {"worker", "chief"}) {
    EXPECT_EQ(report(complete(job, {}, all)),
              "lanes=1 (default) spin_us=always (WORKER_ENABLE_POLLING) "
              "pin_cores=false (WORKER_DISABLE_PIN_CORES) "
              "connect_deadline_ms=120000 (NETWORK_MAX_CONNECTION_TIMEOUT) "
              "endpoint_map_path=/maps (TF_SEASTAR_ENDPOINT_MAP_PATH) "
              "shared_memory=true (default) ");
  }
  for (const char* job : {"ps", "evaluator", "other"}) {
    EXPECT_THAT(report(complete(job, {}, all)),
                AllOf(HasSubstr("lanes=1 (NETWORK_PS_CORE_NUMBER)"),
                      HasSubstr("spin_us=adaptive (PS_ENABLE_POLLING)"),
                      HasSubstr("pin_cores=true (PS_DISABLE_PIN_CORES)")));
  }
}

TEST(ServerSettings, that_were_given_go_before_the_environment) {
  const Variables all = {{"WORKER_ENABLE_POLLING", "true"},
                         {"NETWORK_WORKER_CORE_NUMBER", "1"},
                         {"WORKER_DISABLE_PIN_CORES", "false"},
                         {"NETWORK_MAX_CONNECTION_TIMEOUT", "5"},
                         {"TF_SEASTAR_ENDPOINT_MAP_PATH", "/maps"}};
  EXPECT_EQ(report(complete("worker",
                            {.polling = false,
                             .lanes = 7,
                             .pin_cores = false,
                             .connect_deadline_ms = 6,
                             .endpoint_map_path = "/mine",
                             .shared_memory = false},
                            all)),
            "lanes=7 (option) spin_us=adaptive (option) pin_cores=false (option) "
            "connect_deadline_ms=6 (option) endpoint_map_path=/mine (option) "
            "shared_memory=false (option) ");
  EXPECT_THAT(report(complete("worker", {.spin_us = 20}, all)), HasSubstr("spin_us=20 (option)"));
}

TEST(ServerSettings, of_the_environment_ask_for_no_more_cores_than_there_are) {
  const int usable = sys::posix::usable_cpus().count();
  const auto options = complete("ps", {}, {{"NETWORK_PS_CORE_NUMBER", "256"}});
  EXPECT_THAT(report(options), HasSubstr(fmt::format("lanes={} (NETWORK_PS_CORE_NUMBER", usable)));
}

TEST(ServerSettings, give_a_ps_that_is_called_half_of_the_processors) {
  const int half = std::clamp(sys::posix::usable_cpus().count() / 2, 1, 16);
  EXPECT_EQ(complete("ps", {}, {})->lanes, half);
  EXPECT_EQ(complete("ps", {}, {}, cluster::Protocol::kGrpcPlusPlus)->lanes, 1);
  EXPECT_EQ(complete("worker", {}, {})->lanes, 1);
}

TEST(ServerSettings, of_a_ps_say_how_many_replicas_there_are) {
  const Variables two = {{"PS_REPLICAS", "2"}};
  EXPECT_EQ(complete("ps", {}, {})->data.replicas, 1);
  EXPECT_EQ(complete("ps", {}, two, cluster::Protocol::kGrpc)->data.replicas, 2);
  EXPECT_EQ(complete("ps", {.replicas = 3}, two)->data.replicas, 3);
  EXPECT_EQ(complete("worker", {}, two)->data.replicas, 1);
  const Variables both = {{"PS_REPLICAS", "3"}, {"PS_MIN_INSYNC_REPLICAS", "2"}};
  EXPECT_EQ(complete("ps", {}, two)->data.min_insync_replicas, 1);
  EXPECT_EQ(complete("ps", {}, both)->data.min_insync_replicas, 2);
  EXPECT_EQ(complete("ps", {.min_insync_replicas = 3}, both)->data.min_insync_replicas, 3);
  EXPECT_THAT(error_of({{"PS_REPLICAS", "0"}}),
              HasSubstr("PS_REPLICAS is '0'; it must be a whole number from 1"));
}

TEST(ServerSettings, that_cannot_be_are_named_with_what_can) {
  EXPECT_EQ(error_of({{"PS_ENABLE_POLLING", "yes"}}),
            "PS_ENABLE_POLLING is 'yes'; it must be true, false, 1 or 0");
  EXPECT_EQ(error_of({{"PS_DISABLE_PIN_CORES", "2"}}),
            "PS_DISABLE_PIN_CORES is '2'; it must be true, false, 1 or 0");
  for (const char* wrong : {"0", "257", "two", "-1", "99999999999999999999"}) {
    EXPECT_EQ(error_of({{"NETWORK_PS_CORE_NUMBER", wrong}}),
              fmt::format("NETWORK_PS_CORE_NUMBER is '{}'; it must be a whole number from 1 to 256",
                          wrong));
  }
  EXPECT_THAT(error_of({{"NETWORK_MAX_CONNECTION_TIMEOUT", "0"}}),
              HasSubstr("NETWORK_MAX_CONNECTION_TIMEOUT is '0'; it must be a whole number from 1"));
  EXPECT_THAT(error_of({}, {.lanes = 0}), HasSubstr("lanes is 0"));
  EXPECT_THAT(error_of({}, {.connect_deadline_ms = 0}), HasSubstr("connect_deadline_ms is 0"));
  EXPECT_THAT(error_of({}, {.polling = true, .spin_us = 50}),
              HasSubstr("polling is true and spin_us is 50"));
  // Variables of other jobs are not looked at, nor any with "grpc".
  EXPECT_TRUE(complete("ps", {}, {{"WORKER_ENABLE_POLLING", "yes"}}).ok());
  EXPECT_TRUE(complete("ps", {}, {{"PS_ENABLE_POLLING", "yes"}}, cluster::Protocol::kGrpc).ok());
  EXPECT_EQ(complete("ps", {.lanes = 3}, {}, cluster::Protocol::kGrpc)->lanes, 3);
  EXPECT_FALSE(complete("ps", {.lanes = 0}, {}, cluster::Protocol::kGrpc).ok());
}

TEST(ServerSettings, find_a_map_in_the_working_directory) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::string folder = ::testing::TempDir() + "settings_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::filesystem::current_path(folder);
  std::ofstream(".endpoint_map") << "a:1=b:2\n";
  EXPECT_THAT(report(complete("ps", {}, {})),
              HasSubstr("endpoint_map_path=. (the working directory)"));
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sidereal::app
