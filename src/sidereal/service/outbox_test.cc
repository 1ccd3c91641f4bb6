#include "sidereal/service/internal/outbox.h"

#include <gtest/gtest.h>

#include <vector>

#include "sidereal/service/session.grpc.pb.h"

namespace sidereal::service {
namespace {

using session::v1::StepReply;

/// Whether each message that is in `outbox` waits for those after it.
std::vector<bool> which_wait(Outbox<StepReply>* outbox) {
  std::vector<bool> out;
  StepReply message;
  while (!outbox->empty()) out.push_back(outbox->next(&message).get_buffer_hint());
  return out;
}

TEST(Outbox, has_what_is_there_leave_together_but_the_first_of_a_stream) {
  Outbox<StepReply> outbox;
  // The first one would wait for ever: gRPC takes the next when that has left.
  for (int i = 0; i < 3; ++i) outbox.put(i, tensor::Tensor::scalar(1.0F));
  EXPECT_EQ(which_wait(&outbox), (std::vector<bool>{false, true, false}));
  for (int i = 0; i < 3; ++i) outbox.put(StepReply());
  EXPECT_EQ(which_wait(&outbox), (std::vector<bool>{true, true, false}));
  outbox.put(StepReply());
  EXPECT_EQ(which_wait(&outbox), (std::vector<bool>{false}));
}

}  // namespace
}  // namespace sidereal::service
