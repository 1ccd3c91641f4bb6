#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"

namespace sidereal::config {

/// What the steps of one replica, a lane of a worker, see of those of others. Value type.
struct Consistency {
  enum class Kind : uint8_t {
    kAsync,    ///< Whatever has come: each replica updates by itself.
    kSync,     ///< All that others did in steps before: one update by the mean of a step.
    kBounded,  ///< All but the latest `bound` steps of others: each replica updates by itself.
    kHybrid,   ///< Of dense variables as kSync, of tables as kBounded with a bound of 1.
    kGeo,      ///< Dense variables as they were `window` own steps ago at most; tables as kAsync.
  };
  Kind kind = Kind::kAsync;
  int64_t quorum = 0;    ///< kSync: replicas in a mean; 0: all.
  int64_t replicas = 0;  ///< kSync with a quorum: of how many.
  int64_t bound = 0;     ///< kBounded: steps.
  int64_t window = 0;    ///< kGeo: own steps between two exchanges.

  /// Whether replicas train in step: one update for all, but for the tables of kHybrid. A bound of
  /// 0 leaves no replica room to be ahead of another one, which is kSync.
  [[nodiscard]] bool is_in_step() const {
    return kind == Kind::kSync || is_hybrid() || (kind == Kind::kBounded && bound == 0);
  }
  [[nodiscard]] bool is_hybrid() const { return kind == Kind::kHybrid; }
  /// Whether fewer replicas than there are may end a step in step.
  [[nodiscard]] bool has_spares() const { return quorum < replicas; }
  /// Whether replicas train copies of dense variables, and send what these have become.
  [[nodiscard]] bool is_geo() const { return kind == Kind::kGeo; }
  /// Whether a replica may have to wait for others.
  [[nodiscard]] bool waits() const { return kind != Kind::kAsync && !is_geo(); }
  /// As parse_consistency() takes it.
  [[nodiscard]] std::string to_string() const;
};

/// One way to write a consistency. Value type.
struct ConsistencyForm {
  const char* form;  ///< "sync(k of n)".
  const char* doc;   ///< What it means, a clause.
};

/// Every form, the default first: what help and documents are made of.
std::span<const ConsistencyForm> consistency_forms();

/// The consistency that is written so. kInvalidArgument, naming the forms, for other text and for
/// numbers that none has.
Result<Consistency> parse_consistency(std::string_view text);

/// kInvalidArgument, naming `replicas`, unless so many lanes of workers can train so with
/// `steps_in_flight` steps each.
Status check_consistency(const Consistency& consistency, int64_t replicas, int64_t steps_in_flight);

}  // namespace sidereal::config
