#include "sidereal/metrics/lane_metrics.h"

#include <array>

namespace sidereal::metrics {
namespace {

struct Row {
  const char* name;
  Counter LaneMetrics::*live;
  int64_t LaneMetricsSnapshot::*merged;
};

// One row per number, so that adding, merging and listing cannot disagree.
#define SR_ROW(field) \
  Row { #field, &LaneMetrics::field, &LaneMetricsSnapshot::field }
constexpr std::array kRows = {
    SR_ROW(busy_ns),
    SR_ROW(spin_ns),
    SR_ROW(sleep_ns),
    SR_ROW(loops),
    SR_ROW(posts),
    SR_ROW(timers),
    SR_ROW(bytes_in),
    SR_ROW(bytes_out),
    SR_ROW(frames_in),
    SR_ROW(frames_out),
    SR_ROW(calls),
    SR_ROW(calls_failed),
    SR_ROW(replies_late),
    SR_ROW(replies_dropped),
    SR_ROW(malformed),
    SR_ROW(handshakes_refused),
    SR_ROW(refused_garbage),
    SR_ROW(refused_certificate),
    SR_ROW(refused_idle),
    SR_ROW(refused_over_limit),
    SR_ROW(gone),
    SR_ROW(connections),
    SR_ROW(rings),
    SR_ROW(rings_declined),
};
#undef SR_ROW

}  // namespace

void LaneMetricsSnapshot::add(const LaneMetrics& lane) {
  for (const Row& row : kRows) this->*row.merged += (lane.*row.live).value();
  call_ns.merge(lane.call_ns.snapshot());
}

std::vector<std::pair<std::string, int64_t>> LaneMetricsSnapshot::items() const {
  std::vector<std::pair<std::string, int64_t>> out;
  out.reserve(kRows.size() + 5);
  for (const Row& row : kRows) out.emplace_back(row.name, this->*row.merged);
  out.emplace_back("call_ns_count", call_ns.count);
  out.emplace_back("call_ns_mean", static_cast<int64_t>(call_ns.mean()));
  out.emplace_back("call_ns_p50", call_ns.quantile(0.5));
  out.emplace_back("call_ns_p99", call_ns.quantile(0.99));
  out.emplace_back("call_ns_max", call_ns.max);
  return out;
}

}  // namespace sidereal::metrics
