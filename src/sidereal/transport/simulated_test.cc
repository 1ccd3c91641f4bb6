#include "sidereal/transport/testing/simulated_fixture.h"

/// What the simulation of whole clusters (./dev sim) has found, one situation each.
namespace sidereal::transport {
namespace {

using sys::kSecond;
using testing::SimulatedTest;

struct Nothing : CallHandler {
  void on_call(const Connection&, const Call&, std::span<tensor::Tensor>) override {}
};

class FoundBySimulation : public SimulatedTest {
 protected:
  Nothing nothing_;
  std::vector<Status> heard_;
};

TEST_F(FoundBySimulation, AKeptChannelIsBackSoonAfterALongCut) {
  start_server(&nothing_);
  start_client();
  channel_ = Channel::create(client_->end.get(), peer());
  channel_->keep_connected([this](const Status& status) { heard_.push_back(status); });
  run(kSecond);
  ASSERT_EQ(heard_.size(), 1u);
  world_->cut(server_host_);
  run(40 * kSecond);
  EXPECT_FALSE(channel_->connected());
  world_->heal(server_host_);
  // The kernel would send its next first packet only after half a minute.
  run(3 * kSecond);
  EXPECT_TRUE(channel_->connected());
}

}  // namespace
}  // namespace sidereal::transport
