#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/app/server.h"
#include "sidereal/base/status.h"

namespace sidereal::app {

/// What users said of how a server's lanes work and where others have their data ports; what was
/// not said is absent. Value type.
struct ServerSettings {
  std::optional<bool> polling = {};     ///< Lanes never sleep; no: they learn when to. Or:
  std::optional<int64_t> spin_us = {};  ///< How long they look for work; as config::Options has it.
  std::optional<int64_t> lanes = {};    ///< From 1 to Task::kLanesMax.
  std::optional<bool> pin_cores = {};   ///< Each lane keeps to a processor of its own.
  std::optional<int64_t> connect_deadline_ms = {};  ///< As config::Options has it.
  std::optional<std::string> endpoint_map_path = {};
  std::optional<bool> shared_memory = {};           ///< As config::Options has it.
  std::optional<int64_t> replicas = {};             ///< As config::Options has it.
  std::optional<int64_t> min_insync_replicas = {};  ///< Likewise.
};

/// The value of an environment variable; nullptr when it is not set.
using Environment = std::function<const char*(const char* name)>;

/// Completes the options of a server, whose `job` and `protocol` are set: what was given goes
/// before what the environment says, and that before defaults. With "grpc", whose servers have no
/// data port, only lanes and replicas that were given count, and what the environment says of
/// replicas.
///
/// Variables, all of which may be empty: WORKER_ENABLE_POLLING, NETWORK_WORKER_CORE_NUMBER and
/// WORKER_DISABLE_PIN_CORES for the jobs "worker" and "chief"; PS_REPLICAS and
/// PS_MIN_INSYNC_REPLICAS for "ps"; PS_ENABLE_POLLING, NETWORK_PS_CORE_NUMBER and
/// PS_DISABLE_PIN_CORES for all others; NETWORK_MAX_CONNECTION_TIMEOUT (ms);
/// TF_SEASTAR_ENDPOINT_MAP_PATH. A number of cores beyond those that the process may use counts as
/// these. Without a path, a file ".endpoint_map" in the working directory counts.
///
/// Errors: kInvalidArgument naming option or variable, its value and what it may be.
/// For main() and bindings: nothing below reads the environment.
/// Source: the knobs of DeepRec's StarServer and GRPC++.
Status complete_settings(const ServerSettings& given, const Environment& environment,
                         ServerOptions* options);

/// One of a server's settings as people are told it.
struct SettingReport {
  std::string name;
  std::string value;
  std::string from;  ///< "default", "option", or the variable that says it.
};

/// Those above, of a server that has been completed or filled in by hand.
std::vector<SettingReport> report_settings(const ServerOptions& options);

}  // namespace sidereal::app
