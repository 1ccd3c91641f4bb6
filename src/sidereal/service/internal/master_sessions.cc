#include "sidereal/service/internal/master_sessions.h"

#include <fmt/format.h>

#include <atomic>
#include <future>
#include <utility>
#include <vector>

#include "sidereal/base/log.h"
#include "sidereal/service/internal/lease_times.h"

namespace sidereal::service {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

/// What a client gets to hold the session that was made for it.
constexpr milliseconds kUnheld(10'000);
constexpr size_t kSessionsMax = 1024;

}  // namespace

Status MasterSessions::add(const std::shared_ptr<master::MasterSession>& session) {
  const uint64_t id = session->id();
  auto alarm = std::make_unique<grpc::Alarm>();
  alarm->Set(std::chrono::system_clock::now() + kUnheld, [weak = weak_from_this(), id](bool fired) {
    const std::shared_ptr<MasterSessions> self = fired ? weak.lock() : nullptr;
    if (self != nullptr) self->close_unheld(id);
  });
  const std::lock_guard lock(mutex_);
  if (sessions_.size() >= kSessionsMax) {
    return base::resource_exhausted("this master has {} sessions, as many as it takes; close some",
                                    sessions_.size());
  }
  sessions_[id] = {.session = session, .on_close = nullptr, .unheld = std::move(alarm)};
  return {};
}

Result<std::shared_ptr<master::MasterSession>> MasterSessions::find(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) return found->second.session;
  return unknown(id);
}

void MasterSessions::keep_alive(uint64_t id, OnClose on_close) {
  Status why;
  {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(id);
    if (found != sessions_.end()) {
      found->second.unheld = nullptr;
      std::swap(found->second.on_close, on_close);
      why = base::aborted("another call holds the session {:016x}", id);
    } else {
      why = unknown(id);
    }
  }
  if (on_close) on_close(why);
}

void MasterSessions::close(uint64_t id, const Status& why,
                           std::function<void(const Status&)> done) {
  end(id, why, base::message_of(why), std::move(done));
}

void MasterSessions::close_as_asked(uint64_t id, std::function<void(const Status&)> done) {
  end(id, base::cancelled("Session::Close() was called: the step was cancelled"),
      "its client closed it", std::move(done));
}

void MasterSessions::end(uint64_t id, const Status& why, std::string_view told,
                         std::function<void(const Status&)> done) {
  std::shared_ptr<master::MasterSession> session;
  OnClose on_close;
  steady_clock::time_point made;
  Status not_there;
  {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(id);
    if (found != sessions_.end()) {
      session = std::move(found->second.session);
      made = found->second.made;
      on_close = std::move(found->second.on_close);
      sessions_.erase(found);
    } else {
      not_there = unknown(id);
    }
  }
  if (session == nullptr) return done(not_there);
  base::emit(source, base::Event::kSessionEnded,
             {{"session", fmt::format("{:016x}", id)},
              {"seconds", steady_clock::now() - made},
              {"why", std::string(told)}});
  if (on_ended) on_ended(id);
  session->close(why, std::move(done));
  if (on_close) on_close(why);
}

void MasterSessions::close_all(const Status& why) {
  std::vector<uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : sessions_) ids.push_back(id);
  }
  close_and_wait(ids, why);
}

void MasterSessions::close_running(const Status& why) {
  std::vector<uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : sessions_) {
      if (entry.session->config().lease != id) ids.push_back(id);
    }
  }
  close_and_wait(ids, why);
}

void MasterSessions::close_leased(uint64_t lease, const Status& why) {
  std::vector<uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : sessions_) {
      if (entry.session->config().lease == lease) ids.push_back(id);
    }
    for (const uint64_t id : ids) taken_.add(id, why);
  }
  close_and_wait(ids, why);
}

void MasterSessions::close_and_wait(const std::vector<uint64_t>& ids, const Status& why) {
  const auto left = std::make_shared<std::atomic<size_t>>(ids.size() + 1);
  const auto ended = std::make_shared<std::promise<void>>();
  const auto count_down = [left, ended](const Status& closed) {
    log_untold(closed);
    if (--*left == 0) ended->set_value();
  };
  for (const uint64_t id : ids) close(id, why, count_down);
  count_down({});
  ended->get_future().wait_for(kLastCalls);
}

/// Of a session that has no client any more. One that is not known has ended by itself.
void MasterSessions::log_untold(const Status& closed) {
  if (closed.ok() || closed.code() == StatusCode::kAborted) return;
  base::log_warning("a session ended, and a step of it had failed by then error=\"{}\"",
                    base::message_of(closed));
}

void MasterSessions::close_unheld(uint64_t id) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(id);
    if (found == sessions_.end() || found->second.unheld == nullptr) return;
  }
  close(id, base::cancelled("no client held the session"));
}

/// With mutex_.
Status MasterSessions::unknown(uint64_t id) const {
  SR_RETURN_IF_ERROR(taken_.why(id));
  return base::aborted(
      "session {:016x} is not known here: it was closed or reset, or the master was restarted; "
      "make a new session",
      id);
}

}  // namespace sidereal::service
