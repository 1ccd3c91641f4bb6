#include "sidereal/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "sidereal/app/control.pb.h"
#include "sidereal/app/control_client.h"
#include "sidereal/base/log.h"
#include "sidereal/data/auc.h"
#include "sidereal/ir/text.h"
#include "sidereal/passes/layout.h"
#include "sidereal/train/job_group.h"

namespace sidereal::train {

namespace v1 = control::v1;

namespace {

using base::invalid_argument;
using tensor::Tensor;

constexpr double kReachDeadlineS = 10;
constexpr double kCreateDeadlineS = 600;
constexpr double kReadDeadlineS = 600;
/// Process numbers of ps lanes in traces; those of workers are below.
constexpr int32_t kFirstPsProcess = 1'000'000;

void fill(const ir::VariableDef& def, v1::Variable* out) {
  out->set_name(def.name);
  out->set_embedding(def.embedding);
  for (const int64_t extent : def.shape.dims()) out->add_dims(extent);
  out->set_initializer(def.initializer.kind);
  out->set_a(def.initializer.a);
  out->set_b(def.initializer.b);
  out->set_seed(def.initializer.seed);
  out->set_optimizer(def.optimizer.kind);
  for (const auto& [name, value] : def.optimizer.parameters) {
    (*out->mutable_optimizer_parameters())[name] = value;
  }
}

/// The graph with dropout switched off.
ir::Graph inference_graph(const ir::Graph& graph) {
  ir::Graph out = graph;
  for (size_t i = 0; i < out.size(); ++i) {
    ir::Node& node = out.mutable_node(ir::NodeId(static_cast<int32_t>(i)));
    if (node.op == "Dropout") node.attrs["training"] = false;
  }
  return out;
}

}  // namespace

class Trainer::Impl {
 public:
  Impl(app::Cluster* cluster, CompiledModel model) : cluster_(cluster), model_(std::move(model)) {}

  Status start() {
    SR_ASSIGN_OR_RETURN(ps_addresses_, cluster_->spec().addresses("ps"));
    SR_ASSIGN_OR_RETURN(const std::vector<std::string> workers,
                        cluster_->spec().addresses("worker"));
    SR_RETURN_IF_ERROR(reach("ps", ps_addresses_, &ps_));
    SR_RETURN_IF_ERROR(reach("worker", workers, &workers_));
    train_text_ = ir::to_text(model_.graph);
    inference_text_ = ir::to_text(inference_graph(model_.graph));
    SR_ASSIGN_OR_RETURN(placement_, passes::place_variables(model_.graph.variables(), topology_));
    return create_variables();
  }

  Result<FitResult> fit(const data::DataSpec& data, const FitOptions& options,
                        const data::DataSpec* validation) {
    SR_RETURN_IF_ERROR(data::inspect(data).status());
    if (validation != nullptr) SR_RETURN_IF_ERROR(data::inspect(*validation).status());
    SR_RETURN_IF_ERROR(app::check_fit_protocol(options.protocol));
    if (options.epochs < 1) return invalid_argument("epochs is {}", options.epochs);
    const double decay = options.learning_rate_decay;
    if (!(decay > 0 && decay <= 1)) {
      return invalid_argument("learning_rate_decay is {}; it must be above 0 and at most 1", decay);
    }
    const bool one_job = validation == nullptr && decay == 1;
    const int64_t epochs_per_job = one_job ? options.epochs : 1;
    FitResult result;
    double best_auc = 0;
    int64_t since_best = 0;
    JobGroup group(cluster_, workers_, options);
    const bool traced = options.trace_end > options.trace_first;
    if (traced) SR_RETURN_IF_ERROR(start_trace(options));
    for (int64_t epoch = 0; epoch < options.epochs; epoch += epochs_per_job) {
      SR_RETURN_IF_ERROR(scale_learning_rate(std::pow(decay, static_cast<double>(epoch))));
      v1::RunJobRequest request = base_request(data, options);
      request.set_graph(train_text_);
      request.set_loss(model_.loss);
      for (const std::string& target : model_.targets) request.add_targets(target);
      request.set_first_epoch(epoch);
      request.set_epochs(epochs_per_job);
      request.set_first_step(group.steps_max_of_worker());
      request.set_record_losses(options.record_losses);
      request.set_trace_first(static_cast<uint64_t>(options.trace_first));
      request.set_trace_end(static_cast<uint64_t>(options.trace_end));
      request.set_trace_begin_unix_ns(trace_began_ns_);
      SR_RETURN_IF_ERROR(group.run(request, epoch, epochs_per_job));
      result.epochs = epoch + epochs_per_job;
      if (validation == nullptr) continue;
      SR_ASSIGN_OR_RETURN(EvalResult evaluated, evaluate(*validation, options));
      result.validation.push_back(evaluated);
      since_best = evaluated.auc > best_auc ? 0 : since_best + 1;
      best_auc = std::max(best_auc, evaluated.auc);
      if (options.patience > 0 && since_best >= options.patience) break;
    }
    group.report(&result);
    if (traced) SR_RETURN_IF_ERROR(take_trace(&result));
    SR_ASSIGN_OR_RETURN(std::vector<TaskStats> ps, ps_stats());
    result.tasks.insert(result.tasks.begin(), ps.begin(), ps.end());
    return result;
  }

  Result<EvalResult> evaluate(const data::DataSpec& data, const FitOptions& options) {
    JobGroup group(cluster_, workers_, quiet(options));
    v1::RunJobRequest request = inference_request(data, options);
    SR_RETURN_IF_ERROR(group.run(request, 0, 1));
    const JobGroup::Scores scores = group.take_scores();
    EvalResult result;
    FitResult totals;
    group.report(&totals);
    result.rows = totals.rows;
    result.rows_skipped = totals.rows_skipped;
    result.seconds = totals.seconds;
    SR_ASSIGN_OR_RETURN(result.auc, data::auc(scores.scores, scores.labels));
    SR_ASSIGN_OR_RETURN(result.log_loss, data::log_loss(scores.scores, scores.labels));
    if (scores.truths.size() == scores.labels.size() && !scores.truths.empty()) {
      SR_ASSIGN_OR_RETURN(const double best, data::auc(scores.truths, scores.labels));
      result.best_auc = best;
    }
    return result;
  }

  Result<std::vector<float>> predict(const data::DataSpec& data, const FitOptions& options) {
    // One lane of one worker sees the rows in their order.
    std::vector<std::shared_ptr<app::ControlClient>> one{workers_[0]};
    JobGroup group(cluster_, one, quiet(options));
    v1::RunJobRequest request = inference_request(data, options);
    request.set_lanes(1);
    SR_RETURN_IF_ERROR(group.run(request, 0, 1));
    return group.take_scores().scores;
  }

  Result<Tensor> read_variable(const std::string& name) {
    const ir::VariableDef* def = model_.graph.find_variable(name);
    if (def == nullptr) {
      std::vector<std::string> names;
      for (const ir::VariableDef& known : model_.graph.variables()) names.push_back(known.name);
      return base::not_found("the model has no variable '{}'; it has {}", name,
                             fmt::join(names, ", "));
    }
    const passes::VariablePlacement& place = placement_.at(name);
    Tensor out = Tensor::zeros(def->dtype, def->shape);
    if (!def->embedding) {
      SR_RETURN_IF_ERROR(read_elements(name, place.location, out));
      return out;
    }
    const int64_t dim = def->shape.dim(1);
    float* const table = out.data<float>().data();
    for (const passes::ShardRows& shard : place.shards) {
      int64_t element = 0;
      const auto take = [&](const std::string& bytes) -> Status {
        const auto* values = reinterpret_cast<const float*>(bytes.data());
        for (size_t i = 0; i < bytes.size() / sizeof(float); ++i, ++element) {
          if (element / dim >= shard.rows()) return base::internal("'{}' has grown", name);
          table[shard.global_row(element / dim) * dim + element % dim] = values[i];
        }
        return {};
      };
      SR_RETURN_IF_ERROR(read_chunks(name, shard.location, shard.shard, take));
    }
    return out;
  }

  Result<std::vector<TaskStats>> ps_stats() {
    std::vector<TaskStats> stats;
    for (auto& client : ps_) {
      SR_ASSIGN_OR_RETURN(const auto status, client->get_status(kReachDeadlineS));
      stats.push_back({.task = status->task(),
                       .steps = status->calls(),
                       .rows = status->rows(),
                       .bytes_in = status->bytes_in(),
                       .bytes_out = status->bytes_out(),
                       .compute_s = status->busy_s(),
                       .wait_s = status->idle_s()});
    }
    return stats;
  }

  [[nodiscard]] const CompiledModel& model() const { return model_; }

 private:
  static FitOptions quiet(const FitOptions& options) {
    FitOptions out = options;
    out.on_progress = nullptr;
    return out;
  }

  Status reach(const std::string& job, const std::vector<std::string>& addresses,
               std::vector<std::shared_ptr<app::ControlClient>>* clients) {
    for (size_t i = 0; i < addresses.size(); ++i) {
      auto client = std::make_shared<app::ControlClient>(app::task_name(job, static_cast<int>(i)),
                                                         addresses[i], cluster_->credentials());
      SR_ASSIGN_OR_RETURN(const auto status, client->get_status(kReachDeadlineS));
      if (ps_.empty() && clients->empty()) cluster_id_ = status->cluster_id();
      if (status->cluster_id() != cluster_id_) {
        return base::failed_precondition("{} at {} belongs to another cluster", client->task(),
                                         client->address());
      }
      if (job == "ps") topology_.lanes.push_back(status->data_addresses_size());
      clients->push_back(std::move(client));
    }
    return {};
  }

  Status create_variables() {
    std::vector<v1::CreateVariablesRequest> requests(ps_.size());
    for (size_t task = 0; task < ps_.size(); ++task) {
      for (int lane = 0; lane < topology_.lanes[task]; ++lane) {
        requests[task].add_lanes()->set_lane(lane);
      }
    }
    const auto add = [&](const ir::Location& at) {
      return requests[at.task].mutable_lanes(at.lane)->add_variables();
    };
    for (const ir::VariableDef& def : model_.graph.variables()) {
      const passes::VariablePlacement& place = placement_.at(def.name);
      if (!def.embedding) {
        v1::Variable* variable = add(place.location);
        fill(def, variable);
        variable->set_shard(-1);
      }
      for (const passes::ShardRows& shard : place.shards) {
        v1::Variable* variable = add(shard.location);
        fill(def, variable);
        variable->set_shard(shard.shard);
        for (const int32_t lanes : topology_.lanes) variable->add_lanes(lanes);
      }
    }
    // Side by side: each ps fills its own memory.
    std::vector<Status> results(ps_.size());
    std::vector<std::thread> threads;
    for (size_t task = 0; task < ps_.size(); ++task) {
      threads.emplace_back([&, task] {
        results[task] = ps_[task]->create_variables(requests[task], kCreateDeadlineS);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& result : results) SR_RETURN_IF_ERROR(result);
    return {};
  }

  /// Asks every ps unless it is so already.
  Status scale_learning_rate(double factor) {
    if (factor == rate_factor_) return {};
    for (auto& client : ps_) {
      SR_RETURN_IF_ERROR(client->scale_learning_rate(factor, kReachDeadlineS));
    }
    rate_factor_ = factor;
    return {};
  }

  Status start_trace(const FitOptions& options) {
    if (options.trace_first < 0) {
      return invalid_argument("trace_first is {}; steps count from 0", options.trace_first);
    }
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    trace_began_ns_ = std::chrono::nanoseconds(now).count();
    for (auto& client : ps_) {
      SR_RETURN_IF_ERROR(client->start_trace(static_cast<uint64_t>(options.trace_first),
                                             static_cast<uint64_t>(options.trace_end),
                                             kReachDeadlineS));
    }
    return {};
  }

  Status take_trace(FitResult* result) {
    for (size_t task = 0; task < ps_.size(); ++task) {
      const auto process = static_cast<int32_t>(kFirstPsProcess + 1000 * task);
      SR_ASSIGN_OR_RETURN(std::vector<std::string> lanes,
                          ps_[task]->take_trace(process, trace_began_ns_, kReadDeadlineS));
      for (std::string& lane : lanes) result->traces.push_back(std::move(lane));
    }
    return {};
  }

  v1::RunJobRequest base_request(const data::DataSpec& data, const FitOptions& options) {
    v1::RunJobRequest request;
    request.set_probability(model_.probability);
    for (const std::string& address : ps_addresses_) request.add_ps(address);
    request.set_data(data::to_json(data));
    request.set_batch_size(options.batch_size);
    request.set_steps_in_flight(options.steps_in_flight);
    request.set_steps_max(options.steps_max);
    request.set_compute_dtype(options.compute_dtype);
    request.set_protocol(options.protocol);
    return request;
  }

  v1::RunJobRequest inference_request(const data::DataSpec& data, const FitOptions& options) {
    data::DataSpec in_order = data;
    in_order.shuffle_rows = 0;
    v1::RunJobRequest request = base_request(in_order, options);
    request.set_graph(inference_text_);
    request.set_epochs(1);
    request.set_want_scores(true);
    request.set_steps_max(0);
    // Nothing is pushed, so the next pull may always be on its way.
    request.set_steps_in_flight(2);
    return request;
  }

  Status read_chunks(const std::string& name, const ir::Location& at, int32_t shard,
                     const std::function<Status(const std::string&)>& take) {
    v1::ReadVariableRequest request;
    request.set_name(name);
    request.set_lane(at.lane);
    request.set_shard(shard);
    return ps_[at.task]->read_variable(request, kReadDeadlineS, take);
  }

  Status read_elements(const std::string& name, const ir::Location& at, Tensor& out) {
    size_t offset = 0;
    return read_chunks(name, at, -1, [&](const std::string& bytes) -> Status {
      if (offset + bytes.size() > out.nbytes()) return base::internal("'{}' has grown", name);
      std::memcpy(out.raw() + offset, bytes.data(), bytes.size());
      offset += bytes.size();
      return {};
    });
  }

  app::Cluster* cluster_;
  CompiledModel model_;
  uint64_t cluster_id_ = 0;
  std::vector<std::shared_ptr<app::ControlClient>> ps_;
  std::vector<std::shared_ptr<app::ControlClient>> workers_;
  std::vector<std::string> ps_addresses_;
  double rate_factor_ = 1;
  int64_t trace_began_ns_ = 0;
  passes::Topology topology_;
  passes::Placement placement_;
  std::string train_text_;
  std::string inference_text_;
};

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

Result<std::unique_ptr<Trainer>> Trainer::create(app::Cluster* cluster, CompiledModel model) {
  auto impl = std::make_unique<Impl>(cluster, std::move(model));
  SR_RETURN_IF_ERROR(impl->start());
  return std::unique_ptr<Trainer>(new Trainer(std::move(impl)));
}

Result<FitResult> Trainer::fit(const data::DataSpec& data, const FitOptions& options,
                               const data::DataSpec* validation) {
  return impl_->fit(data, options, validation);
}
Result<EvalResult> Trainer::evaluate(const data::DataSpec& data, const FitOptions& options) {
  return impl_->evaluate(data, options);
}
Result<std::vector<float>> Trainer::predict(const data::DataSpec& data, const FitOptions& options) {
  return impl_->predict(data, options);
}
Result<Tensor> Trainer::read_variable(const std::string& name) {
  return impl_->read_variable(name);
}
Result<std::vector<TaskStats>> Trainer::task_stats() { return impl_->ps_stats(); }
const CompiledModel& Trainer::model() const { return impl_->model(); }

}  // namespace sidereal::train
