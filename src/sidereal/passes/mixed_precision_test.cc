#include "sidereal/passes/mixed_precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/fuse.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/passes/prune.h"
#include "sidereal/passes/testing/lines.h"

// Goldens of what becomes of products. That results are those of float32, as far as bfloat16 goes,
// is tested where programs run, in exec.
namespace sidereal::passes {
namespace {

using ir::DType;
using ir::Output;
using testing::ElementsAre;

class MixedPrecisionTest : public testing::Test {
 protected:
  MixedPrecisionTest() { ops::register_all(&registry_); }

  Output input(const char* name, const ir::Shape& shape, DType dtype = DType::kFloat32) {
    return ops::placeholder(b_, name, dtype, shape);
  }

  std::vector<std::string> nodes_of(const Result<StepGraph>& step) {
    return lines_of(step, registry_, ShowDtypes::kYes);
  }

  /// The passes as the pipeline runs them one after the other.
  std::vector<std::string> all_of(const StepGraph& step) {
    const Result<StepGraph> lowered = lower_products(*prune(step), registry_);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    const Result<StepGraph> fused = fuse(*lowered, registry_);
    EXPECT_TRUE(fused.ok()) << fused.status();
    return nodes_of(absorb_casts(*fused, registry_));
  }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
};

TEST_F(MixedPrecisionTest, a_product_reads_bfloat16_and_gives_float32) {
  const Output x = input("x", {-1, 4});
  const Output w = input("w", {4, 3});
  const Output y = ops::mat_mul(b_, x, w, false, false, "y");
  const Output z = ops::mat_mul(b_, y, w, false, true, "z");
  const Output mean = ops::reduce_mean(b_, y, {}, false, "mean");
  EXPECT_THAT(nodes_of(lower_products({graph_, {z, mean}, {}}, registry_)),
              ElementsAre("x/bfloat16 b16 = Cast x", "w/bfloat16 b16 = Cast w",
                          "y f32 = MatMul x/bfloat16 w/bfloat16", "y/bfloat16 b16 = Cast y",
                          "z f32 = MatMul y/bfloat16 w/bfloat16", "mean f32 = ReduceMean y"));
}

TEST_F(MixedPrecisionTest, activations_and_their_gradients_live_in_bfloat16) {
  const Output x = input("x", {-1, 4});
  const Output v = input("v", {4, 5});
  const Output w = input("w", {5, 1});
  const Output bias = input("bias", {5});
  const Output y = ops::relu(b_, ops::bias_add(b_, ops::mat_mul(b_, x, v), bias), "y");
  const Output z = ops::mat_mul(b_, y, w, false, false, "z");
  const Output dz = input("dz", {-1, 1});
  const Output dy = ops::mat_mul(b_, dz, w, false, true, "dy");
  const Output dw = ops::mat_mul(b_, y, dz, true, false, "dw");
  const Output g = b_.add("ReluGrad", {dy, y}, {}, "g");
  const Output db = b_.add("BiasAddGrad", {g}, {}, "db");
  const Output dv = ops::mat_mul(b_, x, g, true, false, "dv");
  EXPECT_THAT(
      all_of({graph_, {z, dw, db, dv}, {}}),
      ElementsAre("x/bfloat16 b16 = Cast x", "v/bfloat16 b16 = Cast v", "w/bfloat16 b16 = Cast w",
                  "y/bfloat16 b16 = FusedMatMul x/bfloat16 v/bfloat16 bias; Relu",
                  "z f32 = MatMul y/bfloat16 w/bfloat16", "dz/bfloat16 b16 = Cast dz",
                  "dy/bfloat16 b16 = MatMul dz/bfloat16 w/bfloat16",
                  "dw f32 = MatMul y/bfloat16 dz/bfloat16",
                  "g/bfloat16 b16 = FusedElementwise dy/bfloat16 y/bfloat16; ReluGrad %0 %1",
                  "db f32 = BiasAddGrad g/bfloat16", "dv f32 = MatMul x/bfloat16 g/bfloat16"));
}

TEST_F(MixedPrecisionTest, what_is_fetched_or_reduced_stays_float32) {
  const Output x = input("x", {-1, 4});
  const Output w = input("w", {4, 4});
  const Output y = ops::relu(b_, ops::mat_mul(b_, x, w), "y");
  const Output z = ops::mat_mul(b_, y, w, false, false, "z");
  const std::vector<std::string> nodes = all_of({graph_, {z, y}, {}});
  EXPECT_THAT(nodes, testing::Contains("y f32 = Relu MatMul"));
  const Output sum = ops::reduce_sum(b_, y, {}, false, "sum");
  EXPECT_THAT(all_of({graph_, {z, sum}, {}}), testing::Contains("y f32 = Relu MatMul"));
  EXPECT_THAT(all_of({graph_, {z}, {}}),
              testing::Contains("y/bfloat16 b16 = FusedElementwise MatMul/bfloat16; Relu %0"));
}

TEST_F(MixedPrecisionTest, what_products_alone_read_is_moved_in_bfloat16) {
  const Output x = input("x", {-1, 4});
  const Output y = input("y", {-1, 4});
  const Output both = b_.add("Stack", {x, y}, {{"axis", int64_t{1}}}, "both");
  const Output flat = ops::reshape(b_, both, {-1, 8}, "flat");
  const Output z = ops::mat_mul(b_, flat, input("w", {8, 3}), false, false, "z");
  EXPECT_THAT(all_of({graph_, {z}, {}}),
              ElementsAre("x/bfloat16 b16 = Cast x", "y/bfloat16 b16 = Cast y",
                          "both b16 = Stack x/bfloat16 y/bfloat16", "flat b16 = Reshape both",
                          "w/bfloat16 b16 = Cast w", "z f32 = MatMul flat w/bfloat16"));
  // Somebody needs all of it.
  EXPECT_THAT(all_of({graph_, {z, both}, {}}),
              ElementsAre("both f32 = Stack x y", "both/bfloat16 b16 = Cast both",
                          "flat b16 = Reshape both/bfloat16", "w/bfloat16 b16 = Cast w",
                          "z f32 = MatMul flat w/bfloat16"));
}

TEST_F(MixedPrecisionTest, a_lookup_rounds_the_rows_it_reads) {
  const Output table = input("table", {100, 8});
  const Output ids = input("ids", {-1}, DType::kInt64);
  const Output rows = b_.add("Gather", {table, ids}, {}, "rows");
  const Output z = ops::mat_mul(b_, rows, input("w", {8, 3}), false, false, "z");
  EXPECT_THAT(all_of({graph_, {z}, {}}),
              ElementsAre("rows/bfloat16 b16 = Gather table ids", "w/bfloat16 b16 = Cast w",
                          "z f32 = MatMul rows/bfloat16 w/bfloat16"));
}

TEST_F(MixedPrecisionTest, what_a_ps_holds_is_rounded_where_it_is_read) {
  const Output x = input("x", {-1, 4});
  const Output w = input("w", {4, 3});
  graph_.mutable_node(w.node).device = "/ps";
  const Output z = ops::mat_mul(b_, x, w, false, false, "z");
  const Result<StepGraph> lowered = lower_products({graph_, {z}, {}}, registry_);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->graph.find("w/bfloat16")->device, graph_.node(z.node).device);
  EXPECT_NE(lowered->graph.find("w/bfloat16")->device, graph_.node(w.node).device);
}

TEST_F(MixedPrecisionTest, other_dtypes_and_stacks_of_vectors_are_left_alone) {
  const Output d = input("d", {4, 4}, DType::kFloat64);
  const Output i = input("i", {4, 4}, DType::kInt32);
  const Output rows = input("rows", {-1, 1, 50});
  const Output keys = input("keys", {-1, 50, 8});
  const Output a = ops::mat_mul(b_, d, d, false, false, "a");
  const Output b = ops::mat_mul(b_, i, i, false, false, "b");
  const Output c = ops::mat_mul(b_, rows, keys, false, false, "c");
  const StepGraph step{graph_, {a, b, c}, {}};
  EXPECT_EQ(ir::to_text(lower_products(step, registry_)->graph), ir::to_text(graph_));
}

TEST_F(MixedPrecisionTest, the_pipeline_does_it_when_asked) {
  const Output x = input("x", {-1, 4});
  const Output w = input("w", {4, 3});
  const Output y = ops::mat_mul(b_, x, w, false, false, "y");
  const auto first = [&](DType dtype) {
    const Result<StepGraph> plan = run_passes(graph_, {y}, {}, registry_, {.compute_dtype = dtype});
    EXPECT_TRUE(plan.ok()) << plan.status();
    const ir::Node& node = plan->graph.node(plan->fetches[0].node);
    return plan->graph.spec(node.inputs[0]).dtype;
  };
  EXPECT_EQ(first(DType::kFloat32), DType::kFloat32);
  EXPECT_EQ(first(DType::kBFloat16), DType::kBFloat16);
  EXPECT_EQ(*parse_compute_dtype("bfloat16"), DType::kBFloat16);
  EXPECT_EQ(parse_compute_dtype("float16").status().code(), base::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::passes
