#include "tests/sim/ps.h"

#include <algorithm>

namespace sidereal::sim {

using tensor::Tensor;

Ps::Ps(const Context& context, sys::sim::Host* host, const Place& place)
    : Process(context, host, place) {
  acceptor_ =
      transport::Acceptor::create(endpoint(), {host->address(), kPort + place.lane}, this).value();
  node()->drive(this);
}

Ps::~Ps() { acceptor_.reset(); }

void Ps::on_call(const transport::Connection& from, const transport::Call& call,
                 std::span<Tensor> feeds) {
  const Held held{.from = from.id,
                  .call_id = call.header.call_id,
                  .ask = static_cast<Ask>(call.header.kind),
                  .writer = call.header.session,
                  .step = call.header.step};
  if (held.ask == Ask::kPush && (feeds.size() != 1 || !is_pattern(feeds[0], held.step))) {
    ledger()->complain("push {} of writer {} arrived with other bytes than it left with", held.step,
                       held.writer);
  }
  if (random().chance(scenario().refused)) {
    return acceptor_->reply_error(held.from, held.call_id, base::invalid_argument("no"));
  }
  node()->spend(sys::kMicrosecond + random().around(5 * sys::kMicrosecond));
  if (!random().chance(scenario().late)) return serve(held);
  lane()->run_after(random().around(100 * sys::kMillisecond), [this, held] { serve(held); });
}

void Ps::serve(const Held& call) {
  if (call.ask == Ask::kPush) {
    ledger()->applied(call.writer, call.step, life());
    last_[call.writer] = std::max(last_[call.writer], call.step);
    acceptor_->reply(call.from, call.call_id, {});
  } else {
    const uint64_t last = last_[call.writer];
    const Tensor answer[] = {Tensor::scalar(last), pattern(static_cast<int64_t>(call.step), last)};
    acceptor_->reply(call.from, call.call_id, answer);
  }
  send_bytes_max_ = std::max(send_bytes_max_, endpoint()->send_bytes());
}

void Ps::check_memory() {
  const auto& options = scenario().options;
  // One message that is larger than all room may be received alone.
  const auto room =
      static_cast<uint64_t>(std::max(options.lane_receive_bytes_max, scenario().bytes_large + 64));
  if (receive_bytes_max() > room) {
    ledger()->complain("{} bytes were received at a time; {} are allowed", receive_bytes_max(),
                       room);
  }
  if (acceptor_->answer_bytes() > static_cast<uint64_t>(options.lane_answer_bytes_max)) {
    ledger()->complain("{} bytes of answers are kept; {} are allowed", acceptor_->answer_bytes(),
                       options.lane_answer_bytes_max);
  }
  // Each connection may have a share, and one answer more: it is read no further then.
  const auto each = static_cast<uint64_t>((64 << 10) + scenario().bytes_large + 4096);
  const auto most = static_cast<uint64_t>(options.lane_send_bytes_max) +
                    each * static_cast<uint64_t>(acceptor_->connection_count() + 1);
  if (endpoint()->send_bytes() > most) {
    ledger()->complain("{} bytes wait to be sent; {} are allowed", endpoint()->send_bytes(), most);
  }
}

bool Ps::is_idle() const {
  return endpoint()->budget().used() == 0 && endpoint()->budget().waiting() == 0 &&
         endpoint()->send_bytes() == 0 && acceptor_->answer_bytes() == 0 &&
         endpoint()->chunks().taken() == 0;
}

void Ps::check_idle() {
  if (is_idle()) return;
  ledger()->complain(
      "{} keeps room for {} bytes, {} messages that wait, {} bytes to send, {} bytes of answers "
      "and {} chunks though "
      "nobody calls",
      lane()->name(), endpoint()->budget().used(), endpoint()->budget().waiting(),
      endpoint()->send_bytes(), acceptor_->answer_bytes(), endpoint()->chunks().taken());
}

LanesOfPs::LanesOfPs(const Context& context, sys::sim::Host* host, Place place) {
  for (; place.lane < place.lanes; ++place.lane) {
    lanes_.push_back(std::make_unique<Ps>(context, host, place));
  }
}

std::vector<sys::sim::Node*> LanesOfPs::nodes() const {
  std::vector<sys::sim::Node*> out;
  for (const auto& lane : lanes_) out.push_back(lane->node());
  return out;
}

void LanesOfPs::check_memory() {
  for (const auto& lane : lanes_) lane->check_memory();
}

bool LanesOfPs::is_idle() {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const auto& lane) { return lane->is_idle(); });
}

void LanesOfPs::check_idle() {
  for (const auto& lane : lanes_) lane->check_idle();
}

Memory LanesOfPs::memory() const {
  Memory out;
  for (const auto& lane : lanes_) {
    out.add(
        {.receive_bytes_max = lane->receive_bytes_max(), .send_bytes_max = lane->send_bytes_max()});
  }
  return out;
}

}  // namespace sidereal::sim
