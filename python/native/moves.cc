#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "server_functions.h"
#include "sessions.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/job_lease.h"
#include "sidereal/service/variable_moves.h"
#include "sidereal/train/autoscale.h"
#include "sidereal/train/placement.h"

/// Commands to a job that Python holds, and the variables that they move.
namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using cluster::ClusterSpec;
using service::JobCommand;
using std::chrono::milliseconds;

/// Has the job of a name until close(). Thread: that which has the GIL.
class JobLease {
 public:
  explicit JobLease(std::unique_ptr<service::JobLease> impl) : impl_(std::move(impl)) {}
  ~JobLease() { close(); }
  JobLease(const JobLease&) = delete;
  JobLease& operator=(const JobLease&) = delete;

  void close() {
    without_gil([impl = std::move(impl_)]() mutable { impl = nullptr; });
  }
  service::JobLease& get() {
    if (impl_ == nullptr) raise(base::failed_precondition("the lease of the job has been closed"));
    return *impl_;
  }

 private:
  std::unique_ptr<service::JobLease> impl_;
};

std::unique_ptr<JobLease> hold(const ClusterSpec& cluster, const std::string& name,
                               const std::string& user, nb::handle session,
                               const security::SecurityOptions& security) {
  service::SessionOptions options = options_of(session, security);
  options.job.name = name;
  options.job.user = user;
  return std::make_unique<JobLease>(value_of(
      without_gil([&] { return service::JobLease::create(cluster, options.job, options); })));
}

const char* name_of(JobCommand::Kind kind) {
  switch (kind) {
    case JobCommand::Kind::kScale:
      return "scale";
    case JobCommand::Kind::kDrain:
      return "drain";
    case JobCommand::Kind::kRebalance:
      return "rebalance";
  }
  return "";
}

/// Its kind, the number in it, and the whole as it is typed.
using Command = std::tuple<std::string, int, std::string>;

std::optional<Command> next_command(JobLease& self) {
  const std::optional<JobCommand> command = self.get().commands()->next();
  if (!command) return std::nullopt;
  return Command(name_of(command->kind), command->ps, service::to_string(*command));
}

Status failure_of(nb::handle error) {
  if (PyExceptionInstance_Check(error.ptr()) != 0) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    nb::python_error raised;
    return status_of(raised);
  }
  const auto [code, message] = nb::cast<std::tuple<int, std::string>>(error);
  return base::make_status(static_cast<StatusCode>(code), message);
}

void fail(JobLease& self, nb::handle error) {
  Status why = failure_of(error);
  if (why.ok()) why = base::make_status(StatusCode::kUnknown, "it failed, and does not say why");
  self.get().commands()->end(why, "");
}

milliseconds milliseconds_of(double seconds) {
  return milliseconds(static_cast<int64_t>(1e3 * seconds));
}

/// One call after the other, of any threads; what is not committed by close() is given up.
class VariableMoves {
 public:
  explicit VariableMoves(std::unique_ptr<service::VariableMoves> impl) : impl_(std::move(impl)) {}
  ~VariableMoves() { close(); }
  VariableMoves(const VariableMoves&) = delete;
  VariableMoves& operator=(const VariableMoves&) = delete;

  void close() {
    without_gil([this] {
      const std::lock_guard lock(mutex_);
      impl_ = nullptr;
    });
  }
  /// What `call` says of it; other threads run Python meanwhile.
  template <class Call>
  auto with(Call call) {
    return without_gil([&]() -> decltype(call(*impl_)) {
      const std::lock_guard lock(mutex_);
      if (impl_ == nullptr) return base::failed_precondition("the moves have been closed");
      return call(*impl_);
    });
  }

 private:
  std::mutex mutex_;  // Never taken with the GIL.
  std::unique_ptr<service::VariableMoves> impl_;
};

/// See train::Autoscale.
class Autoscale {
 public:
  Autoscale(const std::string& text, int ps) : rules_(value_of(train::parse_autoscale(text, ps))) {}
  std::optional<int> look(double now_s, const std::vector<double>& busy) {
    return rules_.look(now_s, busy);
  }
  void moved(double now_s) { rules_.moved(now_s); }

 private:
  train::Autoscale rules_;
};

using Route = std::tuple<std::string, int, int>;

std::unique_ptr<VariableMoves> begin(const ClusterSpec& cluster, const std::string& state_group,
                                     const std::vector<Route>& routes,
                                     const security::SecurityOptions& security) {
  std::vector<service::VariableRoute> out;
  for (const auto& [name, from, to] : routes) {
    out.push_back({.name = name, .from = from, .to = to});
  }
  const auto made = [&]() -> Result<std::unique_ptr<service::VariableMoves>> {
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<const security::Credentials> credentials,
                        security::Credentials::create(security));
    return service::VariableMoves::begin(cluster, state_group, out, credentials);
  };
  return std::make_unique<VariableMoves>(value_of(without_gil(made)));
}

Result<train::Placement> planned(const std::string& kind, int64_t ps, const train::Spread& now,
                                 const std::vector<double>& loads) {
  if (kind == name_of(JobCommand::Kind::kScale)) {
    return train::scaled(now.variables, now.placement, ps);
  }
  if (kind == name_of(JobCommand::Kind::kDrain)) {
    return train::drained(now.variables, now.placement, ps);
  }
  if (kind == name_of(JobCommand::Kind::kRebalance)) {
    return train::rebalanced(now.variables, now.placement, loads);
  }
  return base::invalid_argument("'{}' is no command: scale, drain or rebalance", kind);
}

std::tuple<std::vector<int>, std::vector<Route>> spread(
    const std::string& kind, int64_t ps, int cluster_ps, const std::vector<int>& used,
    const std::vector<std::tuple<std::string, int64_t, int>>& variables,
    const std::vector<double>& loads) {
  std::vector<train::HeldVariable> placed;
  for (const auto& [name, bytes, task] : variables) {
    placed.push_back({.name = name, .bytes = bytes, .task = task});
  }
  const train::Spread now = value_of(train::spread_of(cluster_ps, used, placed));
  const train::Placement then = value_of(planned(kind, ps, now, loads));
  std::vector<Route> routes;
  for (const train::PartMove& move : train::moves_between(now.variables, now.placement, then)) {
    routes.emplace_back(move.name, move.from, move.to);
  }
  return {then.ps, std::move(routes)};
}

}  // namespace

void bind_moves(nb::module_& m) {
  nb::class_<JobLease>(m, "JobLease", "The right to be the job of a name, and its commands.")
      .def_static("create", &hold, "cluster"_a, "name"_a, "user"_a, "session"_a, "security"_a)
      .def_prop_ro("name", [](JobLease& self) { return self.get().name(); })
      .def(
          "check", [](JobLease& self) { check(self.get().check()); },
          "Raises why it has ended, if it has.")
      .def("next_command", &next_command,
           "(kind, ps, text) of one that has come; None: there is none, or one is under way. From "
           "the first call on the job takes commands.")
      .def("is_cancelled", [](JobLease& self) { return self.get().commands()->is_cancelled(); })
      .def(
          "tell",
          [](JobLease& self, int64_t bytes, int64_t bytes_all) {
            self.get().commands()->tell({.bytes = bytes, .bytes_all = bytes_all});
          },
          "bytes"_a, "bytes_all"_a)
      .def(
          "end",
          [](JobLease& self, const std::string& text) { self.get().commands()->end({}, text); },
          "text"_a)
      .def("fail", &fail, "error"_a, "An exception, or the code and message of one.")
      .def("close", &JobLease::close);
  nb::class_<VariableMoves>(m, "VariableMoves", "Variables on their way to other ps tasks.")
      .def_static("begin", &begin, "cluster"_a, "state_group"_a, "routes"_a, "security"_a)
      .def(
          "progress",
          [](VariableMoves& self) {
            const service::MoveProgress now =
                value_of(self.with([](service::VariableMoves& moves) { return moves.progress(); }));
            return std::tuple(now.bytes, now.is_current);
          },
          "(bytes that are there, whether all are but for what changed lately).")
      .def(
          "take",
          [](VariableMoves& self, double limit_s) {
            check(self.with([&](service::VariableMoves& moves) {
              return moves.take(milliseconds_of(limit_s));
            }));
          },
          "limit_s"_a)
      .def("commit",
           [](VariableMoves& self) {
             check(self.with([](service::VariableMoves& moves) { return moves.commit(); }));
           })
      .def("close", &VariableMoves::close);
  nb::class_<Autoscale>(m, "Autoscale", "The rules by which a job is on more servers, or fewer.")
      .def(nb::init<const std::string&, int>(), "text"_a, "ps"_a,
           "\"2-8\" or \"off\", of a cluster of so many.")
      .def("look", &Autoscale::look, "now_s"_a, "busy"_a,
           "How many it should be on; None: as many as there are, which were busy for such shares "
           "of the time.")
      .def("moved", &Autoscale::moved, "now_s"_a);
  m.def(
      "moved_text",
      [](int64_t parts, int64_t bytes, size_t ps_before, size_t ps, double lasted_s,
         double paused_s) {
        return train::to_string({.parts = parts,
                                 .bytes = bytes,
                                 .ps_before = ps_before,
                                 .ps = ps,
                                 .lasted_s = lasted_s,
                                 .paused_s = paused_s});
      },
      "parts"_a, "bytes"_a, "ps_before"_a, "ps"_a, "lasted_s"_a, "paused_s"_a,
      "What came of a command, in a sentence.");
  m.def("spread", &spread, "kind"_a, "ps"_a, "cluster_ps"_a, "used"_a, "variables"_a, "loads"_a,
        "What a command makes of (name, bytes, task) of variables: the tasks that they are spread "
        "over then, and (name, from, to) of those that move.");
}

}  // namespace sidereal::python
