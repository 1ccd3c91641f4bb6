#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "sidereal/app/running_clusters.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/ir/device_spec.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/hot_rows.h"
#include "sidereal/service/silence.h"
#include "sidereal/service/staleness.h"
#include "sidereal/sys/posix/control_groups.h"

namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using cluster::ClusterSpec;
using ir::DeviceSpec;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(1e3 * seconds));
}

/// The least value of a bucket, its greatest, and how many there were.
using Bucket = std::tuple<int64_t, int64_t, int64_t>;

std::vector<Bucket> buckets_of(const metrics::HistogramSnapshot& seen) {
  std::vector<Bucket> out;
  int64_t least = 0;
  for (size_t i = 0; i < seen.counts.size(); ++i) {
    const int64_t most = metrics::Histogram::bucket_limit(i);
    if (seen.counts[i] > 0) out.emplace_back(least, most, seen.counts[i]);
    least = most + 1;
  }
  return out;
}

std::vector<service::TaskReport> ask(service::StatusClient& self, double limit_s,
                                     const std::string& job) {
  const nb::gil_scoped_release release;
  return self.ask(milliseconds_of(limit_s), job);
}

/// A share of calls and how much more it may be; None where it is not known.
using Share = std::optional<std::pair<double, double>>;

Share share_of(const std::optional<service::RowShare>& share) {
  return share.has_value() ? Share({share->at_least, share->error}) : std::nullopt;
}

void bind_hot_rows(nb::class_<service::StatusClient>* status) {
  status->def(
      "hot_rows",
      [](service::StatusClient& self, double limit_s, int rows, const std::string& parts) {
        auto found = [&]() -> Result<std::vector<service::HotTable>> {
          const nb::gil_scoped_release release;
          SR_ASSIGN_OR_RETURN(const service::Parts how, service::parts_of(parts));
          const auto reports = self.ask(milliseconds_of(limit_s), {}, {.hot_rows = rows});
          return service::hot_tables_of(reports, static_cast<size_t>(std::max(rows, 0)), how);
        }();
        std::vector<std::tuple<std::string, std::string, std::optional<int64_t>,
                               std::optional<int64_t>, int64_t, std::string, int, Share, Share>>
            out;
        for (const service::HotTable& table : value_of(std::move(found))) {
          for (const service::HotRow& row : table.rows) {
            out.emplace_back(table.group, table.table, row.row, row.part, row.row_of_part, row.task,
                             row.lane, share_of(row.pulls), share_of(row.pushes));
          }
        }
        return out;
      },
      "limit_s"_a, "rows"_a, "parts"_a,
      "(group, table, row of the table or None, part or None, row of the part, task, lane, share "
      "of "
      "pulls and its error or None, the same of pushes) of the rows of each table that are used "
      "most.");
}

void bind_figure(nb::class_<service::StatusClient>* status) {
  status->def(
      "figure",
      [](service::StatusClient& self, double limit_s, const std::string& job,
         const std::string& name) {
        std::vector<std::tuple<std::string, std::optional<int64_t>, int64_t>> out;
        for (const service::TaskReport& report : ask(self, limit_s, job)) {
          std::optional<int64_t> value;
          if (report.status.ok()) value = report.figures.value(name);
          const auto count = std::ranges::count_if(
              report.figures.all(), [&](const auto& one) { return one.second.what.name == name; });
          out.emplace_back(report.task, value, count);
        }
        return out;
      },
      "limit_s"_a, "job"_a, "name"_a,
      "(task, its figure of that name or, where it does not answer, None, and of how many labels "
      "that is the sum) of each of a job.");
}

void bind_status(nb::module_& m) {
  using service::StatusClient;
  nb::class_<StatusClient> status(m, "StatusClient",
                                  "Asks the tasks of a cluster for their figures.");
  bind_hot_rows(&status);
  bind_figure(&status);
  status
      .def_static(
          "create",
          [](const std::string& target, const security::SecurityOptions& security, double limit_s) {
            auto made = [&] {
              const nb::gil_scoped_release release;
              return StatusClient::create(target, security, milliseconds_of(limit_s));
            }();
            return value_of(std::move(made));
          },
          "target"_a, "security"_a, "limit_s"_a)
      .def_prop_ro(
          "cluster", [](const StatusClient& self) { return self.cluster(); },
          "Who is in it, as the server said that was asked first.")
      .def(
          "staleness",
          [](StatusClient& self, double limit_s) {
            std::vector<service::Staleness> found;
            {
              const nb::gil_scoped_release release;
              found = service::staleness_of(self.ask(milliseconds_of(limit_s)));
            }
            std::vector<std::tuple<std::string, std::string, int64_t, std::vector<Bucket>>> out;
            for (const service::Staleness& each : found) {
              out.emplace_back(each.table, each.worker, each.seen.sum, buckets_of(each.seen));
            }
            return out;
          },
          "limit_s"_a,
          "(table, worker, sum, [(least, greatest, how many)]) of each table and worker.")
      .def(
          "unsaved",
          [](StatusClient& self, double limit_s, const std::string& job) {
            std::vector<service::Unsaved> found;
            {
              const nb::gil_scoped_release release;
              found = service::unsaved_of(self.ask(milliseconds_of(limit_s), job));
            }
            std::vector<std::tuple<std::string, uint64_t, std::string, int64_t, int64_t>> out;
            for (const service::Unsaved& each : found) {
              out.emplace_back(each.task, each.incarnation, each.table, each.pushes, each.rows);
            }
            return out;
          },
          "limit_s"_a, "job"_a,
          "(task, incarnation, table, pushes, rows) of what no checkpoint has, of each task of the "
          "job that answers and each of its tables.")
      .def(
          "pushed",
          [](StatusClient& self, double limit_s, const std::string& job) {
            const std::vector<service::TaskReport> reports = ask(self, limit_s, job);
            using OfTable = std::tuple<std::string, int64_t, int64_t>;
            std::map<std::string, std::vector<OfTable>> held;
            for (service::Unsaved& each : service::unsaved_of(reports)) {
              held[each.task].emplace_back(each.table, each.held_pushes, each.held_rows);
            }
            using OfLane = std::tuple<uint64_t, int, int64_t, int64_t, int64_t>;
            std::vector<
                std::tuple<std::string, uint64_t, std::vector<OfTable>, std::vector<OfLane>>>
                out;
            for (const service::TaskReport& report : reports) {
              std::vector<OfLane> answered;
              for (const resources::PushedSoFar& one : report.answered) {
                answered.emplace_back(one.life, one.lane, one.number, one.pushes, one.rows);
              }
              const uint64_t life = report.status.ok() ? report.incarnation : 0;
              out.emplace_back(report.task, life, held[report.task], std::move(answered));
            }
            return out;
          },
          "limit_s"_a, "job"_a,
          "Of each task of the job, or of all: (task, incarnation or, of one that does not answer, "
          "0, [(table, pushes, rows)] that its variables have in them, [(incarnation, lane, number "
          "of the latest push, pushes, rows)] that others have answered to it).")
      .def(
          "taken",
          [](StatusClient& self, double limit_s, const std::string& job) {
            const std::vector<service::TaskReport> reports = ask(self, limit_s, job);
            using OfLane = std::tuple<uint64_t, int64_t, int64_t>;
            std::vector<std::tuple<std::string, uint64_t, std::string, double, int64_t, int64_t,
                                   int64_t, std::vector<OfLane>>>
                out;
            for (const service::TaskReport& report : reports) {
              if (!report.status.ok()) continue;
              const service::TakenCopy one = report.taken.value_or(service::TakenCopy());
              std::vector<OfLane> pushed;
              for (const resources::PushedSoFar& each : one.pushed) {
                pushed.emplace_back(each.life, each.pushes, each.rows);
              }
              out.emplace_back(report.task, report.incarnation, one.from, one.seconds,
                               one.variables, one.rows, one.bytes, std::move(pushed));
            }
            return out;
          },
          "limit_s"_a, "job"_a,
          "(task, incarnation, task that had it, seconds, variables, rows, bytes, [(incarnation, "
          "pushes, rows)] that are in it) of what tasks of the job that answer have from a "
          "standby; of no task: nothing.");
}

void bind_security(nb::module_& m) {
  nb::class_<security::SecurityOptions>(m, "SecurityOptions", "Who may connect.")
      .def(
          "__init__",
          [](security::SecurityOptions* self, const std::string& secret,
             const std::string& secret_file, const std::string& certificate_file,
             const std::string& key_file, const std::string& ca_file, bool insecure) {
            new (self) security::SecurityOptions{secret,   secret_file, certificate_file,
                                                 key_file, ca_file,     insecure};
          },
          nb::kw_only(), "secret"_a = "", "secret_file"_a = "", "certificate_file"_a = "",
          "key_file"_a = "", "ca_file"_a = "", "insecure"_a = false);
}

void bind_cluster_spec(nb::module_& m) {
  nb::class_<ClusterSpec>(m, "ClusterSpec", "The jobs of a cluster.")
      .def(nb::init<>())
      .def_static(
          "from_json",
          [](const std::string& text) { return value_of(ClusterSpec::from_json(text)); }, "text"_a)
      .def("to_json", &ClusterSpec::to_json)
      .def(
          "add_job",
          [](ClusterSpec& self, const std::string& name, ClusterSpec::Tasks tasks) {
            check(self.add_job(name, std::move(tasks)));
          },
          "name"_a, "tasks"_a)
      .def_prop_ro("jobs", &ClusterSpec::jobs)
      .def(
          "tasks",
          [](const ClusterSpec& self, const std::string& job) { return value_of(self.tasks(job)); },
          "job"_a)
      .def(
          "is_dense",
          [](const ClusterSpec& self, const std::string& job) {
            return value_of(self.is_dense(job));
          },
          "job"_a)
      .def(
          "job_tasks",
          [](const ClusterSpec& self, const std::string& job) {
            return value_of(self.job_tasks(job));
          },
          "job"_a)
      .def(
          "task_address",
          [](const ClusterSpec& self, const std::string& job, int index) {
            return value_of(self.task_address(job, index));
          },
          "job"_a, "index"_a)
      .def("__eq__", [](const ClusterSpec& a, const ClusterSpec& b) { return a == b; })
      .def("__str__", &ClusterSpec::to_string);
}

void bind_device_spec(nb::module_& m) {
  nb::class_<DeviceSpec>(m, "DeviceSpec", "A name of a device, or a part of one.")
      .def(
          "__init__",
          [](DeviceSpec* self, std::optional<std::string> job, std::optional<int> replica,
             std::optional<int> task, std::optional<std::string> device_type,
             std::optional<int> device_index) {
            const DeviceSpec made{std::move(job), replica, task, std::move(device_type),
                                  device_index};
            // What cannot be written as a name is no device.
            if (value_of(DeviceSpec::parse(made.to_string())) != made) {
              check(base::invalid_argument("'{}' is no name of a device", made.to_string()));
            }
            new (self) DeviceSpec(made);
          },
          "job"_a = nb::none(), "replica"_a = nb::none(), "task"_a = nb::none(),
          "device_type"_a = nb::none(), "device_index"_a = nb::none())
      .def_static(
          "from_string", [](const std::string& text) { return value_of(DeviceSpec::parse(text)); },
          "spec"_a)
      .def_ro("job", &DeviceSpec::job)
      .def_ro("replica", &DeviceSpec::replica)
      .def_ro("task", &DeviceSpec::task)
      .def_ro("device_type", &DeviceSpec::device_type)
      .def_ro("device_index", &DeviceSpec::device_index)
      .def("to_string", &DeviceSpec::to_string)
      .def("merged", &DeviceSpec::merged, "other"_a)
      .def("__eq__", [](const DeviceSpec& a, const DeviceSpec& b) { return a == b; });
}

void bind_silence(nb::module_& m) {
  using service::SilenceWatch;
  nb::class_<SilenceWatch>(m, "SilenceWatch", "Finds tasks that hang.")
      .def(
          "look",
          [](SilenceWatch& self) {
            std::vector<std::tuple<std::string, int64_t, double>> out;
            for (const service::SilentTask& one : without_gil([&] { return self.look(); })) {
              out.emplace_back(one.task, one.pid, one.silent_s);
            }
            return out;
          },
          "Asks all tasks: (task, process, seconds) of those that answer no more.");
  m.def(
      "watch_silence",
      [](const ClusterSpec& cluster, const security::SecurityOptions& security, double silence_s) {
        const auto silence = std::chrono::duration_cast<std::chrono::milliseconds>(
            std::chrono::duration<double>(silence_s));
        return value_of(SilenceWatch::create(cluster, security, silence));
      },
      "cluster"_a, "security"_a, "silence_s"_a);
}

void bind_announcement(nb::module_& m) {
  const nb::class_<app::ClusterAnnouncement> announcement(m, "Announcement",
                                                          "Lasts as long as the object.");
  m.def("announce_cluster", app::announce_cluster, "cluster"_a, "secret"_a,
        "Lets `sidereal top` of this user find a cluster; None where the system cannot.");
  m.def(
      "memory_kills", [] { return sys::posix::memory_kills(); },
      "How many processes of this control group the kernel has killed for want of memory.");
}

}  // namespace

void bind_cluster(nb::module_& m) {
  bind_security(m);
  bind_status(m);
  bind_cluster_spec(m);
  bind_silence(m);
  bind_announcement(m);
  bind_device_spec(m);
}

}  // namespace sidereal::python
