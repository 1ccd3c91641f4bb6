#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <tuple>

#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "server_functions.h"
#include "sessions.h"
#include "sidereal/app/server_settings.h"
#include "sidereal/master/placement.h"
#include "sidereal/passes/placement_report.h"
#include "sidereal/service/session.h"
#include "symbol.h"

namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;
using std::chrono::milliseconds;

bool interrupted() {
  const GilAcquired gil;
  return PyErr_CheckSignals() != 0;
}

ir::PlacementOverrides overrides_of(nb::handle given) {
  using Names = std::map<std::string, std::string>;
  const auto names = nb::cast<std::pair<Names, Names>>(given);
  return {.variables = {names.first.begin(), names.first.end()},
          .tasks = {names.second.begin(), names.second.end()}};
}

service::SessionOptions options_of(nb::handle given, const security::SecurityOptions& security) {
  service::SessionOptions out;
  out.allow_soft_placement = nb::cast<bool>(given["allow_soft_placement"]);
  out.log_device_placement = nb::cast<bool>(given["log_device_placement"]);
  out.device_filters = nb::cast<std::vector<std::string>>(given["device_filters"]);
  out.operation_timeout = milliseconds(nb::cast<int64_t>(given["operation_timeout_in_ms"]));
  out.isolate_session_state = nb::cast<bool>(given["isolate_session_state"]);
  out.state_group = nb::cast<std::string>(given["state_group"]);
  out.job = {.name = nb::cast<std::string>(given["lease_name"]),
             .take_over = nb::cast<bool>(given["take_over"]),
             .user = nb::cast<std::string>(given["job_user"])};
  out.compute_dtype = nb::cast<std::string>(given["compute_dtype"]);
  out.tensor_fuse = nb::cast<bool>(given["tensor_fuse"]);
  out.pull_prefetch_ms = nb::cast<std::optional<int64_t>>(given["pull_prefetch_ms"]);
  out.connect_timeout = milliseconds(nb::cast<int64_t>(given["connect_timeout_in_ms"]));
  out.overrides = overrides_of(given["overrides"]);
  out.security = security;
  out.interrupt = interrupted;
  return out;
}

namespace {

using app::Server;
using eager::Engine;
using eager::Value;
using service::Session;

std::unique_ptr<Server> make_server(
    const cluster::ClusterSpec& cluster, const std::string& job, int task,
    const std::string& listen, const security::SecurityOptions& security, int intra_op_threads,
    const std::vector<std::string>& device_filters, nb::handle session_defaults,
    const std::string& protocol, const std::optional<std::string>& endpoint_map_path,
    std::optional<int64_t> lanes, std::optional<bool> polling, std::optional<int64_t> spin_us,
    std::optional<bool> pin_cores, std::optional<int64_t> connect_deadline_ms,
    std::optional<bool> shared_memory, std::optional<int64_t> replicas,
    std::optional<int64_t> min_insync_replicas) {
  app::ServerOptions options{.cluster = cluster,
                             .job = job,
                             .task = task,
                             .listen = listen,
                             .security = security,
                             .protocol = value_of(cluster::parse_protocol(protocol)),
                             .intra_op_threads = intra_op_threads,
                             .device_filters = device_filters,
                             .host_functions = server_functions()};
  if (!session_defaults.is_none()) options.session_defaults = options_of(session_defaults, {});
  check(app::complete_settings(
      {.polling = polling,
       .spin_us = spin_us,
       .lanes = lanes,
       .pin_cores = pin_cores,
       .connect_deadline_ms = connect_deadline_ms,
       .endpoint_map_path = endpoint_map_path,
       .shared_memory = shared_memory,
       .replicas = replicas,
       .min_insync_replicas = min_insync_replicas},
      [](const char* name) { return std::getenv(name); }, &options));
  return value_of(without_gil([&] { return Server::create(options); }));
}

void bind_server(nb::module_& m) {
  m.def(
      "agree_on_protocol",
      [](const std::string& given, const std::string& rpc_layer, const std::string& where) {
        return value_of(cluster::agree_on_protocol(given, rpc_layer, where));
      },
      "given"_a, "rpc_layer"_a, "where"_a, "The one protocol of what two places say, or \"\".");
  m.def(
      "rpc_layer_of",
      [](const std::string& tf_config) { return value_of(cluster::rpc_layer_of(tf_config)); },
      "tf_config"_a, "What a TF_CONFIG says of the protocol, or \"\".");
  nb::class_<Server>(m, "Server", "A member of a cluster.")
      .def_static("create", &make_server, "cluster"_a, "job"_a, "task"_a, nb::kw_only(), "listen"_a,
                  "security"_a, "intra_op_threads"_a, "device_filters"_a,
                  "session_defaults"_a.none(), "protocol"_a, "endpoint_map_path"_a.none(),
                  "lanes"_a.none(), "polling"_a.none(), "spin_us"_a.none(), "pin_cores"_a.none(),
                  "connect_deadline_ms"_a.none(), "shared_memory"_a.none(), "replicas"_a.none(),
                  "min_insync_replicas"_a.none())
      .def_prop_ro("target", &Server::target)
      .def_prop_ro("task", &Server::task)
      .def_prop_ro("cluster", &Server::cluster)
      .def_prop_ro("security", &Server::security)
      .def_prop_ro("data_port", &Server::data_port)
      .def("join", &Server::join, nb::call_guard<GilReleased>(), "seconds"_a,
           "Waits for stop(); False when the seconds have passed first.")
      .def("stop", &Server::stop, nb::call_guard<GilReleased>(), "drain_s"_a);
}

std::unique_ptr<Session> make_session(const std::string& target, const BuildingPtr& graph,
                                      nb::handle given, const security::SecurityOptions& security) {
  const service::SessionOptions options = options_of(given, security);
  const ir::Graph copy = graph->builder().graph();
  return value_of(without_gil([&] { return Session::create(target, copy, options); }));
}

void extend(Session& self, const BuildingPtr& graph) {
  const ir::Graph copy = graph->builder().graph();
  check(without_gil([&] { return self.extend(copy); }));
}

void place(Session& self, const BuildingPtr& graph, nb::handle overrides) {
  const ir::Graph copy = graph->builder().graph();
  const ir::PlacementOverrides where = overrides_of(overrides);
  check(without_gil([&] { return self.extend(copy, where); }));
}

std::pair<std::vector<Value>, std::string> run(Session& self, Engine& engine,
                                               const std::vector<std::string>& feeds,
                                               const std::vector<const Value*>& values,
                                               const std::vector<std::string>& fetches,
                                               const std::vector<std::string>& targets,
                                               int64_t timeout_ms, bool trace,
                                               bool waits_for_pushes) {
  std::vector<Session::Feed> fed;
  for (size_t i = 0; i < feeds.size(); ++i) fed.emplace_back(feeds[i], values[i]->tensor);
  service::RunMetadata metadata;
  std::vector<tensor::Tensor> got = value_of(without_gil([&] {
    return self.run(
        fed, fetches, targets,
        {.timeout = milliseconds(timeout_ms), .trace = trace, .waits_for_pushes = waits_for_pushes},
        &metadata);
  }));
  std::vector<Value> out;
  for (tensor::Tensor& tensor : got) {
    out.push_back(engine.wrap(std::move(tensor)));
  }
  return {std::move(out), std::move(metadata.trace)};
}

void bind_session(nb::module_& m) {
  nb::class_<Session>(m, "RemoteSession", "A session with a master.")
      .def_static("create", &make_session, "target"_a, "graph"_a, "config"_a, "security"_a)
      .def("extend", &extend, "graph"_a)
      .def("place", &place, "graph"_a, "overrides"_a,
           "As extend(); and variables are where ({variable: device}, {task: task}) say.")
      .def("run", &run, "engine"_a, "feeds"_a, "values"_a, "fetches"_a, "targets"_a, "timeout_ms"_a,
           "trace"_a, "waits_for_pushes"_a,
           "The values of `fetches`, and what was traced as elements of Chrome's format.")
      .def("take_placement", &Session::take_placement,
           "What log_device_placement has told since this was last asked.")
      .def("close", [](Session& self) { check(without_gil([&] { return self.close(); })); })
      .def(
          "list_devices",
          [](Session& self) {
            const auto devices = value_of(without_gil([&] { return self.list_devices(); }));
            std::vector<std::tuple<std::string, std::string, int64_t, uint64_t, uint64_t>> out;
            for (const auto& device : devices) {
              out.emplace_back(device.name, device.type, device.memory_bytes, device.incarnation,
                               device.state);
            }
            return out;
          },
          "(name, type, bytes of memory, incarnation, state) of every device.")
      .def_static(
          "reset",
          [](const std::string& target, const std::vector<std::string>& containers,
             nb::handle given, const security::SecurityOptions& security) {
            const service::SessionOptions options = options_of(given, security);
            check(without_gil([&] { return Session::reset(target, containers, options); }));
          },
          "target"_a, "containers"_a, "config"_a, "security"_a);
}

/// What placing a graph on a cluster decides: (devices of the nodes by name, variables, tasks,
/// imbalance, text).
nb::tuple placement(const BuildingPtr& graph, const cluster::ClusterSpec& cluster,
                    const std::string& master, bool allow_soft_placement) {
  const ir::Graph placed = value_of(
      master::place_on_cluster(graph->builder().graph(), cluster,
                               {.master = master, .allow_soft_placement = allow_soft_placement},
                               graph->builder().registry()));
  const passes::PlacementReport report = passes::placement_report(placed);
  nb::dict devices;
  for (const ir::Node& node : placed.nodes()) devices[node.name.c_str()] = node.device;
  nb::list variables;
  for (const passes::PlacedVariable& variable : report.variables) {
    variables.append(nb::make_tuple(variable.name, variable.device, ir::to_string(variable.spec),
                                    variable.bytes));
  }
  nb::list tasks;
  for (const passes::TaskLoad& load : report.tasks) {
    tasks.append(nb::make_tuple(load.task, load.variables, load.bytes, load.nodes));
  }
  return nb::make_tuple(devices, variables, tasks, report.imbalance, passes::to_text(report));
}

}  // namespace

void bind_sessions(nb::module_& m) {
  bind_server(m);
  bind_session(m);
  m.def(
      "placement", &placement, "graph"_a, "cluster"_a, "master"_a, "allow_soft_placement"_a,
      "What placing a graph on a cluster decides: (devices of the nodes by name, variables, tasks, "
      "imbalance, text).");
}

}  // namespace sidereal::python
