#include "tests/sim/scenario.h"

#include <algorithm>
#include <utility>

namespace sidereal::sim {

using sys::kMicrosecond;
using sys::kMillisecond;
using sys::kSecond;
using sys::sim::Rng;

int64_t sized(Rng& rng, int64_t low, int64_t high) {
  int64_t value = low;
  while (value < high && rng.chance(0.7)) value *= 2;
  return std::min(high, rng.between(value, 2 * value));
}

int64_t pause(Rng& rng, double none, int64_t low, int64_t high) {
  return rng.chance(none) ? 0 : sized(rng, low, high);
}

void each(sys::sim::World* world, Rng* rng, int64_t until_ns, int64_t mean_ns,
          std::function<void()> fault) {
  if (mean_ns == 0) return;
  const int64_t at = world->now() + rng->around(mean_ns);
  if (at >= until_ns) return;
  world->at(at, [world, rng, until_ns, mean_ns, fault = std::move(fault)] {
    fault();
    each(world, rng, until_ns, mean_ns, fault);
  });
}

namespace {

/// Of runs, those in which faults of one kind are not there.
constexpr double kNone = 0.35;

}  // namespace

Scenario draw(uint64_t seed, const Wishes& wishes) {
  Rng rng(seed);
  Scenario out;
  out.seed = seed;
  const int64_t workers = sized(rng, 2, 64);
  out.workers = wishes.workers > 0 ? wishes.workers : static_cast<int>(workers);
  out.ps = static_cast<int>(rng.between(1, 4));
  const bool is_large = out.workers > 200;
  out.world.delay_ns_min = sized(rng, 10 * kMicrosecond, 5 * kMillisecond);
  out.world.delay_ns_around = sized(rng, 10 * kMicrosecond, 20 * kMillisecond);
  out.world.loss = rng.chance(0.5) ? 0 : 0.02 * rng.unit();
  out.world.host_bytes_per_s = sized(rng, 20'000'000, 3'000'000'000);
  out.world.buffer_bytes = static_cast<size_t>(sized(rng, 4 << 10, 1 << 20));
  out.world.short_io = rng.chance(0.3) ? 0.5 : 0.02;
  out.options.keepalive_timeout_ms = sized(rng, 200, 2'000);
  out.options.connect_deadline_ms = sized(rng, 500, 4'000);
  out.options.send_buffer_bytes_max = sized(rng, 64 << 10, 4 << 20);
  out.options.lane_receive_bytes_max = sized(rng, 64 << 10, 16 << 20);
  out.options.lane_send_bytes_max = sized(rng, 64 << 10, 16 << 20);
  out.options.frame_bytes_max = 4 << 20;
  out.options.frame_checksums = rng.chance(0.5) ? 1 : 0;
  out.options.inbox_slots = 16;
  out.options.resume_ms = sized(rng, 100, 5'000);
  out.options.lane_answer_bytes_max = rng.chance(0.7) ? 64 << 20 : 64 << 10;
  out.resume = rng.chance(0.8);
  out.repeatable = rng.chance(0.3);
  out.tracks = static_cast<int>(rng.between(1, is_large ? 2 : 4));
  out.think_ns = sized(rng, is_large ? 200 * kMillisecond : kMillisecond, 400 * kMillisecond);
  out.deadline_ns_min = sized(rng, 50 * kMillisecond, kSecond);
  out.deadline_ns_max = sized(rng, kSecond, 10 * kSecond);
  out.bytes_small = sized(rng, 64, 4 << 10);
  out.bytes_large = sized(rng, 8 << 10, is_large ? 64 << 10 : 1 << 20);
  out.bytes_large = std::min(out.bytes_large, out.options.lane_receive_bytes_max);
  out.large = rng.chance(0.5) ? 0.1 * rng.unit() : 0;
  out.late = rng.chance(0.5) ? 0.3 * rng.unit() : 0;
  out.cancelled = rng.chance(0.5) ? 0.05 * rng.unit() : 0;
  out.refused = rng.chance(0.5) ? 0.05 * rng.unit() : 0;
  out.break_ns = pause(rng, kNone, is_large ? 5 * kMillisecond : 50 * kMillisecond, 2 * kSecond);
  out.cut_ns = pause(rng, kNone, 200 * kMillisecond, 5 * kSecond);
  out.ps_death_ns = pause(rng, kNone, kSecond, 10 * kSecond);
  out.worker_death_ns =
      pause(rng, kNone, is_large ? 50 * kMillisecond : 500 * kMillisecond, 5 * kSecond);
  out.stall_ns = pause(rng, kNone, 200 * kMillisecond, 5 * kSecond);
  out.slow_ns = pause(rng, kNone, 500 * kMillisecond, 5 * kSecond);
  const auto length = static_cast<int64_t>(
      (wishes.seconds > 0 ? wishes.seconds
                          : static_cast<double>(is_large ? 20 : rng.between(20, 60))) *
      1e9);
  out.lanes = static_cast<int>(rng.between(1, is_large ? 2 : 4));
  out.spread = static_cast<int>(rng.between(1, 4));
  out.end_ns = length;
  out.calm_at_ns = length * 6 / 10;
  // Every connection begins with a handshake, which takes a processor about a millisecond.
  const bool secret = rng.chance(is_large ? 0.1 : 0.3);
  out.secret = wishes.secret.value_or(secret);
  const Kind kind = rng.chance(0.5) ? Kind::kTasks : Kind::kLanes;
  out.kind = wishes.kind.value_or(kind);
  constexpr Cut kCuts[] = {Cut::kCalls, Cut::kLite, Cut::kParts};
  out.cut = kCuts[rng.below(3)];
  if (out.kind == Kind::kTasks) {
    // Their steps are some calls each, and take longer to simulate.
    out.think_ns = std::max(out.think_ns, 300 * kMicrosecond * out.workers * out.tracks);
  }
  out.mapped = rng.chance(0.2);
  out.width = rng.between(1, 8);
  const bool standby = rng.chance(0.5);
  out.standby = out.kind == Kind::kTasks && wishes.standby.value_or(standby);
  out.standby_timeout_ns = sized(rng, 100 * kMillisecond, 2 * kSecond);
  out.standby_delay_ns = sized(rng, 20 * kMicrosecond, 10 * kMillisecond);
  out.standby_break_ns = pause(rng, kNone, 100 * kMillisecond, 5 * kSecond);
  return out;
}

std::string_view name_of(Kind kind) {
  constexpr std::string_view kNames[] = {"lanes", "tasks", "coordinator", "moves", "views"};
  return kNames[static_cast<size_t>(kind)];
}

std::string Wishes::to_string() const {
  std::string out;
  if (workers > 0) out += fmt::format(" --workers {}", workers);
  if (seconds > 0) out += fmt::format(" --seconds {}", seconds);
  if (kind) out += fmt::format(" --kind {}", name_of(*kind));
  if (secret) out += fmt::format(" --secret {}", *secret ? "yes" : "no");
  if (standby) out += fmt::format(" --standby {}", *standby ? "yes" : "no");
  return out;
}

std::string Scenario::to_string() const {
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) / 1e6; };
  const std::string resumed = resume ? fmt::format("resumed within {} ms, {} bytes kept",
                                                   options.resume_ms, options.lane_answer_bytes_max)
                                     : "not resumed";
  constexpr const char* kCuts[] = {"calls", "lite", "parts"};
  const std::string what =
      kind == Kind::kLanes
          ? "lanes"
          : fmt::format("tasks, steps cut into {}, rows of {}, {}, {}",
                        kCuts[static_cast<int>(cut)], width,
                        mapped ? "first lanes known" : "all lanes known",
                        standby ? fmt::format("a standby for {} ms, {} ms away, a fault each {} ms",
                                              ms(standby_timeout_ns), ms(standby_delay_ns),
                                              ms(standby_break_ns))
                                : "no standby");
  return fmt::format(
      "{}, {}; {} workers of {} tracks, {} ps of {} lanes, up to {} in a step; delay {} + {} ms, "
      "loss "
      "{:.4f}, {} bytes/s, {} bytes of "
      "buffer, short {}; think {} ms, deadlines {} to {} ms, up to {} bytes, or {} ({:.3f}), late "
      "{:.3f}, cancelled {:.3f}, refused {:.3f}; keepalive {} ms, {}; faults each ms: break {}, "
      "cut "
      "{}, ps death {}, worker death {}, stall {}, slow {}; calm at {} of {} s",
      what, secret ? "a secret" : "no secret", workers, tracks, ps, lanes, spread,
      ms(world.delay_ns_min), ms(world.delay_ns_around), world.loss, world.host_bytes_per_s,
      world.buffer_bytes, world.short_io, ms(think_ns), ms(deadline_ns_min), ms(deadline_ns_max),
      bytes_small, bytes_large, large, late, cancelled, refused, options.keepalive_timeout_ms,
      resumed, ms(break_ns), ms(cut_ns), ms(ps_death_ns), ms(worker_death_ns), ms(stall_ns),
      ms(slow_ns), ms(calm_at_ns) / 1e3, ms(end_ns) / 1e3);
}

}  // namespace sidereal::sim
