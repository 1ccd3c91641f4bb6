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
/// Of events.
constexpr size_t kBytesMax = size_t{256} << 10;

std::string kind_of_events(int64_t pid) { return fmt::format("sidereal-events-{}", pid); }

}  // namespace

ClusterAnnouncement::ClusterAnnouncement(std::unique_ptr<sys::posix::Announcement> cluster,
                                         std::unique_ptr<sys::posix::Announcement> events)
    : cluster_(std::move(cluster)),
      events_(std::move(events)),
      sink_([this](std::string_view line) { events_->append(line, kBytesMax); }) {}

std::unique_ptr<ClusterAnnouncement> announce_cluster(const cluster::ClusterSpec& cluster,
                                                      const std::string& secret) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t pid = sys::posix::process_figures().pid;
  auto announced = sys::posix::Announcement::create(
      kKind, fmt::format("{}\n{}\n{}\n{}\n{}", pid,
                         std::chrono::duration_cast<std::chrono::seconds>(now).count(),
                         sys::posix::own_command(), secret, cluster.to_json()));
  auto events = sys::posix::Announcement::create(kind_of_events(pid), "");
  if (announced == nullptr || events == nullptr) return nullptr;
  return std::make_unique<ClusterAnnouncement>(std::move(announced), std::move(events));
}

std::vector<std::string> announced_events(int64_t pid) {
  std::vector<std::string> out;
  // A process may have announced several clusters; what it tells twice is the same.
  for (const std::string& text : sys::posix::announced(kind_of_events(pid))) {
    for (std::string& line : base::split(text, '\n')) {
      if (!line.empty()) out.push_back(std::move(line));
    }
  }
  return out;
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
