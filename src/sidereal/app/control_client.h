#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "sidereal/base/status.h"

namespace sidereal::control::v1 {
class CreateVariablesRequest;
class JobEvent;
class ReadVariableRequest;
class RunJobRequest;
class TaskStatus;
}  // namespace sidereal::control::v1

namespace sidereal::security {
class Credentials;
}  // namespace sidereal::security

namespace sidereal::app {

/// Control calls to one task. Every error names the task and its address; a task that cannot be
/// reached is kUnavailable once the deadline has passed.
/// Thread: any.
class ControlClient {
 public:
  /// `task` is "/job:ps/task:0"; `address` "host:port"; without credentials the
  /// connection is plain. Connects at the first call.
  ControlClient(std::string task, std::string address,
                const std::shared_ptr<const security::Credentials>& credentials);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  /// Who is there. Checks that it is the task meant and speaks this version. `cancelled` is asked
  /// now and then while it waits: true ends it with kCancelled.
  Result<std::unique_ptr<control::v1::TaskStatus>> get_status(
      double deadline_s, const std::function<bool()>& cancelled = nullptr);
  Status create_variables(const control::v1::CreateVariablesRequest& request, double deadline_s);
  /// Makes the learning rate of every variable `factor` times that it was created with.
  Status scale_learning_rate(double factor, double deadline_s);
  /// Calls `take` for each piece of the value, in order.
  Status read_variable(const control::v1::ReadVariableRequest& request, double deadline_s,
                       const std::function<Status(const std::string&)>& take);
  /// From now on the task's lanes trace calls of steps [first, end).
  Status start_trace(uint64_t first, uint64_t end, double deadline_s);
  /// Ends the traces; one text for each lane, elements for Chrome. `process` is the process number
  /// of the first lane in them, `begin_unix_ns` is taken from all times.
  Result<std::vector<std::string>> take_trace(int32_t process, int64_t begin_unix_ns,
                                              double deadline_s);
  Status register_program(int lane, const std::string& bytes, double deadline_s);
  /// Runs a job to its end, calling `on_event` for each event from the calling thread. An error
  /// from `on_event` cancels the job and is returned. No deadline: the connection's keepalive
  /// notices a task that is gone.
  Status run_job(const control::v1::RunJobRequest& request,
                 const std::function<Status(const control::v1::JobEvent&)>& on_event);
  /// Ends a run_job() in progress, from another thread; it returns kCancelled.
  void cancel_job();
  Status shutdown(double deadline_s);

  [[nodiscard]] const std::string& task() const { return task_; }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  class Impl;
  std::string task_;
  std::string address_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::app
