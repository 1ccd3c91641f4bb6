#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/service/follower.h"
#include "sidereal/service/lookup_client.h"
#include "sidereal/service/status_client.h"

/// What python/sidereal/follower.py is made of.
namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using service::FollowedTable;
using service::Follower;
using service::LookupClient;
using service::StatusClient;

using Ids = nb::ndarray<const int64_t, nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(1e3 * seconds));
}

/// "float32", rows, elements of a row.
using Form = std::tuple<std::string, int64_t, int64_t>;

Form form_of(const FollowedTable& table) {
  return {std::string(tensor::name_of(table.dtype)), table.rows, table.dim};
}

using Forms = std::map<std::string, Form>;

Forms forms_of(const std::map<std::string, FollowedTable>& tables) {
  Forms out;
  for (const auto& [name, table] : tables) out[name] = form_of(table);
  return out;
}

/// Its name, whether it is here as a whole, cuts and seconds behind, what broke, and whether it is
/// in sync.
using OfTask = std::tuple<std::string, bool, uint64_t, double, std::string, bool>;

std::vector<OfTask> tasks_of(const std::vector<service::FollowedTask>& tasks) {
  std::vector<OfTask> out;
  for (const service::FollowedTask& one : tasks) {
    out.emplace_back(one.task, one.is_whole, one.cuts_behind,
                     std::chrono::duration<double>(one.behind).count(),
                     one.status.ok() ? "" : base::message_of(one.status), one.is_in_sync);
  }
  return out;
}

Result<std::unique_ptr<Follower>> create(Result<std::unique_ptr<StatusClient>> client,
                                         double limit_s, const std::string& job,
                                         const security::SecurityOptions& security,
                                         const service::FollowOptions& options) {
  SR_RETURN_IF_ERROR(client.status());
  return Follower::create(client->get(), milliseconds_of(limit_s), job, security, options);
}

service::FollowOptions options_of(const std::string& group, const std::string& parts,
                                  std::vector<std::string> tables, double cut_s, bool synchronous) {
  return {.state_group = group,
          .cut = milliseconds_of(cut_s),
          .is_synchronous = synchronous,
          .parts = value_of(service::parts_of(parts)),
          .tables = std::move(tables)};
}

void wait_until_current(Follower& self, double limit_s) {
  std::optional<nb::python_error> raised;
  const Status status = without_gil([&] {
    return self.wait_until_current(milliseconds_of(limit_s), [&raised] {
      const GilAcquired gil;
      if (PyErr_CheckSignals() != 0) raised.emplace();
      return raised.has_value();
    });
  });
  if (raised.has_value()) throw std::move(*raised);
  check(status);
}

void bind_lookup_client(nb::module_& m) {
  nb::class_<LookupClient>(m, "LookupClient", "Asks a follower elsewhere for rows.")
      .def_static(
          "create",
          [](const std::string& address, const security::SecurityOptions& security) {
            return value_of(LookupClient::create(address, security));
          },
          "address"_a, "security"_a)
      .def(
          "look_up",
          [](LookupClient& self, const std::string& table, const Ids& ids, double limit_s) {
            const service::FoundRows found = value_of(without_gil([&] {
              return self.look_up(table, {ids.data(), ids.size()}, milliseconds_of(limit_s));
            }));
            return std::tuple(std::string(tensor::name_of(found.dtype)), found.dim,
                              nb::bytes(found.bytes.data(), found.bytes.size()));
          },
          "table"_a, "ids"_a, "limit_s"_a,
          "(dtype, elements of a row, one row for each id, one behind the other).")
      .def(
          "tables",
          [](LookupClient& self, double limit_s) {
            const LookupClient::Tables found =
                value_of(without_gil([&] { return self.tables(milliseconds_of(limit_s)); }));
            return std::tuple(forms_of(found.tables), tasks_of(found.tasks));
          },
          "limit_s"_a, "({name: (dtype, rows, elements of a row)}, tasks as of Follower).");
}

}  // namespace

void bind_follower(nb::module_& m) {
  bind_lookup_client(m);
  nb::class_<Follower>(m, "Follower", "Copies of the tables of tasks, kept current.")
      .def_static(
          "of_target",
          [](const std::string& target, const std::string& job,
             const security::SecurityOptions& security, double limit_s, const std::string& group,
             const std::string& parts, std::vector<std::string> tables, double cut_s,
             bool synchronous) {
            const service::FollowOptions options =
                options_of(group, parts, std::move(tables), cut_s, synchronous);
            return value_of(without_gil([&] {
              return create(StatusClient::create(target, security, milliseconds_of(limit_s)),
                            limit_s, job, security, options);
            }));
          },
          "target"_a, "job"_a, "security"_a, "limit_s"_a, "group"_a, "parts"_a, "tables"_a,
          "cut_s"_a, "synchronous"_a)
      .def_static(
          "of_cluster",
          [](const cluster::ClusterSpec& cluster, const std::string& job,
             const security::SecurityOptions& security, double limit_s, const std::string& group,
             const std::string& parts, std::vector<std::string> tables, double cut_s,
             bool synchronous) {
            const service::FollowOptions options =
                options_of(group, parts, std::move(tables), cut_s, synchronous);
            return value_of(without_gil([&] {
              return create(StatusClient::create(cluster, security), limit_s, job, security,
                            options);
            }));
          },
          "cluster"_a, "job"_a, "security"_a, "limit_s"_a, "group"_a, "parts"_a, "tables"_a,
          "cut_s"_a, "synchronous"_a)
      .def("wait_until_current", &wait_until_current, "limit_s"_a)
      .def("stop", [](Follower& self) { without_gil([&] { self.stop(); }); })
      .def(
          "tasks",
          [](Follower& self) { return tasks_of(without_gil([&] { return self.take_news(); })); },
          "(task, whether it is here as a whole, cuts and seconds behind, what broke, whether it "
          "is in sync) of each.")
      .def(
          "tables",
          [](const Follower& self) { return forms_of(without_gil([&] { return self.tables(); })); },
          "(dtype, rows, elements of a row) by name.")
      .def(
          "table",
          [](const Follower& self, const std::string& name) {
            return form_of(value_of(without_gil([&] { return self.table(name); })));
          },
          "name"_a)
      .def(
          "look_up",
          [](const Follower& self, const std::string& table, const Ids& ids, const Rows& to) {
            check(without_gil([&] {
              return self.look_up(table, {ids.data(), ids.size()},
                                  {reinterpret_cast<std::byte*>(to.data()), to.size()});
            }));
          },
          "table"_a, "ids"_a, "to"_a, "Puts rows, one behind the other, into the bytes of `to`.");
}

}  // namespace sidereal::python
