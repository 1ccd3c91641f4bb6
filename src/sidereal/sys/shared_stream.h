#pragma once

#include <memory>

#include "sidereal/sys/network.h"
#include "sidereal/sys/shared_memory.h"

namespace sidereal::sys {

/// A stream whose bytes go through shared memory, over another stream to the same peer.
///
/// At first bytes go both ways as before. A direction is switched when both sides know that the
/// last byte of it has gone over the stream below. That one still tells when the peer ends, and
/// carries single bytes, bells, to a peer that sleeps. What the peer has written before it ended
/// is read first.
/// Thread: one at a time.
class SharedStream final : public Stream {
 public:
  /// `offered`: this side has made the memory; the other one has found it.
  SharedStream(std::unique_ptr<Stream> below, std::unique_ptr<SharedMemory> memory, bool offered);
  ~SharedStream() override;

  /// What is written from now on goes through the memory. holds_output() must be false. The
  /// poller must be told, by update().
  void switch_output();
  /// What is read from now on comes through the memory: all that still comes from below are bells.
  /// The poller must be told, by update().
  void switch_input();
  /// Gives the memory of what this side has written back, until it is used again. False: the peer
  /// has not read all of it.
  bool trim();
  [[nodiscard]] const SharedMemory& memory() const;
  /// The stream that this one stands on.
  [[nodiscard]] Stream& below() const;

  [[nodiscard]] int handle() const override;
  [[nodiscard]] InMemory* in_memory() const override;
  Result<bool> connected() override;
  /// A peer that lies about its ring: kDataLoss.
  Result<IoCount> readv(std::span<const IoSlice> into) override;
  Result<IoCount> writev(std::span<const ConstIoSlice> from) override;
  [[nodiscard]] bool holds_input() const override;
  [[nodiscard]] bool holds_output() const override;
  [[nodiscard]] bool is_local() const override { return true; }

 private:
  class Ends;
  std::unique_ptr<Ends> ends_;
};

}  // namespace sidereal::sys
