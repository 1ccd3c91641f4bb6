#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <utility>

#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "sessions.h"
#include "sidereal/app/cluster_coordinator.h"
#include "symbol.h"

namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using app::RemoteValue;
using eager::Engine;
using eager::Value;
using std::chrono::milliseconds;

/// Raises what the coordinator has classes of its own for.
void check_coordinated(const Status& status) {
  const char* const name = coord::is_input_error(status)  ? "ClosureInputError"
                           : coord::is_ps_failure(status) ? "PSUnavailableError"
                                                          : nullptr;
  if (status.ok() || name == nullptr || PyErr_Occurred() != nullptr) return check(status);
  const nb::object error =
      nb::module_::import_("sidereal.errors").attr(name)(base::message_of(status));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

template <class T>
T coordinated(Result<T> result) {
  check_coordinated(result.status());
  return *std::move(result);
}

/// Ends by close() at the latest when it goes, and then lets other threads run Python.
class Coordinator {
 public:
  explicit Coordinator(std::shared_ptr<app::ClusterCoordinator> impl) : impl_(std::move(impl)) {}
  ~Coordinator() { close(); }
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  void close() {
    without_gil([this] { impl_ = nullptr; });
  }
  app::ClusterCoordinator& get() { return *shared(); }
  std::shared_ptr<app::ClusterCoordinator> shared() {
    check(impl_ == nullptr ? base::failed_precondition("the coordinator has been closed")
                           : Status());
    return impl_;
  }

 private:
  std::shared_ptr<app::ClusterCoordinator> impl_;
};

/// The incarnation, and the state, of app::PsLife.
using Life = std::pair<uint64_t, uint64_t>;

std::unique_ptr<Coordinator> make(const std::vector<std::string>& workers,
                                  const std::vector<Life>& ps, nb::handle session,
                                  const security::SecurityOptions& security, nb::handle options) {
  app::ClusterCoordinatorOptions out;
  out.workers = workers;
  out.ps = static_cast<int>(ps.size());
  for (const auto& [incarnation, state] : ps) {
    out.ps_lives.push_back({.incarnation = incarnation, .state = state});
  }
  out.session = options_of(session, security);
  const auto number = [&](const char* name) { return nb::cast<int64_t>(options[name]); };
  constexpr int64_t kNsOfMs = 1'000'000;
  out.scheduler.queue_max = static_cast<size_t>(number("queue_max"));
  out.scheduler.in_flight_max = static_cast<int>(number("in_flight_max"));
  out.consistency = nb::cast<std::string>(options["consistency"]);
  out.step_target = nb::cast<std::string>(options["step_target"]);
  out.step_ps = static_cast<int>(number("step_ps"));
  out.scheduler.transient_ps_failures = static_cast<int>(number("transient_ps_failures"));
  out.scheduler.transient_timeouts = static_cast<int>(number("transient_timeouts"));
  out.scheduler.failure_window_ns = number("failure_window_ms") * kNsOfMs;
  out.scheduler.start_delay_ns = number("start_delay_ms") * kNsOfMs;
  out.scheduler.start_delay_max_ns = number("start_delay_max_ms") * kNsOfMs;
  out.scheduler.report_ns = number("report_ms") * kNsOfMs;
  out.closure_timeout = milliseconds(number("closure_timeout_ms"));
  out.ps_timeout = milliseconds(number("ps_timeout_ms"));
  out.restores_ps = number("restores_ps") != 0;
  out.effectively_once = number("effectively_once") != 0;
  return std::make_unique<Coordinator>(
      value_of(without_gil([&] { return app::ClusterCoordinator::create(std::move(out)); })));
}

std::vector<tensor::Tensor> tensors_of(const std::vector<const Value*>& values) {
  std::vector<tensor::Tensor> out;
  out.reserve(values.size());
  for (const Value* value : values) out.push_back(value->tensor);
  return out;
}

std::shared_ptr<RemoteValue> schedule(Coordinator& self, uint64_t plan,
                                      const std::vector<const Value*>& values,
                                      const std::vector<coord::ResourceId>& resources,
                                      int64_t timeout_ms) {
  app::ClusterCoordinator& impl = self.get();
  std::vector<tensor::Tensor> feeds = tensors_of(values);
  return coordinated(without_gil([&] {
    return impl.schedule(plan, std::move(feeds), resources, milliseconds(timeout_ms), interrupted);
  }));
}

std::vector<Value> wait(RemoteValue& self, Engine& engine, int64_t timeout_ms) {
  std::vector<tensor::Tensor> got =
      coordinated(without_gil([&] { return self.wait(milliseconds(timeout_ms), interrupted); }));
  std::vector<Value> out;
  for (tensor::Tensor& tensor : got) out.push_back(engine.wrap(std::move(tensor)));
  return out;
}

nb::dict timings(Coordinator& self) {
  nb::dict out;
  for (size_t i = 0; i < app::kTimings.size(); ++i) {
    const metrics::HistogramSnapshot got = self.get().timing(static_cast<app::Timing>(i));
    out[nb::str(app::kTimings[i].data(), app::kTimings[i].size())] =
        std::make_tuple(got.count, got.sum, got.quantile(0.5), got.quantile(0.99), got.max);
  }
  return out;
}

/// What closures are made of.
void bind_plans(nb::class_<Coordinator>* coordinator) {
  (*coordinator)
      .def(
          "set_graph",
          [](Coordinator& self, const BuildingPtr& graph) {
            self.get().set_graph(graph->builder().graph());
          },
          "graph"_a)
      .def(
          "add_plan",
          [](Coordinator& self, std::vector<std::string> feeds, std::vector<std::string> fetches,
             std::vector<std::string> targets, std::vector<uint64_t> steps, bool tells_worker) {
            return self.get().add_plan({.feeds = std::move(feeds),
                                        .fetches = std::move(fetches),
                                        .targets = std::move(targets)},
                                       {.steps = std::move(steps), .tells_worker = tells_worker});
          },
          "feeds"_a, "fetches"_a, "targets"_a, "steps"_a, "tells_worker"_a,
          "A plan of the graph, by number.")
      .def(
          "add_step",
          [](Coordinator& self, std::vector<std::string> feeds, std::vector<std::string> targets,
             std::vector<std::string> forget_feeds, std::vector<std::string> forget_targets) {
            return self.get().add_step(
                {.update = {.feeds = std::move(feeds), .targets = std::move(targets)},
                 .forget = {.feeds = std::move(forget_feeds),
                            .targets = std::move(forget_targets)}});
          },
          "feeds"_a, "targets"_a, "forget_feeds"_a, "forget_targets"_a,
          "What plans may contribute to, by number.")
      .def(
          "feed_step",
          [](Coordinator& self, uint64_t step, const std::vector<const Value*>& values) {
            check(self.get().feed_step(step, tensors_of(values)));
          },
          "step"_a, "values"_a, "Values for the feeds of its update but the first, from now on.");
}

/// What moves variables to other ps.
void bind_holding(nb::class_<Coordinator>* coordinator) {
  (*coordinator)
      .def(
          "hold",
          [](Coordinator& self, int64_t timeout_ms, const std::function<bool()>& goes_on) {
            const auto interrupt = [&] {
              const GilAcquired gil;
              return !goes_on();
            };
            // It may be closed meanwhile, and ends when this does.
            check(without_gil([&, impl = self.shared()]() mutable {
              Status held = impl->hold(milliseconds(timeout_ms), interrupt);
              impl = nullptr;
              return held;
            }));
          },
          "timeout_ms"_a, "goes_on"_a,
          "Lets nothing begin on workers, and waits until nothing runs there.")
      .def(
          "place",
          [](Coordinator& self, nb::handle overrides) {
            self.get().place(overrides_of(overrides));
          },
          "overrides"_a, "While it is held: where variables are, as of RemoteSession.place().")
      .def("go_on", [](Coordinator& self) {
        app::ClusterCoordinator& impl = self.get();
        without_gil([&] { impl.go_on(); });
      });
}

}  // namespace

void bind_coordinator(nb::module_& m) {
  nb::class_<RemoteValue>(m, "RemoteValue", "The values of a closure, once it has ended.")
      .def_prop_ro("is_ready", &RemoteValue::is_ready)
      .def("wait", &wait, "engine"_a, "timeout_ms"_a);
  nb::class_<Coordinator> coordinator(m, "ClusterCoordinator",
                                      "Runs closures on the workers of a cluster.");
  bind_holding(&coordinator);
  bind_plans(&coordinator);
  coordinator
      .def_static("create", &make, "workers"_a, "ps"_a, "session"_a, "security"_a, "options"_a)
      .def("schedule", &schedule, "plan"_a, "values"_a, "resources"_a, "timeout_ms"_a)
      .def(
          "schedule_on",
          [](Coordinator& self, int worker, uint64_t plan, const std::vector<const Value*>& values,
             const std::vector<coord::ResourceId>& resources, bool waits) {
            app::ClusterCoordinator& impl = self.get();
            std::vector<tensor::Tensor> feeds = tensors_of(values);
            return coordinated(without_gil([&] {
              return impl.schedule_on(worker, plan, std::move(feeds), resources, waits);
            }));
          },
          "worker"_a, "plan"_a, "values"_a, "resources"_a, "waits"_a)
      .def(
          "join",
          [](Coordinator& self, int64_t timeout_ms) {
            app::ClusterCoordinator& impl = self.get();
            check_coordinated(
                without_gil([&] { return impl.join(milliseconds(timeout_ms), interrupted); }));
          },
          "timeout_ms"_a)
      .def("done",
           [](Coordinator& self) {
             app::ClusterCoordinator& impl = self.get();
             return coordinated(without_gil([&] { return impl.done(interrupted); }));
           })
      .def(
          "create_resource",
          [](Coordinator& self, uint64_t make, uint64_t drop) {
            return self.get().create_resource(make, drop);
          },
          "make"_a, "drop"_a)
      .def(
          "release_resource",
          [](Coordinator& self, coord::ResourceId resource) {
            self.get().release_resource(resource);
          },
          "resource"_a)
      .def(
          "figures",
          [](Coordinator& self) {
            const app::ClusterCoordinator::Figures got = self.get().figures();
            return std::make_tuple(got.queued, got.in_flight, got.workers_found, got.retried,
                                   got.done, got.steps);
          },
          "(closures queued, in flight, workers found, closures that were tried again, that have "
          "ended well, and steps)")
      .def(
          "next_lost_ps",
          [](Coordinator& self) -> std::optional<std::pair<int, Life>> {
            const auto lost = self.get().next_lost_ps();
            if (!lost) return std::nullopt;
            return std::make_pair(lost->task, Life(lost->life.incarnation, lost->life.state));
          },
          "(task, (incarnation, state)) of a ps that has lost what it held; None: there is none")
      .def(
          "ps_restored",
          [](Coordinator& self, int task, const Life& life) {
            const auto& [incarnation, state] = life;
            self.get().ps_restored(
                {.task = task, .life = {.incarnation = incarnation, .state = state}});
          },
          "task"_a, "life"_a)
      .def(
          "ps_failed",
          [](Coordinator& self, int task, const std::string& why) {
            self.get().ps_failed(task, base::unavailable("{}", why));
          },
          "task"_a, "why"_a)
      .def(
          "record_tracing",
          [](Coordinator& self, int64_t ns) {
            self.get().record(app::Timing::kFunctionTracing, std::chrono::nanoseconds(ns));
          },
          "ns"_a)
      .def("timings", &timings, "{name: (count, sum, p50, p99, max)}, in ns")
      .def("close", &Coordinator::close);
}

}  // namespace sidereal::python
