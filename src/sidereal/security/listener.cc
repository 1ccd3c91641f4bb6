#include "sidereal/security/listener.h"

#include <fcntl.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "sidereal/base/log.h"
#include "sidereal/security/first_bytes.h"
#include "sidereal/security/flood_watch.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/sys/posix/process.h"

namespace sidereal::security {

namespace {

constexpr uint64_t kListeningToken = 0;
constexpr int kAcceptsAtOnce = 64;
constexpr int64_t kAcceptPause = 100 * sys::kMillisecond;
constexpr int64_t kReportEvery = 10 * sys::kSecond;
constexpr int64_t kLookEvery = 100 * sys::kMillisecond;
constexpr int64_t kTidyUpAfter = 2 * sys::kSecond;
constexpr int64_t kLookSoon = 20 * sys::kMillisecond;
// gRPC ends a handshake at its deadline; a little later what is still open has proved itself.
constexpr int64_t kHandshakeMargin = sys::kSecond;

/// A connection that has not proved itself, at any stage.
struct Connection {
  std::unique_ptr<sys::Stream> stream;
  PeerName peer = {};
  int64_t deadline = 0;  ///< Nanoseconds of the listener's clock.
  std::array<std::byte, kFirstBytesMax> bytes = {};
  size_t count = 0;
};

/// What the system knows of a connection; zeros where it does not tell.
tcp_info info_of(const Connection& connection) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  if (getsockopt(connection.stream->handle(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  return info;
}

/// Whether it was this side that ended a connection, as far as that can still be seen.
bool ended_here(const Connection& connection) {
  enum { kFinWait1 = 4, kFinWait2 = 5, kTimeWait = 6, kClosing = 11 };
  const int state = info_of(connection).tcpi_state;
  return state == kFinWait1 || state == kFinWait2 || state == kTimeWait || state == kClosing;
}

/// Whether nothing but (a part of) the hello has come from the peer, so that it cannot have proved
/// itself. False where the system does not tell.
bool said_hello_only(const Connection& connection) {
  const tcp_info info = info_of(connection);
  return info.tcpi_bytes_received > 0 &&
         info.tcpi_bytes_received <= hello_bytes({connection.bytes.data(), connection.count});
}

/// Peers that have made no call yet. Thread: any.
class WithoutCalls {
 public:
  /// Costs nothing; may be a moment late.
  [[nodiscard]] bool empty() const { return is_empty_.load(std::memory_order_relaxed); }
  void add(const PeerName& peer) {
    const std::lock_guard lock(mutex_);
    peers_.insert(peer);
    is_empty_ = false;
  }
  /// Whether it was there.
  bool remove(const PeerName& peer) {
    const std::lock_guard lock(mutex_);
    const bool removed = peers_.erase(peer) > 0;
    is_empty_ = peers_.empty();
    return removed;
  }

 private:
  std::mutex mutex_;
  std::set<PeerName> peers_;
  std::atomic<bool> is_empty_ = true;
};

/// Is told of each call before it begins, of any service. Intercepts none.
class HearsOfCalls final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit HearsOfCalls(std::shared_ptr<WithoutCalls> peers) : peers_(std::move(peers)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    if (!peers_->empty()) peers_->remove(parse_peer(call->server_context()->peer()));
    return nullptr;
  }

 private:
  const std::shared_ptr<WithoutCalls> peers_;
};

/// By token. Tokens are given in order of time, so the first is the oldest, and the next to be due.
using Stage = std::map<uint64_t, Connection>;

using Counter = std::atomic<uint64_t>;

void count(Counter* counter) { counter->fetch_add(1, std::memory_order_relaxed); }
uint64_t read(const Counter& counter) { return counter.load(std::memory_order_relaxed); }

Status check(const ListenerOptions& options) {
  if (std::min({options.first_bytes_ms_max, options.handshake_ms_max, options.unproved_max,
                options.calls_max, options.calls_of_one_max, options.calm_ms}) < 1) {
    return base::invalid_argument("deadlines and limits of a listener must be positive");
  }
  return {};
}

}  // namespace

class Listener::Impl {
 public:
  Impl(std::shared_ptr<const Credentials> credentials, const ListenerOptions& options)
      : credentials_(std::move(credentials)),
        options_(options),
        tls_(credentials_->proves_peers()) {}

  ~Impl() { stop(); }

  Status bind(const std::string& address) {
    SR_RETURN_IF_ERROR(check(options_));
    SR_RETURN_IF_ERROR(check_listen(address, *credentials_));
    SR_ASSIGN_OR_RETURN(sys::Address asked, sys::Address::parse(address));
    SR_ASSIGN_OR_RETURN(poller_, network_->create_poller());
    SR_ASSIGN_OR_RETURN(socket_, network_->listen(asked));
    asked.port = socket_->address().port;
    address_ = asked.to_string();
    floods_.emplace(asked.port, options_.calls_of_one_max, options_.calls_max);
    return {};
  }

  void attach(grpc::ServerBuilder* builder) {
    builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, options_.handshake_ms_max);
    acceptor_ = builder->experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        credentials_->server(peers_));
    if (tls_) return;
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> hears;
    hears.push_back(std::make_unique<HearsOfCalls>(without_calls_));
    builder->experimental().SetInterceptorCreators(std::move(hears));
  }

  Status start() {
    if (acceptor_ == nullptr) {
      return base::failed_precondition("a listener starts after attach() and the server's start");
    }
    SR_RETURN_IF_ERROR(poller_->add(*socket_, kListeningToken, {}));
    thread_ = std::thread([this] { run(); });
    return {};
  }

  void stop() {
    stopping_.store(true, std::memory_order_release);  // Read by run(), which wake() makes look.
    if (poller_ != nullptr) poller_->wake();
    if (thread_.joinable()) thread_.join();
    held_back_.clear();
    waiting_.clear();
    proving_.clear();
    socket_.reset();
  }

  [[nodiscard]] ListenerCounters counters() const {
    ListenerCounters all;
    all.accepted = read(accepted_);
    all.gone = read(gone_);
    all.refused_garbage = read(refused_garbage_);
    all.idle_closed = read(idle_closed_);
    all.over_limit = read(over_limit_);
    all.flood = read(flood_);
    all.refused_certificate = refused_certificate();
    all.admitted = tls_ ? read(peers_->verified) : read(handed_);
    return all;
  }

  std::string address_;

 private:
  void run() {
    std::array<sys::Event, 128> events;
    while (!stopping_.load(std::memory_order_acquire)) {
      const size_t n = poller_->wait(events, nanoseconds_to_wait());
      const int64_t now = clock_->now();
      for (size_t i = 0; i < n; ++i) handle(events[i], now);
      expire(now);
      look_for_floods(now);
      report(now);
    }
    reported_at_ = 0;
    report(clock_->now());
  }

  /// Until the next deadline; negative when there is none.
  int64_t nanoseconds_to_wait() {
    int64_t next = resume_at_;
    if (look_at_ != 0) next = next == 0 ? look_at_ : std::min(next, look_at_);
    for (const Stage* stage : {&held_back_, &waiting_, &proving_}) {
      if (stage->empty()) continue;
      const int64_t due = stage->begin()->second.deadline;
      next = next == 0 ? due : std::min(next, due);
    }
    return next == 0 ? -1 : std::max<int64_t>(next - clock_->now(), sys::kMillisecond);
  }

  void handle(const sys::Event& event, int64_t now) {
    if (event.token == kListeningToken) {
      accept(now);
    } else if (const auto found = waiting_.find(event.token); found != waiting_.end()) {
      read_first_bytes(found, now);
    } else if (proving_.contains(event.token)) {
      if (event.failed) ended(proving_.find(event.token));
    }
  }

  void accept(int64_t now) {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      Result<std::unique_ptr<sys::Stream>> accepted = socket_->accept();
      if (!accepted.ok()) {
        pause(accepted.status(), now);
        return;
      }
      if (*accepted == nullptr) return;
      count(&accepted_);
      Connection connection{.stream = *std::move(accepted)};
      connection.peer = sys::posix::peer_of(connection.stream->handle());
      take(std::move(connection), now);
    }
  }

  /// Begins with a connection, if its host has not flooded lately.
  void take(Connection connection, int64_t now) {
    if (const auto calm = calm_until_.find(connection.peer.host); calm != calm_until_.end()) {
      return hold_back(std::move(connection), calm->second);
    }
    wait_for(std::move(connection), now);
  }

  /// Does nothing with a connection before a time.
  void hold_back(Connection connection, int64_t until) {
    if (held_back_.size() >= static_cast<size_t>(options_.unproved_max)) return count(&over_limit_);
    connection.deadline = until;
    held_back_.emplace(next_token_++, std::move(connection));
  }

  /// Waits for the first bytes of a connection.
  void wait_for(Connection connection, int64_t now) {
    if (const auto other = one_to_leave(&waiting_, connection.peer.host); other != waiting_.end()) {
      drop(other, &over_limit_);
    }
    const uint64_t token = next_token_++;
    connection.deadline = now + options_.first_bytes_ms_max * sys::kMillisecond;
    if (!poller_->add(*connection.stream, token, {}).ok()) {
      count(&over_limit_);
      return;
    }
    waiting_.emplace(token, std::move(connection));
  }

  /// Whether `count` connections of a host are as many as it may have in a stage.
  [[nodiscard]] bool is_host_full(const Stage& stage, const std::string& host) const {
    const auto of_host =
        std::ranges::count_if(stage, [&](const auto& one) { return one.second.peer.host == host; });
    return of_host * 4 >= int64_t{options_.unproved_max} * 3;
  }

  /// Who makes room for a connection of `host`; the end where there is room.
  Stage::iterator one_to_leave(Stage* stage, const std::string& host) const {
    if (stage->size() * 4 < static_cast<size_t>(options_.unproved_max) * 3) return stage->end();
    if (is_host_full(*stage, host)) {
      return std::ranges::find_if(*stage,
                                  [&](const auto& one) { return one.second.peer.host == host; });
    }
    const bool is_full = stage->size() >= static_cast<size_t>(options_.unproved_max);
    return is_full ? stage->begin() : stage->end();
  }

  void look_for_floods(int64_t now) {
    if (look_at_ == 0 || look_at_ > now) return;
    for (const PeerName& peer : floods_->look()) {
      count(&flood_);
      calm_until_[peer.host] = now + options_.calm_ms * sys::kMillisecond;
      tidy_up_at_ = now + kTidyUpAfter;
    }
    if (floods_->is_overloaded()) {
      for (auto& [host, until] : calm_until_) until = now + options_.calm_ms * sys::kMillisecond;
      // What is under way now is memory to give back later.
      tidy_up_at_ = now + kTidyUpAfter;
    }
    if (tidy_up_at_ != 0 && tidy_up_at_ <= now) {
      tidy_up_at_ = 0;
      sys::posix::release_free_memory();
    }
    look_at_ = now + (floods_->is_busy() ? kLookSoon : kLookEvery);
  }

  /// The process has no descriptors left, as a rule: the silent ones give theirs back, and the port
  /// is left alone for a moment.
  void pause(const Status& status, int64_t now) {
    base::log_warning("accept failed error=\"{}\"", base::message_of(status));
    for (int i = 0; i < kAcceptsAtOnce && !waiting_.empty(); ++i) {
      drop(waiting_.begin(), &over_limit_);
    }
    poller_->remove(*socket_);
    resume_at_ = now + kAcceptPause;
  }

  void read_first_bytes(Stage::iterator at, int64_t now) {
    Connection& connection = at->second;
    const sys::IoSlice room{connection.bytes.data() + connection.count,
                            kFirstBytesMax - connection.count};
    const Result<sys::IoCount> got = connection.stream->readv({&room, 1});
    if (!got.ok() || got->end) {
      drop(at, &gone_);
      return;
    }
    connection.count += got->bytes;
    const std::span<const std::byte> bytes(connection.bytes.data(), connection.count);
    switch (judge_first_bytes(bytes, tls_)) {
      case FirstBytes::kTooFew:
        return;
      case FirstBytes::kGarbage:
        drop(at, &refused_garbage_);
        return;
      case FirstBytes::kGood:
        hand_over(at, now);
    }
  }

  /// gRPC gets a descriptor of its own. Ours is watched until the connection has proved itself.
  void hand_over(Stage::iterator at, int64_t now) {
    if (tls_ && !has_room_for(at->second.peer.host)) {
      drop(at, &over_limit_);
      return;
    }
    const int fd = fcntl(at->second.stream->handle(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
      drop(at, &over_limit_);
      return;
    }
    Connection connection = std::move(at->second);
    poller_->remove(*connection.stream);
    waiting_.erase(at);
    const grpc::Slice slice(connection.bytes.data(), connection.count);
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.fd = fd;
    parameters.read_buffer = grpc::ByteBuffer(&slice, 1);
    count(&handed_);
    if (look_at_ == 0) look_at_ = now + kLookEvery;
    watch(std::move(connection), now);
    acceptor_->HandleNewConnection(&parameters);
  }

  /// Waits for what becomes of a connection that is gRPC's now.
  void watch(Connection connection, int64_t now) {
    const uint64_t token = next_token_++;
    connection.deadline = now + options_.handshake_ms_max * sys::kMillisecond + kHandshakeMargin;
    if (!tls_) {
      // That the oldest ones end is not counted any more.
      if (proving_.size() >= static_cast<size_t>(options_.unproved_max)) release(proving_.begin());
      without_calls_->add(connection.peer);
    }
    const Status watched =
        poller_->add(*connection.stream, token, {.readable = false, .writable = false});
    const auto at = proving_.emplace(token, std::move(connection)).first;
    if (!watched.ok()) release(at);
  }

  /// A connection has ended that was watched.
  void ended(Stage::iterator at) {
    const bool by_us = ended_here(at->second);
    if (!release(at)) count(by_us ? &refused_garbage_ : &gone_);
  }

  /// What becomes of a connection is not of interest any more. False when it was known not to have
  /// proved itself, which without TLS is to make a call.
  bool release(Stage::iterator at) {
    poller_->remove(*at->second.stream);
    const bool made_call = tls_ || !without_calls_->remove(at->second.peer);
    proving_.erase(at);
    if (tls_) count(&decided_);
    return made_call;
  }

  /// Whether one more may begin a handshake; makes room if it can.
  bool has_room_for(const std::string& host) {
    const uint64_t unproved = this->unproved();
    // Some of the host may have proved themselves already: gRPC does not say which.
    const bool is_full = unproved >= static_cast<uint64_t>(options_.unproved_max);
    if (unproved * 4 >= static_cast<uint64_t>(options_.unproved_max) * 3 &&
        is_host_full(proving_, host)) {
      return make_room(&host);
    }
    return !is_full || make_room(nullptr);
  }

  /// Ends the oldest handshake, of `host` if that is not nullptr, in which the peer has said no
  /// more than hello; false without one.
  bool make_room(const std::string* host) {
    for (auto at = proving_.begin(); at != proving_.end(); ++at) {
      if ((host != nullptr && at->second.peer.host != *host) || !said_hello_only(at->second))
        continue;
      count(&over_limit_);
      poller_->remove(*at->second.stream);
      ::shutdown(at->second.stream->handle(), SHUT_RDWR);  // gRPC reads an end and closes its own.
      proving_.erase(at);
      return true;
    }
    return false;
  }

  void drop(Stage::iterator at, Counter* counter) {
    count(counter);  // First: a peer that sees its connection closed has been counted.
    poller_->remove(*at->second.stream);
    waiting_.erase(at);
  }

  void expire(int64_t now) {
    std::erase_if(calm_until_, [now](const auto& one) { return one.second <= now; });
    while (!held_back_.empty() && held_back_.begin()->second.deadline <= now) {
      Connection connection = std::move(held_back_.begin()->second);
      held_back_.erase(held_back_.begin());
      take(std::move(connection), now);
    }
    while (!waiting_.empty() && waiting_.begin()->second.deadline <= now) {
      drop(waiting_.begin(), &idle_closed_);
    }
    while (!proving_.empty() && proving_.begin()->second.deadline <= now) {
      release(proving_.begin());
    }
    if (resume_at_ != 0 && resume_at_ <= now) {
      // Failing again is the same as a port with no news: try again after the same pause.
      resume_at_ = poller_->add(*socket_, kListeningToken, {}).ok() ? 0 : now + kAcceptPause;
    }
  }

  /// Connections that ended without proof. gRPC does not say which connection proved itself, only
  /// how many did: so this lags while some are in between, and is exact when none is.
  [[nodiscard]] uint64_t refused_certificate() const {
    const uint64_t decided = read(decided_);
    const uint64_t verified = read(peers_->verified);
    uint64_t known = std::max(read(refused_certificate_), read(peers_->refused));
    const uint64_t now = std::max(known, decided > verified ? decided - verified : 0);
    while (known < now && !refused_certificate_.compare_exchange_weak(known, now)) {
    }
    return now;
  }

  /// Connections that gRPC has and that may not have proved themselves; never fewer than the truth
  /// once their deadlines have passed.
  [[nodiscard]] uint64_t unproved() const {
    const uint64_t settled = read(decided_) - std::min(read(decided_), refused_certificate());
    const uint64_t verified = read(peers_->verified);
    const uint64_t proved = verified > settled ? verified - settled : 0;
    return proving_.size() - std::min<uint64_t>(proved, proving_.size());
  }

  void report(int64_t now) {
    const ListenerCounters all = counters();
    const uint64_t refused = all.refused_garbage + all.refused_certificate + all.idle_closed +
                             all.over_limit + all.flood;
    if (refused == reported_ || (reported_at_ != 0 && now - reported_at_ < kReportEvery)) return;
    reported_ = refused;
    reported_at_ = now;
    base::log_warning(
        "connections refused address={} garbage={} certificate={} idle={} over_limit={} flood={}",
        address_, all.refused_garbage, all.refused_certificate, all.idle_closed, all.over_limit,
        all.flood);
  }

  const std::shared_ptr<const Credentials> credentials_;
  const ListenerOptions options_;
  const bool tls_;
  // Of proving_, without TLS.
  const std::shared_ptr<WithoutCalls> without_calls_ = std::make_shared<WithoutCalls>();
  const std::shared_ptr<PeerCounts> peers_ = std::make_shared<PeerCounts>();
  std::unique_ptr<sys::Clock> clock_ = sys::posix::create_clock();
  std::unique_ptr<sys::Network> network_ = sys::posix::create_network();
  std::unique_ptr<sys::Poller> poller_;
  std::unique_ptr<sys::Listener> socket_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;

  // Of the thread that runs run().
  Stage held_back_;  // Of hosts that flooded; looked at later.
  Stage waiting_;    // Have not said enough.
  Stage proving_;    // gRPC's, until they have proved themselves.
  uint64_t next_token_ = kListeningToken + 1;
  std::optional<FloodWatch> floods_;
  std::map<std::string, int64_t> calm_until_;  // Hosts that flooded, and when they may go on.
  int64_t tidy_up_at_ = 0;  // When what the last flood took is free; 0: it was given back.
  int64_t look_at_ = 0;     // When to look for floods; 0: nobody has connected yet.
  int64_t resume_at_ = 0;   // When to accept again; 0: accepting.
  uint64_t reported_ = 0;
  int64_t reported_at_ = 0;

  // Written by that thread (refused_certificate_ by any), read by any.
  Counter accepted_ = 0, gone_ = 0, refused_garbage_ = 0, idle_closed_ = 0, over_limit_ = 0;
  Counter flood_ = 0;
  Counter handed_ = 0, decided_ = 0;
  mutable Counter refused_certificate_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

Listener::Listener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Listener::~Listener() = default;

Result<std::unique_ptr<Listener>> Listener::create(const std::string& address,
                                                   std::shared_ptr<const Credentials> credentials,
                                                   const ListenerOptions& options) {
  auto impl = std::make_unique<Impl>(std::move(credentials), options);
  SR_RETURN_IF_ERROR(impl->bind(address));
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

const std::string& Listener::address() const { return impl_->address_; }
void Listener::attach(grpc::ServerBuilder* builder) { impl_->attach(builder); }
Status Listener::start() { return impl_->start(); }
void Listener::stop() { impl_->stop(); }
ListenerCounters Listener::counters() const { return impl_->counters(); }

void log_less_of_grpc() {
  gpr_set_log_function([](gpr_log_func_args* line) {
    const std::string_view file(line->file);
    if (line->severity == GPR_LOG_SEVERITY_ERROR && file.find("security") == file.npos) {
      base::log_error("gRPC: {} ({}:{})", line->message, file, line->line);
    }
  });
}

}  // namespace sidereal::security
