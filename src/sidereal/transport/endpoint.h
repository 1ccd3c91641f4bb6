#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/config/options.h"
#include "sidereal/lane/lane.h"
#include "sidereal/metrics/lane_metrics.h"
#include "sidereal/security/credentials.h"
#include "sidereal/security/tls.h"
#include "sidereal/sys/network.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/transport/budget.h"
#include "sidereal/transport/kept_message.h"
#include "sidereal/transport/outbox.h"
#include "sidereal/wire/checksum.h"
#include "sidereal/wire/frame.h"

namespace sidereal::transport {

/// Who this lane is to its peers.
struct Identity {
  uint64_t cluster_id = 0;   ///< the same for all tasks of one cluster
  std::string task;          ///< such as "/job:ps/task:0"
  uint64_t incarnation = 0;  ///< random per start of the task
  uint32_t lane_count = 1;   ///< lanes of this task
};

/// Memory for a tensor whose size comes from a peer: kResourceExhausted when there is none.
Result<tensor::Tensor> allocate_tensor(tensor::DType dtype, const tensor::Shape& shape);

/// What a message that is being received consists of so far.
struct MessageParts {
  std::vector<wire::SlotEntry> slots;
  std::vector<tensor::Tensor> tensors;  ///< Of strings: bytes, until all have come.
  std::vector<std::byte*> places;       ///< Where the bytes of each slot go.
  std::string extra;
};

/// What the connections of one lane share: identity, options, how peers prove who they are, and the
/// buffer they read into.
///
/// Lifecycle: one per lane, which outlives it; outlives its Acceptors and Channels.
/// Thread: core-local (create() may be called before the lane starts).
class Endpoint {
 public:
  /// `lane` is borrowed. With credentials that prove peers all connections are TLS, in both
  /// directions; nullptr: plain text, on loopback only. kInvalidArgument for options out of range.
  static Result<std::unique_ptr<Endpoint>> create(
      lane::Lane* lane, Identity identity, const config::Options& options,
      std::shared_ptr<const security::Credentials> credentials = nullptr);

  [[nodiscard]] lane::Lane* lane() const { return lane_; }
  [[nodiscard]] const Identity& identity() const { return identity_; }
  [[nodiscard]] const config::Options& options() const { return options_; }
  [[nodiscard]] const wire::Limits& limits() const { return limits_; }
  [[nodiscard]] metrics::LaneMetrics& metrics() const { return lane_->metrics(); }
  /// Or nullptr.
  [[nodiscard]] const security::Credentials* credentials() const { return credentials_.get(); }
  /// nullptr: connections are plain text.
  [[nodiscard]] const security::Tls* tls() const { return tls_.get(); }
  /// What payloads being received may take together.
  [[nodiscard]] Budget& budget() { return budget_; }
  /// Where outboxes have their memory from.
  [[nodiscard]] ChunkPool& chunks() { return chunks_; }
  /// Memory that connections take turns to use: one that waits for a message holds none, and what
  /// the last one has used is in the caches.
  std::unique_ptr<MessageParts> take_parts();
  void give_parts(std::unique_ptr<MessageParts> parts);
  /// Where what may be sent again is kept.
  [[nodiscard]] KeptMessages& kept() { return kept_; }
  [[nodiscard]] wire::Checksum& checksum() { return checksum_; }
  /// Bytes that wait to be sent on all connections.
  [[nodiscard]] uint64_t send_bytes() const { return send_bytes_; }
  void count_send_bytes(int64_t change) { send_bytes_ += static_cast<uint64_t>(change); }
  /// Bytes of memory that connections share with their peers.
  [[nodiscard]] uint64_t shared_bytes() const { return shared_bytes_; }
  void count_shared_bytes(int64_t change) { shared_bytes_ += static_cast<uint64_t>(change); }
  /// The staging buffer: input is read here first. Valid within one I/O callback.
  [[nodiscard]] sys::IoSlice staging() const { return {staging_.get(), kStagingBytes}; }

  /// A head, header and meta, is parsed in one piece, so it must fit with room to spare.
  static constexpr size_t kStagingBytes = size_t{3} << 20;
  static constexpr uint32_t kMetaBytesMax = kStagingBytes / 2;

 private:
  Endpoint(lane::Lane* lane, Identity identity, const config::Options& options);

  lane::Lane* lane_;
  Identity identity_;
  config::Options options_;
  std::shared_ptr<const security::Credentials> credentials_;
  std::shared_ptr<const security::Tls> tls_;
  wire::Limits limits_;
  Budget budget_;
  ChunkPool chunks_;
  std::vector<std::unique_ptr<MessageParts>> spare_parts_;  // Empty; the last was used last.
  KeptMessages kept_;
  wire::Checksum checksum_;
  uint64_t send_bytes_ = 0;
  uint64_t shared_bytes_ = 0;
  std::unique_ptr<std::byte[]> staging_;
};

}  // namespace sidereal::transport
