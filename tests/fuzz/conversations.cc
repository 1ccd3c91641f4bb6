#include "tests/fuzz/conversations.h"

#include <grpcpp/grpcpp.h>

#include <cstring>
#include <utility>

#include "sidereal/app/testing/model.h"
#include "sidereal/base/check.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/text.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/program/compile.h"
#include "sidereal/service/session.pb.h"
#include "sidereal/service/tensor_pieces.h"
#include "sidereal/service/worker_service.h"

namespace sidereal::fuzz {

namespace {

using app::Model;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
namespace v1 = session::v1;

/// Methods by number: those of the master and of the worker of task 0, then those of task 1.
enum MethodNumber : uint8_t {
  kCreateSession,
  kExtendSession,
  kRunStep,
  kKeepSessionAlive,
  kCloseSession,
  kReset,
  kListDevices,
  kRunLoop,
  kRunClosures,
  kEndLease,
  kCommandJob,
  kHearCommands,
  kGetStatus,
  kAttach,
  kRunProgram,
  kRecvTensors,
  kFollowChanges,
  kTakeCopy,
  kMoveVariables,
  kResetContainers,
  kSetLogLevel,
  kAskVote,
  kMethods,
};

constexpr int kOk = grpc::StatusCode::OK;
constexpr int kCut = grpc::StatusCode::CANCELLED;
const std::string kTasks = "/job:w/replica:0/task:";

/// The number that stands for one that is known only when the script runs.
uint64_t mark(std::string_view word) {
  uint64_t out = 0;
  SR_CHECK(word.size() == sizeof(out), "{} is no mark", word);
  std::memcpy(&out, word.data(), sizeof(out));
  return out;
}

/// What one task runs, and the devices that its Send and Recv instructions name by number.
struct Part {
  program::Program program;
  std::vector<std::string> peers;
};

/// A script under construction.
class Talk {
 public:
  template <class Message>
  uint8_t open(int method, const Message& first, bool awaits = false) {
    script_.push_back({.kind = Action::kOpen,
                       .awaits = awaits,
                       .target = static_cast<uint8_t>(method),
                       .body = first.SerializeAsString()});
    return calls_++;
  }
  template <class Message>
  void write(uint8_t call, const Message& message, bool awaits = false) {
    script_.push_back({.kind = Action::kWrite,
                       .awaits = awaits,
                       .target = call,
                       .body = message.SerializeAsString()});
  }
  void act(Action::Kind kind, uint8_t call, bool awaits = false) {
    script_.push_back({.kind = kind, .awaits = awaits, .target = call});
  }
  void end(uint8_t call) { act(Action::kHalfClose, call, true); }

  void create_session(const ir::Graph& graph) {
    v1::CreateSessionRequest request;
    request.set_version(service::kSessionVersion);
    request.set_graph(ir::to_text(graph));
    open(kCreateSession, request);
  }
  void close_session() {
    v1::CloseSessionRequest request;
    request.set_session(mark("SESSION0"));
    open(kCloseSession, request);
  }
  /// A step without feeds.
  uint8_t run_step(const std::vector<std::string>& fetches, const std::vector<std::string>& targets,
                   bool trace = false) {
    v1::StepRequest request;
    v1::StepHead* const head = request.mutable_head();
    head->set_session(mark("SESSION0"));
    for (const std::string& name : fetches) head->add_fetches(name);
    for (const std::string& name : targets) head->add_targets(name);
    head->set_trace(trace);
    return open(kRunStep, request, true);
  }
  uint8_t attach(int task, const Part& part) {
    v1::AttachRequest request;
    request.mutable_head()->set_version(service::kSessionVersion);
    request.mutable_head()->set_task(kTasks + std::to_string(task));
    request.mutable_head()->set_session(7);
    const uint8_t call = open(task * kMethods + kAttach, request, true);
    request.Clear();
    request.set_program(program::encode(part.program));
    for (const std::string& peer : part.peers) request.add_peers()->set_device(peer);
    write(call, request, true);
    return call;
  }
  uint8_t run_program(int task, std::string_view program, int feeds = 0, bool awaits = false) {
    v1::ProgramRequest request;
    v1::ProgramHead* const head = request.mutable_head();
    head->set_session(7);
    head->set_program(mark(program));
    head->set_step(mark("NEWSTEP0"));
    head->set_feeds(feeds);
    return open(task * kMethods + kRunProgram, request, awaits);
  }

  Conversation with(std::vector<std::pair<int, size_t>> outcomes) {
    return {std::move(script_), std::move(outcomes)};
  }

 private:
  std::vector<Action> script_;
  uint8_t calls_ = 0;
};

/// What the tasks of a graph run whose nodes have devices.
std::vector<Part> parts_of(const ir::Graph& graph, const std::vector<ir::Output>& fetches,
                           const std::vector<ir::NodeId>& targets = {}) {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  ir::Graph placed = graph;
  for (const ir::Node& node : graph.nodes()) {
    if (node.device.empty()) placed.mutable_node(node.id).device = kTasks + "0/device:CPU:0";
  }
  const auto parts = partition::by_device(placed, fetches, targets, registry);
  SR_CHECK(parts.ok(), "{}", base::message_of(parts.status()));
  std::vector<Part> out;
  for (const partition::DevicePartition& part : *parts) {
    out.push_back({.program = *program::compile(part), .peers = part.peers});
  }
  return out;
}

template <class Message>
void write_tensor(Talk* talk, uint8_t call, int32_t index, const Tensor& value) {
  service::PieceCutter cutter(index, value);
  while (!cutter.done()) {
    Message message;
    cutter.next(message.mutable_piece());
    talk->write(call, message, cutter.done());
  }
}

Tensor two_floats() { return Tensor::of(Shape{2}, std::vector<float>{1, 10}); }

Conversation a_step() {
  Model model;
  model.add("Mul", {model.placeholder("x"), model.constant({2, 3})}, {}, "y");
  Talk talk;
  talk.create_session(model.graph());
  v1::StepRequest request;
  request.mutable_head()->set_session(mark("SESSION0"));
  request.mutable_head()->add_feeds("x");
  request.mutable_head()->add_fetches("y");
  const uint8_t step = talk.open(kRunStep, request);
  write_tensor<v1::StepRequest>(&talk, step, 0, two_floats());
  talk.end(step);
  talk.close_session();
  return talk.with({{kOk, 1}, {kOk, 2}, {kOk, 1}});
}

Conversation steps_without_a_client() {
  Model model;
  model.add("Mul", {model.placeholder("x"), model.constant({2, 3})}, {}, "y");
  Talk talk;
  talk.create_session(model.graph());
  v1::LoopRequest request;
  v1::LoopHead* const head = request.mutable_head();
  head->set_session(mark("SESSION0"));
  v1::LoopFetch* const fetch = head->add_fetches();
  fetch->set_name("y");
  fetch->set_keep(2);
  head->add_constants("x");
  head->set_batch_size(1);
  head->set_epochs(1);
  head->set_part_count(1);
  head->set_steps(1);
  head->set_steps_in_flight(1);
  head->set_lanes(1);
  head->set_trace_process(1);
  const uint8_t loop = talk.open(kRunLoop, request);
  write_tensor<v1::LoopRequest>(&talk, loop, 0, two_floats());
  talk.end(loop);
  talk.close_session();
  return talk.with({{kOk, 1}, {kOk, 4}, {kOk, 1}});
}

/// Closures of two plans: one that gives a value, one that fails, and one that is cancelled before
/// its feeds are there.
Conversation closures() {
  Model model;
  model.add("Mul", {model.placeholder("x"), model.constant({2, 3})}, {}, "y");
  Talk talk;
  talk.create_session(model.graph());
  v1::ClosureRequest request;
  request.set_session(mark("SESSION0"));
  v1::ClosurePlan* const plan = request.add_plans();
  plan->set_plan(1);
  plan->add_feeds("x");
  plan->add_fetches("y");
  const auto begin = [&request](uint64_t closure, uint64_t of_plan) {
    v1::Closure* const out = request.add_closures();
    out->set_closure(closure);
    out->set_plan(of_plan);
  };
  begin(1, 1);
  service::PieceCutter(0, two_floats()).next(request.add_pieces());
  const uint8_t call = talk.open(kRunClosures, request, true);
  request.Clear();
  request.add_plans()->set_plan(2);
  request.mutable_plans(0)->add_fetches("nothing");
  begin(2, 2);
  talk.write(call, request, true);
  request.Clear();
  begin(3, 1);
  request.add_cancels(3);
  talk.write(call, request);
  request.Clear();
  service::PieceCutter(0, two_floats()).next(request.add_pieces());
  talk.write(call, request, true);
  talk.end(call);
  talk.close_session();
  return talk.with({{kOk, 1}, {kOk, 3}, {kOk, 1}});
}

Conversation a_step_on_two_tasks() {
  Model model;
  const auto text = Tensor::strings(Shape{2}, std::vector<std::string>{"a", "bc"});
  const ir::Output s = model.add("Const", {}, {{"value", text}}, "s", "/task:1");
  model.add("Identity", {s}, {}, "t", "/task:0");
  const ir::Output there =
      model.add("Neg", {model.constant({1, 2}, "", "/task:0")}, {}, "there", "/task:1");
  model.add("Neg", {there}, {}, "back", "/task:0");
  Talk talk;
  talk.create_session(model.graph());
  talk.end(talk.run_step({"t", "back"}, {}, true));
  talk.close_session();
  return talk.with({{kOk, 1}, {kOk, 3}, {kOk, 1}});
}

Conversation variables() {
  Model model;
  const ir::AttrMap of_floats = {{"dtype", DType::kFloat32}, {"shape", Shape{2}}};
  ir::AttrMap attrs = of_floats;
  attrs["shared_name"] = std::string("v");
  const ir::Output v = model.add("Variable", {}, attrs, "v", "/task:1");
  model.add("VariableAssign", {v, model.constant({1, 2})}, {}, "init");
  model.add("VariableAssignAdd", {v, model.constant({10, 20}, "", "/task:0")}, {}, "add");
  model.add("VariableRead", {v}, of_floats, "read");
  Talk talk;
  talk.create_session(model.graph());
  talk.end(talk.run_step({}, {"init"}));
  talk.end(talk.run_step({}, {"add"}));
  talk.end(talk.run_step({"read"}, {}));
  talk.close_session();
  return talk.with({{kOk, 1}, {kOk, 1}, {kOk, 1}, {kOk, 2}, {kOk, 1}});
}

Conversation a_graph_that_grows() {
  Model model;
  model.constant({1, 2}, "a");
  Talk talk;
  talk.create_session(model.graph());
  model.add("Neg", {{.node = model.graph().find("a")->id}}, {}, "b", "/task:1");
  v1::ExtendSessionRequest request;
  request.set_session(mark("SESSION0"));
  request.set_graph_version(1);
  request.set_graph(ir::to_text(model.graph()));
  talk.open(kExtendSession, request);
  talk.end(talk.run_step({"b"}, {}));
  v1::KeepSessionAliveRequest keep_alive;
  keep_alive.set_session(mark("SESSION0"));
  talk.act(Action::kCancel, talk.open(kKeepSessionAlive, keep_alive), true);
  return talk.with({{kOk, 1}, {kOk, 1}, {kOk, 2}, {kCut, 0}});
}

/// A step that waits for a queue, until its time is up or its client has gone.
Conversation steps_that_wait() {
  Model model;
  const ir::AttrMap dtypes = {{"dtypes", std::vector<std::string>{"float32"}}};
  ir::AttrMap attrs = dtypes;
  attrs["shared_name"] = std::string("q");
  const ir::Output queue = model.add("Queue", {}, attrs, "q", "/task:1");
  const ir::Output taken = model.add("QueueDequeue", {queue}, dtypes, "take");
  model.add("Neg", {taken}, {}, "out", "/task:0");
  Talk talk;
  talk.create_session(model.graph());
  v1::StepRequest request;
  request.mutable_head()->set_session(mark("SESSION0"));
  request.mutable_head()->add_fetches("out");
  request.mutable_head()->set_timeout_ms(1);
  talk.end(talk.open(kRunStep, request, true));
  request.mutable_head()->clear_timeout_ms();
  talk.act(Action::kCancel, talk.open(kRunStep, request));
  v1::ResetRequest reset;
  reset.add_containers("");
  talk.open(kReset, reset);
  return talk.with({{kOk, 1}, {kOk, 1}, {kCut, 0}, {kOk, 1}});
}

Conversation a_loop() {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  const auto function = [&](const auto& build) {
    ir::Graph body;
    const ir::Output x = *ir::add_arg(&body, registry, {DType::kFloat32, Shape()});
    ir::Builder b(&body, &registry);
    const ir::Output y = build(b, x);
    return *ir::Function::make(std::move(body), {y});
  };
  const auto scalar = [](ir::Builder& b, float value) {
    return b.add("Const", {}, {{"value", Tensor::scalar(value)}});
  };
  ir::Graph graph;
  graph.hold_function("cond", function([&](ir::Builder& b, ir::Output x) {
                        return b.add("Less", {x, scalar(b, 10)});
                      }));
  graph.hold_function("body", function([&](ir::Builder& b, ir::Output x) {
                        const ir::Output twice = b.add("Add", {x, x});
                        b.graph().mutable_node(twice.node).device = "/job:w/task:1";
                        return b.add("Add", {twice, scalar(b, 1)});
                      }));
  ir::Builder b(&graph, &registry);
  b.add("While", {b.add("Const", {}, {{"value", Tensor::scalar(0.0F)}}, "zero")},
        {{"cond", std::string("cond")}, {"body", std::string("body")}, {"variables", int64_t{1}}},
        "loop");
  Talk talk;
  talk.create_session(graph);
  talk.end(talk.run_step({"loop"}, {}));
  return talk.with({{kOk, 1}, {kOk, 2}});
}

Conversation a_program() {
  Model model;
  const ir::Output y = model.add("Mul", {model.placeholder("x"), model.constant({2, 3})}, {}, "y");
  Talk talk;
  const uint8_t attached = talk.attach(0, parts_of(model.graph(), {y})[0]);
  const uint8_t run = talk.run_program(0, "PROGRAM0", 1);
  write_tensor<v1::ProgramRequest>(&talk, run, 0, two_floats());
  talk.end(run);
  talk.end(attached);
  return talk.with({{kOk, 2}, {kOk, 2}});
}

/// What masters say to two workers, one of which sends to the other.
Conversation programs_that_send() {
  Model model;
  const ir::Output there =
      model.add("Neg", {model.placeholder("x")}, {}, "there", kTasks + "0/device:CPU:0");
  const ir::Output back = model.add("Neg", {there}, {}, "back", kTasks + "1/device:CPU:0");
  const std::vector<Part> parts = parts_of(model.graph(), {back});
  Talk talk;
  const uint8_t first = talk.attach(0, parts[0]);
  const uint8_t second = talk.attach(1, parts[1]);
  const uint8_t receiver = talk.run_program(1, "PROGRAM1");
  const uint8_t sender = talk.run_program(0, "PROGRAM0", 1);
  write_tensor<v1::ProgramRequest>(&talk, sender, 0, two_floats());
  talk.act(Action::kAwait, receiver);
  for (const uint8_t call : {receiver, sender, first, second}) talk.end(call);
  return talk.with({{kOk, 2}, {kOk, 2}, {kOk, 2}, {kOk, 1}});
}

/// A receive request of a peer that is there before the step; and a part that is cancelled.
Conversation receive_requests() {
  Model model;
  const ir::Output x = model.constant({1, 2}, "x", kTasks + "0/device:CPU:0");
  const ir::Output back = model.add("Neg", {x}, {}, "back", kTasks + "1/device:CPU:0");
  const std::vector<Part> parts = parts_of(model.graph(), {back});
  Talk talk;
  const uint8_t attached = talk.attach(0, parts[0]);
  v1::RecvTensorsRequest receive_request;
  receive_request.set_step(mark("NEWSTEP0"));
  for (const program::Instruction& instruction : parts[0].program.instructions) {
    if (instruction.op != "Send") continue;
    v1::TensorKey* const key = receive_request.add_keys();
    key->set_edge(*ir::get_attr<int64_t>(instruction.attrs, "edge"));
    key->set_step(mark("NEWSTEP0"));
  }
  const uint8_t asked = talk.open(kRecvTensors, receive_request);
  const uint8_t run = talk.run_program(0, "PROGRAM0", 0, true);
  talk.act(Action::kAwait, asked);
  v1::ProgramRequest cancel;
  cancel.set_cancel(true);
  talk.write(run, cancel);
  talk.end(run);
  talk.end(attached);
  return talk.with({{kOk, 2}, {kOk, 1}, {kOk, 1}});
}

/// Sessions that say the tasks are in another cluster than they are in.
Conversation clusters_that_are_refused() {
  Model model;
  model.constant({1, 2}, "c");
  Talk talk;
  v1::CreateSessionRequest request;
  request.set_version(service::kSessionVersion);
  request.set_graph(ir::to_text(model.graph()));
  request.set_cluster(R"({"w": ["127.0.0.1:1", "127.0.0.1:2"]})");
  talk.open(kCreateSession, request);
  request.set_cluster(R"({"w": {"0": "127.0.0.1:0"}})");
  talk.open(kCreateSession, request);
  v1::AttachRequest head;
  head.mutable_head()->set_version(service::kSessionVersion);
  head.mutable_head()->set_task(kTasks + "0");
  head.mutable_head()->set_cluster(R"({"ps": ["[::1]:2222"], "w": {"3": "w3:2222"}})");
  talk.end(talk.open(kAttach, head));
  v1::ResetRequest reset;
  reset.set_cluster("{}");
  talk.open(kReset, reset);
  return talk.with({{grpc::StatusCode::FAILED_PRECONDITION, 0},
                    {grpc::StatusCode::INVALID_ARGUMENT, 0},
                    {grpc::StatusCode::FAILED_PRECONDITION, 0},
                    {grpc::StatusCode::FAILED_PRECONDITION, 0}});
}

/// Asks for the lease of a job.
v1::CreateSessionRequest a_job() {
  v1::CreateSessionRequest request;
  request.set_version(service::kSessionVersion);
  request.set_graph(ir::to_text(ir::Graph()));
  v1::JobHolder* const holder = request.mutable_job()->mutable_holder();
  holder->set_name("ads");
  holder->set_user("alice");
  holder->set_host("n7");
  holder->set_pid(12);
  holder->set_program("train.py");
  return request;
}

/// A job that is taken over by another one, whose lease somebody ends.
Conversation a_job_that_is_taken_over() {
  Talk talk;
  v1::CreateSessionRequest request = a_job();
  talk.open(kCreateSession, request);
  talk.open(kCreateSession, request);
  request.mutable_job()->set_take_over(true);
  talk.open(kCreateSession, request);
  v1::EndLeaseRequest end;
  end.set_lease(mark("SESSION1"));
  end.mutable_why()->set_code(grpc::StatusCode::FAILED_PRECONDITION);
  end.mutable_why()->set_message("enough");
  talk.open(kEndLease, end);
  talk.close_session();
  return talk.with({{kOk, 1},
                    {grpc::StatusCode::ALREADY_EXISTS, 0},
                    {kOk, 1},
                    {kOk, 1},
                    {grpc::StatusCode::FAILED_PRECONDITION, 0}});
}

v1::CommandJobRequest a_command() {
  v1::CommandJobRequest command;
  command.set_version(service::kSessionVersion);
  command.set_job("ads");
  command.mutable_command()->set_kind(1);
  command.mutable_command()->set_ps(2);
  return command;
}

/// A job that carries out a command.
Conversation a_job_that_is_commanded() {
  Talk talk;
  talk.open(kCreateSession, a_job());
  v1::HearCommandsRequest said;
  said.set_lease(mark("SESSION0"));
  const uint8_t hears = talk.open(kHearCommands, said, true);
  const uint8_t command = talk.open(kCommandJob, a_command());
  talk.act(Action::kAwait, hears);
  said.Clear();
  said.set_number(mark("COMMAND0"));
  said.mutable_progress()->set_bytes(1);
  said.mutable_progress()->set_bytes_all(2);
  talk.write(hears, said);
  talk.act(Action::kAwait, command);
  said.clear_progress();
  said.mutable_end()->set_text("done");
  talk.write(hears, said);
  talk.act(Action::kAwait, command);
  talk.end(command);
  talk.end(hears);
  talk.close_session();
  return talk.with({{kOk, 1}, {kOk, 2}, {kOk, 2}, {kOk, 1}});
}

/// Commands to nobody and of no kind, and who would hear of those of others.
Conversation commands_that_are_refused() {
  Talk talk;
  v1::CommandJobRequest command = a_command();
  talk.end(talk.open(kCommandJob, command, true));
  command.mutable_command()->set_kind(9);
  talk.end(talk.open(kCommandJob, command));
  v1::HearCommandsRequest hears;
  hears.set_lease(7);
  talk.end(talk.open(kHearCommands, hears));
  return talk.with({{kOk, 1},
                    {grpc::StatusCode::INVALID_ARGUMENT, 0},
                    {grpc::StatusCode::FAILED_PRECONDITION, 0}});
}

Conversation small_words() {
  Talk talk;
  v1::GetStatusRequest status;
  status.set_version(service::kSessionVersion);
  talk.open(kGetStatus, status);
  talk.open(kListDevices, v1::ListDevicesRequest());
  v1::ResetRequest reset;
  reset.add_containers("c");
  v1::TakeCopyRequest copy;
  copy.set_version(service::kSessionVersion);
  copy.set_task(kTasks + "1");
  copy.set_life(1);
  talk.open(kTakeCopy, copy, true);
  talk.open(kResetContainers, reset);
  v1::SetLogLevelRequest level;
  level.set_level("error");
  talk.open(kSetLogLevel, level);
  return talk.with({{kOk, 1}, {kOk, 1}, {kOk, 1}, {kOk, 1}, {kOk, 1}});
}

/// Of variables that cannot come, as their task is not there.
Conversation a_move() {
  Talk talk;
  v1::MoveRequest request;
  v1::MoveHead* const head = request.mutable_head();
  head->set_version(service::kSessionVersion);
  head->set_task(kTasks + "0");
  head->set_state_group("g");
  v1::MoveSource* const source = head->add_sources();
  source->set_task(kTasks + "1");
  source->set_address("127.0.0.1:1");
  source->add_names("v");
  const uint8_t move = talk.open(kMoveVariables, request);
  request.Clear();
  request.set_take_ms(10);
  talk.write(move, request);
  request.Clear();
  request.set_commit(true);
  talk.write(move, request, true);
  talk.end(move);
  return talk.with({{kOk, 1}});
}

/// No messages, and who says nothing or does not listen.
Conversation noise() {
  Talk talk;
  v1::AttachRequest head;
  head.mutable_head()->set_version(service::kSessionVersion);
  head.mutable_head()->set_task(kTasks + "0");
  const uint8_t call = talk.open(kAttach, head);
  Conversation out = talk.with({});
  out.script.push_back({.kind = Action::kWrite, .target = call, .body = "\xff\xff\xff no message"});
  out.script.push_back({.kind = Action::kHalfClose, .awaits = true, .target = call});
  out.script.push_back({.kind = Action::kOpen, .deaf = true, .target = kRunStep});
  out.script.push_back({.kind = Action::kOpen, .target = kCreateSession, .body = "\x08"});
  // In a stream, what is no message is the end of it.
  out.outcomes = {{kOk, 1}, {kCut, 0}, {grpc::StatusCode::INTERNAL, 0}};
  return out;
}

}  // namespace

std::map<std::string, Conversation> session_conversations() {
  return {{"a_graph_that_grows", a_graph_that_grows()},
          {"a_loop", a_loop()},
          {"a_move", a_move()},
          {"a_program", a_program()},
          {"a_job_that_is_commanded", a_job_that_is_commanded()},
          {"a_job_that_is_taken_over", a_job_that_is_taken_over()},
          {"a_step", a_step()},
          {"a_step_on_two_tasks", a_step_on_two_tasks()},
          {"closures", closures()},
          {"clusters_that_are_refused", clusters_that_are_refused()},
          {"commands_that_are_refused", commands_that_are_refused()},
          {"noise", noise()},
          {"programs_that_send", programs_that_send()},
          {"receive_requests", receive_requests()},
          {"small_words", small_words()},
          {"steps_that_wait", steps_that_wait()},
          {"steps_without_a_client", steps_without_a_client()},
          {"variables", variables()}};
}

std::map<std::string, std::string> tensors_in_pieces() {
  const std::map<std::string, Tensor> values = {
      {"floats", Tensor::of(Shape{2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6})},
      {"bool", Tensor::scalar(true)},
      {"nothing", Tensor::empty(DType::kFloat64, Shape{3, 0})},
      {"strings", Tensor::strings(Shape{3}, std::vector<std::string>{"a", "", "bcd"})}};
  std::map<std::string, std::string> out;
  for (const auto& [name, value] : values) {
    v1::TensorPiece whole;
    service::PieceCutter(0, value).next(&whole);
    // In two pieces, and once more as another tensor in one.
    v1::TensorPiece begin = whole;
    v1::TensorPiece end;
    begin.set_data(whole.data().substr(0, whole.data().size() / 2));
    end.set_data(whole.data().substr(whole.data().size() / 2));
    whole.set_index(1);
    for (const v1::TensorPiece& piece : {begin, whole, end}) {
      const std::string bytes = piece.SerializeAsString();
      out[name] += static_cast<char>(bytes.size() % 256);
      out[name] += static_cast<char>(bytes.size() / 256);
      out[name] += bytes;
    }
  }
  return out;
}

}  // namespace sidereal::fuzz
