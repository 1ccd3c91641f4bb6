#pragma once

#include <grpcpp/alarm.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "sidereal/base/event_log.h"
#include "sidereal/base/status.h"
#include "sidereal/master/master_session.h"
#include "sidereal/service/job_leases.h"

namespace sidereal::service {

/// The sessions of a master. One that no client holds soon after it was made is closed: its client
/// has gone before it could say so. Internal to service.
/// Thread: any.
class MasterSessions : public std::enable_shared_from_this<MasterSessions> {
 public:
  base::EventSource source = {};  ///< Of what is told of them. Set before any is made.
  /// Told of each that ends, before its calls are. Set before any is made.
  std::function<void(uint64_t id)> on_ended = nullptr;

  /// kResourceExhausted when there are too many.
  Status add(const std::shared_ptr<master::MasterSession>& session);
  /// kAborted when it is not known, or why its lease has ended.
  Result<std::shared_ptr<master::MasterSession>> find(uint64_t id);
  using OnClose = std::function<void(const Status& why)>;
  /// Calls `on_close` when the session is closed, or held by another call; at once when there is
  /// none.
  void keep_alive(uint64_t id, OnClose on_close);
  /// `done` gets the outcome once the session has let go of everything, from any thread: also a
  /// failure of what its steps have not waited for.
  void close(uint64_t id, const Status& why, std::function<void(const Status&)> done = log_untold);
  /// The same, as its client asks for: no failure.
  void close_as_asked(uint64_t id, std::function<void(const Status&)> done);
  /// Waits until all have let go of everything, but not long.
  void close_all(const Status& why);
  /// The same of those that run steps: holders of leases have nothing else, and stay.
  void close_running(const Status& why);
  /// The same of those of a lease; later calls of them get `why`.
  void close_leased(uint64_t lease, const Status& why);

 private:
  struct Entry {
    std::shared_ptr<master::MasterSession> session;
    OnClose on_close;
    std::unique_ptr<grpc::Alarm> unheld;
    std::chrono::steady_clock::time_point made = std::chrono::steady_clock::now();
  };

  static void log_untold(const Status& closed);
  /// Its steps get `why`, and its event says `told`.
  void end(uint64_t id, const Status& why, std::string_view told,
           std::function<void(const Status&)> done);
  void close_and_wait(const std::vector<uint64_t>& ids, const Status& why);
  void close_unheld(uint64_t id);
  [[nodiscard]] Status unknown(uint64_t id) const;

  std::mutex mutex_;
  std::map<uint64_t, Entry> sessions_;
  EndedLately taken_;  // Those that ended with their leases.
};

}  // namespace sidereal::service
