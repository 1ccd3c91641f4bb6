#include "sidereal/passes/concat_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/fuse.h"
#include "sidereal/passes/prune.h"

// Goldens of graphs in which nothing is concatenated. That results stay the same is tested where
// programs run: exec/concat_product_test.cc.
namespace sidereal::passes {
namespace {

using ir::DType;
using ir::Output;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class ConcatProductsTest : public testing::Test {
 protected:
  ConcatProductsTest() { ops::register_all(&registry_); }

  Output input(const char* name, const ir::Shape& shape, DType dtype = DType::kFloat32) {
    return ops::placeholder(b_, name, dtype, shape);
  }

  static std::string text_of(const std::vector<int64_t>& numbers) {
    return fmt::format(" [{}]", fmt::join(numbers, ","));
  }

  /// The nodes of pruned, fused, split and joined `fetches` behind the placeholders, as
  /// "name = Op(inputs)" with what a reshape or the pieces of a product are.
  std::vector<std::string> passed(const std::vector<Output>& fetches) {
    EXPECT_TRUE(b_.status().ok()) << b_.status();
    Result<StepGraph> step = prune({graph_, fetches, {}});
    if (step.ok()) step = fuse(*step, registry_);
    if (step.ok()) step = split_products(*step, registry_);
    if (step.ok()) step = join_products(*step, registry_);
    EXPECT_TRUE(step.ok()) << step.status();
    std::vector<std::string> out;
    if (!step.ok()) return out;
    const Status status = ir::verify(step->graph, registry_);
    EXPECT_TRUE(status.ok()) << base::message_of(status);
    for (const ir::Node& node : step->graph.nodes()) {
      if (node.op == "Placeholder") continue;
      std::string line = fmt::format("{} = {}", node.name, node.op);
      for (const Output& in : node.inputs) line += " " + step->graph.output_name(in);
      for (const char* attr : {"begins", "sizes", "shape"}) {
        const auto* numbers = ir::find_attr<std::vector<int64_t>>(node.attrs, attr);
        if (numbers != nullptr) line += text_of(*numbers);
      }
      if (ir::attr_or(node.attrs, "bias", false)) line += "; bias";
      const auto activation = ir::attr_or<std::string>(node.attrs, "activation", "");
      if (!activation.empty()) line += "; " + activation;
      out.push_back(line);
    }
    return out;
  }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
};

TEST_F(ConcatProductsTest, a_layer_and_its_gradients_read_and_write_the_parts) {
  const Output x = input("x", {-1, 50, 32});
  const Output y = input("y", {-1, 50, 48});
  const Output w = input("w", {80, 16});
  const Output joined = ops::concat(b_, {x, y}, -1, "joined");
  const Output flat = ops::reshape(b_, joined, {-1, 80}, "flat");
  const Output sum = ops::bias_add(b_, ops::mat_mul(b_, flat, w), input("bias", {16}), "sum");
  const Output z = ops::relu(b_, sum, "z");
  const Output dz = input("dz", {-1, 16});
  const Output dw = ops::mat_mul(b_, flat, dz, true, false, "dw");
  const Output back = ops::mat_mul(b_, dz, w, false, true, "back");
  const Output shaped = b_.add("ReshapeLike", {back, joined});
  const Output dx = ops::neg(b_, ops::slice_axis(b_, shaped, 2, 0, 32, "first"), "dx");
  const Output dy = ops::neg(b_, ops::slice_axis(b_, shaped, -1, 32, 48, "second"), "dy");
  EXPECT_THAT(
      passed({z, dw, dx, dy}),
      ElementsAre("z = ConcatMatMul x y w bias; bias; Relu", "dw = TransposedConcatMatMul x y dz",
                  "back = MatMulSplit dz w [0,32] [32,48]", "first = Reshape back [-1,50,32]",
                  "dx = Neg first", "second = Reshape back:1 [-1,50,48]", "dy = Neg second"));
}

TEST_F(ConcatProductsTest, what_was_broadcast_is_read_as_it_was) {
  const Output x = input("x", {-1, 1, 8});
  const Output y = input("y", {-1, -1, 64});
  const Output spread = b_.add("BroadcastLike", {x, ops::slice_axis(b_, y, 2, 0, 8, "like")});
  const Output flat = ops::reshape(b_, ops::concat(b_, {spread, y}, 2), {-1, 72});
  const Output z = ops::mat_mul(b_, flat, input("w", {72, 4}), false, false, "z");
  EXPECT_THAT(passed({z}), ElementsAre("z = ConcatMatMul x y w"));
}

TEST_F(ConcatProductsTest, an_activation_that_alone_reads_a_product_becomes_part_of_it) {
  const Output x = input("x", {-1, 32});
  const Output joined = ops::concat(b_, {x, input("y", {-1, 40})}, 1);
  const Output w = input("w", {72, 4});
  const Output sum = ops::bias_add(b_, ops::mat_mul(b_, joined, w), input("bias", {4}), "sum");
  const Output z = ops::sigmoid(b_, sum, "z");
  EXPECT_THAT(passed({z}), ElementsAre("z = ConcatMatMul x y w bias; bias; Sigmoid"));
  EXPECT_THAT(
      passed({z, ops::square(b_, sum, "s")}),
      ElementsAre("sum = ConcatMatMul x y w bias; bias", "z = Sigmoid sum", "s = Square sum"));
  const Output t = ops::tanh(b_, ops::mat_mul(b_, joined, w, false, false, "m"), "t");
  EXPECT_THAT(passed({t}), ElementsAre("t = ConcatMatMul x y w; Tanh"));
}

TEST_F(ConcatProductsTest, pieces_take_the_shapes_of_parts_where_these_are_not_known) {
  const Output x = input("x", {-1, -1, 32});
  const Output y = input("y", {-1, -1, 48});
  const Output joined = ops::concat(b_, {x, y}, 2, "joined");
  const Output back =
      ops::mat_mul(b_, input("dz", {-1, 16}), input("w", {80, 16}), false, true, "back");
  const Output shaped = b_.add("ReshapeLike", {back, joined});
  const Output dy = ops::neg(b_, ops::slice_axis(b_, shaped, 2, 32, 48, "second"), "dy");
  EXPECT_THAT(passed({dy}), ElementsAre("back = MatMulSplit dz w [32] [48]",
                                        "second = ReshapeLike back y", "dy = Neg second"));
}

TEST_F(ConcatProductsTest, what_is_read_in_another_way_or_narrow_stays) {
  const Output x = input("x", {-1, 32});
  const Output w = input("w", {64, 4});
  const Output kept = ops::concat(b_, {x, x}, 1, "kept");
  const Output z = ops::mat_mul(b_, kept, w, false, false, "z");
  EXPECT_THAT(passed({kept, z}), ElementsAre("kept = Concat x x", "z = MatMul kept w"));
  EXPECT_THAT(passed({z, ops::neg(b_, kept, "n")}), Contains("kept = Concat x x"));
  const Output narrow = ops::concat(b_, {x, input("y", {-1, 31})}, 1, "narrow");
  const Output v = input("v", {63, 4});
  EXPECT_THAT(passed({ops::mat_mul(b_, narrow, v, false, false, "u")}),
              ElementsAre("narrow = Concat x y", "u = MatMul narrow v"));
  const Output below = ops::concat(b_, {x, x}, 0, "below");
  EXPECT_THAT(passed({ops::mat_mul(b_, below, input("t", {32, 4}), false, false, "s")}),
              Contains("below = Concat x x"));
  const Output few = input("few", {8, 32});
  EXPECT_THAT(passed({ops::mat_mul(b_, ops::concat(b_, {few, few}, 1, "r"), w)}),
              Contains("r = Concat few few"));
}

TEST_F(ConcatProductsTest, a_product_that_is_read_as_a_whole_is_not_split) {
  const Output dz = input("dz", {-1, 16});
  const Output back = ops::mat_mul(b_, dz, input("w", {80, 16}), false, true, "back");
  const Output piece = ops::slice_axis(b_, back, 1, 0, 40, "piece");
  EXPECT_THAT(passed({piece, ops::neg(b_, back, "n")}), Contains(HasSubstr("MatMul dz w")));
  EXPECT_THAT(passed({ops::neg(b_, piece, "m")}),
              ElementsAre("back = MatMulSplit dz w [0] [40]", "m = Neg back"));
  // Columns that are wanted twice over would be multiplied twice.
  const Output other = ops::slice_axis(b_, back, 1, 30, 50, "other");
  EXPECT_THAT(passed({ops::neg(b_, piece), ops::neg(b_, other)}),
              Not(Contains(HasSubstr("MatMulSplit"))));
}

TEST_F(ConcatProductsTest, rows_of_tables_are_left_to_the_layout_of_lookups) {
  const Output table = input("table", {100, 32});
  const Output rows =
      b_.add("Gather", {table, input("ids", {-1}, DType::kInt64)}, {{"axis", int64_t{0}}}, "rows");
  const Output w = input("w", {64, 4});
  const Output joined = ops::concat(b_, {rows, input("x", {-1, 32})}, 1, "joined");
  EXPECT_THAT(
      passed({ops::mat_mul(b_, joined, w, false, false, "z")}),
      ElementsAre("rows = Gather table ids", "joined = Concat rows x", "z = MatMul joined w"));
}

TEST_F(ConcatProductsTest, other_dtypes_stay) {
  const Output x = input("x", {-1, 32}, DType::kInt32);
  const Output z = ops::mat_mul(b_, ops::concat(b_, {x, x}, 1, "joined"),
                                input("w", {64, 4}, DType::kInt32), false, false, "z");
  EXPECT_THAT(passed({z}), ElementsAre("joined = Concat x x", "z = MatMul joined w"));
}

}  // namespace
}  // namespace sidereal::passes
