#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/sys/memory_watch.h"
#include "sidereal/sys/posix/connections.h"
#include "sidereal/sys/posix/descriptor.h"
#include "sidereal/sys/posix/look_ups.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/sys/posix/shared_memory.h"

namespace sidereal::sys::posix {
namespace {

constexpr int kBacklog = 1024;
constexpr int kSocketBufferBytes = 4 << 20;
constexpr size_t kSlicesMax = 256;  // per system call; IOV_MAX is 1024 on Linux

/// A socket address of either family.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Result<SocketAddress> find_address(const Address& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return base::not_found("host '{}' of address {} is unknown: {}; check the name", address.host,
                           address.to_string(),
                           error == EAI_SYSTEM ? error_text(errno) : gai_strerror(error));
  }
  // IPv4 first: "localhost" must mean the same address to a listener and to a connector.
  const addrinfo* chosen = found;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    if (a->ai_family == AF_INET) {
      chosen = a;
      break;
    }
  }
  SocketAddress out;
  std::memcpy(&out.storage, chosen->ai_addr, chosen->ai_addrlen);
  out.length = chosen->ai_addrlen;
  freeaddrinfo(found);
  return out;
}

Address to_address(const SocketAddress& from) {
  char text[INET6_ADDRSTRLEN] = "";
  if (from.storage.ss_family == AF_INET6) {
    const auto* in = reinterpret_cast<const sockaddr_in6*>(&from.storage);
    inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof(text));
    return {text, ntohs(in->sin6_port)};
  }
  const auto* in = reinterpret_cast<const sockaddr_in*>(&from.storage);
  inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
  return {text, ntohs(in->sin_port)};
}

void set_int_option(int fd, int level, int name, int value) {
  // Best effort: none of these changes what is correct, only how fast it is.
  (void)setsockopt(fd, level, name, &value, sizeof(value));
}

/// The congestion control is inherited by accepted sockets, so a listener is given it as well.
void tune(int fd) {
  set_int_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  for (const char* name : {"cubic", "reno"}) {
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, std::strlen(name)) == 0) break;
  }
  set_int_option(fd, SOL_SOCKET, SO_SNDBUF, kSocketBufferBytes);
  set_int_option(fd, SOL_SOCKET, SO_RCVBUF, kSocketBufferBytes);
}

Fd open_socket(int family) {
  return Fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

class TcpStream final : public Stream {
 public:
  TcpStream(Fd fd, bool connected) : fd_(std::move(fd)), connected_(connected) {}

  [[nodiscard]] int handle() const override { return fd_.get(); }

  Result<bool> connected() override {
    if (connected_) return true;
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error != 0) return base::unavailable("{}", error_text(error));
    SocketAddress peer;
    peer.length = sizeof(peer.storage);
    if (getpeername(fd_.get(), peer.get(), &peer.length) != 0) return false;
    connected_ = true;
    return true;
  }

  Result<IoCount> readv(std::span<const IoSlice> into) override {
    std::array<iovec, kSlicesMax> slices;
    const size_t count = std::min(into.size(), kSlicesMax);
    for (size_t i = 0; i < count; ++i) slices[i] = {into[i].data, into[i].bytes};
    for (;;) {
      // One slice, which is what small messages come in, costs the system less.
      const ssize_t n = count == 1 ? ::recv(fd_.get(), into[0].data, into[0].bytes, 0)
                                   : ::readv(fd_.get(), slices.data(), static_cast<int>(count));
      if (n > 0) return IoCount{.bytes = static_cast<size_t>(n)};
      if (n == 0) return IoCount{.end = true};
      if (errno == EINTR) continue;
      if (would_block(errno)) return IoCount{.would_block = true};
      return base::unavailable("{}", error_text(errno));
    }
  }

  Result<IoCount> writev(std::span<const ConstIoSlice> from) override {
    std::array<iovec, kSlicesMax> slices;
    const size_t count = std::min(from.size(), kSlicesMax);
    for (size_t i = 0; i < count; ++i) {
      slices[i] = {const_cast<std::byte*>(from[i].data), from[i].bytes};
    }
    msghdr message{};
    message.msg_iov = slices.data();
    message.msg_iovlen = count;
    for (;;) {
      // sendmsg rather than writev: a closed peer must be an error, not a signal.
      const ssize_t n = count == 1 ? ::send(fd_.get(), from[0].data, from[0].bytes, MSG_NOSIGNAL)
                                   : ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
      if (n >= 0) return IoCount{.bytes = static_cast<size_t>(n)};
      if (errno == EINTR) continue;
      if (would_block(errno)) return IoCount{.would_block = true};
      return base::unavailable("{}", error_text(errno));
    }
  }

  [[nodiscard]] bool is_local() const override {
    const PeerName peer = peer_of(fd_.get());
    return !peer.host.empty() && peer.host == local_of(fd_.get()).host;
  }

 private:
  Fd fd_;
  bool connected_;
};

class TcpListener final : public Listener {
 public:
  TcpListener(Fd fd, Address address) : fd_(std::move(fd)), address_(std::move(address)) {}

  [[nodiscard]] int handle() const override { return fd_.get(); }
  [[nodiscard]] const Address& address() const override { return address_; }

  Result<std::unique_ptr<Stream>> accept() override {
    for (;;) {
      Fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (fd.valid()) {
        tune(fd.get());
        return std::make_unique<TcpStream>(std::move(fd), true);
      }
      // A client that has gone before it was accepted concerns nobody.
      if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
      if (would_block(errno)) return std::unique_ptr<Stream>();
      return base::resource_exhausted("cannot accept a connection on {}: {}", address_.to_string(),
                                      error_text(errno));
    }
  }

 private:
  Fd fd_;
  Address address_;
};

class EpollPoller final : public Poller {
 public:
  EpollPoller(Fd epoll, Fd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}

  /// Registers the wake-up descriptor; once, after construction.
  Status init() {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = kWakeToken;
    return control(EPOLL_CTL_ADD, wake_.get(), &event);
  }

  Status add(const Pollable& what, uint64_t token, Interest interest) override {
    SR_CHECK(token != kWakeToken);
    MemoryWatch::Entry* entry = nullptr;
    if (what.in_memory() != nullptr) {
      entry = memory_.add(what, token, interest);
      interest = entry->watched;
    }
    epoll_event event = to_epoll(token, interest);
    Status status = control(EPOLL_CTL_ADD, what.handle(), &event);
    if (!status.ok() && entry != nullptr) memory_.remove(entry);
    return status;
  }

  Status update(const Pollable& what, uint64_t token, Interest interest) override {
    if (what.in_memory() != nullptr) {
      MemoryWatch::Entry* const entry = memory_.find(what.in_memory());
      SR_CHECK(entry != nullptr && entry->token == token);
      entry->wanted = interest;
      memory_.look_at(entry);
      return watch_handle(entry);
    }
    epoll_event event = to_epoll(token, interest);
    return control(EPOLL_CTL_MOD, what.handle(), &event);
  }

  void remove(const Pollable& what) override {
    MemoryWatch::Entry* const entry =
        what.in_memory() != nullptr ? memory_.find(what.in_memory()) : nullptr;
    if (entry != nullptr) memory_.remove(entry);
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, what.handle(), nullptr);
  }

  size_t wait(std::span<Event> events, int64_t timeout_ns) override {
    if (memory_.empty()) return wait_system(events, timeout_ns);
    // Half of the places, so that others have their turn.
    const size_t count = memory_.look(events.first((events.size() + 1) / 2));
    // As long as somebody looks here all the time, the system can be asked less often.
    if (timeout_ns == 0 && memory_.looks() && ++looks_ < (count > 0 ? kBusyLooks : kIdleLooks)) {
      return count;
    }
    size_t found = 0;
    if (count > 0 || timeout_ns == 0) {
      found = wait_system(events.subspan(count), 0);
    } else {
      const int64_t sleep_ns = memory_.close_eyes(timeout_ns);
      if (sleep_ns == 0) return memory_.look(events);
      found = wait_system(events, sleep_ns);
      memory_.open_eyes();
    }
    // Whoever was told of something may ask again before he does it.
    looks_ = found > 0 ? kIdleLooks : 0;
    return count + found;
  }

  void wake() override {
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof(one));
  }

 private:
  static constexpr uint64_t kWakeToken = ~uint64_t{0};
  static constexpr size_t kEventsMax = 128;
  // A look at memory takes nanoseconds, what the lane does with what it finds microseconds.
  static constexpr int kBusyLooks = 4;
  static constexpr int kIdleLooks = 16;

  size_t wait_system(std::span<Event> events, int64_t timeout_ns) {
    if (events.empty()) return 0;
    std::array<epoll_event, kEventsMax> ready;
    const int max = static_cast<int>(std::min(events.size(), ready.size()));
    const int n = wait_for(ready.data(), max, timeout_ns);
    size_t count = 0;
    for (int i = 0; i < n; ++i) {
      if (ready[i].data.u64 == kWakeToken) {
        uint64_t ignored = 0;
        (void)!::read(wake_.get(), &ignored, sizeof(ignored));
        continue;
      }
      const uint32_t bits = ready[i].events;
      Event event = {.token = ready[i].data.u64,
                     .readable = (bits & EPOLLIN) != 0,
                     .writable = (bits & EPOLLOUT) != 0,
                     .failed = (bits & (EPOLLERR | EPOLLHUP)) != 0};
      MemoryWatch::Entry* const entry = memory_.empty() ? nullptr : memory_.find(event.token);
      if (entry != nullptr) look_after(entry, &event);
      if (event.any()) events[count++] = event;
    }
    return count;
  }

  /// The system tells of something that lies in memory: most likely a bell.
  void look_after(MemoryWatch::Entry* entry, Event* event) {
    entry->memory->on_handle(event);
    memory_.look_at(entry);
    const Event seen = entry->memory->look(entry->wanted);
    event->readable |= seen.readable;
    event->writable |= seen.writable;
    event->failed |= seen.failed;
    // It is looked at anyhow, so a failure to tell the system less costs only time.
    (void)watch_handle(entry);
  }

  Status watch_handle(MemoryWatch::Entry* entry) {
    const Interest wanted = entry->memory->handle_interest(entry->wanted);
    if (wanted == entry->watched) return {};
    epoll_event event = to_epoll(entry->token, wanted);
    SR_RETURN_IF_ERROR(control(EPOLL_CTL_MOD, entry->handle, &event));
    entry->watched = wanted;
    return {};
  }

  static epoll_event to_epoll(uint64_t token, Interest interest) {
    epoll_event event{};
    event.events = (interest.readable ? EPOLLIN : 0u) | (interest.writable ? EPOLLOUT : 0u);
    event.data.u64 = token;
    return event;
  }

  Status control(int operation, int fd, epoll_event* event) {
    if (::epoll_ctl(epoll_.get(), operation, fd, event) == 0) return {};
    return base::resource_exhausted("cannot watch a socket: {}", error_text(errno));
  }

  int wait_for(epoll_event* ready, int max, int64_t timeout_ns) {
    if (timeout_ns <= 0) {
      return std::max(0, ::epoll_wait(epoll_.get(), ready, max, timeout_ns < 0 ? -1 : 0));
    }
    timespec t;
    t.tv_sec = timeout_ns / kSecond;
    t.tv_nsec = timeout_ns % kSecond;
    const int n = ::epoll_pwait2(epoll_.get(), ready, max, &t, nullptr);
    if (n >= 0 || errno != ENOSYS) return std::max(0, n);
    const int64_t ms = std::min<int64_t>((timeout_ns + kMillisecond - 1) / kMillisecond, 60'000);
    return std::max(0, ::epoll_wait(epoll_.get(), ready, max, static_cast<int>(ms)));
  }

  Fd epoll_;
  Fd wake_;
  MemoryWatch memory_;
  int looks_ = 0;  // since the system was asked
};

class TcpNetwork final : public Network {
 public:
  Result<std::unique_ptr<Poller>> create_poller() override {
    Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
    Fd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!epoll.valid() || !wake.valid()) {
      return base::resource_exhausted(
          "cannot create a poller: {}; is the limit of open files (ulimit -n) too low?",
          error_text(errno));
    }
    auto poller = std::make_unique<EpollPoller>(std::move(epoll), std::move(wake));
    SR_RETURN_IF_ERROR(poller->init());
    return poller;
  }

  Result<Address> resolve(const Address& address) override {
    SR_ASSIGN_OR_RETURN(SocketAddress found, find_address(address));
    return to_address(found);
  }

  [[nodiscard]] bool needs_look_up(const Address& address) const override {
    std::array<std::byte, sizeof(in6_addr)> number;
    return inet_pton(AF_INET, address.host.c_str(), number.data()) != 1 &&
           inet_pton(AF_INET6, address.host.c_str(), number.data()) != 1;
  }

  void look_up(const Address& address, LookUps::Done done) override {
    look_ups_.ask(address, std::move(done));
  }

  Result<std::unique_ptr<Listener>> listen(const Address& address) override {
    SR_ASSIGN_OR_RETURN(SocketAddress local, find_address(address));
    Fd fd = open_socket(local.storage.ss_family);
    if (!fd.valid()) return listen_error(address, errno);
    set_int_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    tune(fd.get());
    if (::bind(fd.get(), local.get(), local.length) != 0 || ::listen(fd.get(), kBacklog) != 0) {
      return listen_error(address, errno);
    }
    SocketAddress bound;
    bound.length = sizeof(bound.storage);
    if (getsockname(fd.get(), bound.get(), &bound.length) != 0) {
      return listen_error(address, errno);
    }
    return std::make_unique<TcpListener>(std::move(fd), to_address(bound));
  }

  Result<std::unique_ptr<Stream>> connect(const Address& address) override {
    SR_ASSIGN_OR_RETURN(SocketAddress peer, find_address(address));
    Fd fd = open_socket(peer.storage.ss_family);
    if (!fd.valid()) {
      return base::resource_exhausted("cannot open a socket: {}", error_text(errno));
    }
    tune(fd.get());
    if (::connect(fd.get(), peer.get(), peer.length) == 0) {
      return std::make_unique<TcpStream>(std::move(fd), true);
    }
    if (errno != EINPROGRESS && errno != EINTR) {
      return base::unavailable("{}", error_text(errno));
    }
    return std::make_unique<TcpStream>(std::move(fd), false);
  }

  Result<std::unique_ptr<SharedMemory>> share(uint64_t ring_bytes) override {
    return create_shared(ring_bytes);
  }

  Result<std::unique_ptr<SharedMemory>> find_shared(const SharedPlace& place) override {
    return posix::find_shared(place);
  }

 private:
  static Status listen_error(const Address& address, int error) {
    if (error == EADDRINUSE) {
      return base::already_exists(
          "cannot listen on {}: the port is in use; stop the program that listens there, choose "
          "another port, or use port 0 for a free one",
          address.to_string());
    }
    if (error == EADDRNOTAVAIL) {
      return base::invalid_argument("cannot listen on {}: this machine has no such address",
                                    address.to_string());
    }
    if (error == EACCES) {
      return base::permission_denied(
          "cannot listen on {}: ports below 1024 may be reserved; choose a higher one",
          address.to_string());
    }
    return base::resource_exhausted("cannot listen on {}: {}", address.to_string(),
                                    error_text(error));
  }

  LookUps look_ups_;
};

}  // namespace

std::unique_ptr<Network> create_network() { return std::make_unique<TcpNetwork>(); }

}  // namespace sidereal::sys::posix
