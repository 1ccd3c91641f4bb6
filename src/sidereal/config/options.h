#pragma once

#include <cstdint>
#include <span>

#include "sidereal/base/status.h"
#include "sidereal/config/option.h"

namespace sidereal::config {

/// How lanes wait and what connections may use. Never read from the environment: whoever makes a
/// server or a session fills this in. Value type; ranges, units and meaning are in option_fields().
struct Options {
  int64_t spin_us = -2;
  int64_t call_deadline_ms = 60'000;
  int64_t connect_deadline_ms = 10'000;
  int64_t keepalive_timeout_ms = 5'000;
  int64_t resume_ms = 5'000;
  int64_t send_buffer_bytes_max = int64_t{256} << 20;
  int64_t frame_bytes_max = int64_t{1} << 30;
  int64_t lane_receive_bytes_max = int64_t{1} << 30;
  int64_t lane_send_bytes_max = int64_t{1} << 30;
  int64_t lane_answer_bytes_max = int64_t{1} << 30;
  int64_t slots_max = 16'384;
  int64_t connections_max = 4'096;
  int64_t unproved_max = 512;
  int64_t frame_checksums = 0;
  int64_t shared_memory = 1;
  int64_t shared_ring_bytes = int64_t{1} << 20;
  int64_t lane_shared_bytes_max = int64_t{256} << 20;
  int64_t inbox_slots = 4'096;
  int64_t standby_timeout_ms = 1'000;
  int64_t replicas = 1;
  int64_t min_insync_replicas = 1;
  int64_t standby_wait_ms = 10'000;
  int64_t lease_ms = 1'000;
};

/// Descriptors of every member of Options.
std::span<const IntField<Options>> option_fields();

/// kInvalidArgument naming the first option that is out of range.
Status validate(const Options& options);

}  // namespace sidereal::config
