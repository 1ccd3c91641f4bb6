#include "sidereal/transport/acceptor.h"

#include <algorithm>
#include <list>
#include <utility>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/base/hash.h"
#include "sidereal/base/log.h"
#include "sidereal/base/slot_map.h"
#include "sidereal/transport/clients.h"
#include "sidereal/transport/link.h"

namespace sidereal::transport {
namespace {

constexpr int kAcceptsPerEvent = 64;
constexpr int64_t kAcceptRetryNs = 100 * sys::kMillisecond;
constexpr int64_t kReportEvery = 10 * sys::kSecond;

}  // namespace

/// One accepted connection.
class ServerConnection final : private Link::Owner {
 public:
  ServerConnection(Acceptor::Impl* acceptor, Endpoint* endpoint, CallHandler* handler,
                   ConnectionId id)
      : acceptor_(acceptor),
        endpoint_(endpoint),
        handler_(handler),
        id_(id),
        link_(endpoint, this, true) {
    peer_.id = id;
  }
  ~ServerConnection() override { endpoint_->lane()->cancel_timer(handshake_timer_); }

  Status open(std::unique_ptr<sys::Stream> stream);
  /// Says goodbye and closes; the handler is told.
  void end(const Status& why);
  /// Closes a connection that has not shaken hands: others want to.
  void make_room();
  /// Its client has another connection now.
  void supersede();

  [[nodiscard]] bool is_open() const { return link_.is_open(); }
  [[nodiscard]] bool shaken() const { return shaken_; }
  [[nodiscard]] Link& link() { return link_; }

 private:
  Status on_frame(const wire::FrameHeader& header, std::string_view meta) override;
  Result<bool> on_begin(const wire::FrameHeader& header) override;
  Result<tensor::Tensor> allocate(const wire::FrameHeader& header, int position,
                                  const wire::SlotEntry& slot) override;
  void on_no_place(const wire::FrameHeader& header, const Status& why) override;
  void on_message(const wire::FrameHeader& header, std::span<const wire::SlotEntry> slots,
                  std::string_view extra, std::span<tensor::Tensor> tensors) override;
  void on_broken(const Status& why) override;

  Status shake(const wire::FrameHeader& header, std::string_view meta);
  void welcome(const wire::HelloAck& ack);
  Status check_order(const wire::FrameHeader& header);
  void note_call(const wire::FrameHeader& header);
  void refuse(const Status& why, metrics::Counter metrics::LaneMetrics::*counter =
                                     &metrics::LaneMetrics::handshakes_refused);
  void closed(const Status& why);
  void leave();

  Acceptor::Impl* acceptor_;
  Endpoint* endpoint_;
  CallHandler* handler_;
  const ConnectionId id_;
  Connection peer_;           // with the id of the client, where there is one
  Client* client_ = nullptr;  // whose calls outlive this connection
  bool is_leaving_ = false;   // the client, too
  Link link_;
  lane::TimerId handshake_timer_;
  bool shaken_ = false;
  std::list<ServerConnection*>::iterator unproved_;  // while it has not shaken hands

  friend class Acceptor::Impl;
};

class Acceptor::Impl final : public lane::IoHandler, public lane::StopHook, public lane::Flusher {
 public:
  Impl(Endpoint* endpoint, CallHandler* handler, std::unique_ptr<sys::Listener> listener)
      : endpoint_(endpoint),
        handler_(handler),
        listener_(std::move(listener)),
        address_(listener_->address()),
        clients_(&endpoint->kept(),
                 static_cast<uint64_t>(endpoint->options().lane_answer_bytes_max)) {}

  ~Impl() override {
    shut_down(base::cancelled("the server on {} has been closed", address_.to_string()));
    endpoint_->lane()->cancel_flush(this);
    endpoint_->lane()->remove_stop_hook(this);
  }

  Status open() {
    endpoint_->lane()->add_stop_hook(this);
    return endpoint_->lane()->watch(*listener_, this, {});
  }

  [[nodiscard]] const sys::Address& address() const { return address_; }
  [[nodiscard]] int shaken_count() const { return shaken_count_; }
  [[nodiscard]] bool is_full() const {
    return shaken_count_ >= endpoint_->options().connections_max;
  }
  [[nodiscard]] Status full_status() const {
    return base::resource_exhausted("{} has {} connections; connections_max allows no more",
                                    endpoint_->identity().task,
                                    endpoint_->options().connections_max);
  }

  /// The open connection of that id, or nullptr.
  ServerConnection* find(ConnectionId id) {
    const std::unique_ptr<ServerConnection>* const connection = connections_.find(id.value);
    return connection != nullptr && (*connection)->is_open() ? connection->get() : nullptr;
  }

  void count_shaken(int change) {
    shaken_count_ += change;
    endpoint_->metrics().connections.add(change);
  }

  void reply(ConnectionId to, uint64_t call_id, std::span<const tensor::Tensor> fetches,
             const ReplyOptions& options);
  void reply_error(ConnectionId to, uint64_t call_id, const Status& error, bool derived);

  // Clients whose calls outlive their connections.
  Result<Client*> meet(const wire::Hello& hello);
  /// The client speaks over this connection from now on: what it does not have is sent again.
  void attach(Client* client, ServerConnection* connection);
  /// The connection of a client was lost.
  void detach(Client* client);
  /// The client does not come back.
  void forget(Client* client, const Status& why);
  Clients& clients() { return clients_; }

  /// A connection has closed; it goes at the end of the iteration, as it may still be on the stack.
  void reap_later(ConnectionId id) {
    dead_.push_back(id);
    endpoint_->lane()->flush_later(this);
  }
  /// A connection that had not shaken hands was closed. Unauthenticated peers must not fill a disk.
  void count_unauthenticated(metrics::Counter metrics::LaneMetrics::*counter) {
    metrics::LaneMetrics& all = endpoint_->metrics();
    (all.*counter).add();
    const int64_t now = endpoint_->lane()->now();
    if (counter == &metrics::LaneMetrics::gone || now < report_at_) return;
    report_at_ = now + kReportEvery;
    base::log_warning(
        "connections refused address={} garbage={} certificate={} idle={} over_limit={} "
        "handshake={}",
        address_.to_string(), all.refused_garbage.value(), all.refused_certificate.value(),
        all.refused_idle.value(), all.refused_over_limit.value(), all.handshakes_refused.value());
  }
  void add_unproved(ServerConnection* connection) {
    connection->unproved_ = unproved_.insert(unproved_.end(), connection);
  }
  void remove_unproved(ServerConnection* connection) { unproved_.erase(connection->unproved_); }

 private:
  void on_io(const sys::Event& event) override;
  void flush() override;
  void on_lane_stop() override {
    shut_down(base::cancelled("the server on {} is stopping", address_.to_string()));
  }
  void add(std::unique_ptr<sys::Stream> stream);
  void pause_accepting(const Status& why);
  void send_answer(Client* client, KeptMessage& answer);
  void forget_earlier_lives(const wire::Hello& hello);
  void shut_down(const Status& why);

  Endpoint* endpoint_;
  CallHandler* handler_;
  std::unique_ptr<sys::Listener> listener_;
  sys::Address address_;
  lane::TimerId retry_;
  base::SlotMap<std::unique_ptr<ServerConnection>> connections_;
  std::vector<ConnectionId> dead_;         // connections that have closed
  std::list<ServerConnection*> unproved_;  // oldest first
  int shaken_count_ = 0;
  int64_t report_at_ = 0;
  Clients clients_;
  uint64_t sessions_ = 0;
};

// ---- ServerConnection ------------------------------------------------------------------------

Status ServerConnection::open(std::unique_ptr<sys::Stream> stream) {
  if (endpoint_->tls() != nullptr) {
    SR_ASSIGN_OR_RETURN(stream, endpoint_->tls()->serve(std::move(stream)));
  }
  SR_RETURN_IF_ERROR(link_.open(std::move(stream)));
  const int64_t patience = endpoint_->options().connect_deadline_ms * sys::kMillisecond;
  handshake_timer_ = endpoint_->lane()->run_after(patience, [this, patience] {
    refuse(base::deadline_exceeded("no hello within {:.1f} s", static_cast<double>(patience) / 1e9),
           &metrics::LaneMetrics::refused_idle);
  });
  return {};
}

void ServerConnection::refuse(const Status& why, metrics::Counter metrics::LaneMetrics::*counter) {
  acceptor_->count_unauthenticated(counter);
  link_.send_error(0, why);
  link_.close();
  closed(why);
}

Status ServerConnection::shake(const wire::FrameHeader& header, std::string_view meta) {
  if (header.method != wire::Method::kHello) {
    return base::data_loss("{} before Hello", wire::name_of(header.method));
  }
  SR_ASSIGN_OR_RETURN(const wire::Hello hello, wire::decode_hello(meta));
  const Identity& me = endpoint_->identity();
  const Result<wire::HelloAck> ack =
      wire::answer_hello(hello, {.cluster_id = me.cluster_id,
                                 .incarnation = me.incarnation,
                                 .lane = static_cast<uint32_t>(endpoint_->lane()->index()),
                                 .lane_count = me.lane_count,
                                 .task = me.task});
  if (!ack.ok()) {
    refuse(ack.status());
    return {};
  }
  const bool is_client = hello.client_high != 0 || hello.client_low != 0;
  wire::HelloAck answer = *ack;
  if (is_client) {
    const Result<Client*> client = acceptor_->meet(hello);
    if (!client.ok()) {
      refuse(client.status());
      return {};
    }
    client_ = *client;
    peer_ = client_->peer;
    answer.session = client_->session;
    answer.seen = client_->seen;
    client_->attempt = hello.attempt;
  } else if (acceptor_->is_full()) {
    refuse(acceptor_->full_status());
    return {};
  } else {
    peer_.task = hello.task;
    peer_.incarnation = hello.incarnation;
  }
  welcome(answer);
  return {};
}

void ServerConnection::welcome(const wire::HelloAck& ack) {
  endpoint_->lane()->cancel_timer(handshake_timer_);
  shaken_ = true;
  acceptor_->remove_unproved(this);
  acceptor_->count_shaken(1);
  link_.set_trusted();
  wire::FrameHeader answer;
  answer.method = wire::Method::kHelloAck;
  link_.send(answer, wire::encode_hello_ack(ack));
  if (client_ != nullptr) acceptor_->attach(client_, this);
}

Status ServerConnection::on_frame(const wire::FrameHeader& header, std::string_view meta) {
  if (!shaken_) return shake(header, meta);
  if (header.method == wire::Method::kConfirm && client_ != nullptr) {
    return acceptor_->clients().confirm(client_, header.call_id);
  }
  if (header.method == wire::Method::kGoodbye) {
    is_leaving_ = true;
    link_.close();
    closed(base::cancelled("{} said goodbye", peer_.task));
    return {};
  }
  if (header.method == wire::Method::kCancel) {
    handler_->on_cancel(peer_, header.call_id);
    return {};
  }
  return base::data_loss("{} from a client", wire::name_of(header.method));
}

Result<bool> ServerConnection::on_begin(const wire::FrameHeader& header) {
  if (!shaken_) return base::data_loss("{} before Hello", wire::name_of(header.method));
  if (header.method != wire::Method::kCall || header.call_id == 0) {
    return base::data_loss("{} with id {} from a client", wire::name_of(header.method),
                           header.call_id);
  }
  SR_RETURN_IF_ERROR(check_order(header));
  endpoint_->metrics().calls.add();
  return true;
}

/// A call of a client comes once, and after those before it.
Status ServerConnection::check_order(const wire::FrameHeader& header) {
  const bool is_numbered = (header.flags & wire::kNumbered) != 0;
  if (is_numbered != (client_ != nullptr)) {
    return base::data_loss("a call {} a number", is_numbered ? "with" : "without");
  }
  if (client_ == nullptr) return {};
  SR_RETURN_IF_ERROR(acceptor_->clients().confirm(client_, header.confirmed));
  const bool is_repeatable = (header.flags & wire::kRepeatable) != 0;
  if (header.number > client_->seen || (is_repeatable && header.number > 0)) return {};
  return base::data_loss("call {} after call {}", header.number, client_->seen);
}

/// A call is answered from here on, once.
void ServerConnection::note_call(const wire::FrameHeader& header) {
  if (client_ == nullptr) return;
  client_->seen = std::max(client_->seen, header.number);
  if ((header.flags & wire::kRepeatable) != 0) client_->repeatable.insert(header.call_id);
}

Result<tensor::Tensor> ServerConnection::allocate(const wire::FrameHeader& header, int position,
                                                  const wire::SlotEntry& slot) {
  return handler_->allocate(peer_, header, position, slot.dtype, slot.shape);
}

void ServerConnection::on_no_place(const wire::FrameHeader& header, const Status& why) {
  note_call(header);
  acceptor_->reply_error(peer_.id, header.call_id, why, false);
}

void ServerConnection::on_message(const wire::FrameHeader& header,
                                  std::span<const wire::SlotEntry> slots, std::string_view extra,
                                  std::span<tensor::Tensor> tensors) {
  note_call(header);
  handler_->on_call(peer_, {header, slots, extra}, tensors);
}

void ServerConnection::end(const Status& why) {
  if (!is_open()) return;
  is_leaving_ = true;
  if (shaken_) {
    wire::FrameHeader goodbye;
    goodbye.method = wire::Method::kGoodbye;
    link_.send(goodbye);
  }
  link_.close();
  closed(why);
}

void ServerConnection::make_room() {
  acceptor_->count_unauthenticated(&metrics::LaneMetrics::refused_over_limit);
  link_.close();
  closed(base::resource_exhausted("too many connections that have not shaken hands"));
}

void ServerConnection::on_broken(const Status& why) {
  if (!shaken_) {
    if (why.code() == StatusCode::kUnavailable) {
      acceptor_->count_unauthenticated(&metrics::LaneMetrics::gone);
    } else if (why.code() == StatusCode::kUnauthenticated) {
      acceptor_->count_unauthenticated(&metrics::LaneMetrics::refused_certificate);
    } else {
      acceptor_->count_unauthenticated(&metrics::LaneMetrics::refused_garbage);
    }
  }
  closed(
      base::unavailable("lost {}: {}", shaken_ ? peer_.task : "a client", base::message_of(why)));
}

/// Nothing is left of it but its memory, which goes at the end of the iteration.
void ServerConnection::leave() {
  endpoint_->lane()->cancel_timer(handshake_timer_);
  acceptor_->reap_later(id_);
  if (std::exchange(shaken_, false)) {
    acceptor_->count_shaken(-1);
  } else {
    acceptor_->remove_unproved(this);
  }
}

void ServerConnection::supersede() {
  client_ = nullptr;
  link_.close();
  leave();
}

void ServerConnection::closed(const Status& why) {
  const bool was_shaken = shaken_;
  leave();
  Client* const client = std::exchange(client_, nullptr);
  if (client != nullptr) {
    client->connection = nullptr;
    return is_leaving_ ? acceptor_->forget(client, why) : acceptor_->detach(client);
  }
  if (was_shaken) handler_->on_closed(peer_, why);
}

// ---- Answers and clients ---------------------------------------------------------------------

void Acceptor::Impl::reply(ConnectionId to, uint64_t call_id,
                           std::span<const tensor::Tensor> fetches, const ReplyOptions& options) {
  Client* const client = Clients::is_client(to) ? clients_.find(to) : nullptr;
  if (client != nullptr && client->repeatable.erase(call_id) == 0) {
    KeptMessage& answer = clients_.next_answer(client, call_id);
    answer.assign(fetches, options.slots, options.forms, options.extra);
    send_answer(client, answer);
    return clients_.keep(client, answer);
  }
  ServerConnection* const connection = client != nullptr ? client->connection : find(to);
  if (connection == nullptr) return endpoint_->metrics().replies_dropped.add();
  wire::FrameHeader header;
  header.method = wire::Method::kReply;
  header.call_id = call_id;
  const Status sent =
      connection->link().send(&header, {fetches, options.slots, options.forms, options.extra});
  if (sent.ok()) return;
  endpoint_->metrics().calls_failed.add();
  connection->link().send_error(call_id, sent);
}

void Acceptor::Impl::reply_error(ConnectionId to, uint64_t call_id, const Status& error,
                                 bool derived) {
  SR_CHECK(!error.ok());
  Client* const client = Clients::is_client(to) ? clients_.find(to) : nullptr;
  if (client != nullptr && client->repeatable.erase(call_id) == 0) {
    endpoint_->metrics().calls_failed.add();
    KeptMessage& answer = clients_.next_answer(client, call_id);
    answer.assign_error(error, derived);
    send_answer(client, answer);
    return clients_.keep(client, answer);
  }
  ServerConnection* const connection = client != nullptr ? client->connection : find(to);
  if (connection == nullptr) return endpoint_->metrics().replies_dropped.add();
  endpoint_->metrics().calls_failed.add();
  connection->link().send_error(call_id, error, derived);
}

void Acceptor::Impl::send_answer(Client* client, KeptMessage& answer) {
  if (client->connection == nullptr) return;
  Link& link = client->connection->link();
  const Status sent = link.send(answer);
  if (sent.ok()) return;
  endpoint_->metrics().calls_failed.add();
  answer.assign_error(sent, false);
  static_cast<void>(link.send(answer));  // An error is never too large.
}

Result<Client*> Acceptor::Impl::meet(const wire::Hello& hello) {
  const std::pair name(hello.client_high, hello.client_low);
  Client* client = clients_.find(name);
  if (client != nullptr) {
    if (client->peer.task != hello.task || client->peer.incarnation != hello.incarnation) {
      return base::failed_precondition("{} has the name of a client of {}", hello.task,
                                       client->peer.task);
    }
    if (hello.attempt <= client->attempt) {
      return base::failed_precondition("connection {} of {} comes after connection {}",
                                       hello.attempt, hello.task, client->attempt);
    }
    // What has come over the old one and was not read comes again.
    ServerConnection* const old = std::exchange(client->connection, nullptr);
    if (old != nullptr) old->supersede();
    // It may not know that it was forgotten before: then no call of it has come since.
    const bool is_known = hello.session == client->session && !client->is_forgotten;
    if (is_known) {
      Status confirmed = clients_.confirm(client, hello.confirmed);
      if (!confirmed.ok()) {
        detach(client);
        return confirmed;
      }
    } else {
      forget(client, base::unavailable("{} did not take its answers", hello.task));
      client = nullptr;
    }
  }
  if (client == nullptr) forget_earlier_lives(hello);
  if (is_full()) {
    if (client != nullptr) detach(client);
    return full_status();
  }
  if (client == nullptr) {
    client = clients_.add(name);
    const uint64_t seeds[] = {endpoint_->identity().incarnation, ++sessions_};
    client->session = base::hash64(seeds, sizeof(seeds)) | 1;
    client->peer.task = hello.task;
    client->peer.incarnation = hello.incarnation;
  }
  endpoint_->lane()->cancel_timer(client->forget_timer);
  client->resume_ns =
      std::min<int64_t>(hello.resume_ms, endpoint_->options().resume_ms) * sys::kMillisecond;
  return client;
}

/// A task that was started anew asks for nothing of its earlier life. Of others that are away, the
/// one that is longest goes when there are too many.
void Acceptor::Impl::forget_earlier_lives(const wire::Hello& hello) {
  Client* longest = nullptr;
  for (Client* const client : clients_.all()) {
    if (client->peer.task == hello.task && client->peer.incarnation != hello.incarnation) {
      ServerConnection* const old = std::exchange(client->connection, nullptr);
      if (old != nullptr) old->supersede();
      forget(client, base::unavailable("{} was restarted", hello.task));
    } else if (client->connection == nullptr &&
               (longest == nullptr || client->alone_since_ns < longest->alone_since_ns)) {
      longest = client;
    }
  }
  const auto most = 2 * static_cast<size_t>(endpoint_->options().connections_max);
  if (longest != nullptr && clients_.count() >= most) {
    forget(longest, base::resource_exhausted("too many clients are without a connection"));
  }
}

void Acceptor::Impl::attach(Client* client, ServerConnection* connection) {
  client->connection = connection;
  clients_.each_answer(client, [&](KeptMessage& answer) { send_answer(client, answer); });
}

void Acceptor::Impl::detach(Client* client) {
  lane::Lane* const lane = endpoint_->lane();
  client->alone_since_ns = lane->now();
  const Status why = base::unavailable("lost {}", client->peer.task);
  if (client->is_forgotten || client->resume_ns == 0) return forget(client, why);
  lane->cancel_timer(client->forget_timer);
  client->forget_timer =
      lane->run_after(client->resume_ns, [this, client, why] { forget(client, why); });
}

void Acceptor::Impl::forget(Client* client, const Status& why) {
  endpoint_->lane()->cancel_timer(client->forget_timer);
  const Connection peer = client->peer;
  clients_.remove(client);
  handler_->on_closed(peer, why);
}

// ---- Acceptor --------------------------------------------------------------------------------

void Acceptor::Impl::on_io(const sys::Event&) {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    Result<std::unique_ptr<sys::Stream>> stream = listener_->accept();
    if (!stream.ok()) return pause_accepting(stream.status());
    if (*stream == nullptr) return;
    // The oldest has had the most time: whoever is honest goes on at once.
    const auto max = static_cast<size_t>(endpoint_->options().unproved_max);
    if (unproved_.size() >= max) unproved_.front()->make_room();
    add(*std::move(stream));
  }
}

void Acceptor::Impl::add(std::unique_ptr<sys::Stream> stream) {
  const ConnectionId id(connections_.add(nullptr));
  auto made = std::make_unique<ServerConnection>(this, endpoint_, handler_, id);
  ServerConnection* const connection = made.get();
  *connections_.find(id.value) = std::move(made);
  add_unproved(connection);
  const Status opened = connection->open(std::move(stream));
  if (!opened.ok()) {
    connection->on_broken(opened);
    // Otherwise it is the peer's doing.
    if (opened.code() == StatusCode::kResourceExhausted) pause_accepting(opened);
  }
}

// Out of file descriptors, most likely: level-triggered readiness would spin the lane.
void Acceptor::Impl::pause_accepting(const Status& why) {
  base::log_warning("accept_failed address={} reason=\"{}\"", address_.to_string(),
                    base::message_of(why));
  lane::Lane* lane = endpoint_->lane();
  lane->unwatch(*listener_);
  lane->cancel_timer(retry_);
  retry_ = lane->run_after(kAcceptRetryNs, [this, lane] {
    const Status status = lane->watch(*listener_, this, {});
    if (!status.ok()) pause_accepting(status);
  });
}

void Acceptor::Impl::flush() {
  for (const ConnectionId id : dead_) connections_.erase(id.value);
  dead_.clear();
}

void Acceptor::Impl::shut_down(const Status& why) {
  if (listener_ == nullptr) return;
  endpoint_->lane()->cancel_timer(retry_);
  endpoint_->lane()->unwatch(*listener_);
  listener_.reset();
  connections_.each(
      [&why](const std::unique_ptr<ServerConnection>& connection) { connection->end(why); });
  for (Client* const client : clients_.all()) forget(client, why);
}

Result<std::unique_ptr<Acceptor>> Acceptor::create(Endpoint* endpoint, const sys::Address& address,
                                                   CallHandler* handler) {
  sys::Network* network = endpoint->lane()->network();
  SR_ASSIGN_OR_RETURN(const sys::Address resolved, network->resolve(address));
  SR_RETURN_IF_ERROR(base::with_context(
      security::check_listen(resolved, address.to_string(), endpoint->credentials()),
      endpoint->identity().task));
  SR_ASSIGN_OR_RETURN(std::unique_ptr<sys::Listener> listener, network->listen(address));
  auto impl = std::make_unique<Impl>(endpoint, handler, std::move(listener));
  SR_RETURN_IF_ERROR(impl->open());
  return std::unique_ptr<Acceptor>(new Acceptor(std::move(impl)));
}

Acceptor::Acceptor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Acceptor::~Acceptor() = default;

const sys::Address& Acceptor::address() const { return impl_->address(); }
int Acceptor::connection_count() const { return impl_->shaken_count(); }
uint64_t Acceptor::answer_bytes() const { return impl_->clients().bytes(); }

void Acceptor::reply(ConnectionId to, uint64_t call_id, std::span<const tensor::Tensor> fetches,
                     const ReplyOptions& options) {
  impl_->reply(to, call_id, fetches, options);
}

void Acceptor::reply_error(ConnectionId to, uint64_t call_id, const Status& error, bool derived) {
  impl_->reply_error(to, call_id, error, derived);
}

}  // namespace sidereal::transport
