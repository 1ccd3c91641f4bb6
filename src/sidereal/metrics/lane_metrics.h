#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/metrics/counter.h"
#include "sidereal/metrics/histogram.h"

namespace sidereal::metrics {

/// The counters of one lane. The lane writes, anybody reads.
/// Thread: one writer (the lane); any reader.
struct LaneMetrics {
  // Time, in nanoseconds. busy + spin + sleep is the life of the loop.
  Counter busy_ns;   ///< iterations that did some work
  Counter spin_ns;   ///< iterations that looked and found nothing
  Counter sleep_ns;  ///< blocked in the poller
  Counter loops;     ///< iterations
  Counter posts;     ///< functions run from the inbox
  Counter timers;    ///< timers fired

  // Transport.
  Counter bytes_in;
  Counter bytes_out;
  Counter frames_in;
  Counter frames_out;
  Counter calls;                ///< calls sent (client) or received (server)
  Counter calls_failed;         ///< completed with an error
  Counter replies_late;         ///< arrived after their call was given up; skipped
  Counter replies_dropped;      ///< made for a connection that was gone
  Counter malformed;            ///< connections closed because of bytes that were no valid frame
  Counter handshakes_refused;   ///< connections refused by version, cluster, task, lane or number
  Counter refused_garbage;      ///< connections that began with something else than a handshake
  Counter refused_certificate;  ///< connections that began TLS and proved nothing
  Counter refused_idle;         ///< connections that did not shake hands in time
  Counter refused_over_limit;   ///< connections closed because too many had not shaken hands
  Counter gone;                 ///< connections that left before they had shaken hands
  Counter connections;          ///< open now
  Counter rings;                ///< connections that go through shared memory, open now
  Counter rings_declined;       ///< of one host, where this side or the other had none for them
  Histogram call_ns;            ///< from call to completion, on the client
};

/// A merged copy of several LaneMetrics. Value type.
struct LaneMetricsSnapshot {
  int64_t busy_ns = 0, spin_ns = 0, sleep_ns = 0, loops = 0, posts = 0, timers = 0;
  int64_t bytes_in = 0, bytes_out = 0, frames_in = 0, frames_out = 0, calls = 0;
  int64_t calls_failed = 0, replies_late = 0, replies_dropped = 0, malformed = 0;
  int64_t handshakes_refused = 0, refused_garbage = 0, refused_certificate = 0, refused_idle = 0;
  int64_t refused_over_limit = 0, gone = 0, connections = 0, rings = 0, rings_declined = 0;
  HistogramSnapshot call_ns;

  /// Adds what `lane` counted so far.
  void add(const LaneMetrics& lane);
  /// Name and value of every number, in the order above (call_ns as count, mean, p50, p99, max).
  [[nodiscard]] std::vector<std::pair<std::string, int64_t>> items() const;
};

}  // namespace sidereal::metrics
