#include <grpcpp/grpcpp.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "sidereal/app/cluster.h"
#include "sidereal/app/control.pb.h"
#include "sidereal/base/check.h"
#include "sidereal/ir/text.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/program/compile.h"
#include "tests/fuzz/conversations.h"

namespace sidereal::fuzz {

namespace {

namespace v1 = control::v1;

/// Methods by number: those of the ps, then those of the worker.
enum MethodNumber : uint8_t {
  kGetStatus,
  kCreateVariables,
  kScaleLearningRate,
  kReadVariable,
  kRegisterProgram,
  kStartTrace,
  kTakeTrace,
  kRunJob,
  kMethods,
};

constexpr int kOk = grpc::StatusCode::OK;
constexpr int kBad = grpc::StatusCode::INVALID_ARGUMENT;

template <class Message>
Action call(int method, const Message& request) {
  return {.kind = Action::kOpen,
          .awaits = true,
          .target = static_cast<uint8_t>(method),
          .body = request.SerializeAsString()};
}

/// A factorization machine on the fields of synthetic data.
std::string model_text() {
  std::ifstream file("tests/golden/train_fm.graph.txt");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const auto& [from, to] : {std::pair("[?,2", "[?,26"), std::pair("[10,", "[200,")}) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + 1)) {
      text.replace(at, std::string_view(from).size(), to);
    }
  }
  return text;
}

Action create_variables() {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  const auto graph = ir::from_text(model_text(), registry);
  SR_CHECK(graph.ok(), "{}", base::message_of(graph.status()));
  v1::CreateVariablesRequest request;
  v1::LaneVariables* const lane = request.add_lanes();
  for (const ir::VariableDef& given : graph->variables()) {
    v1::Variable* const variable = lane->add_variables();
    variable->set_name(given.name);
    const bool is_embedding = given.name.find("table") != std::string::npos;
    variable->set_embedding(is_embedding);
    for (const int64_t extent : given.shape.dims()) variable->add_dims(extent);
    variable->set_initializer("normal");
    variable->set_b(0.01);
    variable->set_optimizer("sgd");
    (*variable->mutable_optimizer_parameters())["learning_rate"] = 0.5;
    variable->set_shard(is_embedding ? 0 : -1);
    variable->add_lanes(1);
  }
  return call(kCreateVariables, request);
}

Action read(const std::string& name, int shard) {
  v1::ReadVariableRequest request;
  request.set_name(name);
  request.set_shard(shard);
  return call(kReadVariable, request);
}

Action take_trace() {
  v1::TakeTraceRequest request;
  request.set_process(1);
  request.set_begin_unix_ns(1'700'000'000'000'000'000);
  return call(kTakeTrace, request);
}

v1::RunJobRequest job() {
  v1::RunJobRequest request;
  request.set_graph(model_text());
  request.set_loss("loss");
  request.set_probability("probability");
  for (const char* name : {"linear/ids/table", "linear/out/bias", "embedding/table"}) {
    request.add_targets(std::string("apply/") + name);
  }
  request.add_ps("ps");
  request.set_data(R"({"format":"synthetic","synthetic":{"rows":64,"seed":2,"vocabulary_max":4}})");
  request.set_batch_size(16);
  request.set_epochs(1);
  request.set_part_count(1);
  request.set_steps_in_flight(2);
  request.set_record_losses(true);
  request.set_want_scores(true);
  return request;
}

Conversation small_words() {
  v1::GetStatusRequest status;
  status.set_version(app::kControlVersion);
  v1::ScaleLearningRateRequest scale;
  scale.set_factor(0.5);
  return {.script = {call(kGetStatus, status), call(kMethods + kGetStatus, status),
                     call(kScaleLearningRate, scale)},
          .outcomes = {{kOk, 1}, {kOk, 1}, {kOk, 1}}};
}

Conversation variables() {
  return {.script = {create_variables(), read("linear/out/bias", -1), read("embedding/table", 0)},
          .outcomes = {{kOk, 1}, {kOk, 1}, {kOk, 1}}};
}

/// Trains, with traces of the ps and of the worker.
Conversation a_job() {
  v1::StartTraceRequest start;
  start.set_first_step(0);
  start.set_end_step(2);
  v1::RunJobRequest request = job();
  request.set_trace_end(2);
  return {.script = {create_variables(), call(kStartTrace, start),
                     call(kMethods + kRunJob, request), take_trace(), read("linear/out/bias", -1)},
          .outcomes = {{kOk, 1}, {kOk, 1}, {kOk, 2}, {kOk, 1}, {kOk, 1}}};
}

/// Its client goes before its end.
Conversation a_job_that_is_cancelled() {
  v1::RunJobRequest request = job();
  request.set_epochs(int64_t{1} << 40);
  Conversation out{.script = {create_variables(), call(kMethods + kRunJob, request)},
                   .outcomes = {{kOk, 1}, {grpc::StatusCode::CANCELLED, 0}}};
  out.script.back().awaits = false;
  out.script.push_back({.kind = Action::kCancel, .awaits = true, .target = 1});
  return out;
}

/// Its ps is not there, and its client does not wait for it.
Conversation a_job_without_its_ps() {
  v1::RunJobRequest request = job();
  request.set_ps(0, "nobody");
  Conversation out{.script = {call(kMethods + kRunJob, request)},
                   .outcomes = {{grpc::StatusCode::CANCELLED, 0}}};
  out.script.back().awaits = false;
  return out;
}

/// What workers register.
Conversation a_program() {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  const auto graph = ir::from_text(model_text(), registry);
  SR_CHECK(graph.ok(), "{}", base::message_of(graph.status()));
  passes::Topology topology;
  topology.lanes = {1};
  const auto plan =
      passes::run_passes(*graph, {*graph->find_output("loss")},
                         {graph->find("apply/embedding/table")->id}, topology, registry);
  SR_CHECK(plan.ok(), "{}", base::message_of(plan.status()));
  const auto parts =
      partition::pull_push_by_layers(plan->graph, plan->fetches, plan->targets, registry);
  SR_CHECK(parts.ok(), "{}", base::message_of(parts.status()));
  const auto compiled = program::compile(*parts);
  SR_CHECK(compiled.ok(), "{}", base::message_of(compiled.status()));
  Conversation out{.script = {create_variables()}, .outcomes = {{kOk, 1}}};
  for (const program::RemoteProgram& remote : compiled->remotes) {
    v1::RegisterProgramRequest request;
    request.set_program(remote.bytes);
    out.script.push_back(call(kRegisterProgram, request));
    out.outcomes.emplace_back(kOk, 1);
  }
  return out;
}

/// Figures that are too large to be counted with.
Conversation large_numbers() {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  v1::TakeTraceRequest trace;
  trace.set_process(std::numeric_limits<int32_t>::max());
  trace.set_begin_unix_ns(kMin);
  v1::RunJobRequest request = job();
  request.set_part_count(kMax);
  request.set_part_index(kMax - 1);
  v1::RunJobRequest traced = job();
  traced.set_trace_end(2);
  traced.set_trace_begin_unix_ns(kMin);
  v1::RunJobRequest batch = job();
  batch.set_batch_size(kMax);
  v1::RunJobRequest epoch = job();
  epoch.set_first_epoch(kMax);
  epoch.set_epochs(2);
  return {.script = {create_variables(), call(kTakeTrace, trace), call(kMethods + kRunJob, request),
                     call(kMethods + kRunJob, traced), call(kMethods + kRunJob, batch),
                     call(kMethods + kRunJob, epoch)},
          .outcomes = {{kOk, 1}, {kBad, 0}, {kBad, 0}, {kBad, 0}, {kBad, 0}, {kBad, 0}}};
}

}  // namespace

std::map<std::string, Conversation> control_conversations() {
  return {{"a_job", a_job()},
          {"a_job_that_is_cancelled", a_job_that_is_cancelled()},
          {"a_job_without_its_ps", a_job_without_its_ps()},
          {"a_program", a_program()},
          {"large_numbers", large_numbers()},
          {"small_words", small_words()},
          {"variables", variables()}};
}

}  // namespace sidereal::fuzz
