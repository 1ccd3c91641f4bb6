#include "sidereal/service/lookup_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "sidereal/service/channels.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/lookup.grpc.pb.h"
#include "sidereal/sys/address.h"

namespace sidereal::service {

namespace v1 = lookup::v1;
using std::chrono::milliseconds;

class LookupClient::Impl {
 public:
  Impl(std::string address, const security::Credentials& credentials)
      : address_(std::move(address)),
        stub_(v1::Tables::NewStub(make_channel(address_, credentials))) {}

  Result<FoundRows> look_up(const std::string& table, std::span<const int64_t> ids,
                            milliseconds limit) {
    v1::LookUpRequest request;
    request.set_table(table);
    request.mutable_ids()->Add(ids.begin(), ids.end());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    v1::LookUpReply reply;
    SR_RETURN_IF_ERROR(from_grpc(stub_->LookUp(&context, request, &reply), address_));
    SR_ASSIGN_OR_RETURN(const tensor::DType dtype, dtype_of(reply.dtype()));
    const size_t size = tensor::size_of(dtype);
    const size_t dims = reply.rows().size() / std::max<size_t>(size * ids.size(), 1);
    const bool is_whole = reply.dim() >= 0 && reply.rows().size() == dims * size * ids.size() &&
                          (ids.empty() || static_cast<size_t>(reply.dim()) == dims);
    if (!is_whole) {
      return base::data_loss("{}: {} rows of {} {} came as {} bytes", address_, ids.size(),
                             reply.dim(), reply.dtype(), reply.rows().size());
    }
    return FoundRows{dtype, reply.dim(), std::move(*reply.mutable_rows())};
  }

  Result<Tables> tables(milliseconds limit) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    v1::GetTablesReply reply;
    SR_RETURN_IF_ERROR(from_grpc(stub_->GetTables(&context, {}, &reply), address_));
    Tables out;
    for (const v1::Table& table : reply.tables()) {
      SR_ASSIGN_OR_RETURN(const tensor::DType dtype, dtype_of(table.dtype()));
      out.tables[table.name()] = {dtype, table.rows(), table.dim()};
    }
    for (const v1::FollowedTask& task : reply.tasks()) {
      out.tasks.push_back({.task = task.task(),
                           .is_whole = task.is_whole(),
                           .status = {},
                           .cuts_behind = task.cuts_behind(),
                           .behind = milliseconds(task.behind_ms())});
    }
    return out;
  }

 private:
  [[nodiscard]] Result<tensor::DType> dtype_of(const std::string& name) const {
    Result<tensor::DType> dtype = tensor::dtype_from_name(name);
    if (dtype.ok() && *dtype != tensor::DType::kString) return dtype;
    return base::data_loss("{}: rows of '{}', which this release does not know", address_, name);
  }

  const std::string address_;
  const std::unique_ptr<v1::Tables::Stub> stub_;
};

LookupClient::LookupClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LookupClient::~LookupClient() = default;

Result<std::unique_ptr<LookupClient>> LookupClient::create(
    const std::string& address, const security::SecurityOptions& security) {
  SR_RETURN_IF_ERROR(sys::Address::parse(address).status());
  SR_ASSIGN_OR_RETURN(const std::shared_ptr<const security::Credentials> credentials,
                      security::Credentials::create(security));
  return std::unique_ptr<LookupClient>(
      new LookupClient(std::make_unique<Impl>(address, *credentials)));
}

Result<FoundRows> LookupClient::look_up(const std::string& table, std::span<const int64_t> ids,
                                        milliseconds limit) {
  return impl_->look_up(table, ids, limit);
}

Result<LookupClient::Tables> LookupClient::tables(milliseconds limit) {
  return impl_->tables(limit);
}

}  // namespace sidereal::service
