#include "sidereal/train/replicas.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "sidereal/base/strings.h"
#include "sidereal/train/geo.h"

namespace sidereal::train {

using tensor::DType;
using tensor::Tensor;

namespace {

constexpr std::chrono::milliseconds kDeadline(600'000);
/// More than a fit has: a chief goes on until it is told that all is done.
constexpr int64_t kStepsOfChief = int64_t{1} << 40;
/// More than a loop has of what Replicas::first_ counts.
constexpr int64_t kOfLoop = int64_t{1} << 32;

}  // namespace

Result<Replicas::Way> Replicas::way_on(const DistributedModel& distributed) const {
  const CompiledModel& model = placed_->model();
  const ir::OpRegistry& registry = placed_->registry();
  Way way;
  if (consistency_.kind == config::Consistency::Kind::kAsync) {
    way.model = {.graph = {}, .targets = model.targets, .chief = {}, .begin = {}, .leave = {}};
  } else if (consistency_.is_geo()) {
    way.kind = "geo";
    SR_ASSIGN_OR_RETURN(
        CopiesModel made,
        train_on_copies(model, distributed, std::ranges::max(placed_->worker_lanes()), registry));
    way.model = std::move(made.replica);
    way.keep = std::move(made.keep);
  } else if (consistency_.is_in_step()) {
    way.kind = consistency_.is_hybrid()    ? "hybrid"
               : consistency_.has_spares() ? "synchronous with spares"
                                           : "synchronous";
    SR_ASSIGN_OR_RETURN(way.model, synchronize(model, distributed, consistency_, registry));
  } else {
    way.kind = "bounded";
    SR_ASSIGN_OR_RETURN(way.model, bound_staleness(model, distributed, registry));
  }
  return way;
}

Result<const std::vector<WorkerSession>*> Replicas::open(const config::Consistency& consistency,
                                                         const std::string& compute_dtype) {
  consistency_ = consistency;
  compute_dtype_ = compute_dtype;
  SR_ASSIGN_OR_RETURN(way_, way_on(placed_->distributed()));
  SR_ASSIGN_OR_RETURN(workers_, placed_->sessions(compute_dtype, graph(), way_.kind));
  return workers_;
}

Status Replicas::prepare() {
  SR_ASSIGN_OR_RETURN(prepared_, way_on(placed_->prepared()));
  return placed_->prepared_sessions(compute_dtype_, prepared_graph(), prepared_.kind).status();
}

const ir::Graph& Replicas::graph() const {
  return way_.kind.empty() ? placed_->distributed().graph : way_.model.graph;
}

const ir::Graph& Replicas::prepared_graph() const {
  return prepared_.kind.empty() ? placed_->prepared().graph : prepared_.model.graph;
}

/// That of the first worker that there is.
const std::shared_ptr<service::Session>& Replicas::first() const {
  return first_of(*workers_).session;
}

const std::vector<std::string>& Replicas::targets() const { return way_.model.targets; }

Status Replicas::begin(const std::pair<std::string, Tensor>& rate, LoopGroup* group,
                       task::LoopOptions* loop) {
  first_ += kOfLoop;
  if (!consistency_.is_in_step() || consistency_.is_hybrid()) loop->constants = {rate};
  if (consistency_.is_in_step()) return uncancelled(begin_in_step(rate, group));
  if (consistency_.is_geo()) begin_geo(group, loop);
  return consistency_.waits() ? uncancelled(begin_bounded(group)) : Status();
}

Status Replicas::begin_in_step(const std::pair<std::string, Tensor>& rate, LoopGroup* group) {
  SR_RETURN_IF_ERROR(first()
                         ->run({{kReplicas, Tensor::scalar(placed_->replicas())},
                                {kFirstStep, Tensor::scalar(first_)}},
                               way_.model.begin, {}, {.timeout = kDeadline})
                         .status());
  // Of a worker that was lost there is nothing to wait for.
  const int64_t all = placed_->replicas();
  const int64_t quorum = consistency_.quorum == 0 ? all : std::min(consistency_.quorum, all);
  ChiefLoop chief;
  chief.session = first();
  chief.replicas = placed_->replicas();
  chief.loop.targets = way_.model.chief;
  chief.loop.constants = {rate, {kReplicasToAggregate, Tensor::scalar(quorum)}};
  chief.loop.steps = kStepsOfChief;
  group->set_chief(std::move(chief));
  group->set_leave([this](size_t /*worker*/, size_t /*lane*/, int64_t /*steps*/) {
    return first()->run({}, way_.model.leave).status();
  });
  return {};
}

Status Replicas::begin_bounded(LoopGroup* group) {
  std::vector<std::string> names;
  for (const WorkerSession& worker : *workers_) {
    for (int lane = 0; lane < worker.lanes; ++lane) {
      names.push_back(fmt::format("{}/lane:{}", worker.task, lane));
    }
  }
  const auto count = static_cast<int64_t>(names.size());
  group->set_leave([this](size_t worker, size_t lane, int64_t steps) {
    return first()
        ->run(
            {{kReplica, Tensor::scalar(replica_of(worker, lane))}, {kSteps, Tensor::scalar(steps)}},
            way_.model.leave)
        .status();
  });
  return first()
      ->run({{kFirstReplica, Tensor::scalar(first_)},
             {kBound, Tensor::scalar(consistency_.bound)},
             {kReplicaNames, Tensor::strings({count}, names)}},
            way_.model.begin, {}, {.timeout = kDeadline})
      .status();
}

/// Copies are those of one loop: what the lanes of a worker have not sent they send when all have
/// had their last step. Loops count lanes from another one than the task does.
void Replicas::begin_geo(LoopGroup* group, task::LoopOptions* loop) {
  loop->constants.emplace_back(kWindow, Tensor::scalar(consistency_.window));
  loop->constants.emplace_back(kLoop, Tensor::scalar(first_));
  // Each worker's by the thread that tells of it.
  const auto ended = std::make_shared<std::vector<int>>(workers_->size());
  group->set_leave([this, ended](size_t worker, size_t /*lane*/, int64_t /*steps*/) -> Status {
    const WorkerSession& at = (*workers_)[worker];
    if (++(*ended)[worker] != at.lanes) return {};
    std::vector<std::string> fetches(way_.model.leave.begin(), way_.model.leave.begin() + at.lanes);
    if (worker == 0) fetches.push_back(way_.keep);
    return at.session->run({{kLoop, Tensor::scalar(first_)}}, fetches, {}, {.timeout = kDeadline})
        .status();
  });
}

int64_t Replicas::replica_of(size_t worker, size_t lane) const {
  int64_t out = first_ + static_cast<int64_t>(lane);
  for (size_t i = 0; i < worker; ++i) out += (*workers_)[i].lanes;
  return out;
}

void Replicas::number(size_t worker, task::LoopOptions* own) const {
  if (!consistency_.waits() || consistency_.is_in_step()) return;
  own->replica = kReplica;
  own->first_replica = replica_of(worker, 0);
}

Result<int64_t> Replicas::updates() {
  const auto fetched = first()->run({}, {way_.model.step}, {}, {.timeout = kDeadline});
  SR_RETURN_IF_ERROR(uncancelled(fetched.status()));
  const std::vector<Tensor>& read = *fetched;
  if (read.size() != 1 || read[0].dtype() != DType::kInt64 || read[0].num_elements() != 1) {
    return base::internal("the number of the step is no number");
  }
  return read[0].data<const int64_t>()[0] - first_;
}

}  // namespace sidereal::train
