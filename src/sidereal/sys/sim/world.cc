#include "sidereal/sys/sim/world.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/base/hash.h"
#include "sidereal/sys/sim/connection.h"

namespace sidereal::sys::sim {

int64_t Rng::around(int64_t mean) {
  const double drawn = -std::log1p(-unit()) * static_cast<double>(mean);
  return std::min(static_cast<int64_t>(drawn), 16 * mean);
}

World::World(uint64_t seed, const WorldOptions& options) : options_(options), rng_(seed) {}

World::~World() {
  // What is due holds connections.
  while (!due_.empty()) due_.pop();
}

Host* World::add_host() {
  auto host = std::make_unique<Host>();
  host->index_ = static_cast<int>(hosts_.size());
  const int n = host->index_ + 1;
  host->address_ = fmt::format("127.{}.{}.{}", 1 + n / 65536, n / 256 % 256, n % 256);
  host->bytes_per_s_ = options_.host_bytes_per_s;
  hosts_.push_back(std::move(host));
  return hosts_.back().get();
}

Node* World::add_node(Host* host) {
  const auto offset = static_cast<int64_t>(rng_.below(1000)) * kSecond;
  nodes_.push_back(
      std::make_unique<Node>(this, host, static_cast<int>(nodes_.size()), rng_.fork(), offset));
  return nodes_.back().get();
}

void World::at(int64_t time_ns, base::Function<void()> fn) {
  due_.push({.time = std::max(time_ns, now_), .order = order_++, .fn = std::move(fn)});
}

void World::run_until(int64_t time_ns) {
  while (!due_.empty() && due_.top().time < time_ns) {
    now_ = due_.top().time;
    base::Function<void()> fn = std::move(due_.top().fn);
    due_.pop();
    ++events_;
    fn();
  }
  now_ = std::max(now_, time_ns);
}

void World::note(std::string_view what, uint64_t a, uint64_t b) {
  const uint64_t words[] = {hash_, static_cast<uint64_t>(now_), a, b};
  hash_ = base::hash64(words, sizeof(words), base::hash64(what));
  if (trace_) trace_(now_, fmt::format("{} {} {}", what, a, b));
}

bool World::blocked(const Host* a, const Host* b) const {
  if (!a->up_ || !b->up_) return true;
  if (a == b) return false;
  return a->cut_ || b->cut_ || (!pairs_.empty() && pairs_.contains(pair_of(a, b)));
}

int64_t World::delay() { return options_.delay_ns_min + rng_.around(options_.delay_ns_around); }

int64_t World::arrival(Host* from, Host* to, size_t bytes) {
  const auto time = [bytes](const Host* host) {
    return static_cast<int64_t>(static_cast<double>(bytes) * 1e9 /
                                static_cast<double>(host->bytes_per_s_));
  };
  for (Host* const host : {from, to}) host->bytes_moved_ += bytes;
  from->out_free_ = std::max(from->out_free_, now_) + time(from);
  to->in_free_ = std::max(to->in_free_, from->out_free_ + delay()) + time(to);
  return to->in_free_;
}

void World::set_rate(Host* host, int64_t bytes_per_s) {
  host->bytes_per_s_ = bytes_per_s > 0 ? bytes_per_s : options_.host_bytes_per_s;
  if (bytes_per_s <= 0) host->out_free_ = host->in_free_ = now_;
}

void World::stall(Node* node, int64_t ns) {
  node->busy_until_ = std::max(node->busy_until_, now_ + ns);
}

void World::kill(Node* node, Death death) {
  if (!node->alive_) return;
  note(death == Death::kSilent ? "gone" : "killed", static_cast<uint64_t>(node->index_));
  node->alive_ = false;
  node->runner_ = nullptr;
  if (death == Death::kSilent) node->host_->up_ = false;
  std::vector<std::shared_ptr<Connection>> held;
  for (const auto& [id, connection] : connections_) {
    if (connection->node(0) == node || connection->node(1) == node) {
      held.push_back(connection->shared_from_this());
    }
  }
  for (const auto& connection : held) {
    for (const int side : {0, 1}) {
      if (connection->node(side) == node) connection->lose(side, death);
    }
  }
  std::vector<SimListener*> listeners;
  for (const auto& [port, listener] : node->host_->listeners_) listeners.push_back(listener);
  for (SimListener* listener : listeners) {
    if (listener->node() == node) listener->shut();
  }
}

bool World::break_any(Break how) {
  if (connections_.empty()) return false;
  auto at = connections_.lower_bound(rng_.below(next_connection_));
  if (at == connections_.end()) at = connections_.begin();
  note("broken", at->first, static_cast<uint64_t>(how));
  at->second->shared_from_this()->break_off(how, static_cast<int>(rng_.below(2)));
  return true;
}

// ---- Node ------------------------------------------------------------------------------------

Node::Node(World* world, Host* host, int index, Rng rng, int64_t clock_offset_ns)
    : world_(world),
      host_(host),
      index_(index),
      rng_(std::move(rng)),
      clock_offset_ns_(clock_offset_ns) {}
Node::~Node() { SR_CHECK(poller_ == nullptr, "a lane outlives its world"); }

int64_t Node::now() { return world_->now() + clock_offset_ns_ + spent_; }

void Node::drive(Runner* runner) {
  runner_ = runner;
  schedule(world_->now());
}

void Node::schedule(int64_t time_ns) {
  if (runner_ == nullptr) return;
  time_ns = std::max({time_ns, busy_until_, world_->now()});
  if (time_ns >= scheduled_at_) return;
  scheduled_at_ = time_ns;
  world_->at(time_ns, [this, which = ++schedule_] {
    if (which == schedule_) take_step();
  });
}

void Node::take_step() {
  scheduled_at_ = INT64_MAX;
  if (runner_ == nullptr) return;
  if (busy_until_ > world_->now()) return schedule(busy_until_);  // It was stalled meanwhile.
  const bool progress = runner_->step();
  if (progress) world_->note("step", static_cast<uint64_t>(index_));
  const WorldOptions& options = world_->options();
  const int64_t took = world_->rng_.between(options.step_ns_min, options.step_ns_max) + spent_;
  spent_ = 0;
  busy_until_ = world_->now() + took;
  if (runner_ == nullptr) return;
  if (progress) return schedule(busy_until_);
  const int64_t wake = runner_->next_wake();
  if (wake == INT64_MAX) return;
  schedule(wake == INT64_MIN ? busy_until_ : std::max(busy_until_, wake - clock_offset_ns_));
}

int Node::take_handle(const Watched* what) {
  const auto free = std::find(handles_.begin(), handles_.end(), nullptr);
  const auto at = static_cast<int>(free - handles_.begin());
  if (free == handles_.end()) {
    handles_.push_back(what);
  } else {
    *free = what;
  }
  return at;
}

void Node::free_handle(int handle) { handles_[static_cast<size_t>(handle)] = nullptr; }

Result<std::unique_ptr<Poller>> Node::create_poller() {
  SR_CHECK(poller_ == nullptr, "a node of a simulation has one lane");
  return std::make_unique<SimPoller>(this);
}

Result<Address> Node::resolve(const Address& address) {
  for (const auto& host : world_->hosts_) {
    if (host->address_ == address.host) return address;
  }
  return base::not_found("no host '{}' in this simulation", address.host);
}

Result<std::unique_ptr<Listener>> Node::listen(const Address& address) {
  if (address.host != host_->address_) {
    return base::invalid_argument("cannot listen on {}: this host is {}", address.to_string(),
                                  host_->address_);
  }
  Address bound = address;
  if (bound.port == 0) bound.port = host_->next_port_++;
  if (host_->listeners_.contains(bound.port)) {
    return base::already_exists("cannot listen on {}: the port is in use", bound.to_string());
  }
  return std::make_unique<SimListener>(this, std::move(bound));
}

Result<std::unique_ptr<Stream>> Node::connect(const Address& address) {
  if (!alive_) return base::unavailable("Network is unreachable");
  for (const auto& host : world_->hosts_) {
    if (host->address_ != address.host) continue;
    auto connection = std::make_shared<Connection>(world_, host_, host.get());
    world_->note("connect", static_cast<uint64_t>(index_), connection->id());
    auto stream = std::make_unique<SimStream>(this, connection, 0);
    connection->dial(address.port, 0);
    return stream;
  }
  return base::unavailable("No route to host");
}

}  // namespace sidereal::sys::sim
