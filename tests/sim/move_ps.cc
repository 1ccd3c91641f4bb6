#include "tests/sim/move_ps.h"

#include <optional>
#include <utility>

#include "sidereal/base/part_name.h"
#include "sidereal/ir/builder.h"
#include "sidereal/lane/lane.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/program/compile.h"
#include "tests/sim/late_copy.h"
#include "tests/sim/process.h"

namespace sidereal::sim {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

std::string moved_name(int variable) {
  const std::string part = base::part_name("t", variable / 2);
  return variable % 2 == 0 ? part : part + "/Slot";
}

namespace {

/// A graph that does one thing with one variable.
class WorkGraph {
 public:
  WorkGraph(int variable, int64_t rows) : rows_(rows) {
    ops::register_all(&registry_);
    handle_ = add("Variable", {},
                  {{"dtype", DType::kFloat32},
                   {"shape", Shape{rows}},
                   {"shared_name", moved_name(variable)}});
  }
  Result<std::string> program(MoveWork work) {
    switch (work) {
      case MoveWork::kBegin:
        targets_ = {
            add("VariableAssign", {handle_, fed("value", DType::kFloat32, rows_)}, {}).node};
        break;
      case MoveWork::kPush:
        targets_ = {add("VariableScatterAdd",
                        {handle_, fed("ids", DType::kInt64, -1), fed("rows", DType::kFloat32, -1)},
                        {})
                        .node};
        break;
      case MoveWork::kRead:
        fetches_ = {
            add("VariableRead", {handle_}, {{"dtype", DType::kFloat32}, {"shape", Shape{rows_}}})};
        break;
      case MoveWork::kDestroy:
        fetches_ = {add("DestroyResource", {handle_}, {})};
        break;
    }
    SR_RETURN_IF_ERROR(builder_.status());
    SR_ASSIGN_OR_RETURN(const std::vector<partition::DevicePartition> parts,
                        partition::by_device(graph_, fetches_, targets_, registry_));
    SR_ASSIGN_OR_RETURN(const program::Program program, program::compile(parts.at(0)));
    return program::encode(program);
  }

 private:
  ir::Output add(std::string_view op, const std::vector<ir::Output>& inputs, ir::AttrMap attrs,
                 std::string_view name = {}) {
    const ir::Output out = builder_.add(op, inputs, std::move(attrs), name);
    if (out.valid()) graph_.mutable_node(out.node).device = task_of_ps(0) + "/device:CPU:0";
    return out;
  }
  ir::Output fed(const std::string& name, DType dtype, int64_t rows) {
    return add("Placeholder", {}, {{"dtype", dtype}, {"shape", Shape{rows}}}, name);
  }

  const int64_t rows_;
  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder builder_{&graph_, &registry_};
  ir::Output handle_;
  std::vector<ir::Output> fetches_;
  std::vector<ir::NodeId> targets_;
};

constexpr MoveWork kAllWorks[kMoveWorks] = {MoveWork::kBegin, MoveWork::kPush, MoveWork::kRead,
                                            MoveWork::kDestroy};

}  // namespace

Result<MovePrograms> make_move_programs(const MovesScenario& scenario) {
  MovePrograms out;
  for (const MoveWork work : kAllWorks) {
    std::vector<std::string>& programs = out.emplace_back();
    for (int i = 0; i < scenario.variables; ++i) {
      SR_ASSIGN_OR_RETURN(programs.emplace_back(), WorkGraph(i, scenario.rows).program(work));
    }
  }
  return out;
}

/// There is nobody to ask: each step is of one task, on the lane that it was planned for.
class MovePs::NoPeers final : public task::Peers {
 public:
  [[nodiscard]] bool can_run() const override { return true; }
  base::RefPtr<ReceiveRequest> ask(const ports::TensorSource& /*source*/, uint64_t /*step*/,
                                   std::span<const Wanted> /*wanted*/,
                                   Requester* /*requester*/) override {
    SR_CHECK(false, "a step over one variable asks nobody");
    return nullptr;
  }
};

MovePs::MovePs(const MoveContext& context, sys::sim::Host* host, int index, uint64_t life,
               const MovePrograms& programs)
    : context_(context), programs_(programs), peers_(std::make_unique<NoPeers>()) {
  std::vector<task::LaneSystem> stepped;
  for (int i = 0; i < context.scenario->lanes; ++i) {
    lanes_.push_back(std::make_unique<LaneOfPs>());
    lanes_.back()->node = context.world->add_node(host);
    stepped.push_back({.network = lanes_.back()->node, .clock = lanes_.back()->node});
  }
  task_ = task::Task::create({.name = task_of_ps(index),
                              .incarnation = life,
                              .lanes = context.scenario->lanes,
                              .inbox_slots = 4096,
                              .pool_bytes = size_t{4} << 20,
                              .standby_timeout_ns = context.scenario->standby_timeout_ns,
                              .stepped = std::move(stepped)})
              .value();
  task_->start({peers_.get()});
  for (int i = 0; i < lanes(); ++i) {
    LaneOfPs& one = *lanes_[at(i)];
    one.lane = task_->lane(i);
    one.node->drive(&one);
  }
}

MovePs::~MovePs() {
  *is_there_ = false;
  for (const auto& stream : streams()) stream->task_ends();
  task_->stop();
  task_.reset();
}

std::vector<std::shared_ptr<LateStream>> MovePs::streams() const {
  std::vector<std::shared_ptr<LateStream>> out;
  for (const auto& one : streams_) {
    if (auto stream = one.lock()) out.push_back(std::move(stream));
  }
  return out;
}

int MovePs::lane_of(int variable) const {
  // A slot is where its part is.
  return base::lane_of_name(moved_name(variable - variable % 2), lanes(), context_.scenario->ps);
}

void MovePs::post(std::function<void()> fn) {
  const bool is_posted = task_->lane(0)->post([is_there = is_there_, fn = std::move(fn)] {
    if (*is_there) fn();
  });
  SR_CHECK(is_posted, "a lane has too much to do");
}

bool MovePs::open(uint64_t session) {
  if (has(session)) return true;
  const Status opened = task_->open_session(
      session, {.kind = task::SessionState::Kind::kGroup, .group = kMovedGroup});
  if (opened.code() == StatusCode::kUnavailable) return false;
  SR_CHECK(opened.ok(), "a session cannot be opened: {}", base::message_of(opened));
  sessions_.insert(session);
  numbers_.clear();
  for (const std::vector<std::string>& programs : programs_) {
    std::vector<uint64_t>& numbers = numbers_.emplace_back();
    for (size_t i = 0; i < programs.size(); ++i) {
      const int lane = lane_of(static_cast<int>(i));
      numbers.push_back(
          task_->register_program(session, {.bytes = programs[i], .lane = lane}).value());
    }
  }
  return true;
}

void MovePs::close(uint64_t session) {
  if (sessions_.erase(session) > 0) task_->close_session(session);
}

void MovePs::run(Work work, Done done) {
  if (!has(work.session)) {
    return done(base::aborted("session {:x} is not here", work.session), {});
  }
  task::ProgramCall call = {
      .session = work.session,
      .program = numbers_[static_cast<size_t>(work.what)][static_cast<size_t>(work.variable)],
      .step = ++steps_,
      .feeds = std::move(work.feeds),
      .whole = true,
      .number = work.number,
      .closure = work.closure,
      .lane = lane_of(work.variable)};
  task_->run(&call, [done = std::move(done)](task::ProgramResult& result) {
    done(result.status, result.fetches);
  });
}

Result<std::vector<Tensor>> MovePs::run_now(Work work) {
  std::optional<Status> status;
  std::vector<Tensor> fetches;
  const int lane = lane_of(work.variable);
  run(std::move(work), [&](const Status& ended, const std::vector<Tensor>& values) {
    status = ended;
    fetches = values;
  });
  for (int i = 0; i < 10 && !status.has_value(); ++i) lanes_[at(lane)]->step();
  SR_CHECK(status.has_value(), "a step of a ps does not end");
  SR_RETURN_IF_ERROR(*status);
  return fetches;
}

}  // namespace sidereal::sim
