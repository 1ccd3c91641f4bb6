#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "sidereal/exec/testing/variable_ops.h"

/// Ops on variables by their handles.
namespace sidereal::exec {
namespace {

TEST_F(VariableOps, are_one_variable_under_one_name_and_container) {
  const Tensor handle = *make("v", DType::kFloat32, Shape{2});
  EXPECT_EQ(read(handle).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(run("VariableIsInitialized", {handle})->data<const bool>()[0]);
  ASSERT_TRUE(run("VariableAssign", {handle, floats({1, 2})}).ok());
  EXPECT_TRUE(run("VariableIsInitialized", {handle})->data<const bool>()[0]);
  EXPECT_EQ(values(*read(*make("v", DType::kFloat32, Shape{2}))), (std::vector<float>{1, 2}));
  const Tensor other = *make("v", DType::kFloat32, Shape{2}, "mine");
  EXPECT_EQ(read(other).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(make("v", DType::kFloat32, Shape{3}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(make("v", DType::kInt32, Shape{2}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(make("", DType::kInt32, Shape{2}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(VariableOps, change_the_value_and_give_it_out) {
  const Tensor handle = *make("v", DType::kFloat32, Shape{2});
  EXPECT_EQ(values(*run("VariableAssign", {handle, floats({1, 2})})), (std::vector<float>{1, 2}));
  EXPECT_EQ(values(*run("VariableAssignAdd", {handle, floats({1, 1})})),
            (std::vector<float>{2, 3}));
  EXPECT_EQ(values(*run("VariableAssignSub", {handle, floats({2, 2})})),
            (std::vector<float>{0, 1}));
  const Tensor rows = Tensor::of<int64_t>(Shape{2}, {1, 1});
  EXPECT_EQ(values(*run("VariableScatterAdd", {handle, rows, floats({1, 2})})),
            (std::vector<float>{0, 4}));
  EXPECT_EQ(values(*run("VariableScatterSub", {handle, rows, floats({1, 1})})),
            (std::vector<float>{0, 2}));
  EXPECT_EQ(values(*run("VariableScatterUpdate", {handle, rows, floats({7, 8})})),
            (std::vector<float>{0, 8}));
}

/// One lane, that of the test.
class OneLane final : public resources::Lanes {
 public:
  bool post(int /*lane*/, std::function<void()> fn) override {
    fn();
    return true;
  }
};

TEST_F(VariableOps, count_the_rows_that_are_scattered_as_pushed) {
  OneLane lanes;
  const std::string key = *resources::key_of("", "t");
  const auto table = *manager_.find_or_create<resources::Variable>(key, [&] {
    return *resources::Variable::make({.name = key}, std::make_shared<resources::Owner>(&lanes, 0));
  });
  ASSERT_TRUE(table->assign(Tensor::zeros(DType::kFloat32, Shape{9})).ok());
  const Tensor handle = Tensor::strings(Shape(), std::vector<std::string>{key});
  const auto begun = std::chrono::system_clock::now();
  const auto push = [&](const std::string& op, int64_t row) {
    return run(op, {handle, Tensor::of<int64_t>(Shape{2}, {row, 3}), floats({1, 1})}).status();
  };
  for (int i = 0; i < 40; ++i) {
    for (const char* const op :
         {"VariableScatterAdd", "VariableScatterSub", "VariableScatterUpdate"}) {
      ASSERT_EQ(push(op, 7), Status());
      EXPECT_FALSE(push(op, 9).ok()) << "there is no such row";
    }
    ASSERT_TRUE(run("VariableAssignAdd", {handle, Tensor::zeros(DType::kFloat32, Shape{9})}).ok());
  }
  const resources::RowCounts counts = table->hot_rows()->pushes.read(10, begun);
  // A minute may have ended meanwhile.
  EXPECT_GE(counts.total, 120);
  EXPECT_LE(counts.total, 240);
  ASSERT_EQ(counts.rows.size(), 2U);
  EXPECT_EQ(counts.rows[0].row + counts.rows[1].row, 7 + 3);
  EXPECT_EQ(table->hot_rows()->pulls.read(10, begun).total, 0);
}

TEST_F(VariableOps, are_updated_by_the_rules_of_optimizers) {
  const Tensor handle = *make("v", DType::kFloat32, Shape{2});
  const Tensor slot = *make("v/slot", DType::kFloat32, Shape{2});
  ASSERT_TRUE(run("VariableAssign", {handle, floats({1, 2})}).ok());
  const Tensor step = Tensor::scalar(1.0);
  const Tensor rate = Tensor::scalar(0.5F);
  const AttrMap sgd = {{"kind", std::string("sgd")}};
  ASSERT_TRUE(run("VariableUpdateDense", {handle, floats({2, 2}), step, rate}, sgd).ok());
  EXPECT_EQ(values(*read(handle)), (std::vector<float>{0, 1}));
  const Tensor rows = Tensor::of<int32_t>(Shape{2}, {1, 1});
  ASSERT_TRUE(run("VariableUpdateRows", {handle, rows, floats({1, 1}), step, rate}, sgd).ok());
  EXPECT_EQ(values(*read(handle)), (std::vector<float>{0, 0}));
  const AttrMap momentum = {{"kind", std::string("momentum")}, {"momentum", 0.5}};
  const std::vector<Tensor> inputs = {handle, floats({1, 1}), step, rate, slot};
  EXPECT_EQ(run("VariableUpdateDense", inputs, momentum).status().code(),
            StatusCode::kFailedPrecondition);
  ASSERT_TRUE(run("VariableAssign", {slot, floats({2, 4})}).ok());
  ASSERT_TRUE(run("VariableUpdateDense", inputs, momentum).ok());
  EXPECT_EQ(values(*read(slot)), (std::vector<float>{2, 3}));
  EXPECT_EQ(values(*read(handle)), (std::vector<float>{-1, -1.5}));
}

TEST_F(VariableOps, norms_of_parts_add_up_and_update_each_part_as_the_whole) {
  const Tensor step = Tensor::scalar(2.0);
  const Tensor rate = Tensor::scalar(0.5F);
  const auto variable = [&](const std::string& name, const Tensor& value) {
    const Tensor handle = *make(name, DType::kFloat32, value.shape());
    EXPECT_TRUE(run("VariableAssign", {handle, value}).ok());
    return handle;
  };
  for (const auto& [kind, slots] : {std::pair("lamb", 2), std::pair("lars", 1)}) {
    const AttrMap attrs = {{"kind", std::string(kind)}, {"weight_decay", 0.1}};
    const auto inputs_of = [&, slots = slots, kind = kind](
                               const std::string& name, const Tensor& value, const Tensor& grad) {
      const std::string prefix = std::string(kind) + name;
      std::vector<Tensor> inputs = {variable(prefix, value), grad, step, rate};
      for (int i = 0; i < slots; ++i) {
        const Tensor ones = Tensor::empty(DType::kFloat32, value.shape());
        std::fill_n(ones.data<float>().data(), ones.num_elements(), 1.0F);
        inputs.push_back(variable(fmt::format("{}/slot_{}", prefix, i), ones));
      }
      return inputs;
    };
    const auto whole = inputs_of("whole", floats({3, 4, -5, 1}), floats({1, -2, 0.5, 2}));
    std::vector<Tensor> a = inputs_of("a", floats({3}), floats({1}));
    std::vector<Tensor> b = inputs_of("b", floats({4, -5, 1}), floats({-2, 0.5, 2}));
    const Tensor of_whole = *run("VariableUpdateNorms", whole, attrs);
    const Tensor of_a = *run("VariableUpdateNorms", a, attrs);
    const Tensor of_b = *run("VariableUpdateNorms", b, attrs);
    const Tensor sum = *run("Add", {of_a, of_b});
    for (int i = 0; i < 2; ++i) {
      EXPECT_DOUBLE_EQ(sum.data<const double>()[i], of_whole.data<const double>()[i]) << kind;
    }
    EXPECT_EQ(of_whole.data<const double>()[0], 51);
    EXPECT_EQ(values(*read(whole[0], Shape{4})), (std::vector<float>{3, 4, -5, 1}));
    EXPECT_EQ(values(*read(whole[4], Shape{4})), (std::vector<float>{1, 1, 1, 1}));
    ASSERT_TRUE(run("VariableUpdateDense", whole, attrs).ok());
    for (std::vector<Tensor>* part : {&a, &b}) {
      part->push_back(sum);
      ASSERT_TRUE(run("VariableUpdateDense", *part, attrs).ok());
    }
    std::vector<float> parts = values(*read(a[0], Shape{1}));
    for (const float x : values(*read(b[0], Shape{3}))) parts.push_back(x);
    EXPECT_EQ(parts, values(*read(whole[0], Shape{4}))) << kind;
    a.back() = Tensor::scalar(1.0);
    EXPECT_EQ(run("VariableUpdateDense", a, attrs).status().code(), StatusCode::kInvalidArgument);
    a.back() = floats({1, 1});
    EXPECT_EQ(run("VariableUpdateDense", a, attrs).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(VariableOps, refuse_what_does_not_fit) {
  const Tensor handle = *make("v", DType::kFloat32, Shape{2});
  ASSERT_TRUE(run("VariableAssign", {handle, floats({1, 2})}).ok());
  const auto is_refused = [&](const std::string& op, const std::vector<Tensor>& inputs,
                              const AttrMap& attrs = {}) {
    const StatusCode code = run(op, inputs, attrs).status().code();
    EXPECT_TRUE(code == StatusCode::kInvalidArgument || code == StatusCode::kNotFound) << op;
  };
  const Tensor step = Tensor::scalar(1.0);
  const Tensor rate = Tensor::scalar(0.5F);
  const AttrMap sgd = {{"kind", std::string("sgd")}};
  const AttrMap momentum = {{"kind", std::string("momentum")}};
  const Tensor row = Tensor::of<int64_t>(Shape{1}, {2});
  is_refused("VariableRead", {Tensor::strings(Shape(), std::vector<std::string>{"none"})},
             {{"dtype", DType::kFloat32}});
  is_refused("VariableRead", {handle}, {{"dtype", DType::kInt32}});
  is_refused("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", Shape{3}}});
  is_refused("VariableAssign", {handle, floats({1})});
  is_refused("VariableAssign", {handle, Tensor::of<int32_t>(Shape{2}, {1, 2})});
  is_refused("VariableAssignAdd", {handle, floats({1})});
  is_refused("VariableAssignAdd", {handle, Tensor::of<int32_t>(Shape{2}, {1, 2})});
  is_refused("VariableScatterAdd", {handle, row, floats({1})});
  is_refused("VariableScatterAdd", {handle, row, floats({1, 2})});
  is_refused("VariableUpdateDense", {handle, floats({1}), step, rate}, sgd);
  is_refused("VariableUpdateDense", {handle, floats({1, 2}), step, rate}, momentum);
  is_refused("VariableUpdateDense",
             {handle, floats({1, 2}), step, rate, Tensor::zeros(DType::kFloat64, Shape{2})}, sgd);
  is_refused("VariableUpdateDense", {handle, floats({1, 2}), step, rate, handle}, momentum);
  is_refused("VariableUpdateRows", {handle, row, floats({1}), step, rate}, sgd);
  EXPECT_EQ(values(*read(handle)), (std::vector<float>{1, 2}));
}

TEST_F(VariableOps, know_the_shape_that_the_variable_was_made_with) {
  ir::Graph graph;
  ir::Builder b(&graph, &registry_);
  const ir::Output handle = b.add(
      "Variable", {},
      {{"shared_name", std::string("v")}, {"dtype", DType::kFloat32}, {"shape", Shape{2, -1}}});
  const ir::Output x = ops::placeholder(b, "x", DType::kFloat32, {-1, 3});
  EXPECT_EQ(b.spec(b.add("VariableAssign", {handle, x})).shape.to_string(), "[2,3]");
  EXPECT_TRUE(b.status().ok());
  const ir::Output wrong = ops::placeholder(b, "wrong", DType::kFloat32, {3, 3});
  b.add("VariableAssign", {handle, wrong});
  EXPECT_EQ(b.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::exec
