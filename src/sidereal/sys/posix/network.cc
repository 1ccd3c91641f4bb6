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
#include <system_error>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/sys/posix/look_ups.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::sys::posix {
namespace {

constexpr int kBacklog = 1024;
constexpr int kSocketBufferBytes = 4 << 20;
constexpr size_t kSlicesMax = 256;  // per system call; IOV_MAX is 1024 on Linux

std::string error_text(int error) { return std::generic_category().message(error); }

/// A file descriptor that closes itself.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

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
      const ssize_t n = ::readv(fd_.get(), slices.data(), static_cast<int>(count));
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
      const ssize_t n = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
      if (n >= 0) return IoCount{.bytes = static_cast<size_t>(n)};
      if (errno == EINTR) continue;
      if (would_block(errno)) return IoCount{.would_block = true};
      return base::unavailable("{}", error_text(errno));
    }
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
    epoll_event event = to_epoll(token, interest);
    return control(EPOLL_CTL_ADD, what.handle(), &event);
  }

  Status update(const Pollable& what, uint64_t token, Interest interest) override {
    epoll_event event = to_epoll(token, interest);
    return control(EPOLL_CTL_MOD, what.handle(), &event);
  }

  void remove(const Pollable& what) override {
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, what.handle(), nullptr);
  }

  size_t wait(std::span<Event> events, int64_t timeout_ns) override {
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
      events[count++] = {.token = ready[i].data.u64,
                         .readable = (bits & EPOLLIN) != 0,
                         .writable = (bits & EPOLLOUT) != 0,
                         .failed = (bits & (EPOLLERR | EPOLLHUP)) != 0};
    }
    return count;
  }

  void wake() override {
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof(one));
  }

 private:
  static constexpr uint64_t kWakeToken = ~uint64_t{0};
  static constexpr size_t kEventsMax = 128;

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
