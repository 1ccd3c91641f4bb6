#include "sidereal/scrape/scrape_server.h"

#include <array>
#include <list>
#include <string_view>
#include <utility>

#include "sidereal/base/log.h"
#include "sidereal/lane/lane.h"
#include "sidereal/metrics/lane_metrics.h"
#include "sidereal/scrape/http_request.h"
#include "sidereal/scrape/prometheus_text.h"
#include "sidereal/security/tls.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::scrape {

namespace {

constexpr int kAcceptsAtOnce = 16;
constexpr int64_t kAcceptPause = 100 * sys::kMillisecond;
constexpr int64_t kReportEvery = 10 * sys::kSecond;

std::string answer_of(const char* status, std::string_view type, std::string_view body,
                      bool with_body = true, const char* more = "") {
  std::string out = fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n",
      status, type, body.size(), more);
  if (with_body) out += body;
  return out;
}

std::string refusal(const char* status, const char* why, const char* more = "") {
  return answer_of(status, "text/plain; charset=utf-8", why, true, more);
}

}  // namespace

class ScrapeServer::Impl final : private lane::IoHandler, private lane::Flusher {
 public:
  explicit Impl(ScrapeOptions options) : options_(std::move(options)) {}
  ~Impl() override { stop(); }

  Status listen() {
    SR_RETURN_IF_ERROR(security::check_listen(options_.listen, *options_.credentials));
    if (options_.credentials->proves_peers()) {
      SR_ASSIGN_OR_RETURN(tls_, security::Tls::create(*options_.credentials));
    }
    SR_ASSIGN_OR_RETURN(sys::Address address, sys::Address::parse(options_.listen));
    SR_ASSIGN_OR_RETURN(listener_, network_->listen(address));
    address.port = listener_->address().port;
    address_ = address.to_string();
    SR_ASSIGN_OR_RETURN(lane_, lane::Lane::create({.name = "metrics " + address_,
                                                   .thread_name = "metrics",
                                                   .spin_us = 0,
                                                   .network = network_.get(),
                                                   .clock = clock_.get()}));
    return lane_->watch(*listener_, this, {});
  }
  Status start() {
    if (lane_ == nullptr) return base::failed_precondition("the metrics server has stopped");
    lane_->start();
    return {};
  }

  void stop() {
    if (lane_ == nullptr) return;
    while (!lane_->stop().ok()) base::log_warning("the metrics server does not end");
    for (const auto& connection : connections_) connection->close();
    connections_.clear();
    lane_->cancel_flush(this);
    if (listener_ != nullptr) lane_->unwatch(*listener_);
    listener_.reset();
    lane_.reset();
  }

  std::string address_;
  metrics::Figures figures_;

 private:
  /// One request and its answer.
  class Connection final : public lane::IoHandler {
   public:
    Connection(Impl* server, std::unique_ptr<sys::Stream> stream)
        : server_(server), stream_(std::move(stream)) {}
    ~Connection() override { close(); }

    Status open() {
      SR_RETURN_IF_ERROR(server_->lane_->watch(*stream_, this, stream_->connecting_interest()));
      watched_ = true;
      timer_ = server_->lane_->run_after(server_->options_.patience_ms * sys::kMillisecond,
                                         [this] { refuse(&server_->idle_); });
      return {};
    }
    [[nodiscard]] bool is_open() const { return stream_ != nullptr; }
    void close() {
      if (!is_open()) return;
      server_->lane_->cancel_timer(timer_);
      if (watched_) server_->lane_->unwatch(*stream_);
      stream_.reset();
      server_->lane_->flush_later(server_);
    }
    /// Others want its place.
    void make_room() { refuse(&server_->over_limit_); }

    void on_io(const sys::Event&) override { go_on(); }
    void go_on() {
      if (!is_open() || !is_ready()) return;
      if (out_.empty() && !read()) return;
      write();
    }

   private:
    bool is_ready() {
      if (ready_) return true;
      const Result<bool> connected = stream_->connected();
      if (!connected.ok()) {
        refuse(server_->counter_of(connected.status()));
        return false;
      }
      ready_ = *connected;
      watch_for(ready_ ? sys::Interest{} : stream_->connecting_interest());
      return ready_ && is_open();
    }

    /// True when there is an answer to send.
    bool read() {
      std::array<std::byte, 4096> buffer;
      const std::array<sys::IoSlice, 1> slice = {sys::IoSlice{buffer.data(), buffer.size()}};
      while (in_.size() <= kRequestBytesMax) {
        const Result<sys::IoCount> got = stream_->readv(slice);
        if (!got.ok() || got->end) {
          close();
          return false;
        }
        if (got->would_block) break;
        in_.append(reinterpret_cast<const char*>(buffer.data()), got->bytes);
      }
      if (const auto end = end_of_head(in_)) {
        out_ = server_->answer(std::string_view(in_).substr(0, *end));
      } else if (in_.size() > kRequestBytesMax) {
        out_ = server_->refuse_request("431 Request Header Fields Too Large", "too long\n");
      }
      return !out_.empty();
    }

    void write() {
      while (sent_ < out_.size() || stream_->holds_output()) {
        const std::array<sys::ConstIoSlice, 1> slice = {sys::ConstIoSlice{
            reinterpret_cast<const std::byte*>(out_.data()) + sent_, out_.size() - sent_}};
        const Result<sys::IoCount> wrote = stream_->writev(slice);
        if (!wrote.ok()) return close();
        sent_ += wrote->bytes;
        if (wrote->would_block) return watch_for({.readable = false, .writable = true});
      }
      close();
    }

    void watch_for(sys::Interest interest) {
      if (!server_->lane_->rewatch(*stream_, interest).ok()) close();
    }

    void refuse(metrics::Counter* counter) {
      counter->add();
      close();
    }

    Impl* const server_;
    std::unique_ptr<sys::Stream> stream_;
    lane::TimerId timer_;
    bool watched_ = false;
    bool ready_ = false;
    std::string in_;
    std::string out_;
    size_t sent_ = 0;
  };

  void on_io(const sys::Event&) override {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      Result<std::unique_ptr<sys::Stream>> accepted = listener_->accept();
      if (!accepted.ok()) return pause(accepted.status());
      if (*accepted == nullptr) return;
      add(*std::move(accepted));
    }
  }

  /// Without descriptors the port stays readable: it is looked at a little later.
  void pause(const Status& why) {
    const int64_t now = lane_->now();
    if (now >= report_at_) {
      base::log_warning("metrics address={} accept failed: {}", address_, base::message_of(why));
      report_at_ = now + kReportEvery;
    }
    lane_->unwatch(*listener_);
    lane_->run_after(kAcceptPause, [this] {
      if (!lane_->watch(*listener_, this, {}).ok()) pause(base::internal("it cannot be watched"));
    });
  }

  void add(std::unique_ptr<sys::Stream> stream) {
    drop_closed();
    if (connections_.size() >= static_cast<size_t>(options_.connections_max)) {
      connections_.front()->make_room();
      drop_closed();
    }
    if (tls_ != nullptr) {
      Result<std::unique_ptr<sys::Stream>> secured = tls_->serve(std::move(stream));
      if (!secured.ok()) return;
      stream = *std::move(secured);
    }
    auto& connection =
        connections_.emplace_back(std::make_unique<Connection>(this, std::move(stream)));
    if (!connection->open().ok()) connection->close();
  }

  void drop_closed() {
    connections_.remove_if([](const auto& connection) { return !connection->is_open(); });
  }

  void flush() override { drop_closed(); }

  std::string answer(std::string_view head) {
    const auto request = read_request(head);
    if (!request) {
      return refuse_request("400 Bad Request", "this is not HTTP/1.1\n");
    }
    const bool is_head = request->method == "HEAD";
    if (request->method != "GET" && !is_head) {
      return refuse_request("405 Method Not Allowed", "GET /metrics\n", "Allow: GET, HEAD\r\n");
    }
    if (request->path == "/healthz") {
      requests_.add();
      return answer_of("200 OK", "text/plain; charset=utf-8", "ok\n", !is_head);
    }
    if (request->path != "/metrics")
      return refuse_request("404 Not Found", "GET /metrics or /healthz\n");
    scrapes_.add();
    return answer_of("200 OK", kPrometheusType, options_.text(), !is_head);
  }

  std::string refuse_request(const char* status, const char* why, const char* more = "") {
    requests_.add();
    return refusal(status, why, more);
  }

  /// What a connection counts as that ended before it was made.
  metrics::Counter* counter_of(const Status& why) {
    if (why.code() == StatusCode::kUnauthenticated) return &certificate_;
    return why.code() == StatusCode::kUnavailable ? &gone_ : &garbage_;
  }

  const ScrapeOptions options_;
  const std::unique_ptr<sys::Network> network_ = sys::posix::create_network();
  const std::unique_ptr<sys::Clock> clock_ = sys::posix::create_clock();
  std::shared_ptr<const security::Tls> tls_;
  std::unique_ptr<sys::Listener> listener_;
  std::unique_ptr<lane::Lane> lane_;
  std::list<std::unique_ptr<Connection>> connections_;  // Oldest first.
  int64_t report_at_ = 0;
  metrics::Counter scrapes_{&figures_,
                            metrics::counter("sidereal_scrapes_total", metrics::Unit::kCount,
                                             "Times that these figures were asked for by HTTP.")};
  metrics::Counter gone_{&figures_,
                         metrics::counter("sidereal_scrapes_gone_total", metrics::Unit::kCount,
                                          "Connections that left before they had asked.")};
  metrics::Counter certificate_{&figures_, metrics::refused("certificate")};
  metrics::Counter garbage_{&figures_, metrics::refused("garbage")};
  metrics::Counter idle_{&figures_, metrics::refused("idle")};
  metrics::Counter over_limit_{&figures_, metrics::refused("over_limit")};
  metrics::Counter requests_{&figures_, metrics::refused("requests")};
};

ScrapeServer::ScrapeServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ScrapeServer::~ScrapeServer() = default;

Result<std::unique_ptr<ScrapeServer>> ScrapeServer::create(ScrapeOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  SR_RETURN_IF_ERROR(impl->listen());
  return std::unique_ptr<ScrapeServer>(new ScrapeServer(std::move(impl)));
}

Status ScrapeServer::start() { return impl_->start(); }
const std::string& ScrapeServer::address() const { return impl_->address_; }
const metrics::Figures& ScrapeServer::figures() const { return impl_->figures_; }
void ScrapeServer::stop() { impl_->stop(); }

}  // namespace sidereal::scrape
