#include "sidereal/ir/effect_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/function.h"
#include "sidereal/ir/testing/ops.h"

namespace sidereal::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const OpRegistry& ops() {
  static const OpRegistry* const made = [] {
    auto* const out = new OpRegistry(testing::registry());
    const auto infer = [](const InferContext& c) {
      *c.outputs = {{DType::kFloat32, {}}};
      return Status();
    };
    out->add({.name = "VariableRead",
              .min_inputs = 1,
              .max_inputs = 1,
              .infer = infer,
              .stateful = true,
              .handle_inputs = 1});
    out->add({.name = "VariableUpdate",
              .min_inputs = 1,
              .max_inputs = -1,
              .infer = infer,
              .stateful = true,
              .effect = true,
              .handle_inputs = 1});
    out->add({.name = "Tell", .infer = infer, .stateful = true, .effect = true});
    return out;
  }();
  return *made;
}

/// A body of a function of two handles.
class EffectOrderTest : public ::testing::Test {
 protected:
  EffectOrderTest() : a_(arg()), b_(arg()), builder_(&body_, &ops()) {}

  Output arg() { return *add_arg(&body_, ops(), {DType::kString, {}}); }
  NodeId add(const char* op, std::vector<Output> inputs, AttrMap attrs = {}) {
    const NodeId id = builder_.add_node(op, inputs, std::move(attrs), {}, "");
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
    order_.add(&body_, id, ops());
    return id;
  }
  NodeId read(Output of) { return add("VariableRead", {of}); }
  NodeId change(Output of) { return add("VariableUpdate", {of}); }
  NodeId tell() { return add("Tell", {}); }
  /// A node with a body that takes both handles.
  NodeId run(Graph inner) {
    const FunctionPtr made = *Function::make(std::move(inner), {});
    return add("Run", {a_, b_}, {{"function", body_.hold_function("inner", made)}});
  }
  /// A body of both handles that has this op of its first one.
  static Graph of_first(const char* op) {
    Graph out;
    const Output first = *add_arg(&out, ops(), {DType::kString, {}});
    (void)*add_arg(&out, ops(), {DType::kString, {}});
    Builder b(&out, &ops());
    (void)b.add(op, {first});
    return out;
  }
  const std::vector<NodeId>& before(NodeId id) { return body_.node(id).control_inputs; }

  Graph body_;
  Output a_, b_;
  Builder builder_;
  EffectOrder order_;
};

TEST_F(EffectOrderTest, WhatHasNothingInCommonIsInNoOrder) {
  const NodeId one = change(a_), other = change(b_);
  EXPECT_THAT(before(one), IsEmpty());
  EXPECT_THAT(before(other), IsEmpty());
  EXPECT_THAT(before(read(a_)), ElementsAre(one));
  EXPECT_THAT(before(read(b_)), ElementsAre(other));
}

TEST_F(EffectOrderTest, AChangeComesBehindAllReadersAndTheseBehindTheChangeBefore) {
  const NodeId first = read(a_), second = read(a_);
  EXPECT_THAT(before(second), IsEmpty());
  const NodeId change_a = change(a_);
  EXPECT_THAT(before(change_a), UnorderedElementsAre(first, second));
  const NodeId again = change(a_);
  EXPECT_THAT(before(again), ElementsAre(change_a));
  EXPECT_THAT(before(read(a_)), ElementsAre(again));
}

TEST_F(EffectOrderTest, ANodeMayUseAVariableTwiceAndOthers) {
  const NodeId change_a = change(a_), read_b = read(b_);
  const NodeId both = add("VariableUpdate", {a_, b_, a_});
  EXPECT_THAT(before(both), UnorderedElementsAre(change_a, read_b));
  EXPECT_THAT(before(read(b_)), ElementsAre(both));
}

TEST_F(EffectOrderTest, OtherEffectsAreInOrderWithAll) {
  const NodeId change_a = change(a_), read_b = read(b_);
  const NodeId tells = tell();
  EXPECT_THAT(before(tells), UnorderedElementsAre(change_a, read_b));
  EXPECT_THAT(before(tell()), ElementsAre(tells));
  const NodeId behind = read(a_);
  EXPECT_THAT(before(behind), ElementsAre(NodeId{tells.value + 1}));
  EXPECT_THAT(before(change(b_)), ElementsAre(NodeId{tells.value + 1}));
}

TEST_F(EffectOrderTest, BodiesUseWhatTheyAreGiven) {
  const NodeId change_a = change(a_);
  const NodeId reads = run(of_first("VariableRead"));
  EXPECT_THAT(before(reads), ElementsAre(change_a));
  EXPECT_THAT(before(read(a_)), ElementsAre(change_a));
  const NodeId changes = run(of_first("VariableUpdate"));
  EXPECT_THAT(before(changes), UnorderedElementsAre(reads, NodeId{reads.value + 1}));
  EXPECT_THAT(before(read(b_)), ElementsAre(changes));
}

TEST_F(EffectOrderTest, ABodyWithOtherEffectsIsInOrderWithAll) {
  const NodeId read_b = read(b_);
  Graph inner = of_first("VariableRead");
  Builder b(&inner, &ops());
  (void)b.add("Tell", {});
  const NodeId tells = run(std::move(inner));
  EXPECT_THAT(before(tells), ElementsAre(read_b));
  EXPECT_THAT(before(change(a_)), ElementsAre(tells));
}

}  // namespace
}  // namespace sidereal::ir
