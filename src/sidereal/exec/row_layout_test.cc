#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "sidereal/exec/testing/variable_ops.h"
#include "sidereal/kernels/optimizer.h"

/// Tables with their slots in their rows, beside values that are arrays of their own: what is read
/// is the same, to the last bit.
namespace sidereal::exec {
namespace {

constexpr int64_t kRows = 120;
constexpr int64_t kDim = 10;

struct Rule {
  std::string kind;
  AttrMap attrs;
  int slots = 0;
};

std::vector<Rule> rules() {
  const auto of = [](const char* kind, AttrMap attrs, int slots) {
    attrs["kind"] = std::string(kind);
    return Rule{kind, attrs, slots};
  };
  return {
      of("sgd", {{"weight_decay", 0.01}}, 0),
      of("momentum", {{"momentum", 0.9}, {"nesterov", true}}, 1),
      of("adagrad", {{"epsilon", 1e-7}}, 1),
      of("adam", {{"beta_1", 0.9}, {"beta_2", 0.99}, {"epsilon", 1e-8}}, 2),
      of("ftrl", {{"l1_regularization_strength", 0.01}, {"l2_regularization_strength", 0.001}}, 2),
      of("ftrl", {{"l1_regularization_strength", 0.01}, {"learning_rate_power", -0.3}}, 2),
      of("lamb", {{"weight_decay", 0.1}}, 2),
      of("lars", {{"weight_decay", 0.1}, {"trust_coefficient", 0.1}}, 1),
  };
}

class RowLayout : public VariableOps {
 protected:
  Tensor drawn(const Shape& shape, float low = -1, float high = 1) {
    Tensor out = Tensor::empty(DType::kFloat32, shape);
    std::uniform_real_distribution<float> values(low, high);
    for (float& x : out.data<float>()) x = values(random_);
    return out;
  }
  /// Rows of the table, some of them more than once.
  Tensor drawn_rows(DType dtype, int64_t count) {
    std::uniform_int_distribution<int64_t> rows(0, kRows / 2);
    Tensor out = Tensor::empty(dtype, Shape{count});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = 2 * rows(random_) % kRows;
      if (dtype == DType::kInt64) {
        out.data<int64_t>()[i] = row;
      } else {
        out.data<int32_t>()[i] = static_cast<int32_t>(row);
      }
    }
    return out;
  }
  Tensor assigned(const std::string& name, const Tensor& value) {
    const Tensor handle = *make(name, value.dtype(), value.shape());
    EXPECT_TRUE(run("VariableAssign", {handle, value}).ok());
    return handle;
  }
  [[nodiscard]] bool is_in_table(const std::string& name) const {
    bool is = false;
    EXPECT_TRUE((*manager_.find<resources::Variable>(*resources::key_of("", name)))
                    ->look([&](const auto& value) -> Status {
                      is = value.is_in_table();
                      return {};
                    })
                    .ok());
    return is;
  }
  void expect_same(const Tensor& handle, const Tensor& wanted) {
    const auto got = read(handle, wanted.shape());
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(got->shape(), wanted.shape());
    EXPECT_EQ(std::memcmp(got->raw(), wanted.raw(), wanted.nbytes()), 0);
  }
  static std::vector<Tensor> joined(std::vector<Tensor> a, const std::vector<Tensor>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  std::mt19937_64 random_{7};
};

/// A table and arrays, to which the same is done.
class Both : public RowLayout {
 protected:
  void start(const Rule& rule, const Shape& shape) {
    rule_ = rule;
    ++starts_;
    arrays_ = {drawn(shape)};
    for (int s = 0; s < rule.slots; ++s) arrays_.push_back(drawn(shape, 0.1F, 0.5F));
    handles_.clear();
    for (size_t i = 0; i < arrays_.size(); ++i) {
      handles_.push_back(assigned(name(i), arrays_[i]));
    }
  }
  [[nodiscard]] std::string name(size_t i) const {
    return fmt::format("{}_{}_{}", rule_.kind, starts_, i);
  }
  /// An update by `inputs`: indices, if any, and gradients.
  void update(const std::string& op, const std::vector<Tensor>& inputs, double step) {
    const Tensor rate = Tensor::scalar(0.05F);
    const std::vector<Tensor> slots(arrays_.begin() + 1, arrays_.end());
    const auto arrays = run_all(
        op, joined(joined({arrays_[0]}, inputs), joined({Tensor::scalar(step), rate}, slots)),
        rule_.attrs);
    ASSERT_TRUE(arrays.ok()) << arrays.status();
    arrays_ = *arrays;
    const std::vector<Tensor> slot_handles(handles_.begin() + 1, handles_.end());
    const auto done = run(
        "Variable" + op,
        joined(joined({handles_[0]}, inputs), joined({Tensor::scalar(step), rate}, slot_handles)),
        rule_.attrs);
    ASSERT_TRUE(done.ok()) << done.status();
  }
  void expect_all_same() {
    for (size_t i = 0; i < arrays_.size(); ++i) expect_same(handles_[i], arrays_[i]);
  }
  /// The same change of variable `i` by an op with an array as its second input.
  void change(size_t i, const std::string& op, const std::vector<Tensor>& inputs) {
    const Tensor array = *make("array", DType::kFloat32, arrays_[i].shape());
    ASSERT_TRUE(run("VariableAssign", {array, arrays_[i]}).ok());
    const Tensor wanted = *run(op, joined({array}, inputs));
    const auto got = run(op, joined({handles_[i]}, inputs));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(std::memcmp(got->raw(), wanted.raw(), wanted.nbytes()), 0) << op;
    arrays_[i] = wanted.clone();
  }

  Rule rule_;
  int starts_ = 0;
  std::vector<Tensor> arrays_;
  std::vector<Tensor> handles_;
};

TEST_F(Both, are_the_same_for_all_rules_and_dtypes_of_indices) {
  for (const DType dtype : {DType::kInt64, DType::kInt32}) {
    for (const Rule& rule : rules()) {
      SCOPED_TRACE(rule.kind);
      start(rule, Shape{kRows, kDim});
      for (int step = 1; step <= 6; ++step) {
        const int64_t count = step == 4 ? 0 : 40 * step;
        update("UpdateRows", {drawn_rows(dtype, count), drawn({count, kDim})}, step);
        expect_all_same();
      }
      EXPECT_EQ(is_in_table(name(0)), rule.slots > 0);
      for (size_t i = 1; i < handles_.size(); ++i) EXPECT_TRUE(is_in_table(name(i)));
    }
  }
}

TEST_F(Both, are_the_same_whatever_changes_them) {
  const Shape shape = {kRows, kDim};
  for (const Rule& rule : rules()) {
    SCOPED_TRACE(rule.kind);
    start(rule, shape);
    double step = 0;
    const auto update_rows = [&] {
      update("UpdateRows", {drawn_rows(DType::kInt64, 50), drawn({50, kDim})}, ++step);
    };
    update_rows();
    for (size_t i = 0; i < handles_.size(); ++i) {
      const Tensor rows = drawn_rows(DType::kInt32, 30);
      change(i, "VariableAssign", {drawn(shape, 0.1F, 0.9F)});
      change(i, "VariableAssignAdd", {drawn(shape, 0.1F, 0.9F)});
      change(i, "VariableAssignSub", {drawn(shape, 0.0F, 0.1F)});
      change(i, "VariableScatterAdd", {rows, drawn({30, kDim}, 0, 1)});
      change(i, "VariableScatterSub", {rows, drawn({30, kDim}, 0, 0.001F)});
      change(i, "VariableScatterUpdate", {rows, drawn({30, kDim}, 0, 1)});
    }
    expect_all_same();
    update_rows();
    update("UpdateDense", {drawn(shape)}, ++step);
    expect_all_same();
    update_rows();
    expect_all_same();
  }
}

TEST_F(Both, are_the_same_for_tables_of_one_and_three_dimensions) {
  for (const Shape& shape : {Shape{2000}, Shape{kRows, 3, 5}}) {
    start(rules()[3], shape);
    for (int step = 1; step <= 3; ++step) {
      Shape rows = shape;
      rows.set_dim(0, 50);
      update("UpdateRows", {drawn_rows(DType::kInt64, 50), drawn(rows)}, step);
      expect_all_same();
    }
    EXPECT_TRUE(is_in_table(name(0)));
  }
}

TEST_F(Both, rows_said_to_be_distinct_are_not_summed) {
  start(rules()[2], Shape{kRows, kDim});
  const Tensor grads = drawn({4, kDim});
  const auto update_variables = [&](const Tensor& rows, double step) {
    AttrMap attrs = rule_.attrs;
    attrs["distinct"] = true;
    const auto done =
        run("VariableUpdateRows",
            {handles_[0], rows, grads, Tensor::scalar(step), Tensor::scalar(0.05F), handles_[1]},
            attrs);
    EXPECT_TRUE(done.ok()) << done.status();
  };
  const Tensor rows = Tensor::of<int64_t>(Shape{4}, {7, 3, 119, 0});
  update_variables(rows, 1);
  arrays_ =
      *run_all("UpdateRows",
               {arrays_[0], rows, grads, Tensor::scalar(1.0), Tensor::scalar(0.05F), arrays_[1]},
               rule_.attrs);
  expect_all_same();
  // Whoever lies has a row updated more than once.
  update_variables(Tensor::of<int64_t>(Shape{4}, {5, 5, 5, 5}), 2);
}

TEST_F(Both, a_value_that_is_held_does_not_change) {
  start(rules()[2], Shape{kRows, kDim});
  const Tensor before = *read(handles_[0], Shape{kRows, kDim});
  const Tensor first = before.clone();
  update("UpdateRows", {drawn_rows(DType::kInt64, 50), drawn({50, kDim})}, 1);
  EXPECT_EQ(std::memcmp(before.raw(), first.raw(), first.nbytes()), 0);
  const Tensor after = *read(handles_[0], Shape{kRows, kDim});
  const Tensor second = after.clone();
  update("UpdateRows", {drawn_rows(DType::kInt64, 50), drawn({50, kDim})}, 2);
  EXPECT_EQ(std::memcmp(after.raw(), second.raw(), second.nbytes()), 0);
  expect_all_same();
}

TEST_F(Both, rows_are_gathered_from_where_they_are) {
  start(rules()[3], Shape{kRows, kDim});
  const AttrMap declared = {{"dtype", DType::kFloat32}, {"shape", Shape{-1, kDim}}};
  for (int step = 1; step <= 2; ++step) {
    for (const DType dtype : {DType::kInt64, DType::kInt32}) {
      const Tensor rows = drawn_rows(dtype, 66).reshaped({6, 11});
      for (const DType out : {DType::kFloat32, DType::kBFloat16}) {
        for (size_t i = 0; i < handles_.size(); ++i) {
          AttrMap attrs = declared;
          attrs["out_type"] = out;
          const auto got = run("VariableGather", {handles_[i], rows}, attrs);
          ASSERT_TRUE(got.ok()) << got.status();
          const Tensor wanted = *run("Gather", {arrays_[i], rows}, {{"out_type", out}});
          EXPECT_EQ(got->shape(), wanted.shape());
          EXPECT_EQ(std::memcmp(got->raw(), wanted.raw(), wanted.nbytes()), 0);
        }
      }
    }
    update("UpdateRows", {drawn_rows(DType::kInt64, 50), drawn({50, kDim})}, step);
    EXPECT_TRUE(is_in_table(name(0)));
  }
  const Tensor outside = Tensor::of<int64_t>(Shape{2}, {0, kRows});
  const auto refused = run("VariableGather", {handles_[0], outside}, declared);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(base::message_of(refused.status())),
              testing::HasSubstr("index 120 at [1] of the indices is not in [0, 120)"));
}

TEST_F(RowLayout, gathers_any_dtype_and_refuses_what_does_not_fit) {
  const Tensor text = Tensor::strings(Shape{3}, std::vector<std::string>{"a", "bb", "ccc"});
  const Tensor strings = assigned("s", text);
  const Tensor at = Tensor::of<int32_t>(Shape{2}, {2, 0});
  const Tensor got = *run("VariableGather", {strings, at}, {{"dtype", DType::kString}});
  EXPECT_THAT(got.data<const std::string_view>(), testing::ElementsAre("ccc", "a"));
  const Tensor numbers = assigned("i", Tensor::of<int64_t>(Shape{3, 1}, {1, 2, 3}));
  const Tensor row = *run("VariableGather", {numbers, at}, {{"dtype", DType::kInt64}});
  EXPECT_THAT(row.data<const int64_t>(), testing::ElementsAre(3, 1));
  const auto refused = [&](const std::vector<Tensor>& inputs, const AttrMap& attrs) {
    EXPECT_EQ(run("VariableGather", inputs, attrs).status().code(), StatusCode::kInvalidArgument);
  };
  refused({numbers, at}, {{"dtype", DType::kFloat32}});
  refused({numbers, at}, {{"dtype", DType::kInt64}, {"shape", Shape{4, 1}}});
  refused({assigned("scalar", Tensor::scalar(1.0F)), at}, {{"dtype", DType::kFloat32}});
}

TEST_F(RowLayout, is_for_large_tables_with_slots_of_their_own) {
  const Tensor step = Tensor::scalar(1.0);
  const Tensor rate = Tensor::scalar(0.5F);
  const Tensor row = Tensor::of<int64_t>(Shape{1}, {1});
  const AttrMap adagrad = {{"kind", std::string("adagrad")}};
  const auto update = [&](const Tensor& w, const Tensor& slot, int64_t dim) {
    const auto done =
        run("VariableUpdateRows", {w, row, drawn({1, dim}), step, rate, slot}, adagrad);
    EXPECT_TRUE(done.ok()) << done.status();
  };
  update(assigned("small", drawn({4, 8})), assigned("small/slot", drawn({4, 8}, 0, 1)), 8);
  EXPECT_FALSE(is_in_table("small"));
  const Tensor a = assigned("a", drawn({kRows, kDim}));
  const Tensor b = assigned("b", drawn({kRows, kDim}));
  const Tensor shared = assigned("slot", drawn({kRows, kDim}, 0, 1));
  update(a, shared, kDim);
  update(b, shared, kDim);
  EXPECT_TRUE(is_in_table("a"));
  EXPECT_TRUE(is_in_table("slot"));
  EXPECT_FALSE(is_in_table("b"));
  // A value of another shape has memory of its own again.
  ASSERT_TRUE(run("VariableAssign", {a, drawn({3, 3})}, {{"validate_shape", false}}).ok());
  EXPECT_FALSE(is_in_table("a"));
  EXPECT_TRUE(is_in_table("slot"));
}

}  // namespace
}  // namespace sidereal::exec
