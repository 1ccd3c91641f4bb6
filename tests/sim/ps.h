#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "sidereal/transport/acceptor.h"
#include "tests/sim/process.h"

namespace sidereal::sim {

/// A lane of a parameter server that remembers the last push of every writer to it. Call: `session`
/// is the writer, `step` the number of the push, and of a pull how many bytes are wanted.
class Ps final : public Process, private transport::CallHandler {
 public:
  /// Listens at kPort + the lane.
  Ps(sys::sim::World* world, sys::sim::Host* host, const Scenario& scenario, Ledger* ledger,
     const Place& place);
  ~Ps() override;

  /// Complains of memory that is out of bounds.
  void check_memory();
  /// Nothing is being received or sent.
  [[nodiscard]] bool is_idle() const;
  /// Complains of what should be gone when nobody calls any more.
  void check_idle();
  [[nodiscard]] uint64_t receive_bytes_max() const { return endpoint()->budget().used_max(); }
  [[nodiscard]] uint64_t send_bytes_max() const { return send_bytes_max_; }

 private:
  struct Held {
    transport::ConnectionId from;
    uint64_t call_id;
    Ask ask;
    uint64_t writer, step;
  };
  void on_call(const transport::Connection& from, const transport::Call& call,
               std::span<tensor::Tensor> feeds) override;
  void serve(const Held& call);

  std::unique_ptr<transport::Acceptor> acceptor_;
  std::unordered_map<uint64_t, uint64_t> last_;  // push of each writer in this life
  uint64_t send_bytes_max_ = 0;
};

}  // namespace sidereal::sim
