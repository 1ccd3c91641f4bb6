#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "sidereal/transport/acceptor.h"
#include "tests/sim/lives.h"
#include "tests/sim/process.h"

namespace sidereal::sim {

/// A lane of a parameter server that remembers the last push of every writer to it. Call: `session`
/// is the writer, `step` the number of the push, and of a pull how many bytes are wanted.
class Ps final : public Process, private transport::CallHandler {
 public:
  /// Listens at kPort + the lane.
  Ps(const Context& context, sys::sim::Host* host, const Place& place);
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

/// All lanes of a parameter server, which begin and end together.
class LanesOfPs final : public PsLife {
 public:
  /// `place` names its first lane.
  LanesOfPs(const Context& context, sys::sim::Host* host, Place place);

  [[nodiscard]] std::vector<sys::sim::Node*> nodes() const override;
  void check_memory() override;
  bool is_idle() override;
  void check_idle() override;
  [[nodiscard]] Memory memory() const override;

 private:
  std::vector<std::unique_ptr<Ps>> lanes_;
};

}  // namespace sidereal::sim
