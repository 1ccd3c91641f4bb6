#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/sys/address.h"

namespace sidereal::sys::posix {

/// All addresses of a host, as numbers, IPv4 first. May wait for the name service. kNotFound.
Result<std::vector<Address>> resolve_all(const Address& address);

/// Asks the name service on threads of its own, a few at a time: one that does not answer holds up
/// only some. Destruction waits for no name service; what was not answered then is dropped.
/// Thread: any.
class LookUps {
 public:
  using Done = std::function<void(const Result<std::vector<Address>>&)>;

  LookUps();
  ~LookUps();
  LookUps(const LookUps&) = delete;
  LookUps& operator=(const LookUps&) = delete;

  /// Calls `done` later, on one of the threads.
  void ask(const Address& address, Done done);

 private:
  struct State;
  static void work(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace sidereal::sys::posix
