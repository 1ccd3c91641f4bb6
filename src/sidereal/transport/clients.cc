#include "sidereal/transport/clients.h"

#include <algorithm>

#include "sidereal/base/check.h"

namespace sidereal::transport {
namespace {

constexpr size_t kFirstPlaces = 4;
// What an answer takes beside its tensors, roughly.
constexpr uint64_t kAnswerBytes = 256;

uint64_t bytes_of(const KeptMessage& answer) {
  uint64_t out = kAnswerBytes + answer.extra.size();
  for (const tensor::Tensor& t : answer.tensors) {
    out += sizeof(tensor::Tensor) + (t.defined() ? t.nbytes() : 0);
  }
  return out;
}

}  // namespace

Client* Clients::find(ConnectionId id) {
  if ((id.value & kClientBit) == 0) return nullptr;
  const std::unique_ptr<Client>* const client = clients_.find(id.value & ~kClientBit);
  return client == nullptr ? nullptr : client->get();
}

Client* Clients::find(const std::pair<uint64_t, uint64_t>& name) {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : at->second;
}

Client* Clients::add(const std::pair<uint64_t, uint64_t>& name) {
  auto made = std::make_unique<Client>();
  Client* const client = made.get();
  client->name = name;
  client->peer.id = ConnectionId(kClientBit | clients_.add(std::move(made)));
  SR_CHECK(by_name_.emplace(name, client).second);
  return client;
}

void Clients::remove(Client* client) {
  drop_answers(client);
  by_name_.erase(client->name);
  clients_.erase(client->peer.id.value & ~kClientBit);
}

std::vector<Client*> Clients::all() {
  std::vector<Client*> out;
  clients_.each([&out](const std::unique_ptr<Client>& client) { out.push_back(client.get()); });
  return out;
}

KeptMessage& Clients::next_answer(Client* client, uint64_t call_id) {
  const uint64_t open = client->answered_ - client->confirmed_;
  if (open == client->ring_.size()) {
    std::vector<std::unique_ptr<KeptMessage>> larger(
        std::max(kFirstPlaces, 2 * client->ring_.size()));
    for (uint64_t n = client->confirmed_ + 1; n <= client->answered_; ++n) {
      larger[n & (larger.size() - 1)] = std::move(place(client, n));
    }
    client->ring_ = std::move(larger);
  }
  std::unique_ptr<KeptMessage>& answer = place(client, ++client->answered_);
  answer = kept_->take();
  answer->header = {.method = wire::Method::kReply,
                    .flags = wire::kNumbered,
                    .call_id = call_id,
                    .step = client->answered_};
  return *answer;
}

void Clients::keep(Client* client, KeptMessage& answer) {
  answer.bytes = bytes_of(answer);
  client->bytes_ += answer.bytes;
  bytes_ += answer.bytes;
  if (client->is_forgotten) return drop_answers(client);
  while (bytes_ > bytes_max_) forget_largest();
}

void Clients::forget_largest() {
  Client* largest = nullptr;
  clients_.each([&largest](const std::unique_ptr<Client>& client) {
    if (largest == nullptr || client->bytes_ > largest->bytes_) largest = client.get();
  });
  largest->is_forgotten = true;
  drop_answers(largest);
}

void Clients::drop_answers(Client* client) {
  bytes_ -= client->bytes_;
  client->bytes_ = 0;
  client->confirmed_ = client->answered_;
  client->ring_ = decltype(client->ring_)();
}

Status Clients::confirm(Client* client, uint64_t number) {
  if (number > client->answered_) {
    return base::data_loss("answer {} is confirmed, of {}", number, client->answered_);
  }
  while (client->confirmed_ < number) {
    std::unique_ptr<KeptMessage>& answer = place(client, ++client->confirmed_);
    client->bytes_ -= answer->bytes;
    bytes_ -= answer->bytes;
    kept_->give(std::move(answer));
  }
  return {};
}

}  // namespace sidereal::transport
