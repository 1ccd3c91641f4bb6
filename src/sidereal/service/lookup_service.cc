#include "sidereal/service/lookup_service.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "sidereal/security/listener.h"
#include "sidereal/service/follower.h"
#include "sidereal/service/grpc_server.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/internal/lookup_limits.h"
#include "sidereal/service/lookup.grpc.pb.h"

namespace sidereal::service {

namespace v1 = lookup::v1;

namespace {

/// An id may take ten bytes.
constexpr int kRequestBytesMax = 1 << 20;
/// For calls to end.
constexpr std::chrono::milliseconds kDrain{500};

class TablesService final : public v1::Tables::CallbackService {
 public:
  explicit TablesService(const Follower* follower) : follower_(*follower) {}

 private:
  grpc::ServerUnaryReactor* LookUp(grpc::CallbackServerContext* call,
                                   const v1::LookUpRequest* request,
                                   v1::LookUpReply* reply) override {
    return answered(call, look_up(*request, reply));
  }

  grpc::ServerUnaryReactor* GetTables(grpc::CallbackServerContext* call,
                                      const v1::GetTablesRequest*,
                                      v1::GetTablesReply* reply) override {
    for (const auto& [name, table] : follower_.tables()) {
      v1::Table* const out = reply->add_tables();
      out->set_name(name);
      out->set_dtype(std::string(tensor::name_of(table.dtype)));
      out->set_rows(table.rows);
      out->set_dim(table.dim);
    }
    for (const FollowedTask& task : follower_.tasks()) {
      v1::FollowedTask* const out = reply->add_tasks();
      out->set_task(task.task);
      out->set_is_whole(task.is_whole);
      out->set_is_in_sync(task.is_in_sync);
      out->set_cuts_behind(task.cuts_behind);
      out->set_behind_ms(task.behind.count());
    }
    return answered(call, {});
  }

  static grpc::ServerUnaryReactor* answered(grpc::CallbackServerContext* call,
                                            const Status& status) {
    grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
    reactor->Finish(to_grpc(status));
    return reactor;
  }

  Status look_up(const v1::LookUpRequest& request, v1::LookUpReply* reply) const {
    const auto count = static_cast<size_t>(request.ids_size());
    if (count > kLookUpIdsMax) {
      return base::invalid_argument("{} ids at once; {} may be", count, kLookUpIdsMax);
    }
    SR_ASSIGN_OR_RETURN(const FollowedTable table, follower_.table(request.table()));
    const size_t row_bytes = static_cast<size_t>(table.dim) * tensor::size_of(table.dtype);
    if (row_bytes > 0 && count > kLookUpRowBytesMax / row_bytes) {
      return base::invalid_argument("{} rows of '{}' at once; {}, of {} bytes in all, may be",
                                    count, request.table(), kLookUpRowBytesMax / row_bytes,
                                    kLookUpRowBytesMax);
    }
    std::string* const rows = reply->mutable_rows();
    rows->resize(count * row_bytes);
    SR_RETURN_IF_ERROR(
        follower_.look_up(request.table(), {request.ids().data(), count},
                          {reinterpret_cast<std::byte*>(rows->data()), rows->size()}));
    reply->set_dtype(std::string(tensor::name_of(table.dtype)));
    reply->set_dim(table.dim);
    return {};
  }

  const Follower& follower_;
};

}  // namespace

class LookupServer::Impl {
 public:
  explicit Impl(const Follower* follower) : service_(follower) {}
  ~Impl() {
    if (listener_ != nullptr) listener_->stop();
    if (grpc_ != nullptr) grpc_->stop(kDrain);
  }

  Status start(const std::string& address, const security::SecurityOptions& security) {
    SR_ASSIGN_OR_RETURN(std::shared_ptr<const security::Credentials> credentials,
                        security::Credentials::create(security));
    SR_ASSIGN_OR_RETURN(listener_, security::Listener::create(address, std::move(credentials)));
    grpc_ = GrpcServer::start({&service_}, listener_.get(), kRequestBytesMax);
    if (grpc_ == nullptr) return base::unavailable("gRPC does not start at {}", address);
    return listener_->start();
  }
  [[nodiscard]] const std::string& address() const { return listener_->address(); }

 private:
  TablesService service_;
  std::unique_ptr<security::Listener> listener_;
  std::unique_ptr<GrpcServer> grpc_;
};

LookupServer::LookupServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LookupServer::~LookupServer() = default;

Result<std::unique_ptr<LookupServer>> LookupServer::start(
    const Follower* follower, const std::string& address,
    const security::SecurityOptions& security) {
  auto impl = std::make_unique<Impl>(follower);
  SR_RETURN_IF_ERROR(impl->start(address, security));
  return std::unique_ptr<LookupServer>(new LookupServer(std::move(impl)));
}

const std::string& LookupServer::address() const { return impl_->address(); }

}  // namespace sidereal::service
