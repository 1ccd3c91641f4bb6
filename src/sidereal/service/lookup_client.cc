#include "sidereal/service/lookup_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>

#include "sidereal/service/channels.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/internal/lookup_limits.h"
#include "sidereal/service/lookup.grpc.pb.h"
#include "sidereal/sys/address.h"

namespace sidereal::service {

namespace v1 = lookup::v1;
using std::chrono::milliseconds;
using std::chrono::system_clock;

namespace {

/// Of how many tables a client knows what their rows are.
constexpr size_t kFormsMax = 1024;

}  // namespace

class LookupClient::Impl {
 public:
  Impl(std::string address, const security::Credentials& credentials)
      : address_(std::move(address)),
        stub_(v1::Tables::NewStub(make_channel(address_, credentials))) {}

  Result<FoundRows> look_up(const std::string& table, std::span<const int64_t> ids,
                            milliseconds limit) {
    const system_clock::time_point deadline = system_clock::now() + limit;
    const std::optional<Form> known = known_form(table);
    Result<FoundRows> found = look_up_all(table, ids, known, deadline);
    // It may have got longer rows meanwhile.
    const bool may_be_other =
        known.has_value() && found.status().code() == StatusCode::kInvalidArgument;
    return may_be_other ? look_up_all(table, ids, std::nullopt, deadline) : std::move(found);
  }

  Result<Tables> tables(milliseconds limit) {
    grpc::ClientContext context;
    context.set_deadline(system_clock::now() + limit);
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
                           .is_in_sync = task.is_in_sync(),
                           .status = {},
                           .cuts_behind = task.cuts_behind(),
                           .behind = milliseconds(task.behind_ms())});
    }
    return out;
  }

 private:
  /// What the rows of a table are. Value type.
  struct Form {
    tensor::DType dtype = tensor::DType::kInvalid;
    int64_t dim = 0;
    /// Of one request.
    [[nodiscard]] size_t rows_max() const {
      const size_t elements = kLookUpRowBytesMax / tensor::size_of(dtype);
      const size_t rows = elements / std::max<size_t>(static_cast<size_t>(dim), 1);
      return std::clamp<size_t>(rows, 1, kLookUpIdsMax);
    }
  };

  /// Rows of a table of this form, by as many requests as that takes; it is asked for where it is
  /// not given and not all ids fit into one request whatever it is.
  Result<FoundRows> look_up_all(const std::string& table, std::span<const int64_t> ids,
                                std::optional<Form> form, system_clock::time_point deadline) {
    if (!form.has_value() && ids.size() > 1) {
      SR_ASSIGN_OR_RETURN(const FoundRows none, ask(table, {}, deadline));
      form = Form{none.dtype, none.dim};
    }
    const size_t rows_max = form.has_value() ? form->rows_max() : 1;
    SR_ASSIGN_OR_RETURN(FoundRows found,
                        ask(table, ids.first(std::min(rows_max, ids.size())), deadline));
    for (size_t i = rows_max; i < ids.size(); i += rows_max) {
      const size_t count = std::min(rows_max, ids.size() - i);
      SR_ASSIGN_OR_RETURN(const FoundRows more, ask(table, ids.subspan(i, count), deadline));
      if (more.dtype != found.dtype || more.dim != found.dim) {
        return base::aborted("{}: rows of '{}' became {} {} while they were looked up; ask again",
                             address_, table, more.dim, tensor::name_of(more.dtype));
      }
      found.bytes += more.bytes;
    }
    return found;
  }

  /// One request.
  Result<FoundRows> ask(const std::string& table, std::span<const int64_t> ids,
                        system_clock::time_point deadline) {
    v1::LookUpRequest request;
    request.set_table(table);
    request.mutable_ids()->Add(ids.begin(), ids.end());
    grpc::ClientContext context;
    context.set_deadline(deadline);
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
    const std::lock_guard lock(mutex_);
    if (forms_.size() >= kFormsMax && !forms_.contains(table)) forms_.clear();
    forms_[table] = {dtype, reply.dim()};
    return FoundRows{dtype, reply.dim(), std::move(*reply.mutable_rows())};
  }

  [[nodiscard]] std::optional<Form> known_form(const std::string& table) const {
    const std::lock_guard lock(mutex_);
    const auto found = forms_.find(table);
    return found == forms_.end() ? std::nullopt : std::optional(found->second);
  }

  [[nodiscard]] Result<tensor::DType> dtype_of(const std::string& name) const {
    Result<tensor::DType> dtype = tensor::dtype_from_name(name);
    if (dtype.ok() && *dtype != tensor::DType::kString) return dtype;
    return base::data_loss("{}: rows of '{}', which this release does not know", address_, name);
  }

  const std::string address_;
  const std::unique_ptr<v1::Tables::Stub> stub_;
  mutable std::mutex mutex_;
  std::map<std::string, Form> forms_;  // As tables last had them.
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
