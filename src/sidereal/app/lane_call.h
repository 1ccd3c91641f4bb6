#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "sidereal/base/status.h"
#include "sidereal/lane/lane.h"

namespace sidereal::app {

/// Asks `lane` to run `fn`; its result comes as a future. kUnavailable as of call_on_lane(). `fn`
/// must own what it uses.
template <class T, class F>
Result<std::future<T>> ask_lane(lane::Lane* lane, F fn) {
  auto promise = std::make_shared<std::promise<T>>();
  std::future<T> future = promise->get_future();
  const bool posted =
      lane->post([promise, fn = std::move(fn)]() mutable { promise->set_value(fn()); });
  if (!posted) return base::unavailable("lane {} is stopping or overloaded", lane->name());
  return future;
}

/// Runs `fn` on `lane` and waits for its result (a T that is default constructible). For control
/// threads, never from a lane. kUnavailable when the lane is stopping or its inbox is full,
/// kDeadlineExceeded naming the lane when it does not come to it in time; `fn` may then still
/// run later, so it must own what it uses.
template <class T, class F>
Result<T> call_on_lane(lane::Lane* lane, F fn, double deadline_s = 10) {
  SR_ASSIGN_OR_RETURN(std::future<T> future, ask_lane<T>(lane, std::move(fn)));
  const auto wait = std::chrono::duration<double>(deadline_s);
  if (future.wait_for(wait) != std::future_status::ready) {
    return base::deadline_exceeded("lane {} did not answer within {:.1f} s", lane->name(),
                                   deadline_s);
  }
  return future.get();
}

}  // namespace sidereal::app
