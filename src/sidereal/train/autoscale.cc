#include "sidereal/train/autoscale.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

namespace sidereal::train {

namespace {

/// Whether `is` has been so for `seconds` at `now`.
bool lasts(bool is, double now, double seconds, std::optional<double>* since) {
  if (!is) {
    since->reset();
    return false;
  }
  if (!since->has_value()) *since = now;
  return now - **since >= seconds;
}

}  // namespace

Result<AutoscaleOptions> parse_autoscale(const std::string& text) {
  if (text == "off") return AutoscaleOptions{};
  AutoscaleOptions out;
  const char* const end = text.data() + text.size();
  const auto [dash, no_min] = std::from_chars(text.data(), end, out.ps_min);
  if (no_min == std::errc() && dash != end && *dash == '-') {
    const auto [stop, no_max] = std::from_chars(dash + 1, end, out.ps_max);
    if (no_max == std::errc() && stop == end && out.ps_min >= 1 && out.ps_max >= out.ps_min) {
      return out;
    }
  }
  return base::invalid_argument(
      "autoscale is '{}'; it is the least and the most parameter servers, as in 2-8, or off", text);
}

Result<AutoscaleOptions> parse_autoscale(const std::string& text, int ps) {
  SR_ASSIGN_OR_RETURN(const AutoscaleOptions out, parse_autoscale(text));
  if (out.ps_max <= ps) return out;
  return base::invalid_argument(
      "autoscale is '{}', and the cluster has {} parameter server{}: name more of them in it, "
      "which need not run before",
      text, ps, ps == 1 ? "" : "s");
}

std::string autoscale_doc() {
  return fmt::format(
      "the least and the most parameter servers that the model is on, as in 2-8, when these follow "
      "from what they have to do; off: it stays on those that it is on. One more, when one was "
      "busy for more than {:.0f} % of the time for {:.0f} s; one less, when the others would have "
      "been busy for less than {:.0f} % with the work of all, for {:.0f} s; nothing for {:.0f} s "
      "after either",
      100 * Autoscale::kBusy, Autoscale::kBusySeconds, 100 * Autoscale::kIdle,
      Autoscale::kIdleSeconds, Autoscale::kSettleSeconds);
}

std::optional<int> Autoscale::look(double now, const std::vector<double>& busy) {
  const auto count = static_cast<int>(busy.size());
  if (!options_.is_on() || count == 0 || now < settles_.value_or(now)) return std::nullopt;
  const double busiest = *std::ranges::max_element(busy);
  const double all = std::accumulate(busy.begin(), busy.end(), 0.0);
  // Both are looked at each time: they count how long.
  const bool is_busy = lasts(busiest > kBusy, now, kBusySeconds, &busy_since_);
  const bool is_idle =
      lasts(count > 1 && all / (count - 1) < kIdle, now, kIdleSeconds, &idle_since_);
  if (count < options_.ps_min) return options_.ps_min;
  if (count > options_.ps_max) return options_.ps_max;
  if (is_busy && count < options_.ps_max) return count + 1;
  if (is_idle && count > options_.ps_min) return count - 1;
  return std::nullopt;
}

void Autoscale::moved(double now) {
  settles_ = now + kSettleSeconds;
  busy_since_.reset();
  idle_since_.reset();
}

}  // namespace sidereal::train
