#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "sidereal/base/slot_map.h"
#include "sidereal/base/status.h"
#include "sidereal/lane/timers.h"
#include "sidereal/transport/acceptor.h"
#include "sidereal/transport/kept_message.h"

/// What an acceptor remembers of clients whose calls outlive their connections. Internal to
/// transport.
namespace sidereal::transport {

/// One client, connected or not.
struct Client {
  std::pair<uint64_t, uint64_t> name;
  Connection peer;  ///< as the handler sees it, over all connections
  ServerConnection* connection = nullptr;
  uint64_t session = 0;        ///< of this record, never of another one
  uint32_t attempt = 0;        ///< number of its latest connection
  uint64_t seen = 0;           ///< number of the last call that has come
  int64_t resume_ns = 0;       ///< how long it is remembered without a connection
  int64_t alone_since_ns = 0;  ///< without a connection
  lane::TimerId forget_timer;
  /// Calls under way that may be run again: their answers are not kept.
  absl::flat_hash_set<uint64_t> repeatable;
  bool is_forgotten = false;  ///< its answers took too much memory: none are kept

 private:
  friend class Clients;
  // A ring of answers that the client may not have, a power of two of places.
  std::vector<std::unique_ptr<KeptMessage>> ring_;
  uint64_t confirmed_ = 0;
  uint64_t answered_ = 0;
  uint64_t bytes_ = 0;
};

/// All clients of an acceptor. Thread: core-local.
class Clients {
 public:
  /// Answers of more than `bytes_max` in all are not kept: the client with the most is forgotten.
  /// `kept` is borrowed.
  Clients(KeptMessages* kept, uint64_t bytes_max) : kept_(kept), bytes_max_(bytes_max) {}

  /// Whether an id is that of a client, known or not.
  static bool is_client(ConnectionId id) { return (id.value & kClientBit) != 0; }
  /// Or nullptr.
  Client* find(ConnectionId id);
  Client* find(const std::pair<uint64_t, uint64_t>& name);
  Client* add(const std::pair<uint64_t, uint64_t>& name);
  void remove(Client* client);
  /// All, in the order of their places.
  [[nodiscard]] std::vector<Client*> all();
  [[nodiscard]] size_t count() const { return by_name_.size(); }

  /// The next answer to the client, for this call: an empty one, with its number in the header's
  /// `step`.
  KeptMessage& next_answer(Client* client, uint64_t call_id);
  /// An answer was filled in and sent. It, or that of others, is dropped where there are too many.
  void keep(Client* client, KeptMessage& answer);
  /// The client has all answers up to this one. kDataLoss when there is no such answer.
  Status confirm(Client* client, uint64_t number);
  /// Calls `fn` with every answer that the client may not have, in order.
  template <class Fn>
  void each_answer(Client* client, const Fn& fn) {
    for (uint64_t n = client->confirmed_ + 1; n <= client->answered_; ++n) fn(*place(client, n));
  }
  /// Bytes of answers that are kept.
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  static constexpr uint64_t kClientBit = uint64_t{1} << 63;
  static std::unique_ptr<KeptMessage>& place(Client* client, uint64_t number) {
    return client->ring_[number & (client->ring_.size() - 1)];
  }
  void drop_answers(Client* client);
  void forget_largest();

  KeptMessages* const kept_;
  const uint64_t bytes_max_;
  uint64_t bytes_ = 0;
  base::SlotMap<std::unique_ptr<Client>> clients_;
  std::map<std::pair<uint64_t, uint64_t>, Client*> by_name_;
};

}  // namespace sidereal::transport
