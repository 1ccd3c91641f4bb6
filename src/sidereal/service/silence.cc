#include "sidereal/service/silence.h"

#include <algorithm>
#include <utility>

namespace sidereal::service {

namespace {

/// A task may miss some questions, as on a machine with more to do than it can.
constexpr int kQuestions = 5;

/// Without an answer before a task is silent: one may come late, and who asks may itself have stood
/// still meanwhile, in which time nobody was silent.
constexpr int kUnanswered = 2;

}  // namespace

Result<std::unique_ptr<SilenceWatch>> SilenceWatch::create(
    const cluster::ClusterSpec& cluster, const security::SecurityOptions& security,
    std::chrono::milliseconds silence) {
  if (silence.count() <= 0) {
    return base::invalid_argument("a silence of {} ms is none; it must be above 0",
                                  silence.count());
  }
  SR_ASSIGN_OR_RETURN(auto client, StatusClient::create(cluster, security));
  return std::unique_ptr<SilenceWatch>(new SilenceWatch(std::move(client), silence));
}

void SilenceWatch::heard(const std::string& task, int64_t pid) {
  const std::lock_guard lock(mutex_);
  heard_[task] = {.pid = pid, .at = Clock::now()};
}

std::vector<SilentTask> SilenceWatch::look() {
  const Clock::time_point asked = Clock::now();
  const std::vector<TaskReport> reports =
      client_->ask(std::max(silence_ / kQuestions, std::chrono::milliseconds(1)));
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  std::vector<SilentTask> out;
  for (const TaskReport& report : reports) {
    Heard& heard = heard_[report.task];
    if (report.status.ok()) {
      // Not later than the question: an answer may have been long on its way.
      if (heard.pid == 0 || heard.at < asked) heard = {.pid = report.pid, .at = asked};
      continue;
    }
    if (heard.pid == 0 || ++heard.unanswered < kUnanswered || now - heard.at < silence_) continue;
    out.push_back({.task = report.task,
                   .pid = heard.pid,
                   .silent_s = std::chrono::duration<double>(now - heard.at).count()});
    heard = {};
  }
  return out;
}

}  // namespace sidereal::service
