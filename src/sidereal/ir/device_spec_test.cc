#include "sidereal/ir/device_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace sidereal::ir {
namespace {

using testing::HasSubstr;

DeviceSpec spec(std::string_view text) {
  Result<DeviceSpec> out = DeviceSpec::parse(text);
  EXPECT_TRUE(out.ok()) << text << ": " << out.status();
  return out.ok() ? *out : DeviceSpec();
}

std::string again(std::string_view text) { return spec(text).to_string(); }

std::string error_of(std::string_view text) {
  return base::message_of(DeviceSpec::parse(text).status());
}

TEST(DeviceSpec, PrintsItsFieldsInOneOrder) {
  EXPECT_EQ(again("/device:CPU:0/task:3/replica:1/job:ps"),
            "/job:ps/replica:1/task:3/device:CPU:0");
  EXPECT_EQ(again(""), "");
  EXPECT_EQ(again("/"), "");
  EXPECT_EQ(again("/job:worker"), "/job:worker");
  EXPECT_EQ(again("/device:GPU:*"), "/device:GPU:*");
  EXPECT_EQ(again("/device:GPU"), "/device:GPU:*");
  EXPECT_EQ(again("/device:*:2"), "/device:*:2");
  EXPECT_EQ(again("/job:*/replica:*/task:*/device:*:*"), "");
}

TEST(DeviceSpec, OlderNamesOfTypesBecomeUpperCase) {
  EXPECT_EQ(again("/cpu:0"), "/device:CPU:0");
  EXPECT_EQ(again("/gpu:*"), "/device:GPU:*");
  EXPECT_EQ(again("/job:foo/GPU:12"), "/job:foo/device:GPU:12");
  EXPECT_EQ(again("/device:fpga:1"), "/device:fpga:1");
}

TEST(DeviceSpec, SaysWhichPartIsWrong) {
  EXPECT_THAT(error_of("/foo:bar"),
              testing::AllOf(HasSubstr("Malformed device specification '/foo:bar'"),
                             HasSubstr("Unknown attribute 'foo'")));
  EXPECT_THAT(error_of("/cpu:0/gpu:1"), HasSubstr("Multiple device types are not allowed"));
  EXPECT_THAT(error_of("job:ps"), HasSubstr("does not begin with '/'"));
  for (const char* text :
       {"/job:ps/job:ps", "/task:-1", "/task:+1", "/task:1x", "/task:", "/task", "/job:", "/job:9",
        "/job:a-b", "/device:", "/device:CPU:x", "/cpu", "/cpu:", "//", "/job:ps/",
        "/device:CPU:0:1", "/task:99999999999", "/replica:0/replica:*"}) {
    EXPECT_FALSE(DeviceSpec::parse(text).ok()) << text;
  }
}

TEST(DeviceSpec, NamesOfRandomSpecsReadBack) {
  std::mt19937 dice(7);
  const auto coin = [&] { return dice() % 2 == 0; };
  for (int i = 0; i < 500; ++i) {
    DeviceSpec made;
    if (coin()) made.job = "job_" + std::to_string(dice() % 10);
    if (coin()) made.replica = static_cast<int>(dice() % 3);
    if (coin()) made.task = static_cast<int>(dice() % 1000);
    if (coin()) made.device_type = coin() ? "CPU" : "GPU";
    if (coin()) made.device_index = static_cast<int>(dice() % 9);
    EXPECT_EQ(spec(made.to_string()), made) << made.to_string();
  }
}

TEST(DeviceSpec, TheInnerScopeWinsFieldByField) {
  EXPECT_EQ(spec("/job:worker/task:1").merged(spec("/gpu:0")).to_string(),
            "/job:worker/task:1/device:GPU:0");
  EXPECT_EQ(spec("/job:worker/cpu:1").merged(spec("/job:ps")).to_string(), "/job:ps/device:CPU:1");
}

TEST(DeviceSpec, FitsDevicesThatHaveItsFields) {
  const DeviceSpec device = spec("/job:ps/replica:0/task:2/device:CPU:0");
  EXPECT_TRUE(device.is_full());
  for (const char* text : {"", "/job:ps", "/task:2", "/device:CPU:*", "/job:ps/cpu:0"}) {
    EXPECT_TRUE(spec(text).fits(device)) << text;
  }
  for (const char* text : {"/job:worker", "/task:1", "/gpu:0", "/cpu:1"}) {
    EXPECT_FALSE(spec(text).fits(device)) << text;
  }
}

std::string merged(std::string_view a, std::string_view b, MergeConflicts conflicts) {
  const Result<DeviceSpec> out = merge_devices(spec(a), spec(b), conflicts);
  return out.ok() ? out->to_string() : base::message_of(out.status());
}

TEST(DeviceSpec, MergingRefusesWhatContradicts) {
  constexpr auto kRefuse = MergeConflicts::kRefuse;
  EXPECT_EQ(merged("/job:ps", "/task:1/gpu:0", kRefuse), "/job:ps/task:1/device:GPU:0");
  EXPECT_THAT(merged("/job:a", "/job:b", kRefuse),
              HasSubstr("Cannot merge devices with incompatible jobs: '/job:a' and '/job:b'"));
  EXPECT_THAT(merged("/replica:0", "/replica:1", kRefuse), HasSubstr("incompatible replicas"));
  EXPECT_THAT(merged("/task:0", "/task:1", kRefuse), HasSubstr("incompatible tasks"));
  EXPECT_THAT(merged("/cpu:0", "/gpu:0", kRefuse), HasSubstr("incompatible types"));
  EXPECT_THAT(merged("/gpu:0", "/gpu:1", kRefuse), HasSubstr("incompatible ids"));
}

TEST(DeviceSpec, SoftMergingLeavesTypeAndIndexOpen) {
  constexpr auto kSoft = MergeConflicts::kSoft;
  EXPECT_EQ(merged("/job:a/cpu:0", "/gpu:0", kSoft), "/job:a");
  EXPECT_EQ(merged("/job:a/gpu:0", "/gpu:1", kSoft), "/job:a/device:GPU:*");
  EXPECT_THAT(merged("/job:a", "/job:b", kSoft), HasSubstr("incompatible jobs"));
  EXPECT_EQ(merged("/job:a/gpu:0", "/job:b/cpu:1", MergeConflicts::kOtherWins),
            "/job:b/device:CPU:1");
}

TEST(DeviceSpec, CanonicalNamesTakeWhatIsOpenFromTheBase) {
  const std::string base = "/job:foo/replica:10/task:0/device:CPU:0";
  EXPECT_EQ(*canonical_device_name("/cpu:1", base), "/job:foo/replica:10/task:0/device:CPU:1");
  EXPECT_EQ(*canonical_device_name("/job:ps/task:2", base),
            "/job:ps/replica:10/task:2/device:CPU:0");
  EXPECT_THAT(base::message_of(canonical_device_name("/cpu:1", "/job:foo").status()),
              HasSubstr("does not name one device"));
  EXPECT_FALSE(canonical_device_name("cpu", base).ok());
}

TEST(DeviceSpec, DevicesOfOneTaskShareAnAddressSpace) {
  const DeviceSpec a = spec("/job:ps/replica:0/task:2/device:CPU:0");
  EXPECT_TRUE(is_same_address_space(a, spec("/job:ps/replica:0/task:2/device:GPU:1")));
  EXPECT_FALSE(is_same_address_space(a, spec("/job:ps/replica:0/task:1/device:CPU:0")));
  EXPECT_FALSE(is_same_address_space(a, spec("/job:ps/replica:1/task:2/device:CPU:0")));
  EXPECT_FALSE(is_same_address_space(spec("/cpu:0"), spec("/cpu:0")));
}

}  // namespace
}  // namespace sidereal::ir
