#include "sidereal/resources/changes_made.h"

#include <algorithm>
#include <vector>

#include "sidereal/base/bytes.h"

namespace sidereal::resources {

const ChangesMade::Closure* ChangesMade::find(const ClosureKey& key) const {
  const auto client = clients_.find(key.client);
  if (client == clients_.end()) return nullptr;
  const auto closure = client->second.closures.find(place_of_closure(key.closure));
  return closure == client->second.closures.end() ? nullptr : &closure->second;
}

Result<bool> ChangesMade::is_due(const ClosureKey& key, uint64_t change) const {
  const Closure* const known = find(key);
  const uint64_t turn = turn_of_closure(key.closure);
  if (known == nullptr || known->turn < turn) return true;
  if (known->turn > turn) return false;
  if (known->changes.contains(change)) return false;
  if (known->changes.size() >= kChangesMax) {
    return base::resource_exhausted(
        "a closure changes a variable more than {} times: effectively_once keeps note of each; "
        "make it several closures",
        kChangesMax);
  }
  return true;
}

void ChangesMade::note(const ClosureKey& key, uint64_t change) {
  if (!clients_.contains(key.client) && clients_.size() >= kClientsMax) {
    clients_.erase(std::ranges::min_element(clients_, {},
                                            [](const auto& client) { return client.second.used; }));
  }
  Client& client = clients_[key.client];
  client.used = ++uses_;
  Closure& closure = client.closures[place_of_closure(key.closure)];
  const uint64_t turn = turn_of_closure(key.closure);
  // It has ended, and a later one has its place.
  if (turn < closure.turn) return;
  if (closure.turn != turn) {
    closure.turn = turn;
    closure.changes.clear();
  }
  closure.changes.insert(change);
}

namespace {

/// Keys in order, so that equal maps have equal bytes.
template <class Map>
std::vector<uint64_t> sorted_keys(const Map& map) {
  std::vector<uint64_t> out;
  for (const auto& [key, value] : map) out.push_back(key);
  std::ranges::sort(out);
  return out;
}

}  // namespace

std::string ChangesMade::encode() const {
  if (clients_.empty()) return {};
  base::ByteWriter out;
  out.put(uses_);
  out.put(static_cast<uint32_t>(clients_.size()));
  for (const uint64_t client : sorted_keys(clients_)) {
    const Client& of = clients_.at(client);
    out.put(client);
    out.put(of.used);
    out.put(static_cast<uint32_t>(of.closures.size()));
    for (const uint64_t place : sorted_keys(of.closures)) {
      const Closure& closure = of.closures.at(place);
      std::vector<uint64_t> changes(closure.changes.begin(), closure.changes.end());
      std::ranges::sort(changes);
      out.put(place);
      out.put(closure.turn);
      out.put(static_cast<uint32_t>(changes.size()));
      for (const uint64_t change : changes) out.put(change);
    }
  }
  return out.take();
}

Result<ChangesMade> ChangesMade::decode(std::string_view bytes) {
  ChangesMade out;
  if (bytes.empty()) return out;
  base::ByteReader in(bytes);
  uint32_t clients = 0;
  SR_RETURN_IF_ERROR(in.get(&out.uses_));
  SR_RETURN_IF_ERROR(in.get_count(&clients, kClientsMax, 20));
  for (uint32_t i = 0; i < clients; ++i) {
    uint64_t client = 0;
    uint32_t closures = 0;
    SR_RETURN_IF_ERROR(in.get(&client));
    Client& of = out.clients_[client];
    SR_RETURN_IF_ERROR(in.get(&of.used));
    SR_RETURN_IF_ERROR(in.get_count(&closures, uint32_t{1} << kClosurePlaceBits, 20));
    for (uint32_t j = 0; j < closures; ++j) {
      uint64_t place = 0;
      uint32_t changes = 0;
      SR_RETURN_IF_ERROR(in.get(&place));
      Closure& closure = of.closures[place];
      SR_RETURN_IF_ERROR(in.get(&closure.turn));
      SR_RETURN_IF_ERROR(in.get_count(&changes, kChangesMax, 8));
      for (uint32_t k = 0; k < changes; ++k) {
        uint64_t change = 0;
        SR_RETURN_IF_ERROR(in.get(&change));
        closure.changes.insert(change);
      }
    }
  }
  if (in.remaining() == 0) return out;
  return base::data_loss("{} bytes follow the changes that closures have made", in.remaining());
}

}  // namespace sidereal::resources
