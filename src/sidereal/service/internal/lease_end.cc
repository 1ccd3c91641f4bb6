#include "sidereal/service/internal/lease_end.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <vector>

#include "sidereal/base/log.h"
#include "sidereal/service/channels.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/internal/lease_times.h"
#include "sidereal/service/internal/master_sessions.h"
#include "sidereal/service/job_leases.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/task/failure.h"
#include "sidereal/task/task.h"

namespace sidereal::service {

namespace v1 = session::v1;

namespace {

/// Until each lane has done what was posted to it before.
void wait_for_lanes(task::Task* task) {
  const auto left = std::make_shared<std::atomic<int>>(task->lanes());
  const auto done = std::make_shared<std::promise<void>>();
  const auto count_down = [left, done] {
    if (--*left == 0) done->set_value();
  };
  for (int lane = 0; lane < task->lanes(); ++lane) {
    if (!task->post(lane, count_down)) count_down();
  }
  done->get_future().wait_for(kLanes);
}

struct Asked {
  std::string task;
  std::unique_ptr<v1::Master::Stub> stub;
  grpc::ClientContext context;
  v1::EndLeaseReply reply;
  grpc::Status status;
};

/// Asks all tasks but `own`, at once.
void ask_others(Channels* channels, const std::string& own, const v1::EndLeaseRequest& request) {
  std::vector<std::unique_ptr<Asked>> all;
  for (const std::string& task : channels->tasks()) {
    const Result<std::shared_ptr<grpc::Channel>> channel = channels->to(task);
    if (task == own || !channel.ok()) continue;
    Asked& one = *all.emplace_back(std::make_unique<Asked>());
    one.task = task;
    one.stub = v1::Master::NewStub(*channel);
    one.context.set_deadline(std::chrono::system_clock::now() + kEndLeaseThere);
  }
  std::latch answered(static_cast<std::ptrdiff_t>(all.size()));
  for (const auto& one : all) {
    one->stub->async()->EndLease(&one->context, &request, &one->reply,
                                 [&answered, asked = one.get()](grpc::Status status) {
                                   asked->status = std::move(status);
                                   answered.count_down();
                                 });
  }
  // Every call ends at its deadline.
  answered.wait();
  for (const auto& one : all) {
    if (one->status.ok()) continue;
    base::log_warning("a task was not told that a job has ended error=\"{}\"",
                      base::message_of(from_grpc(one->status, channels->describe(one->task))));
  }
}

}  // namespace

void LeaseEnd::end_sessions(uint64_t lease, const Status& why) const {
  leased->end(lease, why);
  sessions->close_leased(lease, why);
}

void LeaseEnd::end_attached(uint64_t lease) const {
  for (const uint64_t session : leased->take_open(lease)) task->close_session(session);
  wait_for_lanes(task);
}

void end_lease(const LeaseEnd& own, Channels* channels, uint64_t lease, const Status& why) {
  v1::EndLeaseRequest request;
  request.set_lease(lease);
  task::to_proto(why, false, request.mutable_why());
  own.end_sessions(lease, why);
  ask_others(channels, own.task->name(), request);
  request.clear_why();
  own.end_attached(lease);
  ask_others(channels, own.task->name(), request);
}

}  // namespace sidereal::service
