#include <gtest/gtest.h>

#include <limits>

#include "sidereal/exec/one_op.h"
#include "sidereal/exec/testing/one_program.h"
#include "sidereal/kernels/initializer.h"
#include "sidereal/ops/ops.h"

/// The op that makes first values of variables, and of their parts.
namespace sidereal::exec {
namespace {

using ir::AttrMap;
using ir::DType;
using ir::Shape;
using ir::Tensor;

constexpr const char* kKinds[] = {"zeros",  "constant",         "uniform",
                                  "normal", "truncated_normal", "glorot_uniform"};

class InitialValue : public testing::Test {
 protected:
  /// The node of a variable 'w', made by the builder function.
  ir::Node node(const ops::Initializer& how, const Shape& shape, int64_t part = 0,
                int64_t parts = 1) {
    ir::Graph graph;
    ir::Builder b(&graph, &test_registry());
    const ir::Output made = ops::initial_value(b, how, "w", shape, part, parts);
    EXPECT_TRUE(b.status().ok()) << b.status();
    return made.node.valid() ? graph.node(made.node) : ir::Node();
  }

  static Result<Tensor> run(const ir::Node& node) {
    SR_ASSIGN_OR_RETURN(const std::vector<Tensor> made, run_one_op(node, {}, all_kernels()));
    return made.front();
  }

  static std::vector<float> values(const Tensor& t) {
    return {t.data<const float>().begin(), t.data<const float>().end()};
  }

  static kernels::Initializer initializer(const ops::Initializer& how) {
    return {.kind = *kernels::initializer_kind_from_name(how.kind),
            .a = static_cast<float>(how.a),
            .b = static_cast<float>(how.b),
            .seed = how.seed,
            .stream = kernels::Initializer::stream_of("w")};
  }
};

TEST_F(InitialValue, is_that_of_the_initializer_for_the_whole_and_for_every_part) {
  const std::vector<Shape> shapes = {{}, {7}, {100'003, 1}, {4099, 16}, {5, 3, 2}, {0, 4}};
  for (const char* kind : kKinds) {
    const ops::Initializer how{kind, 0.25, 1.5, ~uint64_t{0} - 4};
    for (const Shape& shape : shapes) {
      SCOPED_TRACE(fmt::format("{} {}", kind, shape.to_string()));
      std::vector<float> want(static_cast<size_t>(shape.num_elements()));
      initializer(how).fill(shape, 0, want.data(), shape.num_elements());
      const auto whole = run(node(how, shape));
      ASSERT_TRUE(whole.ok()) << whole.status();
      EXPECT_EQ(whole->shape(), shape);
      EXPECT_EQ(values(*whole), want);
      if (shape.rank() == 0) continue;
      const int64_t width = shape.dim(0) == 0 ? 0 : shape.num_elements() / shape.dim(0);
      for (const int64_t parts : {2, 3, 11}) {
        for (int64_t part = 0; part < parts; ++part) {
          std::vector<float> rows;
          for (int64_t r = part; r < shape.dim(0); r += parts) {
            rows.insert(rows.end(), want.begin() + r * width, want.begin() + (r + 1) * width);
          }
          const ir::Node made = node(how, shape, part, parts);
          const auto got = run(made);
          ASSERT_TRUE(got.ok()) << got.status();
          EXPECT_EQ(got->shape(), made.outputs[0].shape);
          EXPECT_EQ(values(*got), rows) << part << " of " << parts;
        }
      }
    }
  }
}

TEST_F(InitialValue, refuses_attributes_that_make_no_sense) {
  const ir::Node good = node({"uniform", -1, 1, 3}, {6, 2}, 1, 2);
  ASSERT_TRUE(run(good).ok());
  const int64_t most = std::numeric_limits<int64_t>::max();
  const int64_t least = std::numeric_limits<int64_t>::min();
  const double infinite = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<std::string, ir::AttrValue>> wrong = {
      {"shape", Shape::unknown_rank()},
      {"shape", Shape{-1, 2}},
      {"shape", Shape{-5, 2}},
      {"shape", Shape{most, most}},
      {"shape", Shape{}},
      {"shape", int64_t{3}},
      {"kind", std::string("he")},
      {"kind", std::string()},
      {"a", infinite},
      {"a", nan},
      {"a", 1e39},
      {"a", 2.0},  // Above b.
      {"a", std::string("1")},
      {"b", -infinite},
      {"seed", 1.0},
      {"name", int64_t{1}},
      {"part", int64_t{2}},
      {"part", int64_t{-1}},
      {"part", most},
      {"part", 0.0},
      {"parts", int64_t{0}},
      {"parts", least},
      {"parts", std::string("2")}};
  for (const auto& [name, value] : wrong) {
    ir::Node node = good;
    node.attrs[name] = value;
    const auto got = run(node);
    EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument) << name;
    ir::Graph graph;
    ir::Builder b(&graph, &test_registry());
    b.add("InitialValue", {}, node.attrs);
    EXPECT_EQ(b.status().code(), StatusCode::kInvalidArgument) << name;
  }
  for (const char* name : {"shape", "kind", "seed", "name"}) {
    ir::Node node = good;
    node.attrs.erase(name);
    EXPECT_EQ(run(node).status().code(), StatusCode::kInvalidArgument) << name;
  }
  ir::Node unknown = good;
  unknown.attrs["kind"] = std::string("he");
  const std::string message = base::message_of(run(unknown).status());
  for (const char* kind : kKinds) EXPECT_NE(message.find(kind), std::string::npos) << message;
  ir::Node wide = good;
  wide.outputs[0].dtype = DType::kFloat64;
  EXPECT_EQ(run(wide).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(InitialValue, of_more_parts_than_rows_or_more_memory_than_there_is) {
  ir::Node one = node({"uniform", -1, 1, 3}, {6, 2}, 1, 2);
  const int64_t most = std::numeric_limits<int64_t>::max();
  one.attrs["parts"] = most;
  const auto row = run(one);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->shape(), (Shape{1, 2}));
  one.attrs["part"] = most - 1;
  EXPECT_EQ(run(one)->shape(), (Shape{0, 2}));
  ir::Node large = one;
  large.attrs["part"] = int64_t{0};
  large.attrs["parts"] = int64_t{1};
  large.attrs["shape"] = Shape{int64_t{1} << 46, 4};
  EXPECT_EQ(run(large).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace sidereal::exec
