#include "sidereal/partition/by_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "sidereal/base/strings.h"
#include "sidereal/ir/component_specs.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"

// A test for every sentence on cutting graphs that TensorFlow's tests pin, then of control flow.
// What cut graphs compute is tested in exec/by_device_test.cc.
namespace sidereal::partition {
namespace {

using ir::Builder;
using ir::DType;
using ir::FunctionPtr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Output;
using ir::Shape;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kA = "/job:a/replica:0/task:0/device:CPU:0";
constexpr const char* kB = "/job:b/replica:0/task:0/device:CPU:0";

const ir::TensorSpec kScalar{DType::kFloat32, Shape()};

class ByDevice : public testing::Test {
 protected:
  ByDevice() { ops::register_all(&registry_); }

  Output on(const char* device, Output value) { return on(device, value, &graph_); }
  static Output on(const char* device, Output value, Graph* graph) {
    graph->mutable_node(value.node).device = device;
    return value;
  }
  Output input(const char* device, const std::string& name) {
    return on(device, ops::placeholder(b_, name, DType::kFloat32, Shape()));
  }
  NodeId no_op(const char* device, const std::vector<NodeId>& after, const std::string& name) {
    const NodeId id = b_.add_node("NoOp", {}, {}, after, name);
    graph_.mutable_node(id).device = device;
    return id;
  }

  template <class Make>
  FunctionPtr function(const std::vector<ir::TensorSpec>& inputs, Make make) {
    Graph body;
    std::vector<Output> args;
    for (const ir::TensorSpec& spec : inputs) args.push_back(*ir::add_arg(&body, registry_, spec));
    Builder b(&body, &registry_);
    std::vector<Output> outputs = make(b, args);
    EXPECT_TRUE(b.status().ok()) << b.status();
    return *ir::Function::make(std::move(body), std::move(outputs));
  }

  /// The partitions, verified, by device.
  std::map<std::string, DevicePartition> cut(const std::vector<Output>& fetches,
                                             const std::vector<NodeId>& targets = {},
                                             const ByDeviceOptions& options = {}) {
    EXPECT_TRUE(b_.status().ok()) << b_.status();
    auto parts = by_device(graph_, fetches, targets, registry_, options);
    EXPECT_TRUE(parts.ok()) << parts.status();
    std::map<std::string, DevicePartition> out;
    if (!parts.ok()) return out;
    for (DevicePartition& part : *parts) {
      const Status status = ir::verify(part.graph, registry_);
      EXPECT_TRUE(status.ok()) << status;
      out[part.device] = std::move(part);
    }
    return out;
  }

  Status error(const std::vector<Output>& fetches, const std::vector<NodeId>& targets = {}) {
    return by_device(graph_, fetches, targets, registry_).status();
  }

  /// "name = Op inputs after(names)", one per node; of a Send or Recv the edge in front.
  static std::vector<std::string> lines(const Graph& graph) {
    std::vector<std::string> out;
    for (const Node& node : graph.nodes()) {
      std::string line = node.name + " = " + node.op;
      const bool passes = node.op == "Send" || node.op == "Recv";
      if (passes)
        line = fmt::format("{} {}", node.op, ir::attr_or<int64_t>(node.attrs, "edge", -1));
      for (const Output& in : node.inputs) line += " " + graph.output_name(in);
      if (node.op == "Recv") line += " -> " + node.name;
      for (const NodeId c : node.control_inputs) line += " ^" + graph.node(c).name;
      out.push_back(line);
    }
    return out;
  }
  static const Graph& body(const Graph& graph, const std::string& node, const std::string& attr) {
    return graph.find_function(ir::attr_or<std::string>(graph.find(node)->attrs, attr, ""))->body();
  }

  ir::OpRegistry registry_;
  Graph graph_;
  Builder b_{&graph_, &registry_};
};

TEST_F(ByDevice, one_device_is_one_partition_without_send_or_recv) {
  const Output x = input(kA, "x");
  const Output y = on(kA, ops::tanh(b_, x));
  auto parts = cut({y});
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(ir::to_text(parts[kA].graph), ir::to_text(graph_));
  EXPECT_EQ(parts[kA].fetches, std::vector<Output>{y});
}

TEST_F(ByDevice, there_is_one_partition_per_device) {
  const Output x = input(kA, "x");
  const Output y = on(kB, ops::tanh(b_, x));
  const NodeId done = no_op(kA, {y.node}, "done");
  auto parts = cut({x, y, x}, {done, y.node});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_THAT(parts[kA].fetch_indices, ElementsAre(0, 2));
  EXPECT_THAT(parts[kA].fetch_names, ElementsAre("x", "x"));
  EXPECT_THAT(parts[kB].fetch_indices, ElementsAre(1));
  ASSERT_EQ(parts[kA].targets.size(), 1U);
  EXPECT_EQ(parts[kA].graph.node(parts[kA].targets[0]).name, "done");
  ASSERT_EQ(parts[kB].targets.size(), 1U);
}

TEST_F(ByDevice, a_data_edge_becomes_a_send_and_a_recv_that_name_a_peer_by_number) {
  const Output x = input("/job:a", "x");
  const Output y = on("/job:b", ops::tanh(b_, x));
  auto parts = cut({y});
  EXPECT_EQ(ir::to_text(parts["/job:a"].graph),
            "sidereal-graph 1\n"
            "%0 = Placeholder() name=\"x\" {dtype=float32, shape=shape[]} "
            "device=\"/job:a\" : float32[]\n"
            "%1 = Send(%0) name=\"x/send_0\" {edge=0, peer=0, tensor_name=\"x:0\"} "
            "device=\"/job:a\"\n");
  EXPECT_EQ(ir::to_text(parts["/job:b"].graph),
            "sidereal-graph 1\n"
            "%0 = Recv() name=\"x/recv_0\" {dtypes=strings[\"float32\"], edge=0, peer=0, "
            "shapes=ints[0], tensor_name=\"x:0\"} device=\"/job:b\" : float32[]\n"
            "%1 = Tanh(%0) name=\"Tanh\" device=\"/job:b\" : float32[]\n");
  EXPECT_THAT(parts["/job:a"].peers, ElementsAre("/job:b"));
  EXPECT_THAT(parts["/job:b"].peers, ElementsAre("/job:a"));
}

TEST_F(ByDevice, workers_that_differ_in_their_number_have_equal_parts_on_others) {
  const std::string ps[] = {"/job:ps/replica:0/task:0/device:CPU:0",
                            "/job:ps/replica:0/task:1/device:CPU:0"};
  std::vector<std::vector<std::string>> texts(2);
  for (const int number : {2, 10}) {
    const std::string worker = fmt::format("/job:w/replica:0/task:{}/device:CPU:0", number);
    Graph graph;
    Builder b(&graph, &registry_);
    const FunctionPtr cond = function({kScalar, kScalar}, [&](Builder& inner, const auto& x) {
      return std::vector<Output>{
          on(worker.c_str(), ops::cast(inner, x[0], DType::kBool), &inner.graph())};
    });
    const FunctionPtr step = function({kScalar, kScalar}, [&](Builder& inner, const auto& x) {
      return std::vector<Output>{
          on(ps[1].c_str(), ops::mul(inner, x[0], x[1], "next"), &inner.graph())};
    });
    const Output x = on(worker.c_str(), ops::placeholder(b, "x", DType::kFloat32, Shape()), &graph);
    const Output w = on(ps[0].c_str(), ops::tanh(b, x, "w"), &graph);
    const Output v = on(ps[1].c_str(), ops::neg(b, w, "v"), &graph);
    const Output y =
        on(worker.c_str(), {ops::while_loop(b, cond, step, {x}, {v}, 9, "y"), 0}, &graph);
    const Output z = on(ps[0].c_str(), ops::mul(b, y, v, "z"), &graph);
    for (const bool fuse : {false, true}) {
      const auto parts = by_device(graph, {z}, {}, registry_, {.tensor_fuse = fuse});
      ASSERT_TRUE(parts.ok()) << parts.status();
      ASSERT_EQ(parts->size(), 3U);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ((*parts)[i].device, ps[i]);
        EXPECT_THAT((*parts)[i].peers, testing::UnorderedElementsAre(worker, ps[1 - i]));
        texts[number == 2 ? 0 : 1].push_back(ir::to_text((*parts)[i].graph));
      }
    }
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_THAT(texts[0][0], testing::Not(HasSubstr("/job:w")));
}

TEST_F(ByDevice, several_consumers_on_one_destination_share_one_recv) {
  const Output x = input(kA, "x");
  const Output y = on(kB, ops::tanh(b_, x, "y"));
  const Output z = on(kB, ops::add(b_, x, y, "z"));
  auto parts = cut({z});
  EXPECT_THAT(lines(parts[kA].graph), ElementsAre("x = Placeholder", "Send 0 x"));
  EXPECT_THAT(lines(parts[kB].graph),
              ElementsAre("Recv 0 -> x/recv_0", "y = Tanh x/recv_0", "z = Add x/recv_0 y"));
}

TEST_F(ByDevice, each_output_and_each_destination_has_an_edge_of_its_own) {
  const Output x = on(kA, ops::placeholder(b_, "x", DType::kInt64, {-1}));
  const NodeId unique = b_.add_node("Unique", {x}, {}, {}, "u");
  graph_.mutable_node(unique).device = kA;
  const Output first = on(kB, b_.add("Identity", {{unique, 0}}, {}, "first"));
  const Output second = on(kB, b_.add("Identity", {{unique, 1}}, {}, "second"));
  const Output third =
      on("/job:c/replica:0/task:0/device:CPU:0", b_.add("Identity", {{unique, 0}}, {}, "third"));
  auto parts = cut({first, second, third});
  EXPECT_THAT(lines(parts[kA].graph),
              ElementsAre("x = Placeholder", "u = Unique x", "Send 0 u", "Send 1 u", "Send 2 u:1"));
}

TEST_F(ByDevice, a_control_edge_sends_an_empty_constant) {
  const Output x = input(kA, "x");
  const NodeId wait = no_op(kB, {x.node}, "wait");
  auto parts = cut({}, {wait});
  EXPECT_THAT(lines(parts[kA].graph),
              ElementsAre("x = Placeholder", "x/done_0 = Const ^x", "Send 0 x/done_0"));
  EXPECT_THAT(lines(parts[kB].graph), ElementsAre("Recv 0 -> x/recv_0", "wait = NoOp ^x/recv_0"));
  const auto* value = ir::find_attr<ir::Tensor>(parts[kA].graph.find("x/done_0")->attrs, "value");
  ASSERT_NE(value, nullptr);
  EXPECT_EQ(value->num_elements(), 0);
}

TEST_F(ByDevice, several_control_uses_of_one_source_share_one_pair) {
  const Output x = input(kA, "x");
  const NodeId one = no_op(kB, {x.node}, "one");
  const NodeId two = no_op(kB, {x.node, one}, "two");
  auto parts = cut({}, {one, two});
  EXPECT_THAT(lines(parts[kB].graph), ElementsAre("Recv 0 -> x/recv_0", "one = NoOp ^x/recv_0",
                                                  "two = NoOp ^x/recv_0 ^one"));
}

TEST_F(ByDevice, a_data_edge_and_a_control_edge_of_one_source_are_separate_pairs) {
  const Output x = input(kA, "x");
  const Output y = on(kB, ops::tanh(b_, x, "y"));
  const NodeId wait = no_op(kB, {x.node}, "wait");
  auto parts = cut({y}, {wait});
  EXPECT_THAT(lines(parts[kA].graph),
              ElementsAre("x = Placeholder", "Send 0 x", "x/done_1 = Const ^x", "Send 1 x/done_1"));
  EXPECT_THAT(lines(parts[kB].graph), ElementsAre("Recv 0 -> x/recv_0", "y = Tanh x/recv_0",
                                                  "Recv 1 -> x/recv_1", "wait = NoOp ^x/recv_1"));
}

TEST_F(ByDevice, a_graph_that_was_cut_is_not_cut_again) {
  const ir::AttrMap edge = {
      {"edge", int64_t{4}}, {"peer", int64_t{0}}, {"tensor_name", std::string("x:0")}};
  ir::AttrMap attrs = edge;
  attrs.merge(ir::component_attrs({kScalar}));
  const Output x = input(kA, "x");
  const FunctionPtr inner = function({kScalar}, [&](Builder& b, const auto& /*args*/) {
    return std::vector<Output>{on(kA, b.add("Recv", {}, attrs, "recv"), &b.graph())};
  });
  const Output y = on(kA, {ops::function_call(b_, inner, {x}, "y"), 0});
  EXPECT_THAT(base::message_of(error({y})), HasSubstr("node 'recv' (Recv) has no place"));
  const NodeId send = b_.add_node("Send", {x}, edge, {}, "send");
  graph_.mutable_node(send).device = kA;
  EXPECT_THAT(base::message_of(error({x})), HasSubstr("node 'send' (Send) has no place"));
}

TEST_F(ByDevice, partitions_hold_only_the_functions_they_need) {
  const FunctionPtr inner = function({kScalar}, [](Builder& b, const auto& x) {
    return std::vector<Output>{on(kA, ops::tanh(b, x[0]), &b.graph())};
  });
  const FunctionPtr outer = function({kScalar}, [&](Builder& b, const auto& x) {
    const Output y{ops::function_call(b, inner, {x[0]}, "inner"), 0};
    return std::vector<Output>{on(kA, y, &b.graph())};
  });
  const Output x = input(kB, "x");
  const Output y = on(kA, {ops::function_call(b_, outer, {x}, "y"), 0});
  auto parts = cut({y});
  EXPECT_EQ(parts[kA].graph.functions().size(), 1U);
  EXPECT_EQ(parts[kA].graph.functions()[0].function, outer);
  EXPECT_THAT(parts[kB].graph.functions(), IsEmpty());
}

TEST_F(ByDevice, incomplete_graphs_are_refused) {
  const Output x = input(kA, "x");
  EXPECT_EQ(error({{NodeId(7), 0}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(error({{x.node, 1}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(error({}, {NodeId(-1)}).code(), StatusCode::kInvalidArgument);
  const Output y = ops::tanh(b_, x, "y");
  EXPECT_THAT(base::message_of(error({y})), HasSubstr("node 'y' (Tanh) has no device"));
  graph_.mutable_node(y.node).device = kA;
  graph_.mutable_node(y.node).inputs[0] = Output();
  EXPECT_EQ(error({y}).code(), StatusCode::kInvalidArgument);
  graph_.mutable_node(y.node).inputs[0] = Output{NodeId(5), 0};
  EXPECT_EQ(error({y}).code(), StatusCode::kInvalidArgument);
}

TEST_F(ByDevice, a_whole_graph_has_no_args) {
  Graph graph;
  ASSERT_TRUE(ir::add_arg(&graph, registry_, kScalar).ok());
  graph.mutable_node(NodeId(0)).device = kA;
  EXPECT_EQ(by_device(graph, {}, {}, registry_).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ByDevice, what_others_wait_for_goes_first_and_the_order_of_the_graph_holds_otherwise) {
  const Output x = input(kA, "x");
  const Output there = on(kB, ops::tanh(b_, x, "there"));
  const Output late = on(kA, ops::exp(b_, there, "late"));
  const Output early = on(kA, ops::neg(b_, x, "early"));
  const Output both = on(kA, ops::add(b_, late, early, "both"));
  auto parts = cut({both});
  EXPECT_THAT(lines(parts[kA].graph),
              ElementsAre("x = Placeholder", "Send 0 x", "early = Neg x", "Recv 1 -> there/recv_1",
                          "late = Exp there/recv_1", "both = Add late early"));
}

TEST_F(ByDevice, a_variable_is_read_when_what_reads_it_has_come) {
  const ir::AttrMap as_table = {{"dtype", ir::DType::kFloat32}, {"shape", kScalar.shape}};
  ir::AttrMap attrs = as_table;
  attrs["shared_name"] = std::string("t");
  const Output table = on(kB, b_.add("Variable", {}, attrs, "table"));
  const Output rows = on(kB, b_.add("VariableRead", {table}, as_table, "rows"));
  const Output whole = on(kB, b_.add("VariableRead", {table}, as_table, "whole"));
  const Output x = input(kA, "x");
  const Output sum = on(kB, ops::add(b_, rows, x, "sum"));
  const Output there = on(kA, ops::neg(b_, whole, "there"));
  auto parts = cut({sum, there});
  // Whoever holds the table while the other device lets it wait has the next push copy all of it.
  EXPECT_THAT(
      lines(parts[kB].graph),
      ElementsAre("table = Variable", "whole = VariableRead table", "Send 0 whole",
                  "Recv 1 -> x/recv_1", "rows = VariableRead table", "sum = Add rows x/recv_1"));
}

TEST_F(ByDevice, ops_on_one_queue_are_tried_in_the_order_of_the_graph) {
  const ir::AttrMap components = {{"dtypes", std::vector<std::string>{"float32"}},
                                  {"shapes", std::vector<int64_t>{0}}};
  ir::AttrMap attrs = components;
  attrs["shared_name"] = std::string("q");
  const Output queue = on(kB, b_.add("Queue", {}, attrs, "q"));
  const Output x = input(kA, "x");
  const Output put = on(kB, b_.add("QueueEnqueue", {queue, x}, {}, "put"));
  const Output same = on(kB, b_.add("Identity", {queue}, {}, "same"));
  const Output got = on(kB, b_.add("QueueDequeue", {same}, components, "got"));
  auto parts = cut({got}, {put.node});
  EXPECT_THAT(lines(parts[kB].graph),
              ElementsAre("q = Queue", "same = Identity q", "Recv 0 -> x/recv_0",
                          "put = QueueEnqueue q x/recv_0", "got = QueueDequeue same"));
}

TEST_F(ByDevice, a_branch_runs_on_each_device_of_its_functions_with_what_it_takes_there) {
  const FunctionPtr yes = function({kScalar, kScalar}, [](Builder& b, const auto& x) {
    const Output there = on(kB, ops::tanh(b, x[1], "there"), &b.graph());
    return std::vector<Output>{on(kA, ops::add(b, there, x[0], "sum"), &b.graph())};
  });
  const FunctionPtr no = function(
      {kScalar, kScalar}, [](Builder&, const auto& x) { return std::vector<Output>{x[0]}; });
  const Output flag = on(kA, ops::placeholder(b_, "flag", DType::kBool, Shape()));
  const Output x = input(kA, "x");
  const Output y = input(kB, "y");
  const Output z = on(kA, {ops::branch(b_, flag, yes, no, {x, y}, "z"), 0});
  auto parts = cut({z});
  // Home takes x only, the other y only.
  EXPECT_THAT(lines(parts[kA].graph),
              ElementsAre("flag = Placeholder", "Send 0 flag", "x = Placeholder", "z = If flag x"));
  EXPECT_THAT(lines(parts[kB].graph),
              ElementsAre("y = Placeholder", "Recv 0 -> flag/recv_0", "z = If flag/recv_0 y"));
  EXPECT_THAT(lines(body(parts[kA].graph, "z", "then_branch")),
              ElementsAre("arg = Arg", "Recv 1 -> there/recv_1", "sum = Add there/recv_1 arg"));
  EXPECT_THAT(lines(body(parts[kB].graph, "z", "then_branch")),
              ElementsAre("arg_1 = Arg", "there = Tanh arg_1", "Send 1 there"));
  EXPECT_THAT(lines(body(parts[kB].graph, "z", "else_branch")), ElementsAre("arg_1 = Arg"));
  EXPECT_THAT(parts[kB].graph.find("z")->outputs, IsEmpty());
}

TEST_F(ByDevice, a_loop_on_another_device_is_driven_by_the_predicate_of_each_iteration) {
  const FunctionPtr cond = function({kScalar, kScalar}, [](Builder& b, const auto& x) {
    return std::vector<Output>{on(kA, ops::cast(b, x[0], DType::kBool), &b.graph())};
  });
  const FunctionPtr step = function({kScalar, kScalar}, [](Builder& b, const auto& x) {
    return std::vector<Output>{on(kB, ops::mul(b, x[0], x[1], "next"), &b.graph())};
  });
  const Output x = input(kA, "x");
  const Output w = input(kB, "w");
  const Output y = on(kA, {ops::while_loop(b_, cond, step, {x}, {w}, 9, "y"), 0});
  auto parts = cut({y});
  EXPECT_THAT(lines(parts[kA].graph), ElementsAre("x = Placeholder", "y = While x"));
  EXPECT_THAT(lines(parts[kB].graph), ElementsAre("w = Placeholder", "y = While w"));
  EXPECT_THAT(lines(body(parts[kA].graph, "y", "cond")),
              ElementsAre("arg = Arg", "Cast = Cast arg", "Send 0 Cast"));
  EXPECT_THAT(lines(body(parts[kB].graph, "y", "cond")),
              ElementsAre("arg_1 = Arg", "Recv 0 -> y/predicate/recv_0"));
  EXPECT_THAT(lines(body(parts[kA].graph, "y", "body")),
              ElementsAre("arg = Arg", "Send 1 arg", "Recv 2 -> next/recv_2"));
  EXPECT_THAT(lines(body(parts[kB].graph, "y", "body")),
              ElementsAre("arg_1 = Arg", "Recv 1 -> arg/recv_1", "next = Mul arg/recv_1 arg_1",
                          "Send 2 next"));
  const ir::AttrMap& attrs = parts[kB].graph.find("y")->attrs;
  EXPECT_EQ(ir::attr_or<int64_t>(attrs, "maximum_iterations", -1), 9);
  EXPECT_EQ(ir::attr_or<int64_t>(attrs, "variables", -1), 0);
}

TEST_F(ByDevice, a_scan_on_another_device_has_as_many_rows_and_begins_and_ends_with_home) {
  const FunctionPtr step = function({kScalar, kScalar}, [](Builder& b, const auto& x) {
    on(kB, ops::tanh(b, ops::scalar(b, DType::kFloat32, 1), "alone"), &b.graph());
    for (const Node& node : b.graph().nodes()) {
      if (node.op == "Const") on(kB, {node.id, 0}, &b.graph());
    }
    return std::vector<Output>{on(kA, ops::add(b, x[0], x[1], "sum"), &b.graph())};
  });
  const Output x = input(kA, "x");
  const Output rows = on(kA, ops::placeholder(b_, "rows", DType::kFloat32, {-1}));
  const NodeId loop = ops::scan(b_, step, {x}, {rows}, {}, {.reverse = true}, "y");
  graph_.mutable_node(loop).device = kA;
  auto parts = cut({{loop, 0}});
  EXPECT_THAT(lines(parts[kB].graph), ElementsAre("Recv 0 -> y/recv_0", "y = Scan y/recv_0"));
  EXPECT_TRUE(ir::attr_or(parts[kB].graph.find("y")->attrs, "reverse", false));
  EXPECT_EQ(parts[kB].graph.nodes()[0].outputs[0].shape, (Shape{-1, 0}));
  const std::vector<std::string> there = lines(body(parts[kB].graph, "y", "body"));
  ASSERT_EQ(there.size(), 6U);
  EXPECT_EQ(there[1], "Recv 1 -> iteration/recv_1");
  EXPECT_EQ(there[5], "Send 2 iteration/done_2");
  const std::vector<std::string> here = lines(body(parts[kA].graph, "y", "body"));
  EXPECT_EQ(here.back(), "Recv 2 -> iteration/recv_2");
}

TEST_F(ByDevice, a_function_that_is_called_twice_is_cut_twice_with_edges_of_its_own) {
  const FunctionPtr f = function({kScalar}, [](Builder& b, const auto& x) {
    const Output there = on(kB, ops::tanh(b, x[0], "there"), &b.graph());
    return std::vector<Output>{on(kA, ops::neg(b, there, "back"), &b.graph())};
  });
  const Output x = input(kB, "x");
  const Output y = on(kA, {ops::function_call(b_, f, {x}, "y"), 0});
  const Output z = on(kA, {ops::function_call(b_, f, {y}, "z"), 0});
  auto parts = cut({z});
  EXPECT_EQ(parts[kB].graph.functions().size(), 2U);
  EXPECT_THAT(lines(body(parts[kB].graph, "y", "function")),
              ElementsAre("arg = Arg", "there = Tanh arg", "Send 0 there"));
  EXPECT_THAT(lines(body(parts[kB].graph, "z", "function")),
              ElementsAre("arg = Arg", "there = Tanh arg", "Send 2 there"));
}

TEST_F(ByDevice, readers_of_a_loop_run_after_its_effects_on_other_devices) {
  const FunctionPtr f = function({kScalar}, [](Builder& b, const auto& x) {
    const NodeId print = b.add_node("QueueSize",
                                    {on(kB,
                                        b.add("Queue", {},
                                              {{"shared_name", std::string("q")},
                                               {"dtypes", std::vector<std::string>{"float32"}}},
                                              "q"),
                                        &b.graph())},
                                    {}, {}, "size");
    b.graph().mutable_node(print).device = kB;
    return std::vector<Output>{on(kA, ops::neg(b, x[0]), &b.graph())};
  });
  const Output x = input(kA, "x");
  const Output y = on(kA, {ops::function_call(b_, f, {x}, "y"), 0});
  const Output z = on(kA, ops::tanh(b_, y, "z"));
  auto parts = cut({z});
  EXPECT_THAT(lines(parts[kA].graph), ElementsAre("x = Placeholder", "y = FunctionCall x",
                                                  "Recv 0 -> y/recv_0", "z = Tanh y ^y/recv_0"));
}

TEST_F(ByDevice, fused_what_a_device_has_for_another_at_the_same_time_is_one_message) {
  const Output x = input(kA, "x");
  const Output y = on(kA, ops::tanh(b_, x, "y"));
  const NodeId ready = no_op(kA, {y.node}, "ready");
  const Output last = on(kA, ops::neg(b_, y, "last"));
  const Output sum = on(kB, ops::add(b_, x, y, "sum"));
  const NodeId then = no_op(kB, {ready, sum.node}, "then");
  auto parts = cut({sum, last}, {then}, {.tensor_fuse = true});
  EXPECT_THAT(lines(parts[kA].graph),
              ElementsAre("x = Placeholder", "y = Tanh x", "ready = NoOp ^y", "Send 0 x y ^ready",
                          "last = Neg y"));
  EXPECT_THAT(lines(parts[kB].graph),
              ElementsAre("Recv 0 -> x/recv_0", "sum = Add x/recv_0 x/recv_0:1",
                          "then = NoOp ^x/recv_0 ^sum"));
}

TEST_F(ByDevice, fused_what_goes_to_different_devices_does_not_go_together) {
  const Output x = input(kA, "x");
  const Output y = on(kA, ops::tanh(b_, x, "y"));
  const Output here = on(kB, ops::neg(b_, x, "here"));
  const Output there = on("/job:c/replica:0/task:0/device:CPU:0", ops::add(b_, x, y, "there"));
  auto parts = cut({here, there}, {}, {.tensor_fuse = true});
  EXPECT_THAT(lines(parts[kA].graph),
              ElementsAre("x = Placeholder", "Send 0 x", "y = Tanh x", "Send 1 x y"));
}

TEST_F(ByDevice, fused_orders_alone_are_one_empty_tensor) {
  const Output x = input(kA, "x");
  const Output y = input(kA, "y");
  const NodeId wait = no_op(kB, {x.node, y.node}, "wait");
  auto parts = cut({}, {wait}, {.tensor_fuse = true});
  EXPECT_THAT(lines(parts[kA].graph), ElementsAre("x = Placeholder", "y = Placeholder",
                                                  "x/done_0 = Const ^x ^y", "Send 0 x/done_0"));
  EXPECT_THAT(lines(parts[kB].graph),
              ElementsAre("Recv 0 -> x/recv_0", "wait = NoOp ^x/recv_0 ^x/recv_0"));
}

TEST_F(ByDevice, fused_nothing_waits_for_what_its_own_answer_is_needed_for) {
  const Output x = input(kA, "x");
  const Output y = input(kA, "y");
  const Output there = on(kB, ops::add(b_, x, y, "there"));
  const Output back = on(kA, ops::tanh(b_, there, "back"));
  const Output last = on(kB, ops::add(b_, back, x, "last"));
  auto parts = cut({last}, {}, {.tensor_fuse = true});
  EXPECT_THAT(lines(parts[kA].graph),
              ElementsAre("x = Placeholder", "y = Placeholder", "Send 0 x y",
                          "Recv 1 -> there/recv_1", "back = Tanh there/recv_1", "Send 2 back"));
  EXPECT_THAT(lines(parts[kB].graph),
              ElementsAre("Recv 0 -> x/recv_0", "there = Add x/recv_0 x/recv_0:1", "Send 1 there",
                          "Recv 2 -> back/recv_2", "last = Add back/recv_2 x/recv_0"));
}

TEST_F(ByDevice, fused_what_is_there_is_sent_before_its_device_may_wait) {
  const ir::AttrMap components = {{"dtypes", std::vector<std::string>{"float32"}},
                                  {"shapes", std::vector<int64_t>{0}}};
  ir::AttrMap attrs = components;
  attrs["shared_name"] = std::string("q");
  const Output queue = on(kA, b_.add("Queue", {}, attrs, "q"));
  const Output x = input(kA, "x");
  const Output got = on(kA, b_.add("QueueDequeue", {queue}, components, "got"));
  const Output z = on(kA, ops::neg(b_, x, "z"));
  const Output sum = on(kB, ops::add(b_, x, got, "sum"));
  const Output w = on(kB, ops::add(b_, sum, z, "w"));
  auto parts = cut({w}, {}, {.tensor_fuse = true});
  EXPECT_THAT(lines(parts[kA].graph),
              ElementsAre("q = Queue", "x = Placeholder", "Send 0 x", "got = QueueDequeue q",
                          "Send 1 got", "z = Neg x", "Send 2 z"));
}

TEST_F(ByDevice, fused_large_values_go_alone_and_messages_are_bounded) {
  const auto values = [&](const std::string& name, int64_t n) {
    return on(kA, ops::placeholder(b_, name, DType::kFloat32, Shape{n}));
  };
  const std::vector<Output> all = {values("a", 10), values("b", 100), values("c", 10),
                                   values("d", 10), values("e", -1)};
  std::vector<Output> fetches;
  for (const Output& value : all) fetches.push_back(on(kB, ops::neg(b_, value)));
  auto parts = cut(fetches, {}, {.tensor_fuse = true, .fused_bytes_max = 80});
  EXPECT_THAT(lines(parts[kA].graph),
              ElementsAre("a = Placeholder", "b = Placeholder", "Send 0 b", "c = Placeholder",
                          "Send 1 a c", "d = Placeholder", "e = Placeholder", "Send 2 d e"));
}

TEST_F(ByDevice, calls_that_double_at_every_level_are_refused_in_time) {
  FunctionPtr f = function({kScalar}, [](Builder& b, const auto& x) {
    const Output there = on(kB, ops::tanh(b, x[0], "there"), &b.graph());
    return std::vector<Output>{on(kA, ops::neg(b, there, "back"), &b.graph())};
  });
  for (int depth = 0; depth < 28; ++depth) {
    f = function({kScalar}, [&](Builder& b, const auto& x) {
      Output y = x[0];
      for (const char* name : {"a", "b"}) {
        y = on(kA, {ops::function_call(b, f, {y}, name), 0}, &b.graph());
      }
      return std::vector<Output>{y};
    });
  }
  const Output y = on(kA, {ops::function_call(b_, f, {input(kA, "x")}, "y"), 0});
  const auto parts = by_device(graph_, {y}, {}, registry_, {.function_nodes_max = 10000});
  EXPECT_EQ(parts.status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace sidereal::partition
