#include <gtest/gtest.h>

#include "sidereal/exec/testing/random_control.h"
#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"

// Random nests of calls, branches and loops must give what they give written out, in value, in
// gradient and in gradient of gradient.
namespace sidereal::exec {
namespace {

using ir::Tensor;

std::vector<Tensor> run(const ControlModel& made, const reference::Values& feeds) {
  const Status verified = ir::verify(made.graph, test_registry());
  EXPECT_TRUE(verified.ok()) << base::message_of(verified);
  const auto step = compile_for_test(made.graph, made.fetches);
  EXPECT_TRUE(step.ok()) << base::message_of(step.status());
  if (!step.ok()) return {};
  auto decoded = program::decode(program::encode(*step));
  EXPECT_TRUE(decoded.ok()) << base::message_of(decoded.status());
  if (!decoded.ok()) return {};
  BufferPool pool(size_t{1} << 30);
  auto bound = BoundProgram::bind(*std::move(decoded), all_kernels(), {});
  EXPECT_TRUE(bound.ok()) << base::message_of(bound.status());
  if (!bound.ok()) return {};
  Step running(bound->get(), &pool, nullptr);
  std::vector<Tensor> out;
  for (uint64_t id = 1; id <= 2; ++id) {
    const auto got = run_step(&running, (*bound)->program(), feeds, id);
    EXPECT_TRUE(got.ok()) << base::message_of(got.status());
    if (got.ok()) out = *got;
  }
  return out;
}

void compare(uint32_t first, uint32_t count, int depth, bool second) {
  size_t most_functions = 0;
  for (uint32_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    const PiecePtr piece = random_piece(dice, depth, second);
    const reference::Values feeds = control_feeds(dice);
    const ControlModel nested = make_control(*piece, false, second);
    most_functions = std::max(most_functions, nested.graph.functions().size());
    const auto got = run(nested, feeds);
    const auto want = run(make_control(*piece, true, second), feeds);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(fmt::format("fetch {}", i));
      expect_close(got[i], want[i], 1e-9);
    }
    // And as text, which is how graphs travel.
    const auto read = ir::from_text(ir::to_text(nested.graph), test_registry());
    ASSERT_TRUE(read.ok()) << base::message_of(read.status());
    EXPECT_EQ(ir::to_text(*read), ir::to_text(nested.graph));
    if (testing::Test::HasFailure()) return;
  }
  fmt::print("{} nests, up to {} functions in one graph\n", count, most_functions);
}

TEST(RandomControlFlow, EqualsItsWrittenOutFormInValueAndGradient) { compare(1, 150, 3, false); }

TEST(RandomControlFlow, EqualsItsWrittenOutFormInSecondGradients) { compare(1000, 60, 2, true); }

}  // namespace
}  // namespace sidereal::exec
