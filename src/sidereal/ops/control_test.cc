#include "sidereal/ops/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"

namespace sidereal::ops {
namespace {

using ir::DType;
using ir::FunctionPtr;
using ir::Graph;
using ir::NodeId;
using ir::Output;
using ir::Shape;
using ir::TensorSpec;
using testing::HasSubstr;

class ControlOpsTest : public testing::Test {
 protected:
  ControlOpsTest() { register_all(&registry_); }

  /// The function that returns inputs `which` of inputs of these specs.
  FunctionPtr picking(const std::vector<TensorSpec>& inputs, const std::vector<size_t>& which) {
    Graph body;
    std::vector<Output> args;
    for (const TensorSpec& spec : inputs) args.push_back(*ir::add_arg(&body, registry_, spec));
    std::vector<Output> outputs;
    for (const size_t i : which) outputs.push_back(args[i]);
    return *ir::Function::make(std::move(body), std::move(outputs));
  }
  Output input(const TensorSpec& spec) { return placeholder(b_, "x", spec.dtype, spec.shape); }
  std::string specs(NodeId node) const {
    if (!b_.status().ok()) return base::message_of(b_.status());
    std::string out;
    for (const Output& o : outputs_of(b_, node)) out += to_string(b_.spec(o)) + " ";
    return out;
  }

  const TensorSpec flag_{DType::kBool, Shape()};
  const TensorSpec vector_{DType::kFloat32, {-1}};
  const TensorSpec four_{DType::kFloat32, {4}};
  const TensorSpec matrix_{DType::kFloat32, {-1, 4}};
  const TensorSpec ints_{DType::kInt64, {-1}};
  ir::OpRegistry registry_;
  Graph graph_;
  ir::Builder b_{&graph_, &registry_};
};

TEST_F(ControlOpsTest, a_call_has_the_outputs_of_its_function) {
  const FunctionPtr f = picking({vector_, ints_}, {1, 0, 0});
  EXPECT_EQ(specs(function_call(b_, f, {input(four_), input(ints_)})),
            "int64[?] float32[?] float32[?] ");
  EXPECT_TRUE(ir::verify(graph_, registry_).ok());
}

TEST_F(ControlOpsTest, a_call_says_which_argument_does_not_fit) {
  const FunctionPtr f = picking({vector_, ints_}, {0});
  (void)function_call(b_, f, {input(vector_), input(vector_)}, "f");
  EXPECT_EQ(base::message_of(b_.status()),
            "FunctionCall 'f' (float32[?], float32[?]): input 1 of the function is float32[?], but "
            "int64[?] is needed");
}

TEST_F(ControlOpsTest, a_branch_knows_what_both_functions_agree_on) {
  const FunctionPtr yes = picking({vector_, four_}, {0, 1});
  const FunctionPtr no = picking({vector_, four_}, {1, 1});
  EXPECT_EQ(specs(branch(b_, input(flag_), yes, no, {input(vector_), input(four_)})),
            "float32[?] float32[4] ");
}

TEST_F(ControlOpsTest, branches_return_the_same_dtypes) {
  const FunctionPtr yes = picking({vector_, ints_}, {0});
  const FunctionPtr no = picking({vector_, ints_}, {1});
  (void)branch(b_, input(flag_), yes, no, {input(vector_), input(ints_)});
  EXPECT_THAT(base::message_of(b_.status()),
              HasSubstr("output 0 is float32[?] in one branch and int64[?] in the other"));
}

TEST_F(ControlOpsTest, a_predicate_is_a_bool_scalar) {
  const FunctionPtr f = picking({}, {});
  (void)branch(b_, input(vector_), f, f, {});
  EXPECT_THAT(base::message_of(b_.status()),
              HasSubstr("the predicate is float32[?], but bool[] is needed"));
}

TEST_F(ControlOpsTest, a_loop_has_its_variables_and_stacks_what_else_its_body_returns) {
  const FunctionPtr cond = picking({flag_, vector_, matrix_}, {0});
  const FunctionPtr body = picking({flag_, vector_, matrix_}, {0, 1, 2});
  const NodeId loop = while_loop(b_, cond, body, {input(flag_), input(four_)}, {input(matrix_)}, 7);
  EXPECT_EQ(specs(loop), "bool[] float32[?] float32[?,?,4] ");
  EXPECT_TRUE(ir::verify(graph_, registry_).ok());
}

TEST_F(ControlOpsTest, a_loop_variable_keeps_its_shape) {
  const FunctionPtr cond = picking({flag_, four_, matrix_}, {0});
  const FunctionPtr body = picking({flag_, four_, matrix_}, {0, 2});
  (void)while_loop(b_, cond, body, {input(flag_), input(four_)}, {input(matrix_)});
  EXPECT_THAT(base::message_of(b_.status()),
              HasSubstr("loop variable 1 after an iteration is float32[?,4], but float32[4] is "
                        "needed; name the extents that change in shape_invariants"));
}

TEST_F(ControlOpsTest, a_scan_gives_its_body_rows) {
  const FunctionPtr body = picking({four_, four_, ints_}, {1, 0, 2});
  const Output rows = input({DType::kFloat32, {9, 4}});
  EXPECT_EQ(specs(scan(b_, body, {input(four_)}, {rows}, {input(ints_)})),
            "float32[4] float32[9,4] int64[9,?] ");
}

TEST_F(ControlOpsTest, sequences_of_a_scan_have_as_many_rows) {
  const FunctionPtr body = picking({four_, four_}, {});
  (void)scan(b_, body, {}, {input({DType::kFloat32, {9, 4}}), input({DType::kFloat32, {8, 4}})},
             {});
  EXPECT_THAT(base::message_of(b_.status()), HasSubstr("input 1 has 8 rows where another"));
}

TEST_F(ControlOpsTest, a_scan_without_sequences_has_a_length) {
  const FunctionPtr body = picking({four_}, {0, 0});
  EXPECT_EQ(specs(scan(b_, body, {input(four_)}, {}, {}, {.length = 5})),
            "float32[4] float32[5,4] ");
  (void)scan(b_, body, {input(four_)}, {}, {});
  EXPECT_THAT(base::message_of(b_.status()), HasSubstr("without sequences it must be given"));
}

}  // namespace
}  // namespace sidereal::ops
