#include "sidereal/cluster/task_name.h"

#include <fmt/format.h>

#include <charconv>

namespace sidereal::cluster {

namespace {

constexpr std::string_view kJob = "/job:";
constexpr std::string_view kTask = "/replica:0/task:";

}  // namespace

std::string task_name(std::string_view job, int index) {
  return fmt::format("{}{}{}{}", kJob, job, kTask, index);
}

std::optional<TaskName> parse_task_name(std::string_view name) {
  const size_t at = name.find(kTask);
  if (!name.starts_with(kJob) || at == std::string_view::npos) return std::nullopt;
  TaskName out{.job = std::string(name.substr(kJob.size(), at - kJob.size()))};
  const char* const end = name.data() + name.size();
  const auto [read, error] = std::from_chars(name.data() + at + kTask.size(), end, out.index);
  if (error != std::errc() || read != end || out.job.empty() || out.index < 0) return std::nullopt;
  return out;
}

std::string task_of(std::string_view device) {
  return std::string(device.substr(0, device.find("/device:")));
}

}  // namespace sidereal::cluster
