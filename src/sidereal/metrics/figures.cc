#include "sidereal/metrics/figures.h"

#include <fmt/format.h>

#include <utility>

#include "sidereal/metrics/counter.h"

namespace sidereal::metrics {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kCounter:
      return "counter";
    case Kind::kGauge:
      return "gauge";
    case Kind::kHistogram:
      return "histogram";
  }
  return "?";
}

const char* name_of(Unit unit) {
  switch (unit) {
    case Unit::kCount:
      return "count";
    case Unit::kBytes:
      return "bytes";
    case Unit::kSeconds:
      return "seconds";
    case Unit::kRatio:
      return "ratio";
  }
  return "?";
}

Declaration counter(std::string name, Unit unit, std::string help, std::vector<Label> labels) {
  return {std::move(name), Kind::kCounter, unit, std::move(help), std::move(labels)};
}
Declaration gauge(std::string name, Unit unit, std::string help, std::vector<Label> labels) {
  return {std::move(name), Kind::kGauge, unit, std::move(help), std::move(labels)};
}
Declaration histogram(std::string name, Unit unit, std::string help, std::vector<Label> labels) {
  return {std::move(name), Kind::kHistogram, unit, std::move(help), std::move(labels)};
}

std::string wrong_with(const Declaration& what) {
  const std::string& name = what.name;
  constexpr std::string_view kMay = "abcdefghijklmnopqrstuvwxyz0123456789_";
  if (!name.starts_with("sidereal_")) return "the name does not begin with sidereal_";
  if (name.find_first_not_of(kMay) != name.npos) return "the name has other letters than a-z0-9_";
  if (name.ends_with("_total") != (what.kind == Kind::kCounter)) {
    return "counters end in _total, and nothing else does";
  }
  const std::string_view stem = std::string_view(name).substr(
      0,
      what.kind == Kind::kCounter ? name.size() - std::string_view("_total").size() : name.size());
  if (stem.ends_with("_bytes") != (what.unit == Unit::kBytes)) return "bytes are named _bytes";
  if (stem.ends_with("_seconds") != (what.unit == Unit::kSeconds)) {
    return "seconds are named _seconds";
  }
  if (stem.ends_with("_ratio") != (what.unit == Unit::kRatio)) return "ratios are named _ratio";
  if (what.help.empty() || what.help.find('\n') != what.help.npos) return "help is one line";
  for (const Label& label : what.labels) {
    if (label.name.empty()) return "a label has no name";
    if (label.name == "task" || label.name == "le") return "the label is Prometheus' own";
  }
  return "";
}

double scaled(Unit unit, double value) {
  return unit == Unit::kSeconds || unit == Unit::kRatio ? value / 1e9 : value;
}
double Reading::scaled() const { return metrics::scaled(what.unit, static_cast<double>(value)); }

std::string series_of(const Declaration& what) {
  if (what.labels.empty()) return what.name;
  std::string out = what.name;
  for (const Label& label : what.labels) {
    out += fmt::format("{}{}=\"{}\"", &label == &what.labels.front() ? "{" : ",", label.name,
                       label.value);
  }
  return out + "}";
}

Reading& Readings::reading(const Declaration& what) {
  const auto [found, is_new] = all_.try_emplace(series_of(what));
  if (is_new) found->second.what = what;
  return found->second;
}

void Readings::add(const Declaration& what, int64_t value) { reading(what).value += value; }

void Readings::add(const Declaration& what, const HistogramSnapshot& histogram) {
  reading(what).histogram.merge(histogram);
}

int64_t Readings::value(std::string_view name) const {
  int64_t sum = 0;
  for (auto at = all_.lower_bound(name); at != all_.end() && at->first.starts_with(name); ++at) {
    if (at->second.what.name != name) continue;
    // What a peer says may be anything.
    if (__builtin_add_overflow(sum, at->second.value, &sum)) return INT64_MAX;
  }
  return sum;
}

int64_t Readings::series(std::string_view series) const {
  const auto found = all_.find(series);
  return found == all_.end() ? 0 : found->second.value;
}

void Figures::read(Readings* into) const {
  for (const Entry& entry : entries_) {
    if (entry.histogram != nullptr) {
      into->add(entry.what, entry.histogram->snapshot());
    } else {
      into->add(entry.what, entry.counter->value());
    }
  }
}

Counter::Counter(Figures* in, Declaration what) {
  in->entries_.push_back({.what = std::move(what), .counter = this});
}

Histogram::Histogram(Figures* in, Declaration what) {
  in->entries_.push_back({.what = std::move(what), .histogram = this});
}

}  // namespace sidereal::metrics
