#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>

#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "reading.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/data/prefetch.h"
#include "sidereal/eager/engine.h"
#include "sidereal/service/session.h"

// Loops of sessions, and the batches that feed one of this process.

namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using data::PrefetchingReader;
using eager::Engine;
using eager::Value;
using service::Session;
using std::chrono::milliseconds;
using task::LoopOptions;
using task::LoopProgress;

task::Keep keep_of(const std::string& name) {
  if (name == "mean") return task::Keep::kMean;
  if (name == "series") return task::Keep::kSeries;
  if (name == "each") return task::Keep::kEach;
  if (name == "last") return task::Keep::kLast;
  check(base::invalid_argument("keep is '{}'; it is mean, series, each or last", name));
  return task::Keep::kMean;
}

LoopOptions options_of(nb::handle given, const std::vector<const Value*>& constants) {
  LoopOptions out;
  const auto fetches = nb::cast<std::vector<std::pair<std::string, std::string>>>(given["fetches"]);
  for (const auto& [name, keep] : fetches) {
    out.fetches.push_back({.name = name, .keep = keep_of(keep)});
  }
  out.targets = nb::cast<std::vector<std::string>>(given["targets"]);
  out.source = nb::cast<std::string>(given["source"]);
  out.columns = nb::cast<std::vector<std::pair<std::string, std::string>>>(given["columns"]);
  const auto names = nb::cast<std::vector<std::string>>(given["constants"]);
  for (size_t i = 0; i < names.size(); ++i) {
    out.constants.emplace_back(names[i], constants.at(i)->tensor);
  }
  out.kept_columns = nb::cast<std::vector<std::string>>(given["kept_columns"]);
  out.batch_size = nb::cast<int64_t>(given["batch_size"]);
  out.drop_partial = nb::cast<bool>(given["drop_partial"]);
  out.first_epoch = nb::cast<int64_t>(given["first_epoch"]);
  out.epochs = nb::cast<int64_t>(given["epochs"]);
  out.part_index = nb::cast<int64_t>(given["part_index"]);
  out.part_count = nb::cast<int64_t>(given["part_count"]);
  out.steps = nb::cast<int64_t>(given["steps"]);
  out.steps_in_flight = nb::cast<int64_t>(given["steps_in_flight"]);
  out.lanes = nb::cast<int64_t>(given["lanes"]);
  out.first_step = nb::cast<uint64_t>(given["first_step"]);
  out.trace_first = nb::cast<uint64_t>(given["trace_first"]);
  out.trace_end = nb::cast<uint64_t>(given["trace_end"]);
  out.auc_fetch = nb::cast<int64_t>(given["auc_fetch"]);
  out.auc_labels = nb::cast<std::string>(given["auc_labels"]);
  out.step_timeout = milliseconds(nb::cast<int64_t>(given["step_timeout_ms"]));
  return out;
}

nb::dict to_dict(const LoopProgress& progress) {
  constexpr double kNs = 1e-9;
  nb::dict out;
  out["steps"] = progress.steps;
  out["rows"] = progress.rows;
  out["rows_skipped"] = progress.rows_skipped;
  out["first_skipped"] = progress.first_skipped;
  out["fraction"] = progress.fraction;
  out["seconds"] = static_cast<double>(progress.elapsed_ns) * kNs;
  out["computed_s"] = static_cast<double>(progress.computed_ns) * kNs;
  out["waited_s"] = static_cast<double>(progress.waited_ns) * kNs;
  out["waited_for_data_s"] = static_cast<double>(progress.waited_for_data_ns) * kNs;
  out["bytes_in"] = progress.bytes_in;
  out["bytes_out"] = progress.bytes_out;
  out["auc"] = progress.auc;
  nb::list scalars;
  for (const task::LoopScalar& scalar : progress.scalars) {
    scalars.append(nb::make_tuple(scalar.sum, scalar.last, scalar.steps));
  }
  out["scalars"] = scalars;
  return out;
}

/// Calls a Python function while others wait without the interpreter's lock; after an exception,
/// which the caller raises, no more.
template <class Call>
void call_python(bool* failed, Call call) {
  const GilAcquired gil;
  if (*failed) return;
  try {
    call();
  } catch (nb::python_error& error) {
    error.restore();
    *failed = true;
  }
}

/// (progress, series by fetch, last value by fetch or None, traces).
nb::tuple run_loop(Session& self, Engine& engine, nb::handle given,
                   const std::vector<const Value*>& constants, const nb::object& on_progress,
                   const nb::object& on_values) {
  const LoopOptions options = options_of(given, constants);
  bool failed = false;
  task::LoopObserver observer;
  if (!on_progress.is_none()) {
    observer.on_progress = [&](const LoopProgress& progress) {
      call_python(&failed, [&] { on_progress(to_dict(progress)); });
    };
  }
  observer.on_values = [&](task::LoopValues values) {
    call_python(&failed, [&] {
      nb::list out;
      for (auto& [index, tensor] : values.values) {
        out.append(nb::make_tuple(index, engine.wrap(std::move(tensor))));
      }
      on_values(values.lane, values.step, values.rows, out);
    });
  };
  observer.is_cancelled = [&] { return failed; };
  Result<task::LoopResult> result =
      reading_without_gil([&] { return self.run_loop(options, observer); });
  if (failed) throw nb::python_error();
  task::LoopResult got = value_of(std::move(result));
  nb::list last;
  for (tensor::Tensor& tensor : got.last) {
    last.append(tensor.defined() ? nb::cast(engine.wrap(std::move(tensor))) : nb::none());
  }
  nb::list series;
  for (const std::vector<double>& numbers : got.series) series.append(nb::cast(numbers));
  return nb::make_tuple(to_dict(got.progress), series, last, got.traces);
}

/// Batches of a data set, read ahead.
class Batches {
 public:
  static std::unique_ptr<Batches> open(const std::string& spec, nb::handle given) {
    data::PrefetchOptions options;
    options.read.part = {.index = nb::cast<int64_t>(given["part_index"]),
                         .count = nb::cast<int64_t>(given["part_count"])};
    options.read.epoch = nb::cast<int64_t>(given["first_epoch"]);
    options.read.batch_size = nb::cast<int64_t>(given["batch_size"]);
    options.read.drop_partial = nb::cast<bool>(given["drop_partial"]);
    options.epochs = nb::cast<int64_t>(given["epochs"]);
    auto out = std::make_unique<Batches>();
    out->reader_ =
        value_of(reading_without_gil([&]() -> Result<std::unique_ptr<PrefetchingReader>> {
          SR_ASSIGN_OR_RETURN(const data::DataSpec parsed, data::spec_from_json(spec));
          return PrefetchingReader::open(parsed, options);
        }));
    return out;
  }

  /// (rows, columns by name), or None after the last batch.
  nb::object next(Engine& engine) {
    constexpr std::chrono::seconds kPatience(300);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    const bool got = value_of(without_gil([&] { return reader_->next(&batch_, deadline); }));
    if (!got) return nb::none();
    nb::dict columns;
    const auto add = [&](const char* name, const tensor::Tensor& value) {
      if (value.defined()) columns[name] = engine.wrap(value);
    };
    add("label", batch_.label);
    add("dense", batch_.dense);
    add("ids", batch_.ids);
    add("weights", batch_.weights);
    add("truth", batch_.truth);
    for (const auto& [name, value] : batch_.columns) add(name.c_str(), value);
    return nb::make_tuple(batch_.rows, columns);
  }
  /// (rows passed over, what was wrong with the first, part of the data read).
  nb::tuple stats() const {
    const data::ReadStats& stats = reader_->stats();
    return nb::make_tuple(stats.rows_skipped, stats.first_skipped, stats.progress);
  }

 private:
  std::unique_ptr<PrefetchingReader> reader_;
  data::Batch batch_;
};

}  // namespace

void bind_loops(nb::module_& m) {
  m.def("run_loop", &run_loop, "session"_a, "engine"_a, "options"_a, "constants"_a,
        "on_progress"_a.none(), "on_values"_a,
        "Runs a loop of a RemoteSession: (progress, series by fetch, last value by fetch or None, "
        "traces).");
  nb::class_<Batches>(m, "Batches", "Batches of a data set, read ahead.")
      .def_static("open", &Batches::open, "spec"_a, "options"_a)
      .def("next", &Batches::next, "engine"_a,
           "(rows, columns by name), or None after the last one.")
      .def("stats", &Batches::stats,
           "(rows passed over, what was wrong with the first, part of the data read).");
}

}  // namespace sidereal::python
