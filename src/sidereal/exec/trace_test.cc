#include "sidereal/exec/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "sidereal/exec/testing/one_program.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"

namespace sidereal::exec {
namespace {

using ir::Output;
using program::Instruction;
using program::InstructionKind;
using program::Program;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = TraceEvent::Kind;
using nlohmann::json;

constexpr size_t kRoom = 1 << 20;

/// A clock that goes on by a microsecond whenever it is looked at.
Trace::Clock ticking() {
  return [now = int64_t{0}]() mutable { return now += 1000; };
}

/// Keeps calls until the test answers them.
class HeldExchange final : public ports::Exchange {
 public:
  Status start(int /*call*/, uint64_t /*step*/, std::span<const Tensor> /*feeds*/,
               ports::CallCompletion* completion) override {
    held.push_back(completion);
    return {};
  }
  void yield() override {}
  void answer(std::vector<Tensor> values) {
    ports::CallCompletion* completion = held.front();
    held.erase(held.begin());
    completion->done({}, values);
  }
  std::vector<ports::CallCompletion*> held;
};

/// feed %0 "x"; send call 0 (%0); %1 = Neg(%0); wait call 0 -> %2; %3 = Add(%1, %2).
Program calling_program() {
  Program p;
  p.slots = {{DType::kFloat32, {-1}, -1},
             {DType::kFloat32, {-1}, 0},
             {DType::kFloat32, {-1}, -1},
             {DType::kFloat32, {-1}, 1}};
  p.num_buffers = 2;
  p.feeds = {0};
  p.feed_names = {"x"};
  p.fetches = {3};
  p.fetch_names = {"sum"};
  p.calls = {{"/job:ps/task:1", 7, {0}, {2}}};
  p.instructions.resize(4);
  p.instructions[0] = {InstructionKind::kCallStart, "", "call_0", {}, {}, {}, {}, 0, {}};
  p.instructions[1] = {InstructionKind::kCompute, "Neg", "neg", {}, {0}, {1}, {}, -1, {}};
  p.instructions[2] = {InstructionKind::kCallWait, "", "call_0", {}, {}, {}, {0}, 0, {}};
  p.instructions[3] = {InstructionKind::kCompute, "Add", "sum", {}, {1, 2}, {3}, {1, 2}, -1, {}};
  return p;
}

/// Every complete event of a track lies in those that began before it and have not ended.
void expect_nested(const std::string& elements) {
  const json file = json::parse(chrome_file({elements}));
  std::map<int, std::vector<std::pair<double, double>>> tracks;
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    tracks[event["tid"]].emplace_back(begin, begin + event["dur"].get<double>());
  }
  for (auto& [track, spans] : tracks) {
    std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<double> open;
    for (const auto& [begin, end] : spans) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(end, open.back() + 1e-9) << "track " << track;
      }
      open.push_back(end);
    }
  }
}

TEST(Trace, TellsEveryInstructionOnceWithItsBytesAndShapes) {
  ir::Graph graph;
  ir::Builder b(&graph, &test_registry());
  const Output x = ops::placeholder(b, "x", DType::kFloat32, {-1, 3});
  const Output w = ops::placeholder(b, "w", DType::kFloat32, {3, 5});
  const Output y = b.add("Softmax", {b.add("MatMul", {x, w}, {}, "product")}, {}, "y");
  ASSERT_TRUE(b.status().ok());
  auto made = compile_for_test(graph, {y}, {}, passes_of(false));
  ASSERT_TRUE(made.ok());
  auto bound = BoundProgram::bind(*made, all_kernels(), {});
  ASSERT_TRUE(bound.ok());
  BufferPool pool(kRoom);
  Step step(bound->get(), &pool, nullptr);
  Trace trace(kRoom, ticking());
  step.set_trace(&trace, 4, "predict");
  step.begin(17);
  const std::vector<std::string>& names = made->feed_names;
  for (size_t i = 0; i < names.size(); ++i) {
    const Shape shape = names[i] == "x" ? Shape{2, 3} : Shape{3, 5};
    ASSERT_TRUE(step.feed(static_cast<int>(i), Tensor::zeros(DType::kFloat32, shape)).ok());
  }
  ASSERT_TRUE(step.advance().ok());
  const std::vector<TraceEvent> events = trace.events();
  ASSERT_EQ(events.size(), made->instructions.size() + 1);
  EXPECT_EQ(events[0].op, "MatMul");
  EXPECT_EQ(events[0].name, "product");
  EXPECT_EQ(events[0].track, 4);
  EXPECT_EQ(events[0].step, 17U);
  ASSERT_EQ(events[0].inputs.size(), 2U);
  EXPECT_EQ(events[0].inputs[0].bytes, 24U);
  EXPECT_EQ(events[0].inputs[1].shape, (Shape{3, 5}));
  ASSERT_EQ(events[0].outputs.size(), 1U);
  EXPECT_EQ(events[0].outputs[0].bytes, 40U);
  EXPECT_EQ(events.back().kind, Kind::kStep);
  EXPECT_EQ(events.back().op, "predict");
  EXPECT_LT(events.back().begin_ns, events[0].begin_ns);
  EXPECT_GT(events.back().end_ns, events[events.size() - 2].end_ns);
}

TEST(Trace, TellsHowLongACallTookAndHowLongTheStepWaited) {
  auto bound = BoundProgram::bind(calling_program(), all_kernels(), {});
  ASSERT_TRUE(bound.ok());
  BufferPool pool(kRoom);
  HeldExchange exchange;
  int64_t now = 0;
  Trace trace(kRoom, [&now] { return now; });
  Step step(bound->get(), &pool, &exchange);
  step.set_trace(&trace, 0, "step");
  now = 10;
  step.begin(1);
  ASSERT_TRUE(step.feed(0, Tensor::zeros(DType::kFloat32, {4})).ok());
  now = 20;
  ASSERT_EQ(*step.advance(), Step::Progress::kBlocked);
  now = 500;
  exchange.answer({Tensor::zeros(DType::kFloat32, {4})});
  now = 700;
  ASSERT_EQ(*step.advance(), Step::Progress::kDone);
  const std::vector<TraceEvent> events = trace.events();
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[0].kind, Kind::kSend);
  EXPECT_EQ(events[0].device, "/job:ps/task:1");
  EXPECT_EQ(events[0].inputs[0].bytes, 16U);
  EXPECT_EQ(events[1].op, "Neg");
  EXPECT_EQ(events[2].kind, Kind::kWait);
  EXPECT_EQ(events[2].sent_ns, 20);
  EXPECT_EQ(events[2].begin_ns, 20);
  EXPECT_EQ(events[2].answered_ns, 500);
  EXPECT_EQ(events[2].end_ns, 700);
  EXPECT_EQ(events[2].outputs[0].shape, (Shape{4}));
  EXPECT_EQ(events[4].kind, Kind::kStep);
  EXPECT_EQ(events[4].begin_ns, 10);
  const std::string text = to_chrome(events, {.process = 3, .process_name = "worker \"0\""});
  const json file = json::parse(chrome_file({text}));
  std::multiset<std::string> categories;
  for (const json& event : file["traceEvents"]) {
    if (event.contains("cat")) categories.insert(event["cat"]);
    if (event.value("cat", "") == "wait") {
      EXPECT_EQ(event["name"], "wait for /job:ps/task:1");
      EXPECT_DOUBLE_EQ(event["args"]["waited_us"].get<double>(), 0.68);
      EXPECT_DOUBLE_EQ(event["args"]["round_trip_us"].get<double>(), 0.48);
      EXPECT_EQ(event["args"]["output_bytes"], 16);
    }
  }
  EXPECT_THAT(categories, ElementsAre("call", "call", "op", "op", "send", "step", "wait"));
  EXPECT_THAT(text, HasSubstr("worker \\\"0\\\""));
  expect_nested(text);
}

TEST(Trace, ShowsBodiesInsideOfTheirLoop) {
  ir::Graph body;
  const Output i = *ir::add_arg(&body, test_registry(), {DType::kInt32, Shape()}, "i");
  ir::Builder inside(&body, &test_registry());
  const Output next = inside.add("Add", {i, ops::scalar(inside, DType::kInt32, 1)}, {}, "next");
  const ir::FunctionPtr step_body = *ir::Function::make(std::move(body), {next});
  ir::Graph test;
  const Output j = *ir::add_arg(&test, test_registry(), {DType::kInt32, Shape()}, "i");
  ir::Builder asked(&test, &test_registry());
  const Output less = asked.add("Less", {j, ops::scalar(asked, DType::kInt32, 3)}, {}, "less");
  const ir::FunctionPtr condition = *ir::Function::make(std::move(test), {less});
  ir::Graph graph;
  ir::Builder b(&graph, &test_registry());
  const Output start = ops::placeholder(b, "start", DType::kInt32, {});
  const Output out{ops::while_loop(b, condition, step_body, {start}, {}, -1, "loop"), 0};
  ASSERT_TRUE(b.status().ok()) << base::message_of(b.status());
  auto made = compile_for_test(graph, {out});
  ASSERT_TRUE(made.ok());
  auto bound = BoundProgram::bind(*made, all_kernels(), {});
  ASSERT_TRUE(bound.ok());
  BufferPool pool(kRoom);
  Step step(bound->get(), &pool, nullptr);
  Trace trace(kRoom, ticking());
  step.set_trace(&trace);
  step.begin(9);
  ASSERT_TRUE(step.feed(0, Tensor::zeros(DType::kInt32, {})).ok());
  ASSERT_TRUE(step.advance().ok());
  int adds = 0;
  int controls = 0;
  for (const TraceEvent& event : trace.events()) {
    EXPECT_EQ(event.step, 9U) << event.name;
    adds += event.op == "Add" ? 1 : 0;
    controls += event.kind == Kind::kControl ? 1 : 0;
  }
  EXPECT_EQ(adds, 3);
  EXPECT_EQ(controls, 1);
  expect_nested(to_chrome(trace.events(), {}));
}

TEST(Trace, LeavesOutAndCountsWhatFindsNoRoom) {
  auto bound = BoundProgram::bind(calling_program(), all_kernels(), {});
  ASSERT_TRUE(bound.ok());
  BufferPool pool(kRoom);
  HeldExchange exchange;
  Trace trace(400, ticking());
  Step step(bound->get(), &pool, &exchange);
  step.set_trace(&trace);
  step.begin(1);
  ASSERT_TRUE(step.feed(0, Tensor::zeros(DType::kFloat32, {4})).ok());
  ASSERT_TRUE(step.advance().ok());
  exchange.answer({Tensor::zeros(DType::kFloat32, {4})});
  ASSERT_TRUE(step.advance().ok());
  EXPECT_EQ(trace.size() + trace.dropped(), 4U);
  EXPECT_GT(trace.dropped(), 0U);
  EXPECT_EQ(trace.events().size(), trace.size());
  trace.clear();
  EXPECT_TRUE(trace.events().empty());
  step.set_trace(nullptr);
  step.begin(2);
  ASSERT_TRUE(step.feed(0, Tensor::zeros(DType::kFloat32, {4})).ok());
  ASSERT_TRUE(step.advance().ok());
  EXPECT_EQ(trace.size(), 0U);
  exchange.answer({Tensor::zeros(DType::kFloat32, {4})});
}

}  // namespace
}  // namespace sidereal::exec
