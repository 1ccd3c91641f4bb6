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

std::vector<metrics::Label> labels_of(const v1::Figure& figure) {
  std::vector<metrics::Label> out;
  if (figure.label().empty()) return out;
  out.push_back({figure.label(), figure.label_value()});
  for (int i = 0; i + 1 < figure.more_labels_size(); i += 2) {
    out.push_back({figure.more_labels(i), figure.more_labels(i + 1)});
  }
  return out;
}

}  // namespace

void write_figures(const metrics::Readings& readings, v1::TaskStatus* status) {
  for (const auto& [series, reading] : readings.all()) {
    v1::Figure* const figure = status->add_figures();
    figure->set_name(reading.what.name);
    for (const metrics::Label& label : reading.what.labels) {
      const bool is_first = &label == &reading.what.labels.front();
      if (is_first) {
        figure->set_label(label.name);
        figure->set_label_value(label.value);
      } else {
        figure->add_more_labels(label.name);
        figure->add_more_labels(label.value);
      }
    }
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
    if (figure.unit() < 0 || figure.unit() > static_cast<int>(Unit::kRatio)) continue;
    const metrics::Declaration what{.name = figure.name(),
                                    .kind = static_cast<Kind>(figure.kind()),
                                    .unit = static_cast<Unit>(figure.unit()),
                                    .help = "",
                                    .labels = labels_of(figure)};
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
