#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/exec/executor.h"
#include "sidereal/exec/local_rendezvous.h"
#include "sidereal/ir/component_specs.h"

namespace sidereal::exec {
namespace {

using program::Instruction;
using program::Program;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

const ir::AttrMap kEdge = {
    {"edge", int64_t{7}}, {"peer", int64_t{0}}, {"tensor_name", std::string("x:0")}};
const std::vector<ports::TensorSource> kPeers = {{"/job:ps/replica:0/task:0/device:CPU:0", 0}};

/// A program that sends its only feed.
Program sender() {
  Program out;
  out.slots = {{DType::kFloat32, Shape{-1}, -1}};
  out.feeds = {0};
  out.feed_names = {"x"};
  Instruction send;
  send.op = "Send";
  send.name = "x/send";
  send.attrs = kEdge;
  send.inputs = {0};
  out.instructions = {send};
  return out;
}

/// A program that fetches what it receives.
Program receiver(DType dtype, const Shape& shape) {
  Program out;
  out.slots = {{dtype, shape, -1}};
  Instruction recv;
  recv.op = "Recv";
  recv.name = "x/recv";
  recv.attrs = kEdge;
  recv.attrs.merge(ir::component_attrs({{dtype, shape}}));
  recv.outputs = {0};
  out.instructions = {recv};
  out.fetches = {0};
  out.fetch_names = {"x"};
  return out;
}

class Passing : public ::testing::Test {
 protected:
  Passing() { register_kernels(&kernels_); }

  Step* start(Program program) {
    auto bound = BoundProgram::bind(std::move(program), kernels_, {});
    EXPECT_TRUE(bound.ok()) << bound.status();
    programs_.push_back(std::move(*bound));
    steps_.push_back(std::make_unique<Step>(programs_.back().get(), &pool_, nullptr));
    steps_.back()->set_peers(kPeers);
    steps_.back()->begin(1);
    return steps_.back().get();
  }

  KernelTable kernels_;
  BufferPool pool_{1 << 20};
  std::vector<std::unique_ptr<BoundProgram>> programs_;
  std::vector<std::unique_ptr<Step>> steps_;
  LocalRendezvous rendezvous_;
};

TEST_F(Passing, recv_blocks_until_the_tensor_was_sent_and_says_what_it_waits_for) {
  Step* const to = start(receiver(DType::kFloat32, Shape{-1}));
  Step* const from = start(sender());
  to->set_rendezvous(&rendezvous_);
  from->set_rendezvous(&rendezvous_);
  Result<Step::Progress> progress = to->advance();
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(*progress, Step::Progress::kBlocked);
  EXPECT_EQ(to->waits_for(), "tensor 'x:0' from /job:ps/replica:0/task:0/device:CPU:0");
  ASSERT_TRUE(from->feed(0, Tensor::of(Shape{2}, std::vector<float>{1, 2})).ok());
  ASSERT_TRUE(from->advance().ok());
  EXPECT_EQ(rendezvous_.size(), 1);
  progress = to->advance();
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(*progress, Step::Progress::kDone);
  EXPECT_THAT(to->fetch(0).data<const float>(), ::testing::ElementsAre(1, 2));
  EXPECT_EQ(rendezvous_.size(), 0);
}

TEST_F(Passing, recv_takes_only_what_was_declared) {
  for (Program program :
       {receiver(DType::kFloat32, Shape{3}), receiver(DType::kInt32, Shape{-1})}) {
    Step* const to = start(std::move(program));
    to->set_rendezvous(&rendezvous_);
    ASSERT_TRUE(rendezvous_
                    .send({.edge = 7, .step = 1},
                          ports::TensorGroup{Tensor::of(Shape{2}, std::vector<float>{1, 2})})
                    .ok());
    const Status status = to->advance().status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(base::message_of(status), ::testing::HasSubstr("was declared"));
  }
}

/// A program that receives two tensors and fetches both.
Program receiver_of_two() {
  Program out = receiver(DType::kFloat32, Shape{-1});
  out.slots.push_back({DType::kBool, Shape{}, -1});
  out.instructions[0].outputs = {0, 1};
  out.fetches = {0, 1};
  out.fetch_names = {"x", "y"};
  return out;
}

TEST_F(Passing, several_tensors_go_together) {
  Program program = sender();
  program.slots.push_back({DType::kBool, Shape{}, -1});
  program.feeds = {0, 1};
  program.feed_names = {"x", "y"};
  program.instructions[0].inputs = {0, 1};
  Step* const to = start(receiver_of_two());
  Step* const from = start(std::move(program));
  to->set_rendezvous(&rendezvous_);
  from->set_rendezvous(&rendezvous_);
  ASSERT_TRUE(to->advance().ok());
  EXPECT_EQ(to->waits_for(), "tensor 'x:0' and 1 more from /job:ps/replica:0/task:0/device:CPU:0");
  ASSERT_TRUE(from->feed(0, Tensor::of(Shape{2}, std::vector<float>{1, 2})).ok());
  ASSERT_TRUE(from->feed(1, Tensor::scalar(true)).ok());
  ASSERT_TRUE(from->advance().ok());
  EXPECT_EQ(rendezvous_.size(), 1);
  ASSERT_TRUE(to->advance().ok());
  EXPECT_THAT(to->fetch(0).data<const float>(), ::testing::ElementsAre(1, 2));
  EXPECT_TRUE(to->fetch(1).data<const bool>()[0]);
}

TEST_F(Passing, each_of_several_tensors_is_alive_and_what_was_declared) {
  const Tensor x = Tensor::of(Shape{2}, std::vector<float>{1, 2});
  const Tensor y = Tensor::scalar(true);
  for (const auto& [sent, wrong] :
       {std::pair<ports::TensorGroup, std::string>{{x, Tensor()}, "a dead value as number 1"},
        {{Tensor(), y}, "a dead value as number 0"},
        {{x, x}, "as number 1; bool[] was declared"},
        {{x}, "1 tensors were sent"}}) {
    Step* const to = start(receiver_of_two());
    to->set_rendezvous(&rendezvous_);
    ASSERT_TRUE(rendezvous_.send({.edge = 7, .step = 1}, sent).ok());
    const Status status = to->advance().status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(base::message_of(status), ::testing::HasSubstr(wrong));
  }
}

TEST_F(Passing, a_peer_that_was_not_given_is_an_error) {
  Step* const to = start(receiver(DType::kFloat32, Shape{-1}));
  to->set_rendezvous(&rendezvous_);
  to->set_peers({});
  const Status status = to->advance().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(status), ::testing::HasSubstr("peer 0"));
}

TEST_F(Passing, a_program_that_runs_alone_cannot_receive) {
  const Status status = start(receiver(DType::kFloat32, Shape{-1}))->advance().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace sidereal::exec
