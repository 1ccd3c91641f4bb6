#include "sidereal/config/consistency.h"

#include <optional>
#include <vector>

#include "sidereal/base/strings.h"

namespace sidereal::config {

using base::invalid_argument;

namespace {

/// Of a number in a form. Clocks of barriers add them up.
constexpr int64_t kMost = 1 << 20;

constexpr ConsistencyForm kForms[] = {
    {"async",
     "each worker lane updates the model by itself, whatever the others do, and waits for none"},
    {"sync", "worker lanes train in step: one update by the mean of a batch of each"},
    {"sync(k of n)",
     "the same; a step is over when k of the n worker lanes have given their gradients, and what "
     "slower ones found is dropped"},
    {"bounded(s)",
     "each worker lane updates the model by itself, at most s + 1 steps ahead of the slowest: it "
     "may miss updates of the latest s steps of others; bounded(0) is sync"},
    {"hybrid",
     "dense variables as with sync, tables as with bounded(1): worker lanes train in step, and "
     "each updates rows of tables by itself"},
    {"geo(k)",
     "each worker lane trains a copy of the dense variables, adds what k steps changed in it to "
     "the model's, and goes on from what these are then; tables as with async"},
};

Status unknown(std::string_view text) {
  std::vector<std::string> forms;
  for (const ConsistencyForm& one : kForms) forms.emplace_back(one.form);
  return invalid_argument("'{}' is no consistency; write {}", text, base::join(forms, ", "));
}

/// What stands between the parentheses of "NAME(...)", if `text` is that.
std::optional<std::string_view> argument_of(std::string_view text, std::string_view name) {
  if (!text.starts_with(name)) return std::nullopt;
  text = base::trim(text.substr(name.size()));
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return std::nullopt;
  return base::trim(text.substr(1, text.size() - 2));
}

Result<Consistency> parse_quorum(std::string_view text, std::string_view argument) {
  const size_t of = argument.find(" of ");
  if (of == std::string_view::npos) return unknown(text);
  const Result<int64_t> quorum = base::parse_int(base::trim(argument.substr(0, of)));
  const Result<int64_t> replicas = base::parse_int(base::trim(argument.substr(of + 4)));
  if (!quorum.ok() || !replicas.ok()) return unknown(text);
  if (*quorum < 1 || *quorum > *replicas || *replicas > kMost) {
    return invalid_argument("'{}': sync(k of n) takes k from 1 to n, and n up to {}", text, kMost);
  }
  return Consistency{
      .kind = Consistency::Kind::kSync, .quorum = *quorum, .replicas = *replicas, .bound = 0};
}

/// The number of a form with one, such as "geo(k)", which takes it from `least` on.
Result<int64_t> parse_number(std::string_view text, std::string_view argument,
                             std::string_view form, int64_t least) {
  Result<int64_t> number = base::parse_int(argument);
  if (!number.ok()) return unknown(text);
  if (*number < least || *number > kMost) {
    return invalid_argument("'{}': {} takes {} from {} to {}", text, form, form[form.size() - 2],
                            least, kMost);
  }
  return number;
}

}  // namespace

std::string Consistency::to_string() const {
  switch (kind) {
    case Kind::kAsync:
      break;
    case Kind::kSync:
      return quorum == 0 ? "sync" : fmt::format("sync({} of {})", quorum, replicas);
    case Kind::kBounded:
      return fmt::format("bounded({})", bound);
    case Kind::kHybrid:
      return "hybrid";
    case Kind::kGeo:
      return fmt::format("geo({})", window);
  }
  return "async";
}

std::span<const ConsistencyForm> consistency_forms() { return kForms; }

Result<Consistency> parse_consistency(std::string_view text) {
  const std::string_view mode = base::trim(text);
  if (mode == "async") return Consistency();
  if (mode == "sync") return Consistency{.kind = Consistency::Kind::kSync};
  if (mode == "hybrid") return Consistency{.kind = Consistency::Kind::kHybrid};
  if (const auto argument = argument_of(mode, "sync")) return parse_quorum(text, *argument);
  if (const auto argument = argument_of(mode, "bounded")) {
    SR_ASSIGN_OR_RETURN(const int64_t bound, parse_number(text, *argument, "bounded(s)", 0));
    return Consistency{
        .kind = Consistency::Kind::kBounded, .quorum = 0, .replicas = 0, .bound = bound};
  }
  const auto argument = argument_of(mode, "geo");
  if (!argument.has_value()) return unknown(text);
  SR_ASSIGN_OR_RETURN(const int64_t window, parse_number(text, *argument, "geo(k)", 1));
  return Consistency{
      .kind = Consistency::Kind::kGeo, .quorum = 0, .replicas = 0, .bound = 0, .window = window};
}

Status check_consistency(const Consistency& consistency, int64_t replicas,
                         int64_t steps_in_flight) {
  if (!consistency.waits() && !consistency.is_geo()) return {};
  if (steps_in_flight != 1) {
    return invalid_argument(
        "steps_in_flight is {}; with consistency '{}' a worker lane has one: the next one begins "
        "when it has ended",
        steps_in_flight, consistency.to_string());
  }
  if (consistency.quorum == 0 || consistency.replicas == replicas) return {};
  return invalid_argument(
      "consistency is '{}'; the cluster has {} replicas, the lanes of its workers: write "
      "sync(k of {})",
      consistency.to_string(), replicas, replicas);
}

}  // namespace sidereal::config
