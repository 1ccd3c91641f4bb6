#include "sidereal/resources/variable.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace sidereal::resources {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

std::shared_ptr<Variable> make(VariableDef def) { return *Variable::make(std::move(def)); }

Status add_one(const std::shared_ptr<Variable>& v) {
  Variable* const one = v.get();
  return Variable::change({&one, 1}, [](std::span<Variable::Value* const> values) -> Status {
    *reinterpret_cast<float*>(values[0]->own().at) += 1;
    return {};
  });
}

TEST(Variable, has_no_value_before_it_is_assigned_to) {
  const auto v = make({.name = "v", .shape = Shape{2}});
  EXPECT_FALSE(v->is_initialized());
  const auto read = v->read();
  EXPECT_EQ(read.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(read.status().message().find("uninitialized value v"), std::string::npos);
  ASSERT_TRUE(v->assign(Tensor::of<float>(Shape{2}, {1, 2})).ok());
  EXPECT_TRUE(v->is_initialized());
  EXPECT_EQ(v->read()->data<const float>()[1], 2);
}

TEST(Variable, what_was_read_does_not_change) {
  const auto v = make({.name = "v", .shape = Shape{1}});
  ASSERT_TRUE(v->assign(Tensor::of<float>(Shape{1}, {1})).ok());
  const Tensor before = *v->read();
  ASSERT_TRUE(v->assign(Tensor::of<float>(Shape{1}, {2})).ok());
  EXPECT_EQ(before.data<const float>()[0], 1);
  EXPECT_EQ(v->read()->data<const float>()[0], 2);
}

TEST(Variable, keeps_its_memory_when_nobody_else_holds_it) {
  const auto v = make({.name = "v", .shape = Shape{1}});
  ASSERT_TRUE(v->assign(Tensor::of<float>(Shape{1}, {1})).ok());
  const std::byte* const memory = v->read()->raw();
  ASSERT_TRUE(v->assign(Tensor::of<float>(Shape{1}, {2})).ok());
  EXPECT_EQ(v->read()->raw(), memory);
  ASSERT_TRUE(add_one(v).ok());
  EXPECT_EQ(v->read()->raw(), memory);
  EXPECT_EQ(v->read()->data<const float>()[0], 3);
}

TEST(Variable, takes_turns_with_two_memories_while_one_value_is_held) {
  const auto v = make({.name = "v", .shape = Shape{1}});
  ASSERT_TRUE(v->assign(Tensor::of<float>(Shape{1}, {1})).ok());
  std::set<const std::byte*> memories;
  for (int i = 0; i < 10; ++i) {
    const Tensor held = *v->read();
    memories.insert(held.raw());
    if (i % 2 == 0) {
      ASSERT_TRUE(add_one(v).ok());
    } else {
      ASSERT_TRUE(v->assign(Tensor::of<float>(Shape{1}, {static_cast<float>(i + 2)})).ok());
    }
    EXPECT_EQ(held.data<const float>()[0], static_cast<float>(i + 1));
    EXPECT_EQ(v->read()->data<const float>()[0], static_cast<float>(i + 2));
  }
  EXPECT_EQ(memories.size(), 2U);
}

TEST(Variable, keeps_one_memory_of_what_is_large) {
  const auto v = make({.name = "v", .shape = Shape{1 << 20}});
  ASSERT_TRUE(v->assign(Tensor::zeros(DType::kFloat32, Shape{1 << 20})).ok());
  EXPECT_EQ(v->bytes(), 4 << 20);
  const Tensor before = *v->read();
  ASSERT_TRUE(add_one(v).ok());
  EXPECT_EQ(before.data<const float>()[0], 0);
  EXPECT_TRUE(before.buffer()->has_one_holder());
  EXPECT_EQ(v->read()->data<const float>()[0], 1);
}

TEST(Variable, changes_strings_that_are_held) {
  const auto v = make({.name = "v", .dtype = DType::kString, .shape = Shape{1}});
  const auto text = [](const char* value) {
    return Tensor::strings(Shape{1}, std::vector<std::string>{value});
  };
  ASSERT_TRUE(v->assign(text("a")).ok());
  const Tensor before = *v->read();
  ASSERT_TRUE(v->assign(text("b")).ok());
  EXPECT_EQ(before.data<const std::string_view>()[0], "a");
  EXPECT_EQ(v->read()->data<const std::string_view>()[0], "b");
}

TEST(Variable, has_no_value_once_it_was_cancelled) {
  const auto v = make({.name = "v", .shape = Shape{1}});
  ASSERT_TRUE(v->assign(Tensor::of<float>(Shape{1}, {1})).ok());
  EXPECT_EQ(v->bytes(), 4);
  v->cancel();
  EXPECT_EQ(v->bytes(), 0);
  EXPECT_FALSE(v->is_initialized());
  EXPECT_EQ(add_one(v).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(v->assign(Tensor::of<float>(Shape{1}, {2})).ok());
  EXPECT_EQ(v->read()->data<const float>()[0], 2);
}

TEST(Variable, refuses_values_that_do_not_fit) {
  const auto v = make({.name = "v", .shape = Shape{-1, 2}});
  EXPECT_TRUE(v->assign(Tensor::zeros(DType::kFloat32, Shape{3, 2})).ok());
  EXPECT_EQ(v->assign(Tensor::zeros(DType::kFloat32, Shape{3, 3})).code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(v->assign(Tensor::zeros(DType::kFloat32, Shape{3, 3}), false).ok());
  EXPECT_FALSE(v->assign(Tensor::zeros(DType::kFloat64, Shape{3, 2})).ok());
  EXPECT_FALSE(v->check_same({.name = "v", .dtype = DType::kInt32, .shape = Shape{3, 2}}).ok());
  EXPECT_FALSE(v->check_same({.name = "v", .shape = Shape{2}}).ok());
  EXPECT_TRUE(v->check_same({.name = "v", .shape = Shape{7, 2}}).ok());
}

TEST(Variable, changes_of_several_threads_are_all_there) {
  const auto a = make({.name = "a", .dtype = DType::kInt64, .shape = Shape()});
  const auto b = make({.name = "b", .dtype = DType::kInt64, .shape = Shape()});
  ASSERT_TRUE(a->assign(Tensor::scalar<int64_t>(0)).ok());
  ASSERT_TRUE(b->assign(Tensor::scalar<int64_t>(0)).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<Variable*> both =
          t % 2 == 0 ? std::vector{a.get(), b.get()} : std::vector{b.get(), a.get()};
      for (int i = 0; i < 500; ++i) {
        const Status status =
            Variable::change(both, [](std::span<Variable::Value* const> values) -> Status {
              for (Variable::Value* value : values) {
                *reinterpret_cast<int64_t*>(value->own().at) += 1;
              }
              return {};
            });
        EXPECT_TRUE(status.ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(a->read()->data<const int64_t>()[0], 2000);
  EXPECT_EQ(b->read()->data<const int64_t>()[0], 2000);
}

TEST(Variable, is_not_changed_twice_at_once) {
  const auto v = make({.name = "v"});
  ASSERT_TRUE(v->assign(Tensor::scalar(1.0F)).ok());
  const std::vector<Variable*> twice = {v.get(), v.get()};
  const Status status =
      Variable::change(twice, [](std::span<Variable::Value* const>) -> Status { return {}; });
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
}

TEST(Manager, erases_a_container_and_leaves_the_others) {
  Manager manager;
  const auto add = [&](std::string_view container, std::string_view name) {
    const std::string key = *key_of(container, name);
    ASSERT_TRUE(manager.find_or_create<Variable>(key, [&] { return make({.name = key}); }).ok());
  };
  add("", "v");
  add("", "odd|name");
  add("mine", "v");
  add("theirs", "v");
  EXPECT_FALSE(key_of("a|b", "v").ok());
  manager.erase_container("mine");
  EXPECT_EQ(manager.names().size(), 3U);
  EXPECT_FALSE(manager.find<Variable>(*key_of("mine", "v")).ok());
  manager.erase_container("");
  EXPECT_EQ(manager.names(), std::vector<std::string>{*key_of("theirs", "v")});
}

}  // namespace
}  // namespace sidereal::resources
