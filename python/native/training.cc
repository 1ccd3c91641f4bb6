#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "reading.h"

#include "sidereal/app/cluster.h"
#include "sidereal/cluster/protocol.h"
#include "sidereal/config/consistency.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/data/features_file.h"
#include "sidereal/data/statistics.h"
#include "sidereal/data/table_formats.h"
#include "sidereal/data/toml.h"
#include "sidereal/data/vocabulary.h"
#include "sidereal/eager/engine.h"
#include "sidereal/exec/trace.h"
#include "sidereal/security/credentials.h"
#include "sidereal/train/trainer.h"

namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using FloatArray = nb::ndarray<nb::numpy, float>;

/// An array over memory of `owner`, which it keeps.
template <class Owner>
FloatArray to_numpy(Owner owner, float* (*data)(Owner&), const std::vector<size_t>& shape) {
  auto held = std::make_unique<Owner>(std::move(owner));
  float* const elements = data(*held);
  const nb::capsule capsule(held.release(), [](void* p) noexcept {
    std::unique_ptr<Owner>(static_cast<Owner*>(p)).reset();
  });
  return FloatArray(elements, shape.size(), shape.data(), capsule);
}

FloatArray to_numpy(std::vector<float> values) {
  const size_t count = values.size();
  return to_numpy<std::vector<float>>(std::move(values),
                                      [](std::vector<float>& v) { return v.data(); }, {count});
}

FloatArray to_numpy(const tensor::Tensor& value) {
  const auto dims = value.shape().dims();
  return to_numpy<tensor::Tensor>(value, [](tensor::Tensor& t) { return t.data<float>().data(); },
                                  {dims.begin(), dims.end()});
}

/// Runs `work` without the GIL. Its callbacks take the GIL back; a Python exception in one of them,
/// KeyboardInterrupt among them, ends the work and is raised here.
template <class Work>
auto run_interruptibly(train::FitOptions options, const nb::object& on_progress,
                       const nb::object& on_message, Work work) {
  std::optional<nb::python_error> raised;
  if (!on_message.is_none()) {
    options.on_message = [&raised, &on_message](base::LogLevel level, const std::string& text) {
      const GilAcquired gil;
      if (raised.has_value()) return;
      const bool is_warning = level != base::LogLevel::kInfo;
      PyObject* const result =
          PyObject_CallObject(on_message.ptr(), nb::make_tuple(text, is_warning).ptr());
      if (result == nullptr) raised.emplace();
      Py_XDECREF(result);
    };
  }
  options.cancelled = [&raised] {
    const GilAcquired gil;
    if (!raised.has_value() && PyErr_CheckSignals() != 0) raised.emplace();
    return raised.has_value();
  };
  if (!on_progress.is_none()) {
    options.on_progress = [&raised, &on_progress](const train::Progress& progress) {
      const GilAcquired gil;
      if (raised.has_value()) return;
      PyObject* const result = PyObject_CallOneArg(on_progress.ptr(), nb::cast(progress).ptr());
      if (result == nullptr) raised.emplace();
      Py_XDECREF(result);
    };
  }
  auto result = reading_without_gil([&] { return work(options); });
  if (raised.has_value()) throw nb::python_error(std::move(*raised));
  return value_of(std::move(result));
}

void bind_data(nb::module_& m) {
  nb::class_<data::Schema>(
      m, "Schema",
      "What the rows of a data set look like: dense_width numbers, fields ids below rows.")
      .def(
          "__init__",
          [](data::Schema* self, int64_t dense_width, int64_t fields, int64_t rows, bool weighted,
             bool has_sample_weight, std::vector<std::pair<std::string, int64_t>> sequences,
             std::vector<std::string> targets, bool has_group) {
            new (self) data::Schema();
            self->dense_width = dense_width;
            self->fields = fields;
            self->rows = rows;
            self->weighted = weighted;
            self->has_sample_weight = has_sample_weight;
            self->sequences = std::move(sequences);
            self->targets = std::move(targets);
            self->has_group = has_group;
          },
          "dense_width"_a = 0, "fields"_a = 0, "rows"_a = 0, "weighted"_a = false,
          "has_sample_weight"_a = false,
          "sequences"_a = std::vector<std::pair<std::string, int64_t>>(),
          "targets"_a = std::vector<std::string>(), "has_group"_a = false)
      .def_ro("dense_width", &data::Schema::dense_width)
      .def_ro("fields", &data::Schema::fields)
      .def_ro("rows", &data::Schema::rows)
      .def_ro("weighted", &data::Schema::weighted)
      .def_ro("has_label", &data::Schema::has_label)
      .def_ro("has_sample_weight", &data::Schema::has_sample_weight)
      .def_ro("sequences", &data::Schema::sequences)
      .def_ro("targets", &data::Schema::targets)
      .def_ro("has_group", &data::Schema::has_group)
      .def_ro("numeric", &data::Schema::numeric)
      .def_ro("categorical", &data::Schema::categorical);
  m.def(
      "inspect",
      [](const std::string& spec) {
        const data::DataSpec given = value_of(data::spec_from_json(spec));
        return value_of(reading_without_gil([&] { return data::inspect(given); }));
      },
      "spec"_a);
  m.def(
      "with_label",
      [](const std::string& spec, const std::string& label) {
        data::DataSpec given = value_of(data::spec_from_json(spec));
        check(data::parse_label_option(label, &given));
        return data::to_json(given);
      },
      "spec"_a, "label"_a);
  m.def(
      "with_features",
      [](const std::string& spec, const std::string& path) {
        data::DataSpec given = value_of(data::spec_from_json(spec));
        check(data::take_features(path, &given));
        return data::to_json(given);
      },
      "spec"_a, "path"_a);
  m.def(
      "vocabulary_option",
      [](const std::string& text) {
        const data::Vocabulary made = value_of(data::parse_vocabulary_option(text));
        return nb::make_tuple(made.column, made.max_tokens, made.num_oov_indices, made.tokens);
      },
      "text"_a);
  m.def(
      "with_statistics",
      [](const std::string& spec) {
        const data::DataSpec given = value_of(data::spec_from_json(spec));
        return data::to_json(
            value_of(reading_without_gil([&] { return data::with_statistics(given); })));
      },
      "spec"_a);
  m.def(
      "parse_toml",
      [](const std::string& text) {
        using Json = nlohmann::ordered_json;
        return value_of(data::parse_toml(text))
            .dump(-1, ' ', false, Json::error_handler_t::replace);
      },
      "text"_a);
  m.def(
      "expand_globs",
      [](const std::vector<std::string>& patterns) {
        return value_of(reading_without_gil([&] { return data::expand_globs(patterns); }));
      },
      "patterns"_a);
}

void bind_tables(nb::module_& m) {
  m.def("table_formats", [] {
    std::vector<std::tuple<std::string, std::string, std::string, std::string>> found;
    for (const data::TableFormat& one : data::table_formats()) {
      found.emplace_back(one.name, one.endings, one.what, one.needs);
    }
    return found;
  });
  m.def(
      "table_file",
      [](const std::string& name) {
        const data::TableFile file = data::table_file(name);
        return std::make_tuple(std::string(file.format->name), file.path, file.is_fed);
      },
      "name"_a);
  m.def("take_environment", &data::take_environment);
  m.def("absolute_name", &data::absolute_name, "file"_a);
  m.def(
      "table_files",
      [](const std::vector<std::string>& patterns, const std::string& format, char delimiter) {
        auto files =
            value_of(reading_without_gil([&] { return data::table_files(patterns, format); }));
        const char between = data::delimiter_of(files, delimiter);
        return std::make_tuple(std::move(files), between);
      },
      "patterns"_a, "format"_a, "delimiter"_a);
}

void bind_clusters(nb::module_& m) {
  nb::class_<app::Cluster>(m, "Cluster", "The tasks of a running cluster.")
      .def_prop_ro("ps", [](const app::Cluster& c) { return value_of(c.spec().addresses("ps")); })
      .def_prop_ro("worker",
                   [](const app::Cluster& c) { return value_of(c.spec().addresses("worker")); })
      .def_prop_ro("secret", [](const app::Cluster& c) { return c.security().secret; })
      .def("check_alive", [](app::Cluster& c) { check(c.check_alive()); })
      .def("stop", [](app::Cluster& c) { check(without_gil([&] { return c.stop(); })); });
  m.def(
      "start_local_cluster",
      [](int ps, int workers, int ps_lanes, int worker_lanes, const std::string& protocol,
         int64_t spin_us, bool in_process, const std::string& program, double start_deadline_s,
         bool restarts, int restarts_max, double silence_s, int replicas, int min_insync_replicas,
         const std::string& event_dir) {
        const app::LocalClusterOptions options{
            .ps = ps,
            .workers = workers,
            .ps_lanes = ps_lanes,
            .worker_lanes = worker_lanes,
            .spin_us = spin_us,
            .protocol = value_of(cluster::parse_protocol(protocol)),
            .in_process = in_process,
            .program = program,
            .restarts = restarts,
            .replicas = replicas,
            .min_insync_replicas = min_insync_replicas,
            .restarts_max = restarts_max,
            .silence_s = silence_s,
            .event_dir = event_dir,
            .start_deadline_s = start_deadline_s};
        return value_of(without_gil([&] { return app::start_local_cluster(options); }));
      },
      "ps"_a, "workers"_a, "ps_lanes"_a, "worker_lanes"_a, "protocol"_a, "spin_us"_a,
      "in_process"_a, "program"_a, "start_deadline_s"_a, "restarts"_a, "restarts_max"_a,
      "silence_s"_a, "replicas"_a, "min_insync_replicas"_a, "event_dir"_a);
  m.def(
      "remote_cluster",
      [](const std::string& spec, const security::SecurityOptions& security) {
        return value_of(
            app::remote_cluster(value_of(cluster::ClusterSpec::from_json(spec)), security));
      },
      "spec"_a, "security"_a);
}

void bind_results(nb::module_& m) {
  nb::class_<train::TaskStats>(
      m, "TaskStats", "What one task did so far. Worker: steps and samples; ps: calls served.")
      .def_ro("task", &train::TaskStats::task)
      .def_ro("steps", &train::TaskStats::steps)
      .def_ro("rows", &train::TaskStats::rows)
      .def_ro("bytes_in", &train::TaskStats::bytes_in)
      .def_ro("bytes_out", &train::TaskStats::bytes_out)
      .def_ro("compute_s", &train::TaskStats::compute_s)
      .def_ro("wait_s", &train::TaskStats::wait_s)
      .def_ro("data_wait_s", &train::TaskStats::data_wait_s);
  nb::class_<train::Progress>(
      m, "Progress", "How a fit is going; loss, auc and samples_per_s are of the latest steps.")
      .def_ro("epoch", &train::Progress::epoch)
      .def_ro("steps", &train::Progress::steps)
      .def_ro("rows", &train::Progress::rows)
      .def_ro("seconds", &train::Progress::seconds)
      .def_ro("samples_per_s", &train::Progress::samples_per_s)
      .def_ro("loss", &train::Progress::loss)
      .def_ro("auc", &train::Progress::auc)
      .def_ro("fraction", &train::Progress::fraction)
      .def_ro("seconds_left", &train::Progress::seconds_left)
      .def_ro("training_losses", &train::Progress::training_losses)
      .def_ro("validation", &train::Progress::validation);
  nb::class_<train::EvalResult>(
      m, "EvalResult",
      "Result of an evaluation; figures that there are none of are NaN. best_auc is known for "
      "synthetic data only.")
      .def_ro("rows", &train::EvalResult::rows)
      .def_ro("rows_skipped", &train::EvalResult::rows_skipped)
      .def_ro("loss", &train::EvalResult::loss)
      .def_ro("auc", &train::EvalResult::auc)
      .def_ro("log_loss", &train::EvalResult::log_loss)
      .def_ro("seconds", &train::EvalResult::seconds)
      .def_prop_ro("pr_auc", [](const train::EvalResult& r) { return r.quality.pr_auc; })
      .def_prop_ro("rmse", [](const train::EvalResult& r) { return r.quality.rmse; })
      .def_prop_ro("calibration", [](const train::EvalResult& r) { return r.quality.calibration; })
      .def_prop_ro("grouped_auc", [](const train::EvalResult& r) { return r.quality.grouped_auc; })
      .def_prop_ro("ndcg", [](const train::EvalResult& r) { return r.quality.ndcg; })
      .def_ro("training_loss", &train::EvalResult::training_loss)
      .def_ro("best_auc", &train::EvalResult::best_auc)
      .def("__repr__", [](const train::EvalResult& r) {
        if (r.auc == 0) return fmt::format("EvalResult(loss={:.4f}, rows={})", r.loss, r.rows);
        return fmt::format("EvalResult(auc={:.4f}, log_loss={:.4f}, rows={})", r.auc, r.log_loss,
                           r.rows);
      });
  nb::class_<train::CheckpointReport>(
      m, "CheckpointReport", "What became of the checkpoints of a fit; save_s: training waited.")
      .def_ro("resumed_from", &train::CheckpointReport::resumed_from)
      .def_ro("steps_before", &train::CheckpointReport::steps_before)
      .def_ro("rows_before", &train::CheckpointReport::rows_before)
      .def_ro("rows_lost", &train::CheckpointReport::rows_lost)
      .def_ro("recoveries", &train::CheckpointReport::recoveries)
      .def_ro("taken_from_standbys", &train::CheckpointReport::taken_from_standbys)
      .def_ro("rows_again", &train::CheckpointReport::rows_again)
      .def_ro("saved", &train::CheckpointReport::saved)
      .def_ro("failed", &train::CheckpointReport::failed)
      .def_ro("latest", &train::CheckpointReport::latest)
      .def_ro("first_failure", &train::CheckpointReport::first_failure)
      .def_ro("save_s", &train::CheckpointReport::save_s);
  nb::class_<train::FitResult>(
      m, "FitResult",
      "Result of a fit: loss is the mean of the last steps, validation has one result per epoch.")
      .def_ro("steps", &train::FitResult::steps)
      .def_ro("updates", &train::FitResult::updates)
      .def_ro("rows", &train::FitResult::rows)
      .def_ro("rows_skipped", &train::FitResult::rows_skipped)
      .def_ro("first_skipped", &train::FitResult::first_skipped)
      .def_ro("seconds", &train::FitResult::seconds)
      .def_ro("samples_per_s", &train::FitResult::samples_per_s)
      .def_ro("loss", &train::FitResult::loss)
      .def_ro("epochs", &train::FitResult::epochs)
      .def_prop_ro(
          "losses", [](const train::FitResult& r) { return to_numpy(r.losses); },
          nb::rv_policy::move)
      .def_ro("training_losses", &train::FitResult::training_losses)
      .def_ro("validation", &train::FitResult::validation)
      .def_ro("best_epoch", &train::FitResult::best_epoch)
      .def_ro("workers_lost", &train::FitResult::workers_lost)
      .def_ro("rows_twice_max", &train::FitResult::rows_twice_max)
      .def_ro("moves", &train::FitResult::moves)
      .def_ro("restored_best", &train::FitResult::restored_best)
      .def_ro("checkpoints", &train::FitResult::checkpoints)
      .def_ro("tasks", &train::FitResult::tasks)
      .def_prop_ro(
          "trace_file", [](const train::FitResult& r) { return exec::chrome_file(r.traces); },
          "What was traced, as the text of a file for Chrome's trace viewer.")
      .def("__repr__", [](const train::FitResult& r) {
        return fmt::format(
            "FitResult(epochs={}, steps={}, rows={}, loss={:.4f}, "
            "samples_per_s={:.0f})",
            r.epochs, r.steps, r.rows, r.loss, r.samples_per_s);
      });
}

train::FitOptions batches_of(int64_t batch_size) {
  train::FitOptions options;
  options.batch_size = batch_size;
  return options;
}

void bind_consistency(nb::module_& m) {
  m.def("consistency_forms", [] {
    std::vector<std::pair<std::string, std::string>> out;
    for (const config::ConsistencyForm& one : config::consistency_forms()) {
      out.emplace_back(one.form, one.doc);
    }
    return out;
  });
  nb::class_<config::Consistency>(m, "Consistency", "See ClusterCoordinator and Model.fit().")
      .def_prop_ro("text", &config::Consistency::to_string, "As it is written.")
      .def_ro("bound", &config::Consistency::bound, "Of bounded(s): s.")
      .def_ro("window", &config::Consistency::window, "Of geo(k): k, else 0.")
      .def_prop_ro("is_in_step", &config::Consistency::is_in_step);
  m.def(
      "parse_consistency",
      [](const std::string& text) { return value_of(config::parse_consistency(text)); }, "text"_a);
}

void bind_trainer(nb::module_& m) {
  nb::class_<train::FitOptions>(m, "FitOptions", "How to train; see Model.fit().")
      .def(nb::init<>())
      .def_rw("batch_size", &train::FitOptions::batch_size)
      .def_rw("epochs", &train::FitOptions::epochs)
      .def_rw("steps_in_flight", &train::FitOptions::steps_in_flight)
      .def_rw("consistency", &train::FitOptions::consistency)
      .def_rw("autoscale", &train::FitOptions::autoscale)
      .def_rw("compute_dtype", &train::FitOptions::compute_dtype)
      .def_rw("record_losses", &train::FitOptions::record_losses)
      .def_rw("learning_rate_decay", &train::FitOptions::learning_rate_decay)
      .def_rw("patience", &train::FitOptions::patience)
      .def_rw("restore_best", &train::FitOptions::restore_best)
      .def_rw("best_directory", &train::FitOptions::best_directory)
      .def_rw("metrics_by", &train::FitOptions::metrics_by)
      .def_rw("steps_max", &train::FitOptions::steps_max)
      .def_rw("restores", &train::FitOptions::restores)
      .def_rw("continues", &train::FitOptions::continues)
      .def_rw("losses_max", &train::FitOptions::losses_max)
      .def_rw("restart_timeout_s", &train::FitOptions::restart_timeout_s)
      .def_prop_rw(
          "checkpoint_dir", [](const train::FitOptions& o) { return o.checkpoints.directory; },
          [](train::FitOptions& o, const std::string& value) { o.checkpoints.directory = value; })
      .def_prop_rw(
          "save_every", [](const train::FitOptions& o) { return o.checkpoints.save_every; },
          [](train::FitOptions& o, const std::string& value) { o.checkpoints.save_every = value; })
      .def_prop_rw(
          "keep", [](const train::FitOptions& o) { return o.checkpoints.keep; },
          [](train::FitOptions& o, int64_t value) { o.checkpoints.keep = value; })
      .def_prop_rw(
          "full_every", [](const train::FitOptions& o) { return o.checkpoints.full_every; },
          [](train::FitOptions& o, int64_t value) { o.checkpoints.full_every = value; })
      .def_prop_rw(
          "resume", [](const train::FitOptions& o) { return o.checkpoints.resume; },
          [](train::FitOptions& o, const std::string& value) { o.checkpoints.resume = value; })
      .def_rw("trace_first", &train::FitOptions::trace_first)
      .def_rw("trace_end", &train::FitOptions::trace_end);
  nb::class_<train::Trainer>(m, "Trainer", "Drives the training of one model on a cluster.")
      .def(
          "fit",
          [](train::Trainer& self, const std::string& spec, const train::FitOptions& options,
             const std::optional<std::string>& validation, const nb::object& on_progress,
             const nb::object& on_message) {
            const data::DataSpec data = value_of(data::spec_from_json(spec));
            std::optional<data::DataSpec> valid;
            if (validation.has_value()) valid = value_of(data::spec_from_json(*validation));
            return run_interruptibly(
                options, on_progress, on_message, [&](const train::FitOptions& o) {
                  return self.fit(data, o, valid.has_value() ? &*valid : nullptr);
                });
          },
          "data"_a, "options"_a, "validation"_a.none(), "on_progress"_a.none(),
          "on_message"_a.none())
      .def(
          "evaluate",
          [](train::Trainer& self, const std::string& spec, int64_t batch_size,
             const std::string& metrics_by) {
            const data::DataSpec data = value_of(data::spec_from_json(spec));
            train::FitOptions options = batches_of(batch_size);
            options.metrics_by = metrics_by;
            return run_interruptibly(
                options, nb::none(), nb::none(),
                [&](const train::FitOptions& o) { return self.evaluate(data, o); });
          },
          "data"_a, "batch_size"_a, "metrics_by"_a)
      .def(
          "predict",
          [](train::Trainer& self, const std::string& spec, int64_t batch_size) {
            const data::DataSpec data = value_of(data::spec_from_json(spec));
            return to_numpy(run_interruptibly(
                batches_of(batch_size), nb::none(), nb::none(),
                [&](const train::FitOptions& o) { return self.predict(data, o); }));
          },
          "data"_a, "batch_size"_a)
      .def(
          "read_variable",
          [](train::Trainer& self, const std::string& name) {
            return eager::Value{value_of(without_gil([&] { return self.read_variable(name); }))};
          },
          "name"_a)
      .def("task_stats", [](train::Trainer& self) {
        return value_of(without_gil([&] { return self.task_stats(); }));
      });
  m.def(
      "create_trainer",
      [](app::Cluster* cluster, const train::CompiledModel& model, const std::string& name,
         bool take_over, const std::string& user, int64_t parts_per_lane, int64_t start_ps) {
        const service::JobOptions job = {.name = name, .take_over = take_over, .user = user};
        const train::PlacementOptions placement = {.parts_per_lane = parts_per_lane,
                                                   .start_ps = start_ps};
        return value_of(
            without_gil([&] { return train::Trainer::create(cluster, model, job, placement); }));
      },
      "cluster"_a, "model"_a, nb::kw_only(), "name"_a = "", "take_over"_a = false, "user"_a = "",
      "parts_per_lane"_a = train::PlacementOptions().parts_per_lane, "start_ps"_a = 0,
      nb::keep_alive<0, 1>());
}

}  // namespace

void bind_training(nb::module_& m) {
  bind_data(m);
  bind_tables(m);
  bind_clusters(m);
  bind_results(m);
  bind_consistency(m);
  bind_trainer(m);
}

}  // namespace sidereal::python
