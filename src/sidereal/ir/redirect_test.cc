#include "sidereal/ir/redirect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sidereal/ir/builder.h"
#include "sidereal/ir/text.h"

namespace sidereal::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kWorker = "/job:worker/task:1";

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> out;
  for (const Node& node : graph.nodes()) out.push_back(node.name);
  return out;
}

/// Variables w, with a slot, and v on a parameter server, reads beside them, a node that uses all,
/// and at the end copies of w and the slot.
class RedirectTest : public ::testing::Test {
 protected:
  RedirectTest() {
    w_ = add("w", "Variable", {}, "/job:ps");
    slot_ = add("w/slot", "Variable", {}, "/job:ps", {"loc:@w"});
    v_ = add("v", "Variable", {}, "/job:ps");
    read_w_ = add("w/read", "VariableRead", {w_}, "/job:ps", {"loc:@w"});
    read_v_ = add("v/read", "VariableRead", {v_}, "/job:ps", {"loc:@v"});
    update_ =
        add("update", "VariableUpdateDense", {w_, read_w_, read_v_, slot_}, "/job:ps", {"loc:@w"});
    save_ = add("save", "Save", {w_, slot_}, "/job:ps", {"loc:@w"});
    copy_ = add("copy", "Variable", {}, kWorker);
    copy_of_slot_ = add("slot_copy", "Variable", {}, kWorker);
  }

  NodeId add(const char* name, const char* op, const std::vector<NodeId>& inputs,
             const char* device = "", std::vector<std::string> beside = {}) {
    Node node;
    node.name = name;
    node.op = op;
    node.device = device;
    for (const NodeId input : inputs) node.inputs.push_back({input, 0});
    if (!beside.empty()) node.attrs["_class"] = std::move(beside);
    return graph_.append(std::move(node));
  }
  static std::string input_of(const Graph& graph, const char* node, size_t number) {
    return graph.node(graph.find(node)->inputs[number].node).name;
  }
  Redirect redirect() {
    return {{w_, slot_, read_w_, update_}, {{w_, copy_}, {slot_, copy_of_slot_}}, kWorker};
  }

  Graph graph_;
  NodeId w_, slot_, v_, read_w_, read_v_, update_, save_, copy_, copy_of_slot_;
};

TEST_F(RedirectTest, NodesUseTheCopyWhereItIsAndOthersStay) {
  const Graph out = *redirected(graph_, redirect());
  EXPECT_THAT(names_of(out), ElementsAre("copy", "slot_copy", "w", "w/slot", "v", "w/read",
                                         "v/read", "update", "save"));
  EXPECT_EQ(input_of(out, "w/read", 0), "copy");
  EXPECT_EQ(input_of(out, "update", 0), "copy");
  EXPECT_EQ(input_of(out, "update", 1), "w/read");
  EXPECT_EQ(input_of(out, "update", 3), "slot_copy");
  EXPECT_EQ(input_of(out, "v/read", 0), "v");
  EXPECT_EQ(input_of(out, "save", 0), "w");
  EXPECT_EQ(input_of(out, "save", 1), "w/slot");
  for (const char* moved : {"w/read", "update"}) {
    EXPECT_EQ(out.find(moved)->device, kWorker) << moved;
    EXPECT_FALSE(out.find(moved)->attrs.contains("_class")) << moved;
  }
  for (const char* stays : {"w", "w/slot", "v/read", "save"}) {
    EXPECT_EQ(out.find(stays)->device, "/job:ps") << stays;
  }
}

TEST_F(RedirectTest, ANodeThatUsesNoneOfThemRunsWhereItDid) {
  Redirect all = redirect();
  all.nodes.push_back(read_v_);
  const Graph out = *redirected(graph_, all);
  EXPECT_EQ(out.find("v/read")->device, "/job:ps");
  EXPECT_TRUE(out.find("v/read")->attrs.contains("_class"));
}

TEST_F(RedirectTest, ControlInputsFollow) {
  graph_.mutable_node(save_).control_inputs = {update_};
  const Graph out = *redirected(graph_, redirect());
  EXPECT_THAT(out.find("save")->control_inputs, ElementsAre(out.find("update")->id));
}

TEST_F(RedirectTest, AGraphThatHasGrownHasTheSameBeginning) {
  const Graph before = *redirected(graph_, redirect());
  (void)add("later", "VariableRead", {w_}, "/job:ps");
  const Graph after = *redirected(graph_, redirect());
  ASSERT_EQ(after.size(), before.size() + 1);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after.nodes()[i].name, before.nodes()[i].name);
    EXPECT_EQ(after.nodes()[i].inputs, before.nodes()[i].inputs);
  }
  EXPECT_EQ(input_of(after, "later", 0), "w");
}

TEST_F(RedirectTest, WhatCannotBeIsRefused) {
  const auto message = [&](const Redirect& redirect) {
    const Result<Graph> out = redirected(graph_, redirect);
    EXPECT_EQ(out.status().code(), StatusCode::kInvalidArgument);
    return std::string(out.status().message());
  };
  EXPECT_THAT(message({{NodeId(99)}, {}, ""}), HasSubstr("none of number 99"));
  EXPECT_THAT(message({{}, {{NodeId(-1), copy_}}, ""}), HasSubstr("none of number -1"));
  EXPECT_THAT(message({{read_w_}, {{w_, read_v_}}, ""}),
              HasSubstr("'v/read' (VariableRead) has inputs"));
  const NodeId loop = add("loop", "While", {w_});
  EXPECT_THAT(message({{loop}, {{w_, copy_}}, ""}),
              HasSubstr("'loop' (While) uses variable 'w' in a body"));
}

}  // namespace
}  // namespace sidereal::ir
