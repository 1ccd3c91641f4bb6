#include "sidereal/train/resharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "sidereal/base/event_log.h"
#include "sidereal/base/log.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ir/graph.h"
#include "sidereal/security/credentials.h"

namespace sidereal::train {

using service::JobCommand;

namespace {

/// For the last changes, which are few: what is there follows what was there.
constexpr std::chrono::milliseconds kTakeDeadline(60'000);

/// How often the rules of autoscaling are asked.
constexpr std::chrono::seconds kAutoscaleLook(5);

double seconds_of(Resharding::Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

/// What a cluster calls a part of a variable, and the slots of it.
std::vector<std::string> names_of(const ModelVariable& variable, const std::string& part) {
  std::vector<std::string> out = {part};
  for (const SlotVariable& slot : variable.slots) {
    out.push_back(part + slot.name.substr(variable.name.size()));
  }
  return out;
}

std::vector<service::VariableRoute> routes_of(const CompiledModel& model,
                                              const std::vector<PartMove>& moves) {
  std::vector<service::VariableRoute> out;
  for (const PartMove& move : moves) {
    const ModelVariable* const variable = model.find_variable(move.variable);
    for (std::string& name : names_of(*variable, move.name)) {
      out.push_back({.name = std::move(name), .from = move.from, .to = move.to});
    }
  }
  return out;
}

/// A graph that destroys what nodes of another one name, and what it fetches. Value type.
struct Forgetting {
  ir::Graph graph;
  std::vector<std::string> fetches;
};

/// By device: destroys what nodes of graphs of `used` name there, where those of `other`, in their
/// order, have the same elsewhere.
std::map<std::string, Forgetting> forgetting(const std::vector<ir::Graph>& used,
                                             const std::vector<ir::Graph>& other,
                                             const ir::OpRegistry& registry) {
  std::map<std::string, Forgetting> out;
  for (size_t i = 0; i < used.size(); ++i) {
    for (const ir::Node& node : used[i].nodes()) {
      // What is of a worker is no part.
      if (!node.attrs.contains("shared_name") || !is_ps(node.device)) continue;
      const ir::Node* const now = other[i].find(node.name);
      if (now == nullptr || now->device == node.device) continue;
      Forgetting& here = out[node.device];
      if (here.graph.find(node.name) != nullptr) continue;
      ir::Node copy = node;
      copy.control_inputs.clear();
      const ir::NodeId handle = here.graph.append(std::move(copy));
      ir::Builder builder(&here.graph, &registry);
      const ir::Output made =
          builder.add("DestroyResource", {{handle, 0}}, {}, "forget/" + node.name);
      if (!made.valid()) continue;
      here.graph.mutable_node(made.node).device = node.device;
      here.fetches.push_back(here.graph.output_name(made));
    }
  }
  return out;
}

}  // namespace

Resharding::~Resharding() {
  abandon(base::cancelled("the training ended before the parts had moved"));
}

bool Resharding::look(const std::optional<Clock::time_point>& first_step) {
  switch (stage_) {
    case Stage::kIdle:
      asked_ = context_.commands();
      if (asked_ != nullptr) {
        if (const std::optional<JobCommand> command = asked_->next()) {
          begin(*command);
          return false;
        }
      }
      asked_ = nullptr;
      if (const std::optional<JobCommand> command = autoscaled()) begin(*command);
      return false;
    case Stage::kCopying:
      return look_at_copies();
    case Stage::kDue:
      return true;
    case Stage::kMoved:
      if (first_step) end_moved(*first_step);
      return false;
  }
  return false;
}

void Resharding::begin(const JobCommand& command) {
  command_ = service::to_string(command);
  if (asked_ == nullptr) command_ += ", by autoscale";
  began_ = Clock::now();
  autoscale_.moved(seconds_of(began_));
  Result<Placement> next = plan(command);
  if (next.ok() && *next == context_.placed->placement()) {
    end({}, to_string({.ps_before = next->ps.size(), .ps = next->ps.size()}));
    return;
  }
  // From here on abandon() ends it.
  stage_ = Stage::kCopying;
  const Status begun = next.ok() ? copy(*std::move(next)) : next.status();
  if (!begun.ok()) abandon(begun);
}

Result<Placement> Resharding::plan(const JobCommand& command) {
  const Placement& now = context_.placed->placement();
  const std::vector<SpreadVariable> variables = to_spread(context_.placed->model(), now);
  switch (command.kind) {
    case JobCommand::Kind::kScale:
      return scaled(variables, now, command.ps);
    case JobCommand::Kind::kDrain:
      return drained(variables, now, command.ps);
    case JobCommand::Kind::kRebalance:
      return rebalanced(variables, now, loads());
  }
  return base::invalid_argument("this command is not known here");
}

/// By task, seconds that lanes of parameter servers have run instructions, for all jobs that they
/// serve; empty when one does not say it.
std::vector<double> Resharding::work() {
  const auto stats = context_.placed->ps_stats();
  const std::vector<int>& ps = context_.placed->placement().ps;
  if (!stats.ok() || stats->size() != ps.size()) return {};
  std::vector<double> out(static_cast<size_t>(context_.placed->placement().topology.ps));
  for (size_t i = 0; i < ps.size(); ++i) out[static_cast<size_t>(ps[i])] = (*stats)[i].compute_s;
  return out;
}

/// The same, since parts were last moved.
std::vector<double> Resharding::loads() {
  std::vector<double> out = work();
  for (size_t i = 0; i < std::min(out.size(), loads_before_.size()); ++i) {
    out[i] = std::max(0.0, out[i] - loads_before_[i]);
  }
  return out;
}

Status Resharding::copy(Placement next) {
  PlacedModel* const placed = context_.placed;
  const Placement& now = placed->placement();
  const std::vector<PartMove> moves = moves_between(to_spread(placed->model(), now), now, next);
  const size_t ps = next.ps.size();
  ps_before_ = now.ps.size();
  bytes_ = 0;
  parts_ = static_cast<int64_t>(moves.size());
  for (const PartMove& move : moves) bytes_ += move.bytes;
  base::emit({}, base::Event::kMoveBegun,
             {{"job", placed->job_name()},
              {"command", command_},
              {"parts", parts_},
              {"bytes", bytes_},
              {"ps", ps}});
  SR_RETURN_IF_ERROR(placed->prepare(std::move(next)));
  SR_RETURN_IF_ERROR(context_.replicas->prepare());
  SR_ASSIGN_OR_RETURN(const std::shared_ptr<const security::Credentials> credentials,
                      security::Credentials::create(placed->cluster()->security()));
  SR_ASSIGN_OR_RETURN(
      moves_, service::VariableMoves::begin(placed->cluster()->spec(), placed->state_group(),
                                            routes_of(placed->model(), moves), credentials));
  return {};
}

/// Whether loops are to be drained.
bool Resharding::look_at_copies() {
  if (is_cancelled()) {
    abandon(base::cancelled("it was cancelled"));
    return false;
  }
  const Result<service::MoveProgress> progress = moves_->progress();
  if (!progress.ok()) {
    abandon(progress.status());
    return false;
  }
  if (asked() != nullptr) asked()->tell({.bytes = progress->bytes, .bytes_all = bytes_});
  if (!progress->is_current || !context_.may_drain()) return false;
  stage_ = Stage::kDue;
  due_ = Clock::now();
  return true;
}

/// What has given the command, if it did and has not gone: then it goes on, and is told to none.
service::JobCommands* Resharding::asked() const {
  return asked_ == context_.commands() ? asked_ : nullptr;
}

bool Resharding::is_cancelled() { return asked() != nullptr && asked()->is_cancelled(); }

void Resharding::end(const Status& status, const std::string& text) {
  autoscale_.moved(seconds_of(Clock::now()));
  looked_.reset();
  if (asked() != nullptr) asked()->end(status, text);
}

/// What the rules want, which are asked now and then.
std::optional<JobCommand> Resharding::autoscaled() {
  const Clock::time_point now = Clock::now();
  if (!context_.autoscale.is_on() || (looked_ && now - *looked_ < kAutoscaleLook)) return {};
  const std::optional<int> wanted = autoscale_.look(seconds_of(now), busy_since(now));
  looked_ = now;
  if (!wanted) return {};
  return JobCommand{.kind = JobCommand::Kind::kScale, .ps = *wanted};
}

/// By parameter server that the model is on, the share of the time since the rules were last asked
/// that its lanes have run instructions; 0 where it is not known.
std::vector<double> Resharding::busy_since(Clock::time_point now) {
  const Placement& placement = context_.placed->placement();
  const std::vector<double> before = std::exchange(worked_, work());
  std::vector<double> out(placement.ps.size());
  if (!looked_ || before.size() != worked_.size()) return out;
  const double seconds = seconds_of(now) - seconds_of(*looked_);
  for (size_t i = 0; i < out.size() && !worked_.empty(); ++i) {
    const auto task = static_cast<size_t>(placement.ps[i]);
    out[i] = (worked_[task] - before[task]) / (seconds * placement.topology.lanes);
  }
  return out;
}

bool Resharding::take_over() {
  if (is_cancelled()) {
    abandon(base::cancelled("it was cancelled"));
    return false;
  }
  if (const Status taken = take(); !taken.ok()) {
    abandon(taken);
    return false;
  }
  left_ = used_now();
  taken_ = used_then();
  context_.placed->take_prepared();
  moves_ = nullptr;
  stage_ = Stage::kMoved;
  ++*context_.moves;
  return true;
}

/// Has all targets take over, at the same time, and keep what they have. After an error none has
/// anything.
Status Resharding::take() {
  SR_RETURN_IF_ERROR(moves_->take(kTakeDeadline));
  Status kept = moves_->commit();
  // What some have kept would stay beside what is used.
  if (!kept.ok()) forget(used_then(), used_now());
  return kept;
}

/// What names all that the model has on parameter servers, now and as it is prepared: its own, and
/// what replicas keep beside it.
std::vector<ir::Graph> Resharding::used_now() const {
  return {context_.placed->distributed().graph, context_.replicas->graph()};
}
std::vector<ir::Graph> Resharding::used_then() const {
  return {context_.placed->prepared().graph, context_.replicas->prepared_graph()};
}

/// Destroys what graphs of `used` name where those of `other` have it elsewhere. What cannot be
/// destroyed takes memory only, and goes with the model.
void Resharding::forget(const std::vector<ir::Graph>& used, const std::vector<ir::Graph>& other) {
  for (const auto& [device, one] : forgetting(used, other, context_.placed->registry())) {
    const Status forgotten = context_.placed->run_once(one.graph, one.fetches);
    if (forgotten.ok()) continue;
    base::log_warning("{} keeps copies of parts that are elsewhere until the model goes: {}",
                      device, base::message_of(forgotten));
  }
}

/// Loops have been going on since `going`.
void Resharding::end_moved(Clock::time_point going) {
  stage_ = Stage::kIdle;
  // Not while training waits.
  forget(std::exchange(left_, {}), std::exchange(taken_, {}));
  loads_before_ = work();
  const std::chrono::duration<double> paused = going - due_;
  const std::chrono::duration<double> lasted = going - began_;
  const size_t ps = context_.placed->placement().ps.size();
  const std::string text = to_string({.parts = parts_,
                                      .bytes = bytes_,
                                      .ps_before = ps_before_,
                                      .ps = ps,
                                      .lasted_s = lasted.count(),
                                      .paused_s = paused.count()});
  base::emit({}, base::Event::kMoveDone,
             {{"job", context_.placed->job_name()},
              {"command", command_},
              {"parts", parts_},
              {"bytes", bytes_},
              {"ps", ps},
              {"seconds", lasted},
              {"paused_s", paused}});
  context_.tell(text, base::LogLevel::kInfo);
  end({}, text);
}

void Resharding::abandon(const Status& why) {
  if (stage_ == Stage::kIdle) return;
  if (stage_ == Stage::kMoved) {
    // That is behind it.
    end_moved(Clock::now());
    return;
  }
  stage_ = Stage::kIdle;
  moves_ = nullptr;
  context_.placed->drop_prepared();
  base::emit({}, base::Event::kMoveFailed,
             {{"job", context_.placed->job_name()},
              {"command", command_},
              {"why", base::message_of(why)}});
  context_.tell(fmt::format("{} was not carried out, and training goes on as before: {}", command_,
                            base::message_of(why)),
                base::LogLevel::kWarning);
  end(why, "");
}

}  // namespace sidereal::train
