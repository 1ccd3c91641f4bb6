#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sidereal/base/status.h"

namespace sidereal::train {

/// How many parameter servers a model may be on when that follows from what they have to do. Value
/// type.
struct AutoscaleOptions {
  int ps_min = 1;
  int ps_max = 0;  ///< 0: it stays on those that it is on.

  [[nodiscard]] bool is_on() const { return ps_max > 0; }
};

/// "2-8"; "off" is none. kInvalidArgument for other texts.
Result<AutoscaleOptions> parse_autoscale(const std::string& text);
/// The same for a cluster with so many parameter servers, which kInvalidArgument names if they are
/// too few.
Result<AutoscaleOptions> parse_autoscale(const std::string& text, int ps);
/// What it is, and the rules, for people.
std::string autoscale_doc();

/// The rules of autoscaling, of the shares of their time that the parameter servers that a model is
/// on are busy:
/// * one more, when one was busy for more than kBusy of the time for kBusySeconds;
/// * one less, when for kIdleSeconds the others would have been busy for less than kIdle with the
///   work of all;
/// * nothing for kSettleSeconds after either.
/// Memory is no reason: what a model takes is known when it is placed.
/// Value type; times in seconds, of any clock that does not go back.
class Autoscale {
 public:
  static constexpr double kBusy = 0.8;
  static constexpr double kBusySeconds = 30;
  static constexpr double kIdle = 0.4;
  static constexpr double kIdleSeconds = 300;
  static constexpr double kSettleSeconds = 60;

  explicit Autoscale(AutoscaleOptions options) : options_(options) {}

  /// How many the model should be on from now on; nothing: as many as there are, which were busy
  /// for `busy` of the time since the last look, 0 to 1.
  std::optional<int> look(double now, const std::vector<double>& busy);
  /// It is on others since `now`, or was to be.
  void moved(double now);

 private:
  const AutoscaleOptions options_;
  std::optional<double> settles_;  // Until then.
  std::optional<double> busy_since_;
  std::optional<double> idle_since_;
};

}  // namespace sidereal::train
