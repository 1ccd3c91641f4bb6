#include "sidereal/app/server_settings.h"

#include <absl/strings/ascii.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "sidereal/app/endpoint_map.h"
#include "sidereal/base/strings.h"
#include "sidereal/lane/spin.h"
#include "sidereal/sys/posix/cpus.h"
#include "sidereal/task/task.h"

namespace sidereal::app {

namespace {

/// Names of variables, which differ by job.
struct Names {
  const char* polling;
  const char* lanes;
  const char* unpinned;
};
constexpr Names kWorker = {"WORKER_ENABLE_POLLING", "NETWORK_WORKER_CORE_NUMBER",
                           "WORKER_DISABLE_PIN_CORES"};
constexpr Names kPs = {"PS_ENABLE_POLLING", "NETWORK_PS_CORE_NUMBER", "PS_DISABLE_PIN_CORES"};
/// Lanes of a ps where nobody says how many.
constexpr int kDefaultLanesMax = 16;
constexpr const char* kConnect = "NETWORK_MAX_CONNECTION_TIMEOUT";
constexpr const char* kReplicas = "PS_REPLICAS";
constexpr const char* kMinInsync = "PS_MIN_INSYNC_REPLICAS";
constexpr const char* kMapPath = "TF_SEASTAR_ENDPOINT_MAP_PATH";

std::optional<std::string> read(const Environment& environment, const char* name) {
  const char* const value = environment(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

/// As TensorFlow reads them.
Result<std::optional<bool>> read_bool(const Environment& environment, const char* name) {
  const std::optional<std::string> text = read(environment, name);
  if (!text) return std::optional<bool>();
  const std::string lower = absl::AsciiStrToLower(*text);
  if (lower == "true" || lower == "1") return std::optional(true);
  if (lower == "false" || lower == "0") return std::optional(false);
  return base::invalid_argument("{} is '{}'; it must be true, false, 1 or 0", name, *text);
}

Result<std::optional<int64_t>> read_int(const Environment& environment, const char* name,
                                        int64_t least, int64_t most) {
  const std::optional<std::string> text = read(environment, name);
  if (!text) return std::optional<int64_t>();
  const Result<int64_t> value = base::parse_int(base::trim(*text));
  if (value.ok() && *value >= least && *value <= most) return std::optional(*value);
  return base::invalid_argument("{} is '{}'; it must be a whole number from {} to {}", name, *text,
                                least, most);
}

class Completion {
 public:
  Completion(const ServerSettings& given, const Environment& environment, ServerOptions* options)
      : given_(given),
        environment_(environment),
        is_worker_(options->job == "worker" || options->job == "chief"),
        names_(is_worker_ ? kWorker : kPs),
        options_(*options) {}

  Status run() {
    SR_RETURN_IF_ERROR(set_replicas(given_.replicas, kReplicas, &config::Options::replicas));
    SR_RETURN_IF_ERROR(set_replicas(given_.min_insync_replicas, kMinInsync,
                                    &config::Options::min_insync_replicas));
    if (!cluster::has_data_port(options_.protocol)) return take_lanes();
    SR_RETURN_IF_ERROR(set_spin());
    SR_RETURN_IF_ERROR(set_lanes());
    SR_RETURN_IF_ERROR(set_pinning());
    SR_RETURN_IF_ERROR(set_connect_deadline());
    set_endpoint_map();
    set_shared_memory();
    return {};
  }

 private:
  Status set_spin() {
    SR_ASSIGN_OR_RETURN(const std::optional<bool> said, read_bool(environment_, names_.polling));
    if (given_.polling && given_.spin_us && *given_.polling != (*given_.spin_us == -1)) {
      return base::invalid_argument(
          "polling is {} and spin_us is {}, which are two things; give one of them",
          *given_.polling, *given_.spin_us);
    }
    int64_t& spin_us = options_.data.spin_us;
    if (given_.spin_us || given_.polling) {
      spin_us = given_.spin_us.value_or(given_.polling.value_or(false) ? lane::kSpinAlways
                                                                       : lane::kSpinAdaptive);
      note("spin_us", "option");
    } else if (said) {
      spin_us = *said ? lane::kSpinAlways : lane::kSpinAdaptive;
      note("spin_us", names_.polling);
    }
    return config::validate(options_.data);
  }

  Status set_lanes() {
    SR_ASSIGN_OR_RETURN(const std::optional<int64_t> said,
                        read_int(environment_, names_.lanes, 1, task::Task::kLanesMax));
    if (given_.lanes) return take_lanes();
    if (said) {
      const int usable = sys::posix::usable_cpus().count();
      options_.lanes = static_cast<int>(std::min<int64_t>(*said, usable));
      note("lanes", *said <= usable
                        ? names_.lanes
                        : fmt::format("{}={}, of which there are {}", names_.lanes, *said, usable));
    } else if (!is_worker_ && cluster::is_pull_push(options_.protocol)) {
      // Half of the processors: steps of workers, or other tasks of the host, have the rest.
      options_.lanes = std::clamp(sys::posix::usable_cpus().count() / 2, 1, kDefaultLanesMax);
    }
    return {};
  }

  /// Those that were given.
  Status take_lanes() {
    if (!given_.lanes) return {};
    if (*given_.lanes < 1 || *given_.lanes > task::Task::kLanesMax) {
      return base::invalid_argument("lanes is {}; it must be from 1 to {}", *given_.lanes,
                                    task::Task::kLanesMax);
    }
    options_.lanes = static_cast<int>(*given_.lanes);
    note("lanes", "option");
    return {};
  }

  Status set_pinning() {
    SR_ASSIGN_OR_RETURN(const std::optional<bool> said, read_bool(environment_, names_.unpinned));
    if (given_.pin_cores) {
      options_.pin_cores = *given_.pin_cores;
      note("pin_cores", "option");
    } else if (said) {
      options_.pin_cores = !*said;
      note("pin_cores", names_.unpinned);
    }
    return {};
  }

  Status set_connect_deadline() {
    const auto fields = config::option_fields();
    const auto field = std::find_if(fields.begin(), fields.end(), [](const auto& one) {
      return one.member == &config::Options::connect_deadline_ms;
    });
    SR_ASSIGN_OR_RETURN(const std::optional<int64_t> said,
                        read_int(environment_, kConnect, field->min, field->max));
    if (given_.connect_deadline_ms) {
      options_.data.connect_deadline_ms = *given_.connect_deadline_ms;
      note("connect_deadline_ms", "option");
    } else if (said) {
      options_.data.connect_deadline_ms = *said;
      note("connect_deadline_ms", kConnect);
    }
    return config::validate(options_.data);
  }

  Status set_replicas(std::optional<int64_t> given, const char* variable,
                      int64_t config::Options::*member) {
    const auto fields = config::option_fields();
    const auto field =
        std::ranges::find_if(fields, [&](const auto& one) { return one.member == member; });
    SR_ASSIGN_OR_RETURN(const std::optional<int64_t> said,
                        read_int(environment_, variable, field->min, field->max));
    if (given) {
      options_.data.*member = *given;
    } else if (said && options_.job == "ps") {
      options_.data.*member = *said;
    }
    return config::validate(options_.data);
  }

  void set_shared_memory() {
    if (!given_.shared_memory) return;
    options_.data.shared_memory = *given_.shared_memory ? 1 : 0;
    note("shared_memory", "option");
  }

  void set_endpoint_map() {
    std::error_code ignored;
    const std::optional<std::string> said = read(environment_, kMapPath);
    if (given_.endpoint_map_path) {
      options_.endpoint_map_path = *given_.endpoint_map_path;
      note("endpoint_map_path", "option");
    } else if (said) {
      options_.endpoint_map_path = *said;
      note("endpoint_map_path", kMapPath);
    } else if (std::filesystem::exists(EndpointMap::kFileName, ignored)) {
      options_.endpoint_map_path = std::string(".");
      note("endpoint_map_path", "the working directory");
    }
  }

  void note(const char* name, std::string from) { options_.set_by[name] = std::move(from); }

  const ServerSettings& given_;
  const Environment& environment_;
  const bool is_worker_;
  const Names& names_;
  ServerOptions& options_;
};

std::string spin_text(int64_t spin_us) {
  if (spin_us == lane::kSpinAlways) return "always";
  if (spin_us == lane::kSpinAdaptive) return "adaptive";
  return std::to_string(spin_us);
}

}  // namespace

Status complete_settings(const ServerSettings& given, const Environment& environment,
                         ServerOptions* options) {
  return Completion(given, environment, options).run();
}

std::vector<SettingReport> report_settings(const ServerOptions& options) {
  const ServerOptions defaults;
  std::vector<SettingReport> out;
  const auto add = [&](const char* name, std::string value, bool is_default) {
    const auto noted = options.set_by.find(name);
    std::string from = is_default ? "default" : "option";
    if (noted != options.set_by.end()) from = noted->second;
    out.push_back({.name = name, .value = std::move(value), .from = std::move(from)});
  };
  add("lanes", std::to_string(options.lanes), options.lanes == defaults.lanes);
  add("spin_us", spin_text(options.data.spin_us), options.data.spin_us == defaults.data.spin_us);
  add("pin_cores", options.pin_cores ? "true" : "false", !options.pin_cores);
  add("connect_deadline_ms", std::to_string(options.data.connect_deadline_ms),
      options.data.connect_deadline_ms == defaults.data.connect_deadline_ms);
  const std::string& path = options.endpoint_map_path;
  add("endpoint_map_path", path.empty() ? "none" : path, path.empty());
  add("shared_memory", options.data.shared_memory != 0 ? "true" : "false",
      options.data.shared_memory == defaults.data.shared_memory);
  return out;
}

}  // namespace sidereal::app
