#pragma once

#include <string>

#include "sidereal/metrics/counter.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/metrics/histogram.h"

namespace sidereal::metrics {

/// What sidereal_refused_total is, whoever counts.
inline constexpr const char* kRefusedName = "sidereal_refused_total";
inline Declaration refused(const char* why) {
  return counter(kRefusedName, Unit::kCount, "Connections and requests that were refused.",
                 {{"why", why}});
}

/// What was LaneMetrics::busy_ns of the lane of this number.
inline constexpr const char* kLaneBusyName = "sidereal_lane_busy_seconds_total";
inline Declaration lane_busy(int lane) {
  return counter(kLaneBusyName, Unit::kSeconds, "Time in iterations of a lane that did some work.",
                 {{"lane", std::to_string(lane)}});
}

/// What one lane counts: its loop, and the connections on it. A row is all that a new figure needs.
/// Thread: one writer (the lane); any reader.
struct LaneMetrics {
  Figures figures;

  // The life of the loop is the sum of the first three.
  Counter busy_ns;  ///< Told for each lane by itself: see lane_busy().
  Counter spin_ns{&figures, counter("sidereal_lane_spin_seconds_total", Unit::kSeconds,
                                    "Time in iterations that looked and found nothing.")};
  Counter sleep_ns{&figures, counter("sidereal_lane_sleep_seconds_total", Unit::kSeconds,
                                     "Time that lanes slept until something came.")};
  Counter loops{&figures,
                counter("sidereal_lane_iterations_total", Unit::kCount, "Iterations of lanes.")};
  Counter posts{&figures, counter("sidereal_lane_posts_total", Unit::kCount,
                                  "Functions that lanes ran for other threads.")};
  Counter timers{
      &figures, counter("sidereal_lane_timers_total", Unit::kCount, "Timers of lanes that fired.")};

  Counter bytes_in{&figures, counter("sidereal_transport_received_bytes_total", Unit::kBytes,
                                     "Bytes read by connections between lanes.")};
  Counter bytes_out{&figures, counter("sidereal_transport_sent_bytes_total", Unit::kBytes,
                                      "Bytes written by connections between lanes.")};
  Counter frames_in{
      &figures, counter("sidereal_transport_frames_received_total", Unit::kCount, "Frames read.")};
  Counter frames_out{
      &figures, counter("sidereal_transport_frames_sent_total", Unit::kCount, "Frames written.")};
  Counter calls{&figures, counter("sidereal_transport_calls_total", Unit::kCount,
                                  "Calls between lanes, made or taken.")};
  Counter calls_failed{&figures, counter("sidereal_transport_calls_failed_total", Unit::kCount,
                                         "Calls, made or taken, that ended with an error.")};
  Counter replies_late{&figures, counter("sidereal_transport_replies_late_total", Unit::kCount,
                                         "Answers that came when nobody waited any more.")};
  Counter replies_dropped{&figures,
                          counter("sidereal_transport_replies_dropped_total", Unit::kCount,
                                  "Answers to a connection that was gone.")};
  Counter connections{&figures, gauge("sidereal_transport_connections", Unit::kCount,
                                      "Connections of other tasks' lanes that are open.")};
  Counter rings{&figures, gauge("sidereal_transport_rings", Unit::kCount,
                                "Open connections that go through shared memory.")};
  Counter rings_declined{&figures, counter("sidereal_transport_rings_declined_total", Unit::kCount,
                                           "Connections of one host that could not share memory.")};
  Counter gone{&figures, counter("sidereal_transport_gone_total", Unit::kCount,
                                 "Connections that left before they had shaken hands.")};
  Histogram call_ns{&figures, histogram("sidereal_transport_call_seconds", Unit::kSeconds,
                                        "Time from a call to its answer, where it was made.")};

  Counter malformed{&figures, refused("frames")};              ///< No valid frame.
  Counter handshakes_refused{&figures, refused("handshake")};  ///< Another version, task, lane, ...
  Counter refused_garbage{&figures, refused("garbage")};       ///< Began with something else.
  Counter refused_certificate{&figures, refused("certificate")};  ///< Began TLS, proved nothing.
  Counter refused_idle{&figures, refused("idle")};                ///< Did not shake hands in time.
  Counter refused_over_limit{&figures, refused("over_limit")};    ///< Too many had not.
};

}  // namespace sidereal::metrics
