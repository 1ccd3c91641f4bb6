#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/follower.h"

namespace sidereal::service {

/// What a look-up found: one row for each id, one behind the other. Value type.
struct FoundRows {
  tensor::DType dtype = tensor::DType::kInvalid;
  int64_t dim = 0;
  std::string bytes;
};

/// Asks a LookupServer. Keeps its connection.
/// Thread: any.
class LookupClient {
 public:
  /// `address`: "host:port". Errors: kInvalidArgument for what is none; those of
  /// security::Credentials.
  static Result<std::unique_ptr<LookupClient>> create(const std::string& address,
                                                      const security::SecurityOptions& security);
  ~LookupClient();
  LookupClient(const LookupClient&) = delete;
  LookupClient& operator=(const LookupClient&) = delete;

  /// Of more ids than one call of lookup.proto may ask for it makes several, one after another.
  /// Errors: those of Follower::look_up(); kUnavailable and kDeadlineExceeded when no server
  /// answers all of them in `limit`; kAborted when rows get another form meanwhile; kDataLoss for
  /// an answer that is none.
  Result<FoundRows> look_up(const std::string& table, std::span<const int64_t> ids,
                            std::chrono::milliseconds limit);
  struct Tables {
    std::map<std::string, FollowedTable> tables;
    std::vector<FollowedTask> tasks;
  };
  /// What can be looked up, and how far behind it is. Errors: as above.
  Result<Tables> tables(std::chrono::milliseconds limit);

 private:
  class Impl;
  explicit LookupClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::service
