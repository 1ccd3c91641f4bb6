#include "sidereal/service/data_finder.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>

#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/worker_service.h"

namespace sidereal::service {

namespace v1 = session::v1;

namespace {

/// One GetStatus call.
struct Asking {
  std::unique_ptr<v1::Worker::Stub> stub;
  grpc::ClientContext context;
  v1::GetStatusRequest request;
  v1::TaskStatus reply;
};

Result<task::LaneAddress> data_address(const v1::TaskStatus& status, int lane,
                                       const std::string& control, const std::string& shown) {
  task::LaneAddress out;
  out.lanes = 1 + status.lane_ports_size();
  out.lane = lane % out.lanes;
  const int port = out.lane == 0 ? status.data_port() : status.lane_ports(out.lane - 1);
  if (port < 1 || port > 65535) {
    return base::failed_precondition(
        "{} has no data port: it runs with protocol \"{}\"; start all servers of a cluster with "
        "the same one",
        shown, status.protocol().empty() ? "grpc" : status.protocol());
  }
  if (status.devices_size() > 0) out.incarnation = status.devices(0).incarnation();
  SR_ASSIGN_OR_RETURN(out.address, sys::Address::parse(control));
  out.address.port = port;
  return out;
}

}  // namespace

/// Questions that are under way.
struct DataFinder::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<Asking*> open;
  bool ended = false;
};

DataFinder::DataFinder(Channels* channels, task::Task* task, int own_lane,
                       std::chrono::milliseconds timeout)
    : channels_(channels),
      task_(task),
      own_lane_(own_lane),
      timeout_(timeout),
      shared_(std::make_shared<Shared>()) {}

DataFinder::~DataFinder() {
  std::unique_lock lock(shared_->mutex);
  shared_->ended = true;
  for (Asking* const one : shared_->open) one->context.TryCancel();
  shared_->changed.wait(lock, [this] { return shared_->open.empty(); });
}

void DataFinder::find(const std::string& task, int lane, uint64_t incarnation,
                      std::function<void(Result<task::LaneAddress>)> done) {
  const auto answer = [to = task_, own = own_lane_,
                       done = std::move(done)](Result<task::LaneAddress> found) {
    static_cast<void>(to->post_urgent(own, [done, found = std::move(found)] { done(found); }));
  };
  const Result<std::shared_ptr<grpc::Channel>> channel = channels_->passing(task, incarnation);
  if (!channel.ok()) return answer(channel.status());
  const auto asking = std::make_shared<Asking>();
  asking->stub = v1::Worker::NewStub(*channel);
  asking->request.set_version(kSessionVersion);
  asking->context.set_wait_for_ready(true);
  asking->context.set_deadline(std::chrono::system_clock::now() + timeout_);
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->ended) return;
    shared_->open.insert(asking.get());
  }
  asking->stub->async()->GetStatus(
      &asking->context, &asking->request, &asking->reply,
      [asking, answer, lane, shared = shared_, shown = channels_->describe(task),
       control = channels_->address(task)](const grpc::Status& status) {
        if (status.ok()) {
          answer(data_address(asking->reply, lane, control, shown));
        } else {
          answer(base::unavailable("{}", connection_text(shown, status.error_message())));
        }
        const std::lock_guard lock(shared->mutex);
        shared->open.erase(asking.get());
        shared->changed.notify_all();
      });
}

}  // namespace sidereal::service
