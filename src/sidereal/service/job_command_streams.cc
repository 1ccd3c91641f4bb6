#include "sidereal/service/internal/job_command_streams.h"
#include "sidereal/service/internal/caller_checks.h"
#include "sidereal/service/internal/job_command_message.h"
#include "sidereal/service/worker_service.h"

namespace sidereal::service {

namespace v1 = session::v1;

Status CommandStream::take(v1::CommandJobRequest* request) {
  if (std::exchange(has_begun_, true)) return base::invalid_argument("a second command");
  SR_RETURN_IF_ERROR(check_version(request->version(), server_));
  SR_RETURN_IF_ERROR(service_.check());
  SR_ASSIGN_OR_RETURN(const JobCommand command, from_proto(request->command()));
  const Result<uint64_t> number =
      service_.relay->command(base::printable(request->job()), command,
                              std::static_pointer_cast<CommandStream>(shared_from_this()));
  if (number.ok()) {
    number_ = *number;
  } else {
    told_end(number.status(), {});
  }
  return {};
}

/// A caller that does not read hears of the latest bytes only.
void CommandStream::told(const JobCommandProgress& progress) {
  if (has_ended_ || waiting() > 0) return;
  v1::CommandJobReply reply;
  to_proto(progress, reply.mutable_progress());
  put(std::move(reply));
}

void CommandStream::told_end(const Status& status, const std::string& text) {
  if (has_ended_.exchange(true)) return;
  v1::CommandJobReply reply;
  to_proto(status, text, reply.mutable_end());
  put_last(std::move(reply));
}

Status CommandStream::half_closed() {
  if (!has_begun_) return base::invalid_argument("the client closed its side without a command");
  service_.relay->cancel(number_);
  return {};
}

void CommandStream::cancelled() {
  hung_up();
  told_end(base::cancelled("the client has gone"), {});
}

Status HearStream::take(v1::HearCommandsRequest* request) {
  if (lease_ == 0) {
    if (request->lease() == 0) return base::invalid_argument("the first request has no lease");
    SR_RETURN_IF_ERROR(service_.check());
    // First: whatever ends the stream finds it.
    lease_ = request->lease();
    SR_RETURN_IF_ERROR(
        service_.relay->hear(lease_, std::static_pointer_cast<HearStream>(shared_from_this())));
    put(v1::HearCommandsReply());
  }
  if (request->has_progress()) {
    service_.relay->tell(lease_, this, request->number(), from_proto(request->progress()));
  }
  if (request->has_end()) {
    service_.relay->end(lease_, this, request->number(), status_of(request->end()),
                        text_of(request->end()));
  }
  return {};
}

void HearStream::begin(uint64_t number, const JobCommand& command) {
  v1::HearCommandsReply reply;
  reply.set_number(number);
  to_proto(command, reply.mutable_command());
  put(std::move(reply));
}

void HearStream::cancel(uint64_t number) {
  v1::HearCommandsReply reply;
  reply.set_number(number);
  put(std::move(reply));
}

void HearStream::dismiss() { put_last({}); }

}  // namespace sidereal::service
