#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace sidereal::master {

/// Calls a function once, after a time, on a thread that waits for nothing else. Thread: any.
class Alarm {
 public:
  /// As cancel().
  virtual ~Alarm() = default;
  /// Once.
  virtual void set(std::chrono::milliseconds after, std::function<void()> fn) = 0;
  /// It is not called, unless that has begun.
  virtual void cancel() = 0;
};

using NewAlarm = std::function<std::unique_ptr<Alarm>()>;

}  // namespace sidereal::master
