#include "sidereal/passes/place_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/function.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/placement_report.h"

// One test for every sentence of TensorFlow's rules of placement, and those of bodies.
namespace sidereal::passes {
namespace {

using ir::Builder;
using ir::DeviceSpec;
using ir::DType;
using ir::FunctionPtr;
using ir::Graph;
using ir::NodeId;
using ir::Output;
using ir::Shape;
using testing::HasSubstr;

constexpr const char* kCpu = "/job:a/replica:0/task:0/device:CPU:0";
constexpr const char* kCpu1 = "/job:a/replica:0/task:0/device:CPU:1";
constexpr const char* kGpu = "/job:a/replica:0/task:0/device:GPU:0";
constexpr const char* kFar = "/job:b/replica:0/task:0/device:CPU:0";
constexpr const char* kFar1 = "/job:b/replica:0/task:1/device:CPU:0";

/// Ops whose names end with Cpu or Gpu run there only; those with Far have no kernel here.
bool has_kernel(std::string_view op, std::string_view type) {
  if (op.ends_with("Far")) return false;
  return !((op.ends_with("Cpu") && type != "CPU") || (op.ends_with("Gpu") && type != "GPU"));
}

class PlaceDevices : public testing::Test {
 protected:
  PlaceDevices() {
    ops::register_all(&registry_);
    for (const char* where : {"", "Cpu", "Gpu", "Far"}) {
      add(std::string("In") + where, 0, DType::kFloat32);
      add(std::string("Do") + where, -1, DType::kFloat32);
      add(std::string("Make") + where, 0, DType::kString);
      add(std::string("Use") + where, -1, DType::kFloat32, 1);
    }
    add("UseTwo", 2, DType::kFloat32, 2);
    devices({kCpu, kCpu1, kGpu, kFar, kFar1});
    devices_.has_kernel = has_kernel;
  }

  void add(const std::string& name, int inputs, DType dtype, int handles = 0) {
    registry_.add({.name = name,
                   .min_inputs = inputs < 0 ? 1 : inputs,
                   .max_inputs = inputs,
                   .infer = [dtype](const ir::InferContext& c) -> Status {
                     c.outputs->push_back({dtype, Shape()});
                     return {};
                   },
                   .handle_inputs = handles});
  }

  void devices(const std::vector<std::string>& names) {
    devices_.all.clear();
    for (const std::string& name : names) devices_.all.push_back(*DeviceSpec::parse(name));
    devices_.local = *DeviceSpec::parse(kCpu);
  }

  /// Adds a node that asks for `device`, joined with the node called `with`.
  Output node(const std::string& op, const std::vector<Output>& inputs, const std::string& name,
              const std::string& device = "", const std::string& with = "") {
    ir::AttrMap attrs;
    if (!with.empty()) attrs["_class"] = std::vector<std::string>{"loc:@" + with};
    const Output made = b_.add(op, inputs, attrs, name);
    EXPECT_TRUE(b_.status().ok()) << b_.status();
    graph_.mutable_node(made.node).device = device;
    return made;
  }

  Status place() { return place_devices(&graph_, devices_, registry_); }
  void expect_placed() {
    const Status status = place();
    EXPECT_TRUE(status.ok()) << status;
    const Status verified = ir::verify(graph_, registry_);
    EXPECT_TRUE(verified.ok()) << verified;
  }
  void expect_error(const std::string& text, StatusCode code = StatusCode::kInvalidArgument) {
    const Status status = place();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(base::message_of(status), HasSubstr(text));
  }
  std::string where(const std::string& name) { return graph_.find(name)->device; }

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
  /// The body that `attr` of the node called `name` names.
  const Graph& body(const std::string& name, const std::string& attr) {
    const auto held = ir::attr_or<std::string>(graph_.find(name)->attrs, attr, "");
    return graph_.find_function(held)->body();
  }

  ir::OpRegistry registry_;
  Graph graph_;
  Builder b_{&graph_, &registry_};
  Devices devices_;
};

TEST_F(PlaceDevices, without_a_constraint_the_highest_type_with_a_kernel_on_the_own_task) {
  const Output any = node("In", {}, "any");
  node("DoCpu", {any}, "cpu");
  node("DoGpu", {any}, "gpu");
  node("Do", {any, any}, "both");
  expect_placed();
  EXPECT_EQ(where("any"), kGpu);
  EXPECT_EQ(where("cpu"), kCpu);
  EXPECT_EQ(where("gpu"), kGpu);
  EXPECT_EQ(where("both"), kGpu);
}

TEST_F(PlaceDevices, partial_specs_are_completed) {
  node("In", {}, "job", "/job:b");
  node("In", {}, "task", "/job:b/task:1");
  node("In", {}, "type", "/device:CPU:*");
  node("In", {}, "index", "/cpu:1");
  node("In", {}, "own", "/job:a");
  expect_placed();
  EXPECT_EQ(where("job"), kFar);
  EXPECT_EQ(where("task"), kFar1);
  EXPECT_EQ(where("type"), kCpu);
  EXPECT_EQ(where("index"), kCpu1);
  EXPECT_EQ(where("own"), kGpu);
}

TEST_F(PlaceDevices, an_already_assigned_device_is_kept) {
  const Output made = node("Make", {}, "v", "/job:a");
  node("Use", {made}, "u");
  devices_.assigned = {{"v", kFar1}, {"gone", kFar}};
  expect_placed();
  EXPECT_EQ(where("v"), kFar1);
  EXPECT_EQ(where("u"), kFar1);
}

TEST_F(PlaceDevices, an_unknown_assigned_device_is_internal) {
  node("In", {}, "x");
  devices_.assigned = {{"x", "/job:zzz/replica:0/task:0/device:CPU:0"}};
  expect_error("does not match any device", StatusCode::kInternal);
}

TEST_F(PlaceDevices, ops_joined_by_a_handle_form_one_group) {
  const Output made = node("Make", {}, "v", "/job:b/task:1");
  const Output passed = b_.add("Identity", {made}, {}, "passed");
  const Output used = node("Use", {passed}, "u");
  node("Do", {used}, "reader");
  expect_placed();
  EXPECT_EQ(where("v"), kFar1);
  EXPECT_EQ(where("passed"), kFar1);
  EXPECT_EQ(where("u"), kFar1);
  EXPECT_EQ(where("reader"), kGpu);
}

TEST_F(PlaceDevices, a_queue_and_what_uses_it_are_in_one_place) {
  const Output queue = b_.add("Queue", {},
                              {{"shared_name", std::string("q")},
                               {"dtypes", std::vector<std::string>{"float32"}},
                               {"shapes", std::vector<int64_t>{0}}},
                              "q");
  graph_.mutable_node(queue.node).device = "/job:b";
  b_.add("QueueSize", {queue}, {}, "size");
  ASSERT_TRUE(b_.status().ok()) << b_.status();
  expect_placed();
  EXPECT_EQ(where("size"), kFar);
}

TEST_F(PlaceDevices, conflicts_in_types_name_both_nodes) {
  const Output made = node("MakeCpu", {}, "v");
  node("UseGpu", {made}, "u");
  expect_error(
      "Cannot colocate nodes 'u' (UseGpu) and 'v' (MakeCpu) because no device type supports both "
      "of those nodes and the other nodes colocated with them");
}

TEST_F(PlaceDevices, two_handles_on_different_devices_into_one_op_are_refused) {
  const Output one = node("Make", {}, "one", "/job:a");
  const Output two = node("Make", {}, "two", "/job:b");
  node("UseTwo", {one, two}, "u");
  expect_error(
      "Cannot colocate nodes 'one' (Make) and 'two' (Make): Cannot merge devices with incompatible "
      "jobs: '/job:a' and '/job:b'");
}

TEST_F(PlaceDevices, a_task_that_is_left_has_another_in_its_place) {
  const Output made = node("Make", {}, "v", "/job:b/task:1");
  node("Use", {made}, "u");
  node("In", {}, "x", "/job:b/task:1/cpu:0");
  node("In", {}, "y", "/job:b/task:0");
  devices_.assigned = {{"v", kFar1}};
  devices_.overrides.tasks = {{"/job:b/replica:0/task:1", "/job:b/replica:0/task:0"}};
  devices({kCpu, kCpu1, kGpu, kFar});
  expect_placed();
  for (const char* each : {"v", "u", "x", "y"}) EXPECT_EQ(where(each), kFar) << each;
}

TEST_F(PlaceDevices, a_slot_is_where_its_variable_is_or_is_refused) {
  const auto variable = [&](const char* name, const char* device) {
    const Output made =
        b_.add("Variable", {},
               {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", Shape{2}}}, name);
    graph_.mutable_node(made.node).device = device;
    return made;
  };
  const auto update = [&](Output of, Output slot, const char* name) {
    const Output gradient =
        b_.add("Const", {}, {{"value", tensor::Tensor::empty(DType::kFloat32, Shape{2})}});
    const Output step = b_.add("Const", {}, {{"value", tensor::Tensor::scalar(1.0)}});
    const Output rate = b_.add("Const", {}, {{"value", tensor::Tensor::scalar(0.1F)}});
    b_.add_node("VariableUpdateDense", {of, gradient, step, rate, slot}, {{"kind", "adagrad"}}, {},
                name);
    ASSERT_TRUE(b_.status().ok()) << b_.status();
  };
  const Output v = variable("v", "/job:b/task:1");
  update(v, variable("v/slot", ""), "good");
  expect_placed();
  EXPECT_EQ(where("v/slot"), kFar1);
  EXPECT_EQ(where("good"), kFar1);
  const Output w = variable("w", "/job:b/task:1");
  update(w, variable("w/slot", "/job:b/task:0"), "bad");
  expect_error("Cannot colocate nodes 'w' (Variable) and 'w/slot' (Variable)");
  devices_.allow_soft_placement = true;
  expect_placed();
  EXPECT_EQ(where("w/slot"), kFar1);
}

TEST_F(PlaceDevices, a_variables_device_wins_over_an_infeasible_request_of_its_assign) {
  const Output made = node("Make", {}, "v", "/job:b");
  node("UseCpu", {made}, "u", "/job:b/device:GPU:0");
  node("UseCpu", {made}, "w", "/job:zzz");
  node("UseCpu", {made}, "x", "/gpu:0");
  expect_placed();
  EXPECT_EQ(where("v"), kFar);
  EXPECT_EQ(where("u"), kFar);
  EXPECT_EQ(where("w"), kFar);
}

TEST_F(PlaceDevices, a_variable_without_a_device_takes_that_of_its_assign) {
  const Output made = node("Make", {}, "v");
  node("Use", {made}, "u", "/job:b/task:1");
  expect_placed();
  EXPECT_EQ(where("v"), kFar1);
}

TEST_F(PlaceDevices, the_more_specific_of_a_variable_and_its_assign_wins) {
  const Output made = node("Make", {}, "v", "/job:b");
  node("Use", {made}, "u", "/job:b/task:1");
  const Output other = node("Make", {}, "w", "/job:a/task:0/device:CPU:1");
  node("Use", {other}, "x", "/job:a");
  expect_placed();
  EXPECT_EQ(where("v"), kFar1);
  EXPECT_EQ(where("x"), kCpu1);
}

TEST_F(PlaceDevices, classes_group_transitively) {
  node("In", {}, "a", "/job:b/task:1");
  node("In", {}, "b", "", "a");
  const Output c = node("In", {}, "c", "", "b");
  node("Do", {c}, "d", "", "nobody");
  node("In", {}, "e", "/job:b/task:0", "nobody");
  expect_placed();
  EXPECT_EQ(where("b"), kFar1);
  EXPECT_EQ(where("c"), kFar1);
  EXPECT_EQ(where("d"), kFar);
}

TEST_F(PlaceDevices, a_later_node_may_be_named_by_a_class) {
  node("In", {}, "first", "", "last");
  node("In", {}, "last", "/job:b");
  expect_placed();
  EXPECT_EQ(where("first"), kFar);
}

TEST_F(PlaceDevices, contradictory_devices_in_one_group_are_a_hard_error) {
  node("In", {}, "a", "/device:CPU:0");
  node("In", {}, "b", "/device:GPU:0", "a");
  expect_error("Cannot colocate nodes 'a' (In) and 'b' (In)");
  EXPECT_EQ(where("a"), "/device:CPU:0");  // As it was.
}

TEST_F(PlaceDevices, contradictory_devices_in_one_group_are_accepted_with_soft_placement) {
  const Output made = node("Make", {}, "v", "/job:b");
  node("Use", {made}, "u", "/job:a/replica:0/task:0/device:CPU:0");
  devices_.allow_soft_placement = true;
  expect_placed();
  EXPECT_EQ(where("v"), kFar);
  EXPECT_EQ(where("u"), kFar);
}

TEST_F(PlaceDevices, a_missing_device_is_named_with_those_there_are) {
  devices({kCpu, kFar});
  node("In", {}, "x", "/job:b/replica:0/task:0/device:GPU:0");
  expect_error(
      "'x' was explicitly assigned to /job:b/replica:0/task:0/device:GPU:0 but available devices "
      "are [ /job:a/replica:0/task:0/device:CPU:0, /job:b/replica:0/task:0/device:CPU:0 ]");
}

TEST_F(PlaceDevices, soft_placement_relaxes_the_index_then_the_type) {
  devices_.allow_soft_placement = true;
  node("In", {}, "index", "/gpu:11");
  node("In", {}, "type", "/job:b/task:1/device:TPU:3");
  node("DoCpu", {node("In", {}, "x")}, "kernel", "/gpu:0");
  expect_placed();
  EXPECT_EQ(where("index"), kGpu);
  EXPECT_EQ(where("type"), kFar1);
  EXPECT_EQ(where("kernel"), kCpu);
}

TEST_F(PlaceDevices, soft_placement_never_relaxes_job_or_task) {
  devices_.allow_soft_placement = true;
  node("In", {}, "x", "/job:b/task:7");
  expect_error("was explicitly assigned to /job:b/task:7");
}

TEST_F(PlaceDevices, a_type_without_a_kernel_is_an_error_without_soft_placement) {
  node("DoCpu", {node("In", {}, "x")}, "y", "/gpu:0");
  expect_error("could not satisfy the explicit device specification '/device:GPU:0'");
}

TEST_F(PlaceDevices, an_empty_device_set_is_refused) {
  devices({});
  expect_error("No devices are registered");
}

TEST_F(PlaceDevices, a_device_of_the_set_must_have_a_full_name) {
  devices({"/job:a"});
  expect_error("'/job:a' is not the full name of a device");
}

TEST_F(PlaceDevices, a_malformed_device_is_refused) {
  node("In", {}, "x", "/foo:bar");
  expect_error("Malformed device specification '/foo:bar' in node 'x' (In)");
}

TEST_F(PlaceDevices, an_op_without_a_kernel_here_is_an_error) {
  devices({kCpu, kGpu});
  node("InFar", {}, "x");
  expect_error("no device has a kernel for op InFar");
}

TEST_F(PlaceDevices, an_op_without_a_kernel_here_is_tolerated_where_another_task_may_have_one) {
  node("InFar", {}, "x");
  expect_placed();
  EXPECT_EQ(where("x"), kFar);
}

TEST_F(PlaceDevices, a_source_with_one_consumer_follows_it_if_allowed) {
  const Output alone = node("In", {}, "alone");
  node("Do", {alone}, "reader", "/job:b");
  const Output pinned = node("In", {}, "pinned", "/job:a");
  node("Do", {pinned}, "reader2", "/job:b");
  const Output shared = node("In", {}, "shared");
  node("Do", {shared}, "reader3", "/job:b");
  node("Do", {shared}, "reader4", "/job:b");
  const Output unable = node("InGpu", {}, "unable");
  node("Do", {unable}, "reader5", "/job:b");
  expect_placed();
  EXPECT_EQ(where("alone"), kFar);
  EXPECT_EQ(where("pinned"), kGpu);
  EXPECT_EQ(where("shared"), kGpu);
  EXPECT_EQ(where("unable"), kGpu);
}

TEST_F(PlaceDevices, shape_size_and_rank_follow_their_input) {
  const Output x = node("In", {}, "x", "/job:b/task:1");
  node("Shape", {x}, "shape");
  node("Size", {x}, "size");
  node("Rank", {x}, "rank");
  node("Shape", {x}, "asked", "/job:a");
  expect_placed();
  EXPECT_EQ(where("shape"), kFar1);
  EXPECT_EQ(where("size"), kFar1);
  EXPECT_EQ(where("rank"), kFar1);
  EXPECT_EQ(where("asked"), kGpu);
}

TEST_F(PlaceDevices, a_class_must_be_strings) {
  b_.add("In", {}, {{"_class", std::string("loc:@x")}}, "y");
  ASSERT_TRUE(b_.status().ok());
  expect_error("'_class' is of type string");
}

const ir::TensorSpec kScalar{DType::kFloat32, Shape()};
const ir::TensorSpec kHandle{DType::kString, Shape()};

TEST_F(PlaceDevices, nodes_of_bodies_without_a_device_run_where_their_caller_does) {
  const FunctionPtr f = function({kScalar}, [&](Builder& b, const std::vector<Output>& x) {
    const Output there = b.add("Do", {x[0]}, {}, "there");
    b.graph().mutable_node(there.node).device = "/job:b/task:1";
    const Output part = b.add("Do", {there}, {}, "part");
    b.graph().mutable_node(part.node).device = "/device:CPU:*";
    return std::vector<Output>{b.add("Do", {part}, {}, "open")};
  });
  const Output x = node("In", {}, "x");
  const NodeId near = ops::function_call(b_, f, {x}, "near");
  const NodeId far = ops::function_call(b_, f, {x}, "far");
  graph_.mutable_node(far).device = "/job:b/task:0";
  graph_.mutable_node(near).device = "/cpu:1";
  expect_placed();
  EXPECT_EQ(body("near", "function").find("open")->device, kCpu1);
  EXPECT_EQ(body("near", "function").find("part")->device, kCpu);
  EXPECT_EQ(body("near", "function").find("there")->device, kFar1);
  EXPECT_EQ(body("far", "function").find("open")->device, kFar);
  EXPECT_EQ(body("far", "function").find("part")->device, kFar);
  EXPECT_EQ(graph_.functions().size(), 2U);
}

TEST_F(PlaceDevices, what_takes_a_handle_in_a_body_runs_where_it_was_made) {
  const FunctionPtr inner = function({kScalar, kHandle}, [](Builder& b, const auto& in) {
    return std::vector<Output>{b.add("Use", {b.add("Identity", {in[1]}), in[0]}, {}, "use")};
  });
  const FunctionPtr outer = function({kHandle, kScalar}, [&](Builder& b, const auto& in) {
    return std::vector<Output>{{ops::function_call(b, inner, {in[1], in[0]}, "inner"), 0}};
  });
  const Output here = node("Make", {}, "here", "/job:a/cpu:1");
  const Output there = node("Make", {}, "there", "/job:b/task:1");
  const Output x = node("In", {}, "x");
  ops::function_call(b_, outer, {here, x}, "call_here");
  ops::function_call(b_, outer, {there, x}, "call_there");
  expect_placed();
  for (const auto& [call, device] : {std::pair{"call_here", kCpu1}, {"call_there", kFar1}}) {
    const Graph& outside = body(call, "function");
    const auto held = ir::attr_or<std::string>(outside.find("inner")->attrs, "function", "");
    EXPECT_EQ(outside.find_function(held)->body().find("use")->device, device);
  }
}

TEST_F(PlaceDevices, what_was_moved_is_there_whatever_is_asked_for) {
  const auto variable = [&](const char* name, const char* device) {
    const Output made =
        b_.add("Variable", {},
               {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", Shape{}}}, name);
    graph_.mutable_node(made.node).device = device;
    return made;
  };
  const FunctionPtr reads = function({kHandle, kScalar}, [](Builder& b, const auto& in) {
    const Output read = b.add("Use", {in[0], in[1]}, {}, "read");
    b.graph().mutable_node(read.node).device = "/job:b/task:1";
    return std::vector<Output>{read};
  });
  const Output v = variable("v", "/job:b/task:1");
  const Output w = variable("w", "/job:b/task:1");
  const Output x = node("In", {}, "x");
  node("Use", {v, x}, "use_v", "/job:b/task:1");
  node("Do", {x}, "beside_v", "/job:b/task:1", "v");
  node("Use", {w, x}, "use_w", "/job:b/task:1");
  ops::function_call(b_, reads, {v, x}, "call_v");
  ops::function_call(b_, reads, {w, x}, "call_w");
  devices_.assigned = {{"v", kFar1}, {"use_v", kFar1}, {"w", kFar1}};
  devices_.overrides.variables = {{"v", kFar}, {"gone", kFar}};
  expect_placed();
  for (const char* moved : {"v", "use_v", "beside_v"}) EXPECT_EQ(where(moved), kFar) << moved;
  for (const char* kept : {"w", "use_w"}) EXPECT_EQ(where(kept), kFar1) << kept;
  EXPECT_EQ(body("call_v", "function").find("read")->device, kFar);
  EXPECT_EQ(body("call_w", "function").find("read")->device, kFar1);
  node("UseTwo", {v, w}, "both");
  devices_.overrides.variables = {{"v", kFar}, {"w", kFar1}};
  expect_error("Cannot colocate nodes 'v' and 'w': they were moved to");
}

TEST_F(PlaceDevices, errors_in_bodies_name_the_caller) {
  const FunctionPtr f = function({kScalar}, [&](Builder& b, const std::vector<Output>& x) {
    const Output there = b.add("Do", {x[0]}, {}, "there");
    b.graph().mutable_node(there.node).device = "/job:c";
    return std::vector<Output>{there};
  });
  ops::function_call(b_, f, {node("In", {}, "x")}, "call");
  expect_error("node 'call' (FunctionCall): Cannot assign a device for operation 'there'");
}

TEST(PlacementReport, says_where_variables_sit_and_how_even_that_is) {
  ir::Graph graph;
  const auto add = [&](const char* op, const char* name, const char* device, const Shape& shape) {
    ir::Node node;
    node.op = op;
    node.name = name;
    node.device = device;
    node.attrs = {{"dtype", DType::kFloat32}, {"shape", shape}};
    graph.append(std::move(node));
  };
  add("Variable", "w", kFar, {2, 3});
  add("Variable", "b", kFar1, {2});
  add("Variable", "s", kFar1, {-1});
  add("Variable", "s", kFar1, {-1});  // Two nodes, one variable.
  add("NoOp", "x", kCpu, {});
  const PlacementReport report = placement_report(graph);
  EXPECT_DOUBLE_EQ(report.imbalance, 1.5);
  EXPECT_EQ(to_text(report),
            "task                     variables  bytes  nodes\n"
            "/job:a/replica:0/task:0          0      0      1\n"
            "/job:b/replica:0/task:0          1     24      1\n"
            "/job:b/replica:0/task:1          2      8      3\n"
            "imbalance (most bytes of a task / mean): 1.50\n"
            "\n"
            "variable  device                                value         bytes\n"
            "w         /job:b/replica:0/task:0/device:CPU:0  float32[2,3]     24\n"
            "b         /job:b/replica:0/task:1/device:CPU:0  float32[2]        8\n"
            "s         /job:b/replica:0/task:1/device:CPU:0  float32[?]        0\n");
}

}  // namespace
}  // namespace sidereal::passes
