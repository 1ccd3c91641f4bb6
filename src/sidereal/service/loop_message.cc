#include "sidereal/service/loop_message.h"

#include <algorithm>

#include "sidereal/base/strings.h"
#include "sidereal/task/task.h"

namespace sidereal::service {

namespace v1 = session::v1;

void to_proto(const task::LoopOptions& options, v1::LoopHead* head) {
  for (const task::LoopFetch& fetch : options.fetches) {
    v1::LoopFetch* const out = head->add_fetches();
    out->set_name(fetch.name);
    out->set_keep(static_cast<int32_t>(fetch.keep));
  }
  head->mutable_targets()->Assign(options.targets.begin(), options.targets.end());
  head->set_source(options.source);
  for (const auto& [feed, column] : options.columns) {
    v1::LoopColumn* const out = head->add_columns();
    out->set_feed(feed);
    out->set_column(column);
  }
  for (const auto& [feed, value] : options.constants) head->add_constants(feed);
  head->mutable_kept_columns()->Assign(options.kept_columns.begin(), options.kept_columns.end());
  head->set_batch_size(options.batch_size);
  head->set_drop_partial(options.drop_partial);
  head->set_first_epoch(options.first_epoch);
  head->set_epochs(options.epochs);
  head->set_part_index(options.part_index);
  head->set_part_count(options.part_count);
  head->set_part_each_lane(options.part_each_lane);
  head->set_steps(options.steps);
  head->set_ahead_max(options.ahead_max);
  head->set_steps_in_flight(options.steps_in_flight);
  head->set_lanes(options.lanes);
  head->set_first_step(options.first_step);
  head->set_trace_first(options.trace_first);
  head->set_trace_end(options.trace_end);
  head->set_trace_process(options.trace_process);
  head->set_auc_fetch(options.auc_fetch + 1);
  head->set_auc_labels(options.auc_labels);
  head->set_auc_window_rows(options.auc_window_rows);
  head->set_step_timeout_ms(options.step_timeout.count());
  head->set_data_timeout_ms(options.data_timeout.count());
  head->set_goes_on(options.goes_on);
  head->set_replica(options.replica);
  head->set_first_replica(options.first_replica);
  for (const task::LoopPass& pass : options.started) {
    v1::LoopPass* const out = head->add_started();
    out->set_lane(pass.lane);
    out->set_epoch(pass.epoch);
    out->set_part_index(pass.part_index);
    out->set_part_count(pass.part_count);
    out->set_rows_done(pass.rows_done);
  }
}

Result<task::LoopOptions> from_proto(const v1::LoopHead& head) {
  task::LoopOptions out;
  for (const v1::LoopFetch& fetch : head.fetches()) {
    if (fetch.keep() < 0 || fetch.keep() > static_cast<int32_t>(task::Keep::kFinite)) {
      return base::invalid_argument("fetch '{}' of a loop is kept as {}, which is nothing",
                                    fetch.name(), fetch.keep());
    }
    out.fetches.push_back({.name = fetch.name(), .keep = static_cast<task::Keep>(fetch.keep())});
  }
  out.targets.assign(head.targets().begin(), head.targets().end());
  out.source = head.source();
  for (const v1::LoopColumn& column : head.columns()) {
    out.columns.emplace_back(column.feed(), column.column());
  }
  for (const std::string& feed : head.constants())
    out.constants.emplace_back(feed, tensor::Tensor());
  out.kept_columns.assign(head.kept_columns().begin(), head.kept_columns().end());
  out.batch_size = head.batch_size();
  out.drop_partial = head.drop_partial();
  out.first_epoch = head.first_epoch();
  out.epochs = head.epochs();
  out.part_index = head.part_index();
  out.part_count = head.part_count();
  out.part_each_lane = head.part_each_lane();
  out.steps = head.steps();
  out.ahead_max = head.ahead_max();
  out.steps_in_flight = head.steps_in_flight();
  out.lanes = head.lanes();
  out.first_step = head.first_step();
  out.trace_first = head.trace_first();
  out.trace_end = head.trace_end();
  out.trace_process = head.trace_process();
  // Below -1 stays out of range.
  out.auc_fetch = std::max<int64_t>(head.auc_fetch(), -1) - 1;
  out.auc_labels = head.auc_labels();
  out.auc_window_rows = head.auc_window_rows();
  out.step_timeout = std::chrono::milliseconds(head.step_timeout_ms());
  if (head.data_timeout_ms() != 0) {
    out.data_timeout = std::chrono::milliseconds(head.data_timeout_ms());
  }
  out.goes_on = head.goes_on();
  out.replica = head.replica();
  out.first_replica = head.first_replica();
  for (const v1::LoopPass& pass : head.started()) {
    out.started.push_back({.lane = pass.lane(),
                           .epoch = pass.epoch(),
                           .part_index = pass.part_index(),
                           .part_count = pass.part_count(),
                           .rows_done = pass.rows_done()});
  }
  return out;
}

void to_proto(int lane, const task::LoopProgress& progress,
              const std::vector<std::vector<double>>& series, v1::LoopProgress* out) {
  out->set_lane(lane);
  out->set_steps(progress.steps);
  out->set_rows(progress.rows);
  out->set_rows_skipped(progress.rows_skipped);
  out->set_first_skipped(base::message_text(progress.first_skipped, size_t{1} << 16));
  out->set_fraction(progress.fraction);
  out->set_elapsed_ns(progress.elapsed_ns);
  out->set_computed_ns(progress.computed_ns);
  out->set_waited_ns(progress.waited_ns);
  out->set_waited_for_data_ns(progress.waited_for_data_ns);
  out->set_bytes_in(progress.bytes_in);
  out->set_bytes_out(progress.bytes_out);
  out->set_auc(progress.auc);
  out->set_pass(progress.positions.front().pass);
  out->set_pass_rows(progress.positions.front().rows);
  out->set_is_end(progress.positions.front().is_end);
  for (const task::LoopPassMean& pass : progress.passes) {
    v1::LoopPassMean* const ended = out->add_passes();
    ended->set_pass(pass.pass);
    ended->set_sum(pass.sum);
    ended->set_steps(pass.steps);
  }
  for (size_t i = 0; i < progress.scalars.size(); ++i) {
    v1::LoopScalar* const scalar = out->add_scalars();
    scalar->set_sum(progress.scalars[i].sum);
    scalar->set_last(progress.scalars[i].last);
    scalar->set_steps(progress.scalars[i].steps);
    scalar->set_latest_sum(progress.scalars[i].latest_sum);
    scalar->set_latest_steps(progress.scalars[i].latest_steps);
    scalar->mutable_series()->Assign(series[i].begin(), series[i].end());
  }
}

Status check_progress(const v1::LoopProgress& given, const task::LoopOptions& options) {
  if (given.lane() < 0 || given.lane() >= task::Task::kLanesMax) {
    return base::data_loss("progress of lane {} of a loop", given.lane());
  }
  // Passes are those that were begun, then epochs, and the end behind them.
  const auto is_pass = [&options](int64_t pass) {
    const auto begun = static_cast<int64_t>(options.started.size());
    return pass >= 0 && (pass <= begun || pass - begun <= options.epochs);
  };
  const auto is_mean = [&](const v1::LoopPassMean& mean) {
    return is_pass(mean.pass()) && mean.steps() > 0;
  };
  if (!is_pass(given.pass()) || !std::ranges::all_of(given.passes(), is_mean)) {
    return base::data_loss("progress of a pass that a loop does not have");
  }
  return {};
}

void from_proto(const v1::LoopProgress& given, task::LoopProgress* out) {
  out->steps = given.steps();
  out->rows = given.rows();
  out->rows_skipped = given.rows_skipped();
  out->first_skipped = given.first_skipped();
  out->fraction = given.fraction();
  out->elapsed_ns = given.elapsed_ns();
  out->computed_ns = given.computed_ns();
  out->waited_ns = given.waited_ns();
  out->waited_for_data_ns = given.waited_for_data_ns();
  out->bytes_in = given.bytes_in();
  out->bytes_out = given.bytes_out();
  out->auc = given.auc();
  out->positions = {{.steps = given.steps(),
                     .pass = given.pass(),
                     .rows = given.pass_rows(),
                     .is_end = given.is_end()}};
  for (const v1::LoopPassMean& pass : given.passes()) {
    out->passes.push_back(
        {.lane = given.lane(), .pass = pass.pass(), .sum = pass.sum(), .steps = pass.steps()});
  }
  const size_t scalars = std::min<size_t>(out->scalars.size(), given.scalars_size());
  for (size_t i = 0; i < scalars; ++i) {
    const v1::LoopScalar& scalar = given.scalars(static_cast<int>(i));
    out->scalars[i] = {.sum = scalar.sum(),
                       .last = scalar.last(),
                       .steps = scalar.steps(),
                       .latest_sum = scalar.latest_sum(),
                       .latest_steps = scalar.latest_steps()};
  }
}

task::LoopProgress total_of(const std::vector<task::LoopProgress>& lanes, size_t fetches) {
  task::LoopProgress out;
  out.scalars.resize(fetches);
  int with_auc = 0;
  for (const task::LoopProgress& lane : lanes) {
    out.steps += lane.steps;
    out.rows += lane.rows;
    out.rows_skipped += lane.rows_skipped;
    if (out.first_skipped.empty()) out.first_skipped = lane.first_skipped;
    out.positions.push_back(lane.positions.empty() ? task::LoopPosition() : lane.positions.front());
    out.passes.insert(out.passes.end(), lane.passes.begin(), lane.passes.end());
    out.fraction += lane.fraction / static_cast<double>(lanes.size());
    out.elapsed_ns = std::max(out.elapsed_ns, lane.elapsed_ns);
    out.computed_ns += lane.computed_ns;
    out.waited_ns += lane.waited_ns;
    out.waited_for_data_ns += lane.waited_for_data_ns;
    out.bytes_in += lane.bytes_in;
    out.bytes_out += lane.bytes_out;
    if (lane.auc > 0) {
      out.auc += lane.auc;
      ++with_auc;
    }
    for (size_t i = 0; i < fetches; ++i) {
      out.scalars[i].sum += lane.scalars[i].sum;
      out.scalars[i].steps += lane.scalars[i].steps;
      out.scalars[i].latest_sum += lane.scalars[i].latest_sum;
      out.scalars[i].latest_steps += lane.scalars[i].latest_steps;
      if (lane.scalars[i].steps > 0) out.scalars[i].last = lane.scalars[i].last;
    }
  }
  if (with_auc > 0) out.auc /= with_auc;
  return out;
}

}  // namespace sidereal::service
