#include "sidereal/service/figures_message.h"

#include <algorithm>
#include <optional>

#include "sidereal/service/session.pb.h"

namespace sidereal::service {

namespace v1 = session::v1;
using metrics::HistogramSnapshot;
using metrics::Kind;
using metrics::Unit;

namespace {

/// nullopt for what no histogram has.
std::optional<HistogramSnapshot> histogram_of(const v1::Figure& figure) {
  HistogramSnapshot out;
  if (figure.buckets_size() != figure.counts_size() || figure.value() < 0) return std::nullopt;
  for (int i = 0; i < figure.buckets_size(); ++i) {
    const int64_t bucket = figure.buckets(i);
    const int64_t count = figure.counts(i);
    if (bucket < 0 || bucket >= static_cast<int64_t>(HistogramSnapshot::kBuckets) || count < 0) {
      return std::nullopt;
    }
    out.counts.resize(HistogramSnapshot::kBuckets);
    out.counts[static_cast<size_t>(bucket)] = count;
    // What is counted twice in one message, or more than there can be, is none either.
    if (__builtin_add_overflow(out.count, count, &out.count)) return std::nullopt;
  }
  out.sum = figure.value();
  out.max = figure.max();
  return out;
}

}  // namespace

void write_figures(const metrics::Readings& readings, v1::TaskStatus* status) {
  for (const auto& [series, reading] : readings.all()) {
    v1::Figure* const figure = status->add_figures();
    figure->set_name(reading.what.name);
    figure->set_label(reading.what.label.name);
    figure->set_label_value(reading.what.label.value);
    figure->set_kind(static_cast<int32_t>(reading.what.kind));
    figure->set_unit(static_cast<int32_t>(reading.what.unit));
    figure->set_value(reading.value);
    if (reading.what.kind != Kind::kHistogram) continue;
    const HistogramSnapshot& histogram = reading.histogram;
    figure->set_value(histogram.sum);
    figure->set_max(histogram.max);
    for (size_t i = 0; i < histogram.counts.size(); ++i) {
      if (histogram.counts[i] == 0) continue;
      figure->add_buckets(static_cast<int32_t>(i));
      figure->add_counts(histogram.counts[i]);
    }
  }
}

metrics::Readings figures_of(const v1::TaskStatus& status) {
  metrics::Readings out;
  for (const v1::Figure& figure : status.figures()) {
    if (figure.kind() < 0 || figure.kind() > static_cast<int>(Kind::kHistogram)) continue;
    if (figure.unit() < 0 || figure.unit() > static_cast<int>(Unit::kSeconds)) continue;
    const metrics::Declaration what{.name = figure.name(),
                                    .kind = static_cast<Kind>(figure.kind()),
                                    .unit = static_cast<Unit>(figure.unit()),
                                    .help = "",
                                    .label = {figure.label(), figure.label_value()}};
    if (out.all().contains(metrics::series_of(what))) continue;
    if (what.kind != Kind::kHistogram) {
      out.add(what, figure.value());
    } else if (const auto histogram = histogram_of(figure)) {
      out.add(what, *histogram);
    }
  }
  return out;
}

}  // namespace sidereal::service
