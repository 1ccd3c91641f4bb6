#include "sidereal/service/status_client.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "sidereal/cluster/task_name.h"
#include "sidereal/service/channels.h"
#include "sidereal/service/figures_message.h"
#include "sidereal/service/hot_rows_message.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/sys/address.h"
#include "sidereal/task/failure.h"

namespace sidereal::service {

namespace v1 = session::v1;

namespace {

constexpr std::string_view kScheme = "grpc://";

/// A question to one task, and its answer.
struct Question {
  explicit Question(const std::shared_ptr<grpc::Channel>& channel, std::chrono::milliseconds limit)
      : stub(v1::Worker::NewStub(channel)) {
    context.set_deadline(std::chrono::system_clock::now() + limit);
    request.set_version(kSessionVersion);
  }

  std::unique_ptr<v1::Worker::Stub> stub;
  grpc::ClientContext context;
  v1::GetStatusRequest request;
  v1::TaskStatus reply;
  grpc::Status status;
};

void take(const v1::TaskStatus& from, TaskReport* to) {
  if (from.devices_size() > 0) to->incarnation = from.devices(0).incarnation();
  to->pid = from.pid();
  to->figures = figures_of(from);
  to->protocol = from.protocol().empty() ? "grpc" : from.protocol();
  for (const v1::RunningJob& job : from.jobs()) {
    to->jobs.push_back({.holder = from_proto(job.holder()), .since_s = job.since_s()});
  }
  if (from.has_taken()) {
    const v1::TakenCopy& said = from.taken();
    to->taken = {.from = said.from(),
                 .seconds = said.seconds(),
                 .bytes = said.bytes(),
                 .variables = said.variables(),
                 .rows = said.rows()};
    for (const v1::PushedSoFar& one : said.pushed()) {
      to->taken->pushed.push_back(task::from_proto(one));
    }
  }
  for (const v1::PushedSoFar& one : from.answered()) to->answered.push_back(task::from_proto(one));
  to->events = {from.events().begin(), from.events().end()};
  to->hot = hot_variables_of(from);
  to->settings = {from.settings().begin(), from.settings().end()};
}

/// Errors of a port that is no address.
Status check_addresses(const cluster::ClusterSpec& cluster) {
  for (const std::string& job : cluster.jobs()) {
    SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec::Tasks tasks, cluster.tasks(job));
    for (const auto& [index, address] : tasks) {
      const Status read = sys::Address::parse(address).status();
      if (!read.ok()) return base::with_context(read, cluster::task_name(job, index));
    }
  }
  return {};
}

}  // namespace

class StatusClient::Impl {
 public:
  Impl(const cluster::ClusterSpec& cluster,
       const std::shared_ptr<const security::Credentials>& credentials)
      : cluster_(cluster), jobs_(cluster.jobs()) {
    for (const std::string& job : jobs_) {
      const auto tasks = cluster.tasks(job);
      if (!tasks.ok()) continue;
      for (const auto& [index, address] : *tasks) {
        tasks_.push_back(
            {job, cluster::task_name(job, index), address, make_channel(address, *credentials)});
      }
    }
  }

  [[nodiscard]] const cluster::ClusterSpec& cluster() const { return cluster_; }
  [[nodiscard]] const std::vector<std::string>& jobs() const { return jobs_; }

  std::vector<TaskReport> ask(std::chrono::milliseconds limit, std::string_view job,
                              AlsoWanted also) {
    std::vector<const Peer*> asked;
    for (const Peer& peer : tasks_) {
      if (job.empty() || peer.job == job) asked.push_back(&peer);
    }
    std::vector<std::unique_ptr<Question>> questions;
    std::mutex mutex;
    std::condition_variable answered;
    size_t missing = asked.size();
    for (const Peer* const peer : asked) {
      Question* const question =
          questions.emplace_back(std::make_unique<Question>(peer->channel, limit)).get();
      question->request.set_events(also.events);
      question->request.set_hot_rows(also.hot_rows);
      question->stub->async()->GetStatus(&question->context, &question->request, &question->reply,
                                         [&, question](grpc::Status status) {
                                           const std::lock_guard lock(mutex);
                                           question->status = std::move(status);
                                           --missing;
                                           answered.notify_all();
                                         });
    }
    {
      // Every call ends at its deadline.
      std::unique_lock lock(mutex);
      answered.wait(lock, [&] { return missing == 0; });
    }
    std::vector<TaskReport> reports;
    for (size_t i = 0; i < asked.size(); ++i) reports.push_back(report(*asked[i], *questions[i]));
    return reports;
  }

 private:
  struct Peer {
    std::string job;
    std::string task;
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
  };

  static TaskReport report(const Peer& peer, const Question& question) {
    TaskReport out;
    out.task = peer.task;
    out.address = peer.address;
    out.status = from_grpc(question.status, peer.task + " at " + peer.address);
    if (out.status.ok() && question.reply.task() != peer.task) {
      out.status = base::failed_precondition("{} at {} is {}; check the cluster", peer.task,
                                             peer.address, question.reply.task());
    }
    if (out.status.ok()) take(question.reply, &out);
    return out;
  }

  const cluster::ClusterSpec cluster_;
  const std::vector<std::string> jobs_;
  std::vector<Peer> tasks_;
};

StatusClient::StatusClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StatusClient::~StatusClient() = default;

Result<std::unique_ptr<StatusClient>> StatusClient::create(
    const cluster::ClusterSpec& cluster, const security::SecurityOptions& security) {
  SR_RETURN_IF_ERROR(check_addresses(cluster));
  SR_ASSIGN_OR_RETURN(const std::shared_ptr<const security::Credentials> credentials,
                      security::Credentials::create(security));
  if (Members(cluster).tasks.empty()) return base::invalid_argument("the cluster has no tasks");
  return std::unique_ptr<StatusClient>(
      new StatusClient(std::make_unique<Impl>(cluster, credentials)));
}

Result<std::unique_ptr<StatusClient>> StatusClient::create(
    const std::string& target, const security::SecurityOptions& security,
    std::chrono::milliseconds limit) {
  if (!target.starts_with(kScheme)) {
    return base::invalid_argument("'{}' is no target; one is grpc://host:port", target);
  }
  const std::string address = target.substr(kScheme.size());
  SR_RETURN_IF_ERROR(sys::Address::parse(address).status());
  SR_ASSIGN_OR_RETURN(const std::shared_ptr<const security::Credentials> credentials,
                      security::Credentials::create(security));
  Question question(make_channel(address, *credentials), limit);
  const grpc::Status status =
      question.stub->GetStatus(&question.context, question.request, &question.reply);
  SR_RETURN_IF_ERROR(from_grpc(status, address));
  SR_ASSIGN_OR_RETURN(cluster::ClusterSpec cluster,
                      cluster::ClusterSpec::from_json(question.reply.cluster()));
  const std::optional<cluster::TaskName> own = cluster::parse_task_name(question.reply.task());
  if (own && Members(cluster).tasks.size() == 1) {
    // Alone it knows where it listens, which may be everywhere, and not where it is reached.
    cluster = {};
    SR_RETURN_IF_ERROR(
        cluster.add_job(own->job, cluster::ClusterSpec::Tasks{{own->index, address}}));
  }
  return create(cluster, security);
}

const cluster::ClusterSpec& StatusClient::cluster() const { return impl_->cluster(); }
std::vector<std::string> StatusClient::jobs() const { return impl_->jobs(); }

std::vector<TaskReport> StatusClient::ask(std::chrono::milliseconds limit, std::string_view job,
                                          AlsoWanted also) {
  return impl_->ask(limit, job, also);
}

}  // namespace sidereal::service
