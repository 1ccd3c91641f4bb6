#include "sidereal/resources/changes_made.h"

#include <algorithm>

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
  if (closure.turn != turn) {
    closure.turn = turn;
    closure.changes.clear();
  }
  closure.changes.insert(change);
}

}  // namespace sidereal::resources
