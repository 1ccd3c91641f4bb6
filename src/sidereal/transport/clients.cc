#include "sidereal/transport/clients.h"

#include <algorithm>

#include "sidereal/base/check.h"

namespace sidereal::transport {
namespace {

constexpr size_t kFirstPlaces = 4;
constexpr size_t kExtraKept = 1 << 10;  // capacity that an empty place keeps
// What an answer takes beside its tensors, roughly.
constexpr uint64_t kAnswerBytes = 256;

}  // namespace

void Answer::assign(uint64_t id, std::span<const tensor::Tensor> tensors,
                    const ReplyOptions& options) {
  call_id = id;
  error = Status();
  derived = false;
  fetches.assign(tensors.begin(), tensors.end());
  slots.assign(options.slots.begin(), options.slots.end());
  forms.assign(options.forms.begin(), options.forms.end());
  extra.assign(options.extra);
  bytes = kAnswerBytes + extra.size();
  for (const tensor::Tensor& t : fetches) {
    bytes += sizeof(tensor::Tensor) + (t.defined() ? t.nbytes() : 0);
  }
}

void Answer::assign_error(uint64_t id, const Status& why, bool is_derived) {
  clear();
  call_id = id;
  error = why;
  derived = is_derived;
  bytes = kAnswerBytes + why.message().size();
}

void Answer::clear() {
  error = Status();
  fetches.clear();
  slots.clear();
  forms.clear();
  extra.clear();
  if (extra.capacity() > kExtraKept) extra = {};
  bytes = 0;
}

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

Answer& Clients::next_answer(Client* client) {
  const uint64_t open = client->answered_ - client->confirmed_;
  if (open == client->ring_.size()) {
    std::vector<Answer> larger(std::max(kFirstPlaces, 2 * client->ring_.size()));
    for (uint64_t n = client->confirmed_ + 1; n <= client->answered_; ++n) {
      larger[n & (larger.size() - 1)] = std::move(place(client, n));
    }
    client->ring_ = std::move(larger);
  }
  Answer& answer = place(client, ++client->answered_);
  answer.number = client->answered_;
  return answer;
}

void Clients::keep(Client* client, Answer& answer) {
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
  client->ring_ = {};
}

Status Clients::confirm(Client* client, uint64_t number) {
  if (number > client->answered_) {
    return base::data_loss("answer {} is confirmed, of {}", number, client->answered_);
  }
  while (client->confirmed_ < number) {
    Answer& answer = place(client, ++client->confirmed_);
    client->bytes_ -= answer.bytes;
    bytes_ -= answer.bytes;
    answer.clear();
  }
  return {};
}

}  // namespace sidereal::transport
