#include "sidereal/task/origin.h"

#include <utility>

#include "absl/strings/cord.h"

namespace sidereal::task {

namespace {

constexpr absl::string_view kOrigin = "sidereal/task/origin";
/// Before the name of a task that was restarted.
constexpr char kRestarted = '!';

}  // namespace

Status with_origin(Status status, const Origin& origin) {
  if (status.ok() || status.GetPayload(kOrigin).has_value()) return status;
  std::string text = origin.task;
  if (origin.is_restarted) text.insert(text.begin(), kRestarted);
  status.SetPayload(kOrigin, absl::Cord(text));
  return status;
}

bool is_of_network(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kAborted;
}

Status from_call(Status status, const std::string& task) {
  if (!is_of_network(status)) return status;
  return with_origin(std::move(status), {.task = task});
}

std::optional<Origin> origin_of(const Status& status) {
  const auto payload = status.GetPayload(kOrigin);
  if (!payload) return std::nullopt;
  Origin out{.task = std::string(*payload)};
  out.is_restarted = !out.task.empty() && out.task.front() == kRestarted;
  if (out.is_restarted) out.task.erase(0, 1);
  return out;
}

Status is_stopping(const std::string& task) {
  return with_origin(base::unavailable("{} is stopping", task), {.task = task});
}

}  // namespace sidereal::task
