#include "sidereal/app/running_clusters.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "sidereal/base/strings.h"
#include "sidereal/sys/posix/identity.h"
#include "sidereal/sys/posix/process.h"

namespace sidereal::app {

namespace {

/// Lines: process, time, command, secret, cluster as JSON.
constexpr const char* kKind = "sidereal-cluster";
constexpr size_t kLines = 5;

}  // namespace

std::unique_ptr<sys::posix::Announcement> announce_cluster(const cluster::ClusterSpec& cluster,
                                                           const std::string& secret) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return sys::posix::Announcement::create(
      kKind, fmt::format("{}\n{}\n{}\n{}\n{}", sys::posix::process_figures().pid,
                         std::chrono::duration_cast<std::chrono::seconds>(now).count(),
                         sys::posix::own_command(), secret, cluster.to_json()));
}

std::vector<RunningCluster> running_clusters() {
  std::vector<RunningCluster> out;
  for (const std::string& text : sys::posix::announced(kKind)) {
    const std::vector<std::string> lines = base::split(text, '\n');
    if (lines.size() != kLines) continue;
    const Result<int64_t> pid = base::parse_int(lines[0]);
    const Result<int64_t> started = base::parse_int(lines[1]);
    Result<cluster::ClusterSpec> cluster = cluster::ClusterSpec::from_json(lines[4]);
    if (!pid.ok() || !started.ok() || !cluster.ok()) continue;
    out.push_back({.pid = *pid,
                   .started_s = *started,
                   .command = lines[2],
                   .secret = lines[3],
                   .cluster = *std::move(cluster)});
  }
  std::sort(out.begin(), out.end(), [](const RunningCluster& a, const RunningCluster& b) {
    return std::pair(a.started_s, a.pid) < std::pair(b.started_s, b.pid);
  });
  return out;
}

}  // namespace sidereal::app
